"""A request as its handler gets it: user, names in the path, query, and the body as JSON."""

from __future__ import annotations

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

__all__ = ["Request", "field", "read_query"]

MOST_PARAMETERS: Final = 100
MISSING: Final = object()


class Request:
    """One request.

    context   what handlers work with; `node` is its node
    user      who asks
    pattern   the path, with names in braces
    names     the names in the path, by those in the endpoint's pattern
    query     the parameters after "?"; of a name that is there twice the last value, and `doubled` has the name
    headers   by name in lower case
    body      as it came
    secure    it came by TLS
    """

    __slots__ = (
        "_pairs",
        "body",
        "context",
        "doubled",
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
        self.query, self._pairs = dict(query), query
        self.doubled = {name for number, (name, _) in enumerate(query) if name in dict(query[:number])}
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
        """The body as a JSON object; an empty one is an empty object. Raises Refused, with RabbitMQ's words."""
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
    if not raw:
        return {}
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise bad_request(wrong) from None
    if not isinstance(value, dict):
        raise bad_request(wrong)
    try:
        check_value(value, what)
    except InvalidArgument as error:
        raise bad_request(str(error)) from None
    return value


def field(body: Mapping[str, Any], name: str, kind: type | tuple[type, ...], default: Any = MISSING) -> Any:
    """A field of an object, of that kind; raises Refused for another kind, and where it is missing.

    As RabbitMQ does, it takes true, false and whole numbers as text too: rabbitmqadmin sends them so.
    """
    value = body.get(name, MISSING)
    if value is MISSING or (value is None and default is not MISSING):
        if default is MISSING:
            raise bad_request(f"[{{key_missing,{name}}}]")
        return default
    if isinstance(value, str) and str not in _kinds(kind):
        value = _meant(value, kind)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool and bool not in _kinds(kind)):
        names = " or ".join(_WORDS[each] for each in _kinds(kind))
        raise bad_request(f"{name} must be {names}")
    return value


def _meant(text: str, kind: type | tuple[type, ...]) -> object:
    """The value that a text stands for; the text itself where it is none of the kind."""
    if bool in _kinds(kind):
        return {"true": True, "false": False}.get(text, text)
    if int in _kinds(kind) and text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 20:
        return int(text)
    return text


_WORDS: Final = {
    str: "a string", bool: "true or false", int: "a number", float: "a number", dict: "an object", list: "a list",
}  # fmt: skip


def _kinds(kind: type | tuple[type, ...]) -> tuple[type, ...]:
    return kind if isinstance(kind, tuple) else (kind,)


def read_query(raw: bytes) -> list[tuple[str, str]]:
    """The parameters of a query. Raises Refused."""
    try:
        return parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_PARAMETERS)
    except ValueError:  # UnicodeDecodeError is one
        raise bad_request("the query cannot be read") from None
