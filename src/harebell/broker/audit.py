"""The audit log: who changed what, from where, and what was refused, as records in memory.

Rules:

- A record is made from a change's event, by a change that has no event, or from the refusal of a request; never from a
  message.
- Of an event's headers a record has those of `TOLD` alone. No password, hash, key or value of a parameter is among
  them.
- The log is bounded by records and by bytes, and the oldest records go first. A restart empties it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from harebell.errors import AmqpError
from harebell.routing.naming import RESERVED_PREFIX

__all__ = [
    "NOBODY",
    "NOTHING",
    "Act",
    "AuditLog",
    "Origin",
    "Source",
    "as_details",
    "performed",
    "performing",
    "requested",
]

RECORDS: Final = 10_000
BYTES: Final = 4 << 20
RECORD_BYTES: Final = 200  # about what a record takes beside its texts
TEXT: Final = 1024  # characters of a name or a reason; an AMQP name has at most 255 bytes
DETAILS: Final = 4096  # characters of the details, above which only their length is kept

DIALECTS: Final = {"{0,9,1}": "amqp 0-9-1", "{0,10}": "amqp 0-10"}
KINDS: Final = frozenset(
    {"queue", "exchange", "binding", "vhost", "user", "permission", "topic", "parameter", "policy"}
)
TOLD: Final = (
    "type", "durable", "auto_delete", "exclusive", "internal", "arguments", "source_name", "destination_name",
    "destination_kind", "routing_key", "description", "tags", "default_queue_type", "component", "pattern",
    "definition", "priority", "apply-to", "configure", "write", "read", "exchange", "max-connections", "max-channels",
    "max-queues",
)  # fmt: skip


class Origin(NamedTuple):
    """Who acts, and from where: a user, the address of its client, and the protocol: http, amqp 0-9-1 or amqp 0-10."""

    user: str
    peer: str
    protocol: str


NOBODY: Final = Origin("", "", "")
"""The origin of what the broker does by itself."""
NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


class Act(NamedTuple):
    """One record.

    at       milliseconds since 1970
    user     "" for what the broker did by itself; peer and protocol are "" too where none are known
    vhost    "" for what belongs to no virtual host
    outcome  done or refused; `reason` says why
    details  an object as JSON: the new value of a declaration, policy or permission
    """

    number: int
    at: int
    user: str
    peer: str
    protocol: str
    vhost: str
    kind: str
    name: str
    act: str
    outcome: str
    reason: str
    details: str

    @property
    def size(self) -> int:
        """About its bytes of memory; a character beyond ASCII counts as the four that it may take."""
        texts = (self.user, self.peer, self.vhost, self.name, self.reason, self.details)
        return RECORD_BYTES + sum(len(each) if each.isascii() else 4 * len(each) for each in texts)


class AuditLog:
    """The latest acts, the oldest first; `records` and `bytes` are the most that are kept.

    `number` is that of the last one; `wake` is called after each.
    """

    def __init__(self, records: int = RECORDS, bytes: int = BYTES) -> None:
        self.acts: deque[Act] = deque()
        self.size = self.number = 0
        self.wake: Callable[[], None] | None = None
        self._records, self._bytes = records, bytes

    def add(
        self,
        at: int,
        origin: Origin,
        vhost: str,
        kind: str,
        name: str,
        act: str,
        *,
        refused: str = "",
        details: str = "{}",
    ) -> None:
        self.number += 1
        outcome = "refused" if refused else "done"
        if len(details) > DETAILS:
            details = json.dumps({"characters": len(details)})
        user, peer, protocol = origin
        made = Act(
            self.number, at, user[:TEXT], peer, protocol, vhost[:TEXT], kind, name[:TEXT], act, outcome,
            refused[:TEXT], details,
        )  # fmt: skip
        self.acts.append(made)
        self.size += made.size
        while len(self.acts) > self._records or self.size > self._bytes:
            self.size -= self.acts.popleft().size
        if self.wake is not None:
            self.wake()

    def add_event(
        self,
        at: int,
        origin: Origin | None,
        event: str,
        headers: Mapping[str, object],
        nobody: str,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """Record an event, if it is an act. `nobody` is the user of the broker's own changes.

        arguments  those of the object, which the event has as Erlang's terms only
        """
        kind, act = _told_by(event)
        if not kind:
            return
        if origin is None:
            user = str(headers.get("user_who_performed_action", ""))
            origin = Origin("" if user == nobody else user, "", "")
        if kind == "exchange" and (not headers["name"] or str(headers["name"]).startswith(RESERVED_PREFIX)):
            return  # it comes and goes with its virtual host
        if headers.get("component") == "operator_policy":
            kind = "operator.policy"
        vhost = headers.get("name" if kind == "vhost" else "vhost", "")
        name = headers.get("username", headers.get("user" if "permission" in kind else "name", ""))
        if kind == "binding":
            name = f"{headers['source_name']} -> {headers['destination_name']}"
        told = {key: headers[key] for key in TOLD if key in headers}
        if arguments is not None:
            told["arguments"] = arguments
        self.add(at, origin, str(vhost), kind, str(name), act, details=as_details(told))


@cache
def _told_by(event: str) -> tuple[str, str]:
    """Kind and act of an event; empty where it is no act."""
    kind, _, act = event.rpartition(".")
    if kind.partition(".")[0] not in KINDS or event.startswith(("user.authentication.", "queue.alert.")):
        return "", ""
    return ("user", "password.changed") if kind == "user.password" else (kind, act)


def as_details(told: Mapping[str, object]) -> str:
    """The JSON of a record's details."""
    return _encode(told) if told else "{}"


