"""What may go wrong with a request to the HTTP API; each has the exit status that rabbitmqctl has for it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar

from harebell.errors import HarebellError

__all__ = ["Denied", "Missing", "NoAnswer", "RequestFailed", "missing"]


class RequestFailed(HarebellError):
    """The broker refuses the request; the text says why."""

    exit_status: ClassVar[int] = 1


class NoAnswer(RequestFailed):
    """No HTTP API answers at the address."""

    exit_status = 69  # EX_UNAVAILABLE


class Denied(RequestFailed):
    """The login fails, or the user has no right to do this."""

    exit_status = 77  # EX_NOPERM


class Missing(RequestFailed):
    """What the request names does not exist."""

    exit_status = 65  # EX_DATAERR


def missing(what: str, name: str, known: Iterable[str], listing: str = "") -> Missing:
    """Missing for an object, `what` it is with its name. Names the nearest one that is known, else the listing command.

    listing  a `harebell` command; "": no command lists them
    """
    near = get_close_matches(name, known := list(known), 1)
    if near:
        return Missing(f"no {what}: did you mean '{near[0]}'?")
    return Missing(f"no {what}: `{listing}` has them all" if listing and known else f"no {what}")
