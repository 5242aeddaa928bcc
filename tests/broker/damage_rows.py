"""The rows of docs/reference/damage.md, and what a start may make of each.

A row covers the cases of test_damage whose path and kind match its patterns; a row without a case names the test that
it has instead. Where several rows cover a case (a flipped bit hits a record, or an unused part), each may apply.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

__all__ = ["ROWS", "Row", "rows_of"]

BIT, CUT, EMPTY = "bit flipped at *", "cut to ?*", "cut to 0%"
OLDER, OTHER, LINK, LOST, GARBAGE = "older copy", "swapped", "a link", "a lost link", "garbage appended"
SEGMENTS, SETTLEMENTS = ("*.log",), ("*.settled",)
RECORDS = ("sessions", "transactions")
FOLDERS, TOP = ("queues/*", "streams/*", "delays/*"), ("queues", "streams", "delays")


@dataclass(frozen=True)
class Row:
    """`to` and `kind` are the row's first cells. `outcomes`: what `judge` may return; `whole`: no message is lost.

    test  the function of test_damage that tries the row, where the cases do not
    """

    to: str
    kind: str
    outcomes: frozenset[str]
    whole: bool
    paths: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    test: str = ""

    def covers(self, path: str, kind: str) -> bool:
        """Whether the row is about this damage to this file or folder, below the data folder."""
        name = path.rpartition("/")[2]
        if self.paths == FOLDERS and "." in name:
            return False  # a file inside the folder
        return _matches(path, self.paths) and _matches(kind, self.kinds)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, each) for each in patterns)


def row(
    to: str, kind: str, outcomes: str, paths: tuple[str, ...] = (), kinds: tuple[str, ...] = (), *, whole: bool = True,
    test: str = "",
) -> Row:  # fmt: skip
    return Row(to, kind, frozenset(outcomes.split()), whole, paths, kinds, test)


ROWS: Final = (
    row("`catalog.sqlite`", "a bit in a record or in SQLite's structure, cut, empty, deleted, an older copy, a lost "
        "link, a folder", "refused", ("catalog.sqlite",), (BIT, CUT, EMPTY, "deleted", OLDER, LOST, "a folder")),
    row("`catalog.sqlite`", "that of another broker", "refused", test="test_the_files_of_another_broker"),
    row("`catalog.sqlite`", "a bit in an unused part, bytes appended, a page whose newer version is in the journal",
        "nothing", ("catalog.sqlite",), (BIT, CUT, GARBAGE)),
    row("`catalog.sqlite`", "a link to the original", "said refused", ("catalog.sqlite",), (LINK,)),
    row("`catalog.sqlite-wal`", "a bit, cut, empty, deleted, an older copy, a link, a lost link, a folder", "refused",
        ("catalog.sqlite-wal",), (BIT, CUT, EMPTY, "deleted", OLDER, LINK, LOST, "a folder")),
    row("`catalog.sqlite-wal`", "bytes appended", "nothing", ("catalog.sqlite-wal",), (GARBAGE,)),
    row("`catalog.sqlite-shm`", "a bit, cut, empty, deleted, an older copy, bytes appended, a folder", "nothing",
        ("catalog.sqlite-shm",), (BIT, CUT, EMPTY, "deleted", OLDER, GARBAGE, "a folder")),
    row("`catalog.sqlite-shm`", "a link, a lost link", "refused", ("catalog.sqlite-shm",), (LINK, LOST)),
    row("`catalog.seal`", "deleted, empty, a folder, a lost link", "refused",
        ("catalog.seal",), ("deleted", EMPTY, "a folder", LOST)),
    row("`catalog.seal`", "that of another broker", "refused", test="test_the_files_of_another_broker"),
    row("`catalog.seal`", "a bit in one of its two halves, cut behind the first, bytes appended, an older copy",
        "nothing said", ("catalog.seal",), (BIT, "cut to [1-9]*", GARBAGE, OLDER)),
    row("`catalog.good`", "any, but that of another broker or a newer one", "nothing said", ("catalog.good",), ("*",)),
    row("`catalog.good`", "that of another broker, or newer than the catalog", "refused",
        test="test_the_files_of_another_broker"),
    row("all of them", "deleted, while there are folders of messages", "refused",
        test="test_all_files_of_the_catalog_are_gone"),
    row("a segment", "a bit, bytes inside it", "said", SEGMENTS, (BIT,), whole=False),
    row("a segment", "a bit in one of the two copies of its header", "nothing", SEGMENTS, (BIT,)),
    row("a segment", "empty, deleted, a lost link", "said", SEGMENTS, (EMPTY, "deleted", LOST), whole=False),
    row("a segment", "cut, an older copy", "said nothing", SEGMENTS, ("cut to [1-9]*", OLDER), whole=False),
    row("a segment", "bytes appended", "said", SEGMENTS, (GARBAGE,)),
    row("a segment", "that of another queue", "said", SEGMENTS, (OTHER,), whole=False),
    row("settlements", "a bit, bytes appended", "said nothing", SETTLEMENTS, (BIT, GARBAGE)),
    row("settlements", "deleted, empty, a lost link", "said", SETTLEMENTS, ("deleted", EMPTY, LOST)),
    row("settlements", "cut, an older copy", "said nothing", SETTLEMENTS, ("cut to [1-9]*", OLDER)),
    row("a queue's folder", "deleted, a lost link (of a stream: refused)", "said refused", FOLDERS, ("deleted", LOST),
        whole=False),
    row("a queue's folder", "an older copy, that of another queue", "said nothing", FOLDERS, (OLDER, OTHER),
        whole=False),
    row("any other file or folder", "a link that leads to the original", "said",
        (*SEGMENTS, *SETTLEMENTS, *FOLDERS, *TOP, "catalog.seal", "segments"), (LINK,)),
    row("a file, a folder", "a folder in its place, a file in its place", "refused",
        (*SEGMENTS, *SETTLEMENTS, *FOLDERS, *TOP), ("a folder", "a file")),
    row("`queues`, `streams`, `delays`", "deleted, an older copy", "said nothing", TOP, ("deleted", OLDER),
        whole=False),
    row("`queues`, `streams`, `delays`", "a lost link", "refused", TOP, (LOST,)),
    row("`segments`", "any", "nothing said", ("segments",), ("*",)),
    row("`running`", "any", "nothing said", ("running",), ("*",)),
    row("`lock`", "deleted", "nothing", test="test_a_lock_that_is_gone"),
    row("`sessions`, `transactions`", "a bit", "said", RECORDS, (BIT,), whole=False),
    row("`sessions`, `transactions`", "cut, empty, deleted, an older copy, a lost link", "said nothing",
        RECORDS, (CUT, EMPTY, "deleted", OLDER, LOST), whole=False),
    row("`sessions`, `transactions`", "bytes appended", "said", RECORDS, (GARBAGE,)),
    row("`sessions`, `transactions`", "a link to the original", "nothing", RECORDS, (LINK,)),
    row("`sessions`, `transactions`", "a folder", "refused", RECORDS, ("a folder",)),
)  # fmt: skip


def rows_of(path: str, kind: str) -> list[Row]:
    """The rows about this damage to this file or folder."""
    return [each for each in ROWS if each.covers(path, kind)]
