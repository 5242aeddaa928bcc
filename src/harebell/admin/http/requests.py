"""A request as its handler gets it: user, names in the path, query, and the body as JSON."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from harebell.admin.answers import bad_request, no_vhost
from harebell.admin.context import Context
from harebell.admin.login.users import User
from harebell.broker.node import Node
from harebell.broker.vhost import VirtualHost
from harebell.errors import InvalidArgument
from harebell.routing.wire_limits import check_value

__all__ = ["Request", "boolean", "field", "read_query"]

MOST_PARAMETERS: Final = 100
MISSING: Final = object()


class Request:
    """One request.

    context   what handlers work with; `node` is its node
    user      who asks
    pattern   the path, with names in braces
    names     the names in the path, by those in the endpoint's pattern
    query     the parameters after "?"; of a name that is there twice the first value, as with RabbitMQ
    headers   by name in lower case
    body      as it came
    secure    it came by TLS
    """

    __slots__ = (
        "_pairs",
        "body",
        "context",
        "headers",
        "method",
        "names",
        "pattern",
        "query",
        "secure",
        "user",
    )

    def __init__(
        self,
        context: Context,
        user: User,
        method: str,
        pattern: str,
        names: Mapping[str, str],
        query: list[tuple[str, str]],
        headers: Mapping[str, str],
        secure: bool = False,
    ) -> None:
        self.context, self.user, self.method, self.pattern, self.names = context, user, method, pattern, names
        self.query, self._pairs = dict(reversed(query)), query
        self.headers, self.body, self.secure = headers, b"", secure

    @property
    def node(self) -> Node:
        return self.context.node

    def vhost(self) -> VirtualHost:
        """The virtual host in the path. Refused when it does not exist."""
        vhost = self.node.vhosts.get(self.names["vhost"])
        if vhost is None:
            raise no_vhost(self.method)
        return vhost

    def all(self, name: str) -> list[str]:
        """Each value of a parameter that may be there several times."""
        return [value for each, value in self._pairs if each == name]

    def flag(self, name: str) -> bool:
        """Whether the query has the parameter, and not as false."""
        return self.query.get(name, "false").lower() not in ("false", "0", "no")

    def object(self) -> dict[str, Any]:
        """The body as a JSON object, {} for an empty one and null. Raises Refused, with RabbitMQ's words."""
        return _object(self.body, "not_json", "the body")

    def object_in(self, name: str) -> dict[str, Any]:
        """A parameter of the query that is a JSON object; {} where it is missing. Raises Refused."""
        return _object(self.query.get(name, "").encode(), f"{name} must be a JSON object", name)

    def whole_number_in(self, name: str, default: int, *, least: int = 0, most: int | None = None) -> int:
        """A parameter of the query that is a whole number; more than `most` is `most`. Raises Refused."""
        text = self.query.get(name, str(default))
        if not (text.isascii() and text.isdecimal() and len(text) < 19 and int(text) >= least):
            raise bad_request(f"{name} must be a whole number from {least} on")
        return int(text) if most is None else min(int(text), most)


def _object(raw: bytes, wrong: str, what: str) -> dict[str, Any]:
    raw = raw.removeprefix(BOM_UTF8)  # some editors begin a file with it
    if not raw:
        return {}
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise bad_request(wrong) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad_request(wrong)
    try:
        check_value(value, what)
    except InvalidArgument as error:
        raise bad_request(str(error)) from None
    return value


def field(body: Mapping[str, Any], name: str, kind: type | tuple[type, ...], default: Any = MISSING) -> Any:
    """A field of an object, of that kind; raises Refused for another kind, and where it is missing.

    `boolean` reads what is true or false, and `resources.objects.number` what is a number.
    """
    value = body.get(name, MISSING)
    if value is MISSING or (value is None and default is not MISSING):
        if default is MISSING:
            raise bad_request(f"[{{key_missing,{name}}}]")
        return default
    if not isinstance(value, kind):
        names = " or ".join(_WORDS[each] for each in _kinds(kind))
        raise bad_request(f"{name} must be {names}")
    return value


def boolean(body: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """A field of an object that is true or false, also as text; `default` where it is missing.

    rabbitmqadmin sends it as text. Raises Refused, with RabbitMQ's words, for any other value, null too.
    """
    value = body.get(name, default)
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value, value)
    if not isinstance(value, bool):
        raise bad_request(["not_boolean", value])
    return value


_WORDS: Final[Mapping[type, str]] = {str: "a string", dict: "an object", list: "a list"}


def _kinds(kind: type | tuple[type, ...]) -> tuple[type, ...]:
    return kind if isinstance(kind, tuple) else (kind,)


def read_query(raw: bytes) -> list[tuple[str, str]]:
    """The parameters of a query. Raises Refused."""
    try:
        return parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_PARAMETERS)
    except ValueError:  # UnicodeDecodeError is one
        raise bad_request("the query cannot be read") from None
