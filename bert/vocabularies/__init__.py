"""Vocabularies other than WordPiece's, and the table of all kinds."""
