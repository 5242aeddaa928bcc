"""`python -m harebell`: the `harebell` command."""

from __future__ import annotations

from harebell.cli.main import main

if __name__ == "__main__":
    main()
