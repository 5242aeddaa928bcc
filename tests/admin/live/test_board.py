"""A board: what is new, what has changed and what is gone, by group; rates; and that both ways give the same rows."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

from hypothesis import given, strategies as st

from harebell.admin.live import board as module
from harebell.admin.live.board import Board, Entry, Kind
from harebell.routing.steps import complete

GROUPS = ("a", "b")


class World:
    """Objects by key: group, fact, gauge, count."""

    def __init__(self) -> None:
        self.objects: dict[int, tuple[str, str, int, int]] = {}
        self.board = Board(Kind("things", ("fact",), ("gauge",), ("count",), self._look, lambda facts: facts))

    def _look(self) -> Iterator[Entry]:
        for key, (group, fact, gauge, count) in self.objects.items():
            yield Entry(key, group, (fact,), (gauge,), (count,))

    def look(self, seconds: float = 2.0) -> None:
        complete(self.board.looking(seconds))


class Reader:
    """What a stream knows of some groups."""

    def __init__(self, groups: Collection[str] | None) -> None:
        self.groups = groups
        self.facts: dict[int, list[object]] = {}
        self.figures: dict[int, list[object]] = {}

    def read_all(self, board: Board) -> None:
        self.facts, self.figures = {}, {}
        self._apply(board.whole(self.groups))

    def read_changes(self, board: Board) -> None:
        self._apply(iter(board.changes(self.groups)))

    def _apply(self, pieces: Iterator[bytes]) -> None:
        for piece in pieces:
            told = json.loads(piece)
            assert told["topic"] == "things"
            self.facts |= {row[0]: row[1:] for row in told["facts"]}
            self.figures |= {row[0]: row[1:] for row in told["figures"]}
            for number in told["gone"]:
                del self.facts[number], self.figures[number]


def test_rates_are_changes_in_a_second() -> None:
    world, reader = World(), Reader(None)
    world.objects[1] = "a", "x", 5, 1000
    world.look()
    reader.read_all(world.board)
    assert list(reader.figures.values()) == [[5, 0.0]], "what was counted before anybody looked is no rate"
    world.objects[1] = "a", "x", 5, 1010
    world.objects[2] = "a", "y", 0, 4
    world.look(2.0)
    reader.read_changes(world.board)
    assert sorted(reader.figures.values(), key=repr) == [[0, 2.0], [5, 5.0]], "a new object began at 0"
    world.look(2.0)
    reader.read_changes(world.board)
    assert sorted(reader.figures.values(), key=repr) == [[0, 0.0], [5, 0.0]], "rates of 0 are told"
    world.look(2.0)
    assert world.board.changes(None) == [], "and then nothing is"


def test_a_board_that_is_forgotten_begins_anew() -> None:
    world, reader = World(), Reader(None)
    world.objects[1] = "a", "x", 5, 1000
    world.look()
    world.board.forget()
    assert world.board.number == 0
    assert list(world.board.whole(None)) == []
    world.objects[1] = "a", "x", 5, 2000
    world.look()
    reader.read_all(world.board)
    assert list(reader.figures.values()) == [[5, 0.0]]


STEP = st.lists(
    st.tuples(
        st.integers(0, 7), st.none() | st.tuples(st.sampled_from("xy"), st.integers(0, 2), st.integers(0, 3))
    ),
    max_size=8,
)  # fmt: skip


@given(st.lists(STEP, max_size=6), st.sampled_from([1, 3, 256]))
def test_who_follows_the_changes_has_the_same_rows_as_who_comes_new(
    steps: list[list[tuple[int, tuple[str, int, int] | None]]], piece: int
) -> None:
    before, module.PIECE = module.PIECE, piece  # type: ignore[misc]
    try:
        world = World()
        followers = [Reader(None), *(Reader(frozenset({group})) for group in GROUPS), Reader(frozenset())]
        world.look()
        for reader in followers:
            reader.read_all(world.board)
        for changes in steps:
            for key, what in changes:
                if what is None:
                    world.objects.pop(key, None)
                else:
                    world.objects[key] = GROUPS[key % 2], *what
            world.look()
            for reader in followers:
                reader.read_changes(world.board)
                fresh = Reader(reader.groups)
                fresh.read_all(world.board)
                assert (reader.facts, reader.figures) == (fresh.facts, fresh.figures)
                wanted = sorted(
                    [fact, gauge]
                    for group, fact, gauge, _ in world.objects.values()
                    if reader.groups is None or group in reader.groups
                )
                assert sorted([*reader.facts[key], reader.figures[key][0]] for key in reader.facts) == wanted
    finally:
        module.PIECE = before  # type: ignore[misc]


def test_a_look_during_which_all_is_forgotten_was_none() -> None:
    """The next look is a first one again: its rates are not those of all counts since the start."""
    world = World()
    world.objects = dict.fromkeys(range(3 * module.STEP), ("a", "fact", 0, 1000))
    world.look()
    look = world.board.looking(2.0)
    next(look)
    world.board.forget()
    complete(look)
    assert world.board.number == 0
    assert not list(world.board.whole(None))
    world.look()
    reader = Reader(None)
    reader.read_all(world.board)
    assert set(map(tuple, (figures[-2:] for figures in reader.figures.values()))) == {(0, 0.0)}
    assert len(reader.figures) == len(world.objects)


def test_objects_go_in_steps() -> None:
    world = World()
    world.objects = dict.fromkeys(range(10 * module.STEP), ("a", "fact", 0, 0))
    world.look()
    world.objects = {}
    assert sum(1 for _ in world.board.looking(2.0)) == 10
    assert len(json.loads(world.board.changes(None)[0])["gone"]) == 10 * module.STEP
