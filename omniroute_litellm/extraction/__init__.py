"""Find stable facts in what was said: patterns as data, one module a language."""
