"""Checks of a queue argument's value: each gives the problem of a value, as the error text shows it, or None.

The texts are RabbitMQ's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from harebell.routing.table_values import type_name

__all__ = ["Check", "boolean", "from_", "header_name", "integer", "one_of", "string"]

Check: TypeAlias = "Callable[[object], str | None]"


def integer(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return f'"expected integer, got {type_name(value)}"'
    return None


def from_(least: int, most: int | None = None, beyond: str = "value_too_large") -> Check:
    """An integer from `least`, which is 0 or 1, to `most`."""

    def check(value: object) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int):
            return integer(value)
        if value < 0:
            return f"{{value_negative,{value}}}"
        if value < least:
            return f"{{value_zero,{value}}}"
        if most is not None and value > most:
            return f"{{{beyond},{value}}}"
        return None

    return check


def one_of(choices: tuple[str, ...], otherwise: str) -> Check:
    """One of the strings; `otherwise` may show the value as {}."""

    def check(value: object) -> str | None:
        if not isinstance(value, str):
            return f"{{unacceptable_type,{type_name(value)}}}"
        return None if value in choices else otherwise.format(value)

    return check


def string(value: object) -> str | None:
    return None if isinstance(value, str) else f"{{unacceptable_type,{type_name(value)}}}"


def header_name(value: object) -> str | None:
    return string(value) or (None if 0 < len(str(value).encode()) < 256 else "invalid_header_name")


def boolean(value: object) -> str | None:
    return None if isinstance(value, bool) else f"{{unacceptable_type,{type_name(value)}}}"
