"""Interrupted transfers: what has come of a long message is kept by its resume-id, and the client sends the rest.

A transfer whose delivery-properties have a resume-id may be cut off with its connection. Then the octets of its body
that have come in whole frames are kept for its resume-ttl (DEFAULT_TTL without one). In any session of the user,
message.resume says how many they are, 0 for an id that nobody knows, and a transfer with that id and
fragment-properties, in which `first` is not set, brings the octets behind them. With `last` the message is whole, and
is published with the header of its first part. A client may also send a message in such parts from the beginning.

A session that lasts may send the transfer that was cut off again, whole. Then what the cut left does not count.

A part that is not the last one is complete when it is here; it is in memory only. The parts of all users may hold as
much memory as sessions without a connection (`session_memory`), those of one user the half of that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from harebell.broker.node import Node
from harebell.broker.timers import Timer
from harebell.errors import (
    AmqpError,
    IllegalState,
    NotImplemented as NotImplemented540,
    RemoteProtocolError,
    ResourceError,
    WrongArgument,
)
from harebell.protocol.v010 import Content, commands as c, structs as s
from harebell.protocol.v010.codec import decode_struct
from harebell.protocol.v010.content import FRAGMENT, encode_content
from harebell.protocol.v010.frames import LARGEST_FRAME

__all__ = ["DEFAULT_TTL", "Fragments", "Owner"]

DEFAULT_TTL: Final = 60_000  # milliseconds
MOST: Final = 1024  # messages of one user
OVERHEAD: Final = 512  # bytes that each part costs besides

Owner: TypeAlias = "tuple[str, str]"
"""The virtual host and the user."""
_Key: TypeAlias = "tuple[Owner, str]"


class _Partial:
    """The beginning of a message: where it goes, its header, and the parts of its body."""

    __slots__ = ("body", "cost", "destination", "header", "size", "timer")

    def __init__(self, destination: str, header: bytes) -> None:
        self.destination = destination
        self.header = header
        self.body: list[bytes] = []
        self.size = 0
        self.cost = 0
        self.timer: Timer | None = None


class Fragments:
    """The interrupted messages of a node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._partials: dict[_Key, _Partial] = {}
        self._bytes: Counter[Owner] = Counter()
        self._counts: Counter[Owner] = Counter()

    def offset(self, owner: Owner, destination: str, resume_id: str) -> int:
        """How many octets of the body are here."""
        found = self._partials.get((owner, resume_id))
        return found.size if found is not None and found.destination == destination else 0

    def interrupted(self, owner: Owner, content: Content) -> Callable[[], None] | None:
        """Keep what has come of a transfer, if it may be resumed; the rest did not come.

        Returns what takes it back, for when the transfer comes again whole; None: nothing is kept.
        """
        try:
            resume_id = content.delivery_properties.resume_id
            if resume_id is None:
                return None
            found = self._keep(owner, content, self._fragment(content))
        except (AmqpError, RemoteProtocolError):  # it would have been refused, had it been whole
            return None
        return partial(self._take_back, owner, resume_id, found, len(found.body) - 1)

    def _take_back(self, owner: Owner, resume_id: str, found: _Partial, count: int) -> None:
        """Drop all but the first `count` parts, if the message is still here."""
        if self._partials.get((owner, resume_id)) is not found:
            return
        if not count:
            self._forget(owner, resume_id)
            return
        dropped = found.body[count:]
        del found.body[count:]
        size = sum(map(len, dropped))
        cost = size + OVERHEAD * len(dropped)
        found.size -= size
        found.cost -= cost
        self._bytes[owner] -= cost

    def whole(self, owner: Owner, content: Content, most: int) -> Content | None:
        """The message that a part completes; None: more of it is to come. A whole one is returned as it is.

        most  bytes of a body

        IllegalState for the rest of a message that is not here, WrongArgument for one that goes elsewhere or lies about
        its size, ResourceError when it is too much, NotImplemented for parts without a resume-id.
        """
        raw = content.raw(FRAGMENT)
        if not raw:
            return content
        fragment = decode_struct(s.FragmentProperties, raw, content.channel)
        if fragment.fragment_size is not None and fragment.fragment_size != content.body_size:
            raise WrongArgument(
                f"message.transfer: fragment-size is {fragment.fragment_size}, and {content.body_size} octets have come"
            )
        if fragment.first and fragment.last:
            return content
        resume_id = content.delivery_properties.resume_id
        if resume_id is None:
            raise NotImplemented540("message.transfer: a part of a message without a resume-id")
        found = self._keep(owner, content, fragment)
        if found.size > most:
            self._forget(owner, resume_id)
            raise ResourceError(f"a message of more than {most} bytes")
        if not fragment.last:
            return None
        self._forget(owner, resume_id)
        frames = encode_content(content.channel, found.header, b"".join(found.body), LARGEST_FRAME)
        return Content(content.channel, content.command, frames, found.size)

    def _fragment(self, content: Content) -> s.FragmentProperties:
        raw = content.raw(FRAGMENT)
        if not raw:
            return s.FragmentProperties(first=True, last=True)
        return decode_struct(s.FragmentProperties, raw, content.channel)

    def _keep(self, owner: Owner, content: Content, fragment: s.FragmentProperties) -> _Partial:
        """Keep a part, behind those that are here. Returns the message so far."""
        command, delivery = content.decode_command(), content.delivery_properties
        assert isinstance(command, c.MessageTransfer)
        resume_id, destination, body = delivery.resume_id or "", command.destination or "", content.body
        cost = len(body) + OVERHEAD
        if fragment.first:
            self._forget(owner, resume_id)
            found = _Partial(destination, _without_fragment(content))
            cost += len(found.header)
            if self._counts[owner] >= MOST:
                raise ResourceError(f"{MOST} interrupted messages of user '{owner[1]}' are kept already")
        else:
            known = self._partials.get((owner, resume_id))
            if known is None:
                raise IllegalState(f"message.transfer: nothing of '{resume_id}' is here, send it from the beginning")
            found = known
        if found.destination != destination:
            raise WrongArgument(f"message.transfer: '{resume_id}' began as a message for '{found.destination}'")
        most = self._node.limits.session_memory
        if self._bytes[owner] + cost > most // 2 or self._bytes.total() + cost > most:
            raise ResourceError("interrupted messages hold too much memory")
        if fragment.first:
            self._partials[owner, resume_id] = found
            self._counts[owner] += 1
        found.body.append(body)
        found.size += len(body)
        found.cost += cost
        self._bytes[owner] += cost
        ttl = DEFAULT_TTL if delivery.resume_ttl is None else delivery.resume_ttl
        if found.timer is not None:
            found.timer.cancel()
        timers, longest = self._node.timers, max(1000 * int(self._node.limits.session_timeout), DEFAULT_TTL)
        found.timer = timers.at(timers.now() + min(ttl, longest), partial(self._forget, owner, resume_id))
        return found

    def _forget(self, owner: Owner, resume_id: str) -> None:
        found = self._partials.pop((owner, resume_id), None)
        if found is None:
            return
        if found.timer is not None:
            found.timer.cancel()
        for counter, count in ((self._bytes, found.cost), (self._counts, 1)):
            counter[owner] -= count
            if not counter[owner]:
                del counter[owner]


def _without_fragment(content: Content) -> bytes:
    """The header of a message without its fragment-properties."""
    kept = []
    for code, raw in content.structs():
        if code != FRAGMENT:
            kept += [(len(raw) + 2).to_bytes(4, "big"), code.to_bytes(2, "big"), raw]
    return b"".join(kept)
