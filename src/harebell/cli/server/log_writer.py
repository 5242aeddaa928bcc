"""Writes the log in a thread, so that a reader who stops reading it stops nobody else.

A pipe takes 64 KiB, and a terminal may be held (Ctrl-S). A broker whose log is written on its loop would wait there
with all its clients for whoever reads it: a service manager, a container's log driver, `less`. Here the lines wait, so
many at most; what comes then is counted, and the log says how much it was when somebody reads on.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from typing import Final

__all__ = ["MOST_WAITING", "LogWriter"]

MOST_WAITING: Final = 10_000  # lines
FAREWELL: Final = 2.0  # seconds in which a stalled reader may go on, before the process ends without it


class LogWriter(logging.Handler):
    """Writes records to a descriptor. Not to a stream, whose lock would be held while nobody reads."""

    def __init__(self, descriptor: int, encoding: str) -> None:
        super().__init__()
        self._descriptor, self._encoding = descriptor, encoding
        self._waiting: list[str] = []
        self._lost = 0
        self._writes = False  # the thread has taken lines, and not written them yet
        self._changed = threading.Condition()
        threading.Thread(target=self._write_lines, name="harebell-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + "\n"
        except Exception:  # a mistake in the program is no reason to end what it was doing
            self.handleError(record)
            return
        with self._changed:
            if len(self._waiting) < MOST_WAITING:
                self._waiting.append(line)
            else:
                self._lost += 1
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all is written, two seconds at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and not self._writes, FAREWELL)

    def _write_lines(self) -> None:
        while True:
            with self._changed:
                self._writes = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting)
                self._writes = True
                lines, lost, self._waiting, self._lost = self._waiting, self._lost, [], 0
            if lost:
                lines.append(self.format(_said_of(lost)) + "\n")
            self._write("".join(lines).encode(self._encoding, "backslashreplace"))

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # its other end has made the file one that does not wait
                select.select([], [self._descriptor], [])
            except OSError:
                return  # nobody will read it any more


def _said_of(lost: int) -> logging.LogRecord:
    text = "%d lines of the log are missing before this one: standard error was not read"
    return logging.LogRecord("harebell.serve", logging.WARNING, __file__, 0, text, (lost,), None)
