"""Generators, import contracts and set-up scripts: they build and check the repository, and are not shipped."""
