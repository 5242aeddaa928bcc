"""`harebell route`: where a message would go, and why, by the definitions of a broker or of a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from harebell.broker.forwarding import ROUTABLE_PROPERTIES
from harebell.broker.plugins import Plugins
from harebell.cli.administration.requests import Target, Vhost, ask
from harebell.cli.http_api.failures import Missing
from harebell.cli.terminal.output import say, say_lines
from harebell.cli.validators import maybe_empty
from harebell.errors import InvalidArgument, NotFound
from harebell.routing import parse_definitions
from harebell.routing.exchanges.hashing import HASH_PROPERTIES
from harebell.routing.explain import explain
from harebell.routing.topology import topology
from harebell.routing.wire_limits import check_key

__all__ = ["explain_"]

PROPERTIES: Final = ", ".join(HASH_PROPERTIES)
NUMBERS: Final = {"timestamp": "seconds since 1970", "priority": "a number", "delivery_mode": "1 or 2"}


def explain_(
    exchange: Annotated[
        str,
        Parameter(validator=maybe_empty, help="The exchange that the message is published to; '' is the default one."),
    ],
    routing_key: Annotated[str, Parameter(validator=maybe_empty, help="Its routing key.")] = "",
    *,
    copy: Annotated[
        tuple[str, ...], Parameter(validator=maybe_empty, help="A routing key of CC or BCC; repeatable.")
    ] = (),
    header: Annotated[
        tuple[str, ...], Parameter(help="NAME=VALUE, a header; VALUE is JSON, or text as it is; repeatable.")
    ] = (),
    property: Annotated[
        tuple[str, ...], Parameter(help=f"NAME=TEXT, one of {PROPERTIES}; with plug-ins any property; repeatable.")
    ] = (),
    definitions: Annotated[
        Path | None, Parameter(help="A definitions file to route by, in place of a broker's definitions.")
    ] = None,
    body: Annotated[
        str, Parameter(validator=maybe_empty, help="Its body, for exchanges of plug-ins that route by it.")
    ] = "",
    vhost: Vhost = "/",
    target: Target | None = None,
) -> int:
    """Show the exchanges and bindings that a message would follow, and its queues. Nothing is published.

    Definitions have no exclusive queues, so that these are not on the route.
    """
    for key in (exchange, routing_key, *copy):
        check_key(key, "names and keys")
    pairs = _pairs(property, "--property")
    plugins = (target or Target()).load_plugins()
    types, routable = Plugins(plugins).exchange_types, ROUTABLE_PROPERTIES if plugins else HASH_PROPERTIES
    unknown = [name for name in pairs if name not in routable]
    if unknown:
        raise InvalidArgument(f"--property {unknown[0]}: exchanges route by {', '.join(routable)} only")
    if definitions is None:
        document = ask(target, "export-definitions", vhost=vhost)
        world = topology(parse_definitions(document, vhost=vhost), vhost, types=types)
    elif target is not None and (target.url is not None or target.data is not None):
        raise InvalidArgument("give either --definitions, or --url or --data for a broker's own")
    else:
        world = topology(parse_definitions(_read(definitions), vhost=vhost), vhost, types=types)
    for remark in world.remarks:
        say(f"remark: {remark}", sys.stderr)
    headers = {name: _value(text) for name, text in _pairs(header, "--header").items()}
    properties = {name: _number(name, text) if name in NUMBERS else text for name, text in pairs.items()}
    try:
        found = explain(world.router, exchange, (routing_key, *copy), headers, properties, body.encode())
    except NotFound as error:
        raise Missing(error.detail) from error
    say_lines(found.text())
    return 0


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}") from error


def _pairs(given: Sequence[str], option: str) -> dict[str, str]:
    pairs = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise InvalidArgument(f"{option} {each!r}: write NAME=VALUE")
        if name in pairs:
            raise InvalidArgument(f"{option} {each!r}: '{name}' is given twice")
        pairs[name] = value
    return pairs


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise InvalidArgument(f"--property {name}={text}: write {NUMBERS[name]}")
    return int(text)


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
