"""What an import of definitions would do, without doing it.

The file is checked as an import checks it. Then its objects are compared with those of the broker, both as an export
writes them: only what the file says of an object is compared.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal, NamedTuple, cast

from harebell.broker.node import Node
from harebell.broker.operations.definitions import checking, exporting
from harebell.routing.definitions import Definitions, emitting_definitions
from harebell.routing.steps import Steps

__all__ = ["Planned", "planning"]

Fate = Literal["new", "changed", "kept", "same"]

IDENTITY: Final[dict[str, tuple[str, ...]]] = {
    "vhosts": ("name",),
    "users": ("name",),
    "permissions": ("vhost", "user"),
    "topic_permissions": ("vhost", "user", "exchange"),
    "parameters": ("vhost", "component", "name"),
    "global_parameters": ("name",),
    "policies": ("vhost", "name"),
    "exchanges": ("vhost", "name"),
    "queues": ("vhost", "name"),
    "bindings": ("vhost", "source", "destination_type", "destination", "routing_key", "arguments"),
}
"""The sections of a file, and what makes an entry the same object."""
KEPT: Final = ("exchanges", "queues")
"""What stays as it is where the file differs."""
SECRET: Final = ("users",)
"""Of these only the names of fields that differ are told."""

Entry = dict[str, Any]


class Planned(NamedTuple):
    """What becomes of one entry of the file.

    fate      new: it is made; changed: it is set as the file has it; kept: it differs and stays as it is; same
    differs   for each field that differs, its values now and in the file; None for those that are secret
    """

    section: str
    identity: Entry
    fate: Fate
    differs: dict[str, tuple[object, object] | None]


def planning(node: Node, definitions: Definitions, vhost: str | None = None) -> Steps[list[Planned]]:
    """What `importing` would do with each entry of the file, in its order. Raises what `importing` raises."""
    checked = yield from checking(node, definitions, vhost)
    there = yield from exporting(node)
    now = yield from emitting_definitions(there)
    file = yield from emitting_definitions(checked.file)
    found = list[Planned]()
    for section, keys in IDENTITY.items():
        known = dict[str, Entry]()
        for entry in _entries(now, section):
            known[_key(entry, keys)] = entry
            yield
        for entry in _entries(file, section):
            found.append(_planned(section, keys, entry, known.get(_key(entry, keys))))
            yield
    return found


def _planned(section: str, keys: tuple[str, ...], entry: Entry, there: Entry | None) -> Planned:
    identity = {key: entry.get(key) for key in keys}
    if there is None:
        return Planned(section, identity, "new", {})
    differs = {
        name: None if section in SECRET else (there.get(name), value)
        for name, value in entry.items()
        if there.get(name) != value
    }
    fate: Fate = "same" if not differs else "kept" if section in KEPT else "changed"
    return Planned(section, identity, fate, differs)


def _entries(file: dict[str, object], section: str) -> list[Entry]:
    return cast("list[Entry]", file.get(section, []))


def _key(entry: Entry, keys: tuple[str, ...]) -> str:
    return json.dumps([entry.get(key) for key in keys], sort_keys=True, default=str)
