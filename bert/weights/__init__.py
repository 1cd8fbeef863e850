"""Checkpoints in the formats of BERT, read and written."""
