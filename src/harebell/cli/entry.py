"""What the scripts `harebell` and `harebellctl` call: Ctrl-C while Python loads a command is no traceback.

SIGTERM and SIGHUP end a command as Ctrl-C does, with its cleaning up, unless it has handlers of its own. Their handlers
are the first thing that is set: without one, SIGHUP would end it at once, and process 1 would not notice SIGTERM.

Loads nothing itself: what is loaded before `main` runs is loaded inside of the `try`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final, NoReturn

__all__ = ["INTERRUPTED", "harebell", "harebellctl", "interruption"]

INTERRUPTED: Final = 130  # 128 + SIGINT, as in shells

_told: Final[list[int]] = []
"""The signals that came, but for SIGINT."""


def harebell() -> None:
    """The script `harebell`."""
    _run("harebell", "harebell.cli.main")


def harebellctl() -> None:
    """The script `harebellctl`."""
    _run("harebellctl", "harebell.cli.ctl.main")


def interruption() -> tuple[str, int]:
    """What a KeyboardInterrupt came from, in words, and the status of the command that it ends."""
    if not _told:
        return "interrupted", INTERRUPTED
    import signal

    return f"ended by {signal.Signals(_told[0]).name}", 128 + _told[0]


def _run(name: str, module: str) -> None:
    try:
        _end_by_signals()
        import_module(module).main()
    except KeyboardInterrupt:
        text, status = interruption()
        if sys.stderr is not None:  # of a process that began without one
            print(f"{name}: {text}", file=sys.stderr)
        sys.exit(status)


def _end_by_signals() -> None:
    import signal

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # `nohup` has a command ignore SIGHUP
            signal.signal(number, _end)


def _end(number: int, frame: object) -> NoReturn:
    _told.append(number)
    raise KeyboardInterrupt
