"""`python -m warren`: the `warren` command."""

from __future__ import annotations

from warren.cli.main import main

if __name__ == "__main__":
    main()
