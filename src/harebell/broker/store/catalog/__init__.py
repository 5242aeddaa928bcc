"""The catalog: one SQLite file, its seal, and the check of both before a start."""
