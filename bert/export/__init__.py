"""Trained models as graphs of ids; SavedModels of some take text."""
