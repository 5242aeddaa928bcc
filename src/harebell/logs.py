"""Log records of Harebell are one line of printable characters each, whatever a peer has sent.

Names, keys, mechanisms and error texts come from other machines. A line feed in one of them would begin a line that
looks like a record of its own, an escape would steer the terminal that shows the log. So every argument of a record
is written printably and cut, and then the whole line. A traceback is left to the handler (`harebell serve` indents it).

Importing this module does it, for the loggers in `LOGGERS`: these are all that Harebell has.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Final

from harebell.printable import printable

__all__ = ["LOGGERS", "MOST_LINE", "Lines"]

MOST_PART: Final = 500  # characters of one argument: a name and an error text about it
MOST_LINE: Final = 2000

LOGGERS: Final = (
    "harebell.admin",
    "harebell.admin.login",
    "harebell.bridge",
    "harebell.broker",
    "harebell.broker.connection",
    "harebell.broker.dead_letters",
    "harebell.broker.definitions",
    "harebell.broker.journal",
    "harebell.broker.login",
    "harebell.broker.plugins",
    "harebell.broker.queue",
    "harebell.broker.recovery",
    "harebell.broker.services",
    "harebell.broker.session",
    "harebell.broker.transactions",
    "harebell.broker.store",
    "harebell.broker.vhost",
    "harebell.channels",
    "harebell.client",
    "harebell.django",
    "harebell.serve",
    "harebell.spark",
    "harebell.testing",
)


class _OneLine(logging.Filter):
    """Passes every record, with its text as one line."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(each if isinstance(each, (int, float)) else _Part(each) for each in record.args)
        try:
            text = record.getMessage()
        except (TypeError, ValueError):  # a mistake in the program: the handler reports it
            return True
        record.msg, record.args = printable(text, MOST_LINE), None
        return True


class _Part:
    """An argument of a record, for %s and %r."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return printable(str(self._value), MOST_PART)

    def __repr__(self) -> str:
        return printable(repr(self._value), MOST_PART)


class Lines(logging.Formatter):
    """Formats records of all loggers as one line each; the lines of a traceback are indented, and printable.

    A time is the machine's, with its distance from UTC, so that lines of several machines can be compared.
    """

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created).astimezone().isoformat(sep=" ", timespec="milliseconds")

    def format(self, record: logging.LogRecord) -> str:
        first, *more = super().format(record).split("\n")
        return "\n".join([printable(first, MOST_LINE + 200), *(f"    {printable(each, MOST_LINE)}" for each in more)])


_ONE_LINE: Final = _OneLine()
for _name in LOGGERS:
    logging.getLogger(_name).addFilter(_ONE_LINE)
