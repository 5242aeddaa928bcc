"""What the scripts `harebell` and `harebellctl` call: Ctrl-C while Python loads a command is no traceback.

Loads nothing itself: what is loaded before `main` runs is loaded inside of the `try`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

__all__ = ["INTERRUPTED", "harebell", "harebellctl"]

INTERRUPTED: Final = 130  # 128 + SIGINT, as in shells


def harebell() -> None:
    """The script `harebell`."""
    _run("harebell", "harebell.cli.main")


def harebellctl() -> None:
    """The script `harebellctl`."""
    _run("harebellctl", "harebell.cli.ctl.main")


def _run(name: str, module: str) -> None:
    try:
        import_module(module).main()
    except KeyboardInterrupt:
        if sys.stderr is not None:  # of a process that began without one
            print(f"{name}: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