def _plain(it: object) -> object:
    return it.decode("utf-8", "backslashreplace") if isinstance(it, (bytes, bytearray)) else str(it)


_encode = json.JSONEncoder(default=_plain).encode


class Source(Protocol):
    """The part of a node's listener that acts are noted with. `origin`: who acts now, where that is known."""

    origin: Origin | None

    def act(
        self,
        vhost: str,
        kind: str,
        name: str,
        act: str,
        *,
        refused: str = "",
        told: Mapping[str, object] = NOTHING,
        origin: Origin | None = None,
    ) -> None:
        """An act that has no event was done, or one was refused.

        told    what it set
        origin  who did it, if not the current one
        """


def requested(user: str, peer: str, dialect: str) -> Origin:
    """The origin of an AMQP client's requests; `dialect` as connections name it."""
    return Origin(user, peer, DIALECTS.get(dialect, dialect))


@contextmanager
def performing(source: Source, origin: Origin, vhost: str, method: object) -> Iterator[None]:
    """Do what a method asks in the name of `origin`, and record its refusal. A passive one changes nothing."""
    source.origin = origin
    try:
        yield
    except AmqpError as error:
        _refused(source, origin, vhost, method, error)
        raise
    finally:
        source.origin = None


def performed(
    source: Source, origin: Origin, work: Iterator[None], vhost: str = "", method: object = None
) -> Generator[None, None, Any]:
    """The work in steps, each of them in the name of `origin`; others have their own in between.

    `method` is what asked for it, in that virtual host: its refusal is recorded, whenever it comes.
    """
    try:
        while True:
            source.origin = origin
            try:
                next(work)
            except StopIteration as end:
                return end.value
            source.origin = None
            yield
    except AmqpError as error:
        if method is not None:
            _refused(source, origin, vhost, method, error)
        raise
    finally:
        source.origin = None


def _refused(source: Source, origin: Origin, vhost: str, method: object, error: AmqpError) -> None:
    if not getattr(method, "passive", False):
        kind, act, name = _asked(method)
        source.act(vhost, kind, name, act, refused=str(error) or type(error).__name__, origin=origin)


ASKED: Final = {
    "declare": "created", "delete": "deleted", "bind": "created", "unbind": "deleted", "purge": "purged",
}  # fmt: skip


def _asked(method: object) -> tuple[str, str, str]:
    """Kind, act and name of what a method of either dialect asks: its class is named by both, as QueueDeclare."""
    label = type(method).__name__
    kind = "exchange" if label.startswith("Exchange") else "queue"
    asked = label.removeprefix("Exchange").removeprefix("Queue").lower()
    name = str(getattr(method, kind, None) or getattr(method, "destination", None) or "")
    if asked in ("bind", "unbind"):
        source = getattr(method, "source", None) or getattr(method, "exchange", None) or ""
        target = getattr(method, "destination", None) or getattr(method, "queue", None) or ""
        return "binding", ASKED[asked], f"{source} -> {target}"
    return kind, ASKED.get(asked, asked), name
