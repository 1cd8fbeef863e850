"""Exported models that answer: in Python and over HTTP."""
