"""Numbered SQL files, applied in order, each in one transaction; never edited after a release."""
