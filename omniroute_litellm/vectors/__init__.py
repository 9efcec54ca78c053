"""Derived indexes of memory vectors."""
