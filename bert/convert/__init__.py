"""Formats of other libraries: read by one function, and written."""
