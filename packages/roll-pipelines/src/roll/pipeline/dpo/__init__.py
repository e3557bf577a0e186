"""Part of the seed guide's import paths."""
