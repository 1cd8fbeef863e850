"""Scores in numpy, and the tables, charts and page that show them."""
