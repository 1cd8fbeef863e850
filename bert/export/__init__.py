"""Trained models as graphs that take text."""
