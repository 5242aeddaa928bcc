"""The match of a headers binding: do these message headers satisfy these binding arguments?

Rules (RabbitMQ 4's; x-match texts probed):

- `x-match` is "all" (the default), "any", "all-with-x" or "any-with-x". It is never itself compared.
- Without "-with-x", arguments whose names begin with "x-" are left out of the comparison.
- An argument without a value (void) asks for the header's presence alone; any other asks for an equal value, by the
  typed equality of `warren.routing.values`.
- "all" with nothing to compare matches every message, "any" with nothing to compare matches none.

The arguments are compiled when the binding is made, so that a message costs one lookup per argument.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from warren.errors import PreconditionFailed
from warren.routing.values import Table, canonical, erlang_term, type_name

__all__ = ["HeadersMatch"]

_WANTS_ALL: Final = {"all": True, "any": False, "all-with-x": True, "any-with-x": False}


class HeadersMatch:
    """One binding's arguments, compiled. Raises PreconditionFailed for a bad `x-match`."""

    __slots__ = ("_all", "_present", "_values")

    def __init__(self, arguments: Table) -> None:
        mode = arguments.get("x-match", "all")
        if not isinstance(mode, str):
            raise PreconditionFailed(
                f"Invalid x-match field type {type_name(mode)} (value {erlang_term(mode)}); expected longstr"
            )
        if mode not in _WANTS_ALL:
            raise PreconditionFailed(
                f"Invalid x-match field value {erlang_term(mode)}; expected all, any, all-with-x, or any-with-x"
            )
        with_x = mode.endswith("-with-x")
        compared = {
            name: value
            for name, value in arguments.items()
            if name != "x-match" and (with_x or not name.startswith("x-"))
        }
        self._all = _WANTS_ALL[mode]
        self._present: tuple[str, ...] = tuple(name for name, value in compared.items() if value is None)
        self._values: tuple[tuple[str, Hashable], ...] = tuple(
            (name, canonical(value)) for name, value in compared.items() if value is not None
        )

    def matches(self, headers: Table) -> bool:
        """True when the headers satisfy the arguments."""
        decisive = not self._all  # a miss decides "all", a hit decides "any"
        for name in self._present:
            if (name in headers) is decisive:
                return decisive
        for name, wanted in self._values:
            if (name in headers and canonical(headers[name]) == wanted) is decisive:
                return decisive
        return self._all
