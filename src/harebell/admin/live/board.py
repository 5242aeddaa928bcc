"""A board: the rows of all objects of one kind as they are now, and what the last look changed.

One look serves all streams. It is a work in steps; rows that did not change cost a comparison, and are not encoded.
A row belongs to a group, the virtual host or the user that decides who sees it. A stream that has seen the look before
the last one needs the last one's changes; any other one needs all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from harebell.admin.answers import encode
from harebell.routing.steps import Steps

__all__ = ["Board", "Entry", "Kind"]

STEP: Final = 64  # rows in one step of a look
PIECE: Final = 256  # rows in one piece of a stream


class Entry(NamedTuple):
    """An object as a look finds it.

    key     the object
    group   who sees it: a virtual host's name, or a user's
    facts   what seldom changes
    gauges  figures that are shown as they are
    counts  figures that only grow, whose rates are shown
    """

    key: object
    group: str
    facts: tuple[Any, ...]
    gauges: tuple[Any, ...]
    counts: tuple[int, ...] = ()


class Kind(NamedTuple):
    """A kind of board: its topic, the columns of its rows, and where the objects are found.

    `rates` are the columns of the counts; `shown` makes facts fit for JSON, once they have changed. A look gives None
    for what it passed over, so that it can be cut into steps; `forget` is called when nobody listens any more.
    """

    topic: str
    facts: tuple[str, ...]
    gauges: tuple[str, ...]
    rates: tuple[str, ...]
    look: Callable[[], Iterator[Entry | None]]
    shown: Callable[[tuple[Any, ...]], Iterable[Any]] = list
    forget: Callable[[], None] = lambda: None


class _Row:
    __slots__ = ("counts", "facts", "figures", "gauges", "group", "id", "rates", "seen", "text")

    def __init__(self, id: int, entry: Entry) -> None:
        self.id, self.group = id, entry.group
        self.gauges, self.counts = entry.gauges, entry.counts
        self.facts: tuple[Any, ...] | None = None
        self.text = self.figures = b""
        self.rates = (0.0,) * len(entry.counts)
        self.seen = 0


class _Changes:
    """What a look changed in one group: encoded rows, and the ids of rows that are gone."""

    __slots__ = ("facts", "figures", "gone")

    def __init__(self) -> None:
        self.facts = list[bytes]()
        self.figures = list[bytes]()
        self.gone = list[int]()


class Board:
    """The board of one kind. `number` is that of its last look; 0: none yet, or all is forgotten.

    Each look has the number behind that of the last one, but not the first look after `forget`.
    """

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.number = self._last = 0
        self._rows: dict[object, _Row] = {}
        self._ids = 0
        self._changes: Mapping[str, _Changes] = {}
        self._joined: dict[Collection[str] | None, list[bytes]] = {}

    @property
    def about(self) -> dict[str, Any]:
        """The columns: a row of facts, and one of figures, is its id and then these."""
        kind = self.kind
        return {"topic": kind.topic, "facts": kind.facts, "figures": (*kind.gauges, *kind.rates)}

    def forget(self) -> None:
        """Forget all rows: nobody listens, or those who do shall begin anew."""
        self._rows, self._changes, self._joined, self.number = {}, {}, {}, 0
        self._last += 1
        self.kind.forget()

    def looking(self, seconds: float) -> Steps[None]:
        """Look at all objects; `seconds` have passed since the last look."""
        rows, first, number = self._rows, not self.number, self._last + 1
        changes: dict[str, _Changes] = {}
        for count, entry in enumerate(self.kind.look()):
            if not count % STEP:
                yield
            if entry is None:
                continue
            row = rows.get(entry.key)
            if row is None:
                self._ids += 1
                row = rows[entry.key] = _Row(self._ids, entry)
                if not first:
                    row.counts = (0,) * len(entry.counts)
            row.seen = number
            self._note(row, entry, seconds, changes)
        gone = [key for key, row in rows.items() if row.seen != number]
        for count, key in enumerate(gone):
            row = rows.pop(key)
            _of(changes, row.group).gone.append(row.id)
            if not count % STEP:
                yield
        if self._rows is rows:  # else all was forgotten meanwhile, and the next look is the first one
            self._changes, self._joined, self.number, self._last = changes, {}, number, number

    def _note(self, row: _Row, entry: Entry, seconds: float, changes: dict[str, _Changes]) -> None:
        if entry.facts != row.facts:
            row.facts = entry.facts
            row.text = encode([row.id, *self.kind.shown(entry.facts)])
            _of(changes, row.group).facts.append(row.text)
        rates = row.rates
        if entry.counts != row.counts:
            rates = tuple(
                round((now - before) / seconds, 1) for now, before in zip(entry.counts, row.counts, strict=True)
            )
            row.counts = entry.counts
        elif any(rates):
            rates = (0.0,) * len(rates)
        if not row.figures or entry.gauges != row.gauges or rates != row.rates:
            row.gauges, row.rates = entry.gauges, rates
            row.figures = encode([row.id, *entry.gauges, *rates])
            _of(changes, row.group).figures.append(row.figures)

    def whole(self, groups: Collection[str] | None) -> Iterator[bytes]:
        """All rows of these groups (None: of all), in pieces. The rows are those of the last look."""
        found = [(row.text, row.figures) for row in self._rows.values() if groups is None or row.group in groups]
        for start in range(0, len(found), PIECE):
            part = found[start : start + PIECE]
            yield self._piece([text for text, _ in part], [figures for _, figures in part], [])

    def changes(self, groups: Collection[str] | None) -> list[bytes]:
        """What the last look changed in these groups (None: in all), in pieces."""
        key = groups if groups is None else frozenset(groups)
        pieces = self._joined.get(key)
        if pieces is None:
            chosen = [each for group, each in self._changes.items() if groups is None or group in groups]
            pieces = self._joined[key] = list(self._cut(chosen))
        return pieces

    def _cut(self, chosen: list[_Changes]) -> Iterator[bytes]:
        facts = [text for each in chosen for text in each.facts]
        figures = [text for each in chosen for text in each.figures]
        gone = [number for each in chosen for number in each.gone]
        for start in range(0, max(len(facts), len(figures), 1 if gone else 0), PIECE):
            end = start + PIECE
            yield self._piece(facts[start:end], figures[start:end], [] if start else gone)

    def _piece(self, facts: list[bytes], figures: list[bytes], gone: list[int]) -> bytes:
        topic = encode(self.kind.topic)
        return b'{"topic":%b,"facts":[%b],"figures":[%b],"gone":%b}' % (
            topic, b",".join(facts), b",".join(figures), encode(gone),
        )  # fmt: skip


def _of(changes: dict[str, _Changes], group: str) -> _Changes:
    found = changes.get(group)
    if found is None:
        found = changes[group] = _Changes()
    return found
