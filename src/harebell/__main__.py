"""`python -m harebell`: the `harebell` command."""

from __future__ import annotations

from harebell.cli.entry import harebell

if __name__ == "__main__":
    harebell()
