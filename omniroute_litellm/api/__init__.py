"""The REST API: parse, call, render."""
