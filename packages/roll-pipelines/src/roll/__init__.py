"""The import paths of the seed guide: one re-export a file, no logic."""
