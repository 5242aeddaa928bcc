"""Definitions of which anything is anything: an import works and exports the same, or changes nothing and says why."""

from __future__ import annotations

import contextlib
import copy
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from harebell.broker.operations.definitions import export_definitions, import_definitions
from harebell.errors import InvalidArgument, NotImplemented as NotImplemented540
from harebell.routing.definitions import emit_definitions, parse_definitions
from tests.broker.kit import NodeKit
from tests.broker.operations.test_definitions import RICH
from tests.fixtures.profiles import scaled

Place = tuple[str | int, ...]


def nested(depth: int, kind: str) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value] if kind == "list" else {"a": value}
    return value


SHALLOW: tuple[object, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    5,
    1 << 31,
    (1 << 63) - 1,
    1 << 63,
    -(1 << 63) - 1,
    1 << 5000,
    0.5,
    1e300,
    float("nan"),
    float("inf"),
    "",
    "x",
    "/",
    "v",
    "q",
    "guest",
    "amq.x",
    "amq.direct",
    "quorum",
    "stream",
    "classic",
    "topic",
    "system",
    "a\nb",
    "\0",
    "ä" * 128,
    "x" * 255,
    "x" * 256,
    "x" * 5000,
    "\ud800",
    "\udcff",
    "a\udfffb",
    [],
    {},
    [[]],
    [{}],
    [None],
    ["a"],
    [["a", 1]],
    [["a", 1], ["a", 2]],
    [["a", [["b", []]]]],
    {"": 1},
    {"x" * 300: 1},
    {"\ud800": 1},
    {"a": None},
    {"name": "n"},
    {"name": []},
    {"max-length": 1 << 70},
    {"x-max-length": -1},
    {"x-queue-type": []},
    {"x-max-priority": 1000},
    {"x-dead-letter-exchange": 5},
    {"x-match": 5},
    {"alternate-exchange": []},
)
DEEP = ((60, "list"), (64, "dict"), (65, "list"), (65, "dict"), (900, "list"), (900, "dict"), (50_000, "list"))
JUNK: tuple[object, ...] = (*SHALLOW, *(nested(depth, kind) for depth, kind in DEEP))
# New objects each time: a second change may be in the middle of the first one.
junk = st.one_of(st.sampled_from(SHALLOW).map(copy.deepcopy), st.sampled_from(DEEP).map(lambda deep: nested(*deep)))


def places(value: object, path: Place = ()) -> Iterator[Place]:
    """Every place in a document, from the whole to the leaves."""
    yield path
    if isinstance(value, dict):
        for name, item in value.items():
            yield from places(item, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from places(item, (*path, number))


PLACES = tuple(places(RICH))
NEW_KEYS = (
    "extra",
    "arguments",
    "vhost",
    "definition",
    "apply-to",
    "priority",
    "\ud800",
    "x" * 300,
    "password",
    "scram_sha_256",
    "limits",
)


@st.composite
def documents(draw: st.DrawFn) -> object:
    """The rich file with one to three places replaced, removed, doubled or added."""
    document: Any = copy.deepcopy(RICH)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(PLACES[1:]))
        around, last = reached(document, path[:-1]), path[-1]
        if isinstance(around, list) and isinstance(last, int) and last < len(around):
            match draw(st.sampled_from(("replace", "replace", "remove", "double"))):
                case "replace":
                    around[last] = draw(junk)
                case "remove":
                    around.pop(last)
                case "double":
                    with contextlib.suppress(RecursionError):  # it is one of the deep ones
                        around.append(copy.deepcopy(around[last]))
        elif isinstance(around, dict):
            match draw(st.sampled_from(("replace", "replace", "remove", "add"))):
                case "replace":
                    around[last] = draw(junk)
                case "remove":
                    around.pop(last, None)
                case "add":
                    around[draw(st.sampled_from(NEW_KEYS))] = draw(junk)
    return document


def reached(document: object, path: Place) -> Any:
    for step in path:
        if isinstance(document, dict):
            document = document.get(step)
        elif isinstance(document, list) and isinstance(step, int) and step < len(document):
            document = document[step]
        else:
            return None
    return document


def exported(kit: NodeKit) -> dict[str, Any]:
    text = json.dumps(emit_definitions(export_definitions(kit.node)), allow_nan=False)
    text.encode()  # a file could be written
    written: dict[str, Any] = json.loads(text)
    return written


def load(kit: NodeKit, document: object) -> str | None:
    """Import it, as an object or as a file's text; the text of the refusal."""
    try:
        import_definitions(kit.node, parse_definitions(document))  # type: ignore[arg-type]
        kit.node.save()
    except (InvalidArgument, NotImplemented540) as error:
        return str(error)
    return None


def as_text(document: object) -> str | None:
    try:
        return json.dumps(document)
    except (RecursionError, ValueError):
        return None  # Python cannot write it


def check(document: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kit, other = (NodeKit(Path(folder) / name, sync=False) for name in ("one", "other"))
        try:
            before = exported(kit)
            refusal = load(kit, document)
            if refusal is not None:
                assert exported(kit) == before
                assert "\n" not in refusal
                assert len(refusal) < 1000
                return
            after = exported(kit)
            assert load(other, after) is None
            assert exported(other) == after
        finally:
            kit.stop()
            other.stop()


@pytest.mark.repeats
@settings(max_examples=scaled(50))
@given(documents())
def test_a_mutated_file_is_taken_or_refused(document: object) -> None:
    check(document)
    text = as_text(document)
    if text is not None:
        check(text)


@pytest.mark.repeats
@pytest.mark.parametrize("section", sorted(RICH))
def test_every_place_with_every_junk_is_read_or_refused(section: str) -> None:
    for path in PLACES:
        if path[:1] != (section,):
            continue
        for junk in JUNK:
            document: Any = copy.deepcopy(RICH)
            reached(document, path[:-1])[path[-1]] = junk
            refusal = None
            try:
                parse_definitions(document)
            except InvalidArgument as error:
                refusal = str(error)
            assert refusal is None or ("\n" not in refusal and len(refusal) < 1000)


@pytest.mark.parametrize("junk", JUNK, ids=range(len(JUNK)))
def test_a_whole_file_of_junk(kit: NodeKit, junk: object) -> None:
    before = exported(kit)
    assert load(kit, junk) is not None or isinstance(junk, dict)  # an object may have sections or none
    assert exported(kit) == before
