"""Benchmarks: one command for one question. Figures are printed, never asserted."""
