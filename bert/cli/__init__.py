"""Flags, and the objects that programs make from them."""
