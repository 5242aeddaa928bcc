"""Definitions: all of the broker's, or one virtual host's, out and in."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections import Counter
from typing import Any, Final

import msgspec

from harebell.admin.about import rabbitmq_version
from harebell.admin.answers import Answer, bad_request, encode
from harebell.admin.http.requests import Request
from harebell.admin.resources.objects import NO_CONTENT
from harebell.broker.operations.definitions import exporting, importing
from harebell.broker.operations.definitions_plan import Planned, planning
from harebell.printable import printable
from harebell.routing.definitions import Definitions, emitting_definitions, parsing_definitions
from harebell.routing.steps import Steps

__all__ = ["LARGEST", "export", "export_vhost", "import_", "import_vhost"]

LARGEST: Final = 20 << 20  # bytes of a file: RabbitMQ's limit
STEP: Final = 64  # entries decoded or encoded in one step
LIST: Final = ord("[")


def export(request: Request) -> Steps[Answer]:
    return (yield from _export(request, None))


def export_vhost(request: Request) -> Steps[Answer]:
    return (yield from _export(request, request.vhost().name))


def _export(request: Request, vhost: str | None) -> Steps[Answer]:
    definitions = yield from exporting(request.node, vhost)
    file = yield from emitting_definitions(definitions, vhost=vhost)
    version = rabbitmq_version(request.node)
    about = {"rabbit_version": version, "rabbitmq_version": version}
    pieces = [encode(about)[:-1]]
    for name, value in file.items():
        if not isinstance(value, list):
            pieces.append(b"," + encode(name) + b":" + encode(value))
            continue
        pieces.append(b"," + encode(name) + b":[")
        for start in range(0, len(value), STEP):
            pieces.append((b"," if start else b"") + encode(value[start : start + STEP])[1:-1])
            yield
        pieces.append(b"]")
    pieces.append(b"}")
    headers = {}
    if "download" in request.query:
        name = printable(request.query["download"], 100).replace('"', "").replace("\\", "") or "definitions.json"
        headers["content-disposition"] = f'attachment; filename="{name}"'
    return Answer(200, pieces, media="application/json", headers=headers)


def import_(request: Request) -> Steps[Answer]:
    """Apply a file: all of it, or after an error nothing."""
    return (yield from _import(request, None))


def import_vhost(request: Request) -> Steps[Answer]:
    return (yield from _import(request, request.vhost().name))


def _import(request: Request, vhost: str | None) -> Steps[Answer]:
    document = yield from _decoding(request.body)
    parsed = yield from parsing_definitions(document, vhost=vhost)
    if request.flag("plan"):
        return (yield from _planned(request, parsed, vhost))
    yield from importing(request.node, parsed, vhost)
    return NO_CONTENT


def _planned(request: Request, parsed: Definitions, vhost: str | None) -> Steps[Answer]:
    """What an import would do: how many objects have which fate, and those that are not the same already."""
    found = yield from planning(request.node, parsed, vhost)
    counts = dict.fromkeys(("new", "changed", "kept", "same"), 0) | Counter(each.fate for each in found)
    shown = [each for each in found if each.fate != "same"]
    pieces = [encode(counts)[:-1], b',"objects":[']
    for start in range(0, len(shown), STEP):
        rows = [_row(each) for each in shown[start : start + STEP]]
        pieces.append((b"," if start else b"") + encode(rows)[1:-1])
        yield
    return Answer(200, [*pieces, b"]}"], media="application/json")


def _row(it: Planned) -> dict[str, Any]:
    differs = {
        name: {} if values is None else {"now": values[0], "file": values[1]} for name, values in it.differs.items()
    }
    return {"section": it.section, "object": it.identity, "fate": it.fate, "differs": differs}


def _decoding(body: bytes) -> Steps[dict[str, Any]]:
    """The object in the body; the entries of its lists are decoded in steps."""
    try:
        top = msgspec.json.decode(body.removeprefix(BOM_UTF8) or b"{}", type=dict[str, msgspec.Raw])
        found: dict[str, Any] = {}
        for name, raw in top.items():
            if memoryview(raw)[0] != LIST:
                found[name] = msgspec.json.decode(raw)
                continue
            entries = list[Any]()
            for number, entry in enumerate(msgspec.json.decode(raw, type=list[msgspec.Raw])):
                entries.append(msgspec.json.decode(entry))
                if not number % STEP:
                    yield
            found[name] = entries
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise bad_request("not_json") from None
    return found
