"""The match of message headers with the arguments of headers bindings: one binding, or an index of many.

Rules (RabbitMQ 4's; x-match texts probed):

- `x-match` is "all" (the default), "any", "all-with-x" or "any-with-x". It is never itself compared.
- Without "-with-x", arguments whose names begin with "x-" are left out of the comparison.
- An argument without a value (void) asks for the header's presence alone; any other asks for an equal value, by the
  typed equality of `harebell.routing.table_values`.
- "all" with nothing to compare matches every message, "any" with nothing to compare matches none.

A HeadersMatch compiles the arguments when the binding is made. A HeadersIndex holds many of them and finds candidates
by the message's headers, so that a match costs as much as the message has headers, whatever the number of bindings.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from harebell.errors import PreconditionFailed
from harebell.routing.table_values import Table, canonical, erlang_term, type_name

__all__ = ["HeadersIndex", "HeadersMatch"]

T = TypeVar("T")

Clue = tuple[str, Hashable]
"""A header's name, and the stand-in of its value; None stands for any value."""

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

    @property
    def clues(self) -> tuple[Clue, ...] | None:
        """What a message that matches has: all of it (`needs_all`), or else at least one.

        None when a message without any may match.
        """
        clues = (*self._values, *((name, None) for name in self._present))
        return clues or (None if self._all else ())

    @property
    def needs_all(self) -> bool:
        return self._all

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


class HeadersIndex(Generic[T]):
    """The arguments of many bindings, each with a value; `match` finds the values by a message's headers.

    Of a binding that needs all its clues, the index has the one that the fewest others have: many bindings that agree
    in one argument and differ in another are found by the latter. `tried` is the number of bindings that the last match
    looked at.
    """

    __slots__ = ("_added", "_always", "_by_clue", "_clues", "_entries", "_wanted", "tried")

    def __init__(self) -> None:
        self._entries: dict[Hashable, tuple[int, HeadersMatch, T]] = {}
        self._by_clue: dict[Clue, dict[Hashable, None]] = {}
        self._always: dict[Hashable, None] = {}
        self._clues: dict[Hashable, tuple[Clue, ...]] = {}  # those in `_by_clue` of each entry
        self._wanted: dict[str, int] = {}  # name of a header -> number of entries with one of its values as a clue
        self.tried = 0
        self._added = 0  # counts every `add`: an entry's number decides its place in the result of `match`

    def add(self, key: Hashable, arguments: Table, value: T) -> None:
        """Add the arguments of a binding under `key`. Raises PreconditionFailed for a bad `x-match`."""
        match = HeadersMatch(arguments)
        self._entries[key] = (self._added, match, value)
        self._added += 1
        clues = match.clues
        if clues is None:
            self._always[key] = None
            clues = ()
        elif match.needs_all:
            clues = (min(clues, key=self._rivals),)
        self._clues[key] = clues
        for clue in clues:
            self._by_clue.setdefault(clue, {})[key] = None
            if clue[1] is not None:
                self._wanted[clue[0]] = self._wanted.get(clue[0], 0) + 1

    def remove(self, key: Hashable) -> None:
        del self._entries[key]
        self._always.pop(key, None)
        for clue in self._clues.pop(key):
            del self._by_clue[clue][key]
            if not self._by_clue[clue]:
                del self._by_clue[clue]
            if clue[1] is not None:
                self._wanted[clue[0]] -= 1
                if not self._wanted[clue[0]]:
                    del self._wanted[clue[0]]

    def match(self, headers: Table) -> tuple[T, ...]:
        """The values of the bindings whose arguments the headers satisfy, in the order of adding."""
        candidates = dict(self._always)
        for name, value in headers.items():
            candidates.update(self._by_clue.get((name, None), {}))
            if name in self._wanted:
                candidates.update(self._by_clue.get((name, canonical(value)), {}))
        entries, self.tried = self._entries, len(candidates)
        found = [entry for key in candidates if (entry := entries[key])[1].matches(headers)]
        found.sort(key=lambda entry: entry[0])
        return tuple(value for _, _, value in found)

    def _rivals(self, clue: Clue) -> int:
        return len(self._by_clue.get(clue, ()))
