"""The publishing side of a session: from message.transfer to queues, and what the client is told of it.

A publisher sends the same command and the same delivery-properties again and again, so their bytes are the key of a
cache of routes (`Target`), which is emptied when the topology changes. Often the whole header is the same: then its
frame is the key of what is known of it (`Known`), and nothing of the message is read; so it is where only ids differ
(`protocol.v010.shapes`). Messages that came together and
differ in their bodies alone are published together (`plan`, `publish_run`), if their target is a plain one.

A message that no queue takes (the router has tried alternate exchanges) is dropped where its discard-unroutable is set,
rejected where its accept-mode is explicit and was given, and else dropped: so do Qpid's brokers, whose clients leave
accept-mode out and cannot read a message.reject. The broker sets delivery-properties.exchange, and changes nothing else
of a message.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from functools import partial
from itertools import repeat
from typing import Final, Protocol

from harebell.broker.auth import Access
from harebell.broker.batch import Batch
from harebell.broker.clients import Channel
from harebell.broker.counts import ChannelCounts
from harebell.broker.fan_out import UNTIMED_QUEUES, is_wide, publish_in_steps
from harebell.broker.forwarding import Sink, route_message
from harebell.broker.message import Address, MarkedMessage, Message, NumberedMessage
from harebell.broker.node import Node
from harebell.broker.operations.system_services import Requester, Service, has_service
from harebell.broker.queues.base import Queue
from harebell.broker.slices import CHECK, Work
from harebell.broker.v010.completions import ACCEPT, COMPLETE, REFUSED, Completions
from harebell.broker.v010.fragments import Fragments, Owner
from harebell.broker.v010.link import Link
from harebell.broker.v010.messages import ForeignContent, Form, is_exact, takes_shape
from harebell.broker.v010.survival import Survival, keeps_numbers
from harebell.broker.vhost import VirtualHost
from harebell.defaults import MAX_TIME
from harebell.errors import AccessRefused, AmqpError, RemoteProtocolError, ResourceError
from harebell.protocol.conversion.properties import properties_of
from harebell.protocol.v010 import Command, Content, commands as c, structs as s
from harebell.protocol.v010.codec import decode_struct
from harebell.protocol.v010.content import DELIVERY, FRAGMENT
from harebell.protocol.v010.domains import AcceptMode, RejectCode
from harebell.protocol.v010.frames import FRAME_HEADER, LARGEST_FRAME, size_at
from harebell.protocol.v010.shapes import Shape, shape_of
from harebell.protocol.v010.transfers import Transfers
from harebell.routing import SYSTEM_EXCHANGE, Route
from harebell.routing.exchanges.exchange import Dependence

__all__ = ["MAX_HEADER", "Known", "Publisher", "Target"]

MAX_HEADER: Final = 120 << 10  # bytes of a header segment: converted, it has to fit one frame of 0-9-1
MAX_TARGETS: Final = 4096  # of one session
MAX_KNOWN: Final = 256  # different headers that a session remembers
MAX_KNOWN_SIZE: Final = 1024  # bytes of each
_WHOLE_HEADERS: Final = frozenset({b"\x03\x02", b"\x07\x02"})  # flags and type of the only frame of a header


class PublisherSession(Requester, Channel, Protocol):
    """The session of a publisher."""

    node: Node
    batch: Batch
    vhost: VirtualHost
    access: Access
    counts: ChannelCounts
    fragments: Fragments

    @property
    def connection(self) -> Link: ...
    @property
    def owner(self) -> Owner: ...
    @property
    def completions(self) -> Completions: ...
    @property
    def survival(self) -> Survival: ...
    def hold_back(self, target: Target, message: Message, queues: tuple[Sink, ...]) -> bool:
        """Let a routed message wait for the commit, in a transaction. Returns whether there is one."""

    def work(self, number: int, command: Command, work: Work) -> None:
        """Execute a long command in slices; the connection's input waits until that is done."""

    def spend(self, count: int) -> None:
        """Count publications to `count` queues: after a slice of them, the connection's further input waits."""


class Target:
    """The route of a command and its delivery-properties, valid until the topology changes.

    delivery  the delivery-properties to store, encoded; None: as they came
    no_local  a queue does not take messages of the connection that has it for itself (Qpid's argument `no-local`)
    numbered  messages have their number on disk
    plain     all messages go to the same few queues, in the same way
    alike     that many of them may go to the queue together
    """

    __slots__ = (
        "address", "alike", "count", "delivery", "direct", "explicit", "immediate", "no_local", "numbered",
        "per_message", "plain", "queues", "service", "stored", "told", "ttl",
    )  # fmt: skip

    def __init__(
        self,
        command: c.MessageTransfer,
        properties: s.DeliveryProperties,
        queues: tuple[Sink, ...],
        *,
        per_message: bool = False,
        service: Service | None = None,
    ) -> None:
        self.address = Address(command.destination or "", properties.routing_key or "")
        self.service = service
        self.direct: tuple[Sink, ...] = () if service is None else (service,)
        self.queues = (*self.direct, *queues)
        self.per_message = per_message
        self.stored = per_message or any(queue.stored for queue in queues)
        self.numbered = not per_message and keeps_numbers(queues)
        self.explicit = command.accept_mode == AcceptMode.EXPLICIT
        self.told = self.explicit and not properties.discard_unroutable
        self.immediate = properties.immediate
        ttl = properties.ttl
        self.ttl = None if ttl is None or ttl > MAX_TIME else ttl
        self.no_local = any(_is_no_local(queue) for queue in queues)
        special = per_message or self.no_local or service is not None or properties.immediate or self.ttl is not None
        self.plain = not special and 0 < len(self.queues) <= UNTIMED_QUEUES
        self.alike = self.plain and all(isinstance(queue, Queue) for queue in self.queues)
        self.delivery: bytes | None = None
        if properties.exchange != self.address.exchange or properties.redelivered:
            properties.exchange, properties.redelivered = self.address.exchange, False
            self.delivery = properties.encode()
        self.count = 0


class Known:
    """What is known of a command and a header frame: their target, and whether 0-9-1 can say the same.

    head    the header frame to store; None: as it came
    form    what 0-9-1 says
    shapes  that of the header, and of the one to store, where these are all that is known
    """

    __slots__ = ("exact", "form", "head", "shapes", "target")

    def __init__(self, target: Target, exact: bool, head: bytes | None, form: Form) -> None:
        self.target = target
        self.exact = exact
        self.head = head
        self.form = form
        self.shapes: tuple[Shape, Shape] | None = None

    def stored_head(self, frames: bytes) -> bytes:
        """The header frame to store, of a message that begins with its own."""
        if self.shapes is not None:
            return self.shapes[1].filled(self.shapes[0].values(frames))
        return frames[: size_at(frames, 0)] if self.head is None else self.head


class Publisher:
    """The publisher of one session. `holds_back`: messages wait for a commit."""

    def __init__(self, session: PublisherSession) -> None:
        self.holds_back = False
        self._session = session
        self._targets: dict[tuple[bytes, bytes], Target] = {}
        self._known: dict[tuple[bytes, bytes], Known] = {}
        self._shapes: dict[tuple[bytes, tuple[bytes, ...]], Known] = {}
        self._recent: dict[bytes, Known] = {}  # the last of these by its command
        self._effort = 0  # of routes, not counted yet
        self._topology = session.vhost.router.version

    def publish(self, number: int, content: Content) -> None:
        """Execute a transfer: route the message to its queues. Raises AmqpError when it is refused."""
        session = self._session
        if self._topology != session.vhost.router.version:
            self._forget_targets()
        frames = content.frames
        size = int.from_bytes(frames[2:4], "big")  # of the first frame, which nearly always has the whole header
        known = self._known.get((content.command, frames[:size]))
        if known is None:
            known = self._recent.get(content.command)
            if known is None or known.shapes is None or not known.shapes[0].fits(frames):
                known, content = self._read(content, size)
                self.spend_effort()
                if known is None:
                    session.completions.add(number, COMPLETE, stored=False)  # the rest of the message is to come
                    return
                frames = b""
        if frames and known.head is not None:
            head = known.stored_head(frames)
            content = Content(content.channel, content.command, head + frames[size:], content.body_size)
        target = known.target
        if target.plain and known.exact and not self.holds_back and not session.survival.stored:
            self._publish_plain(
                number, target, ForeignContent(content.channel, content.frames, content.body_size, known.form)
            )
            return
        message, queues = self._routed(number, known, content)
        stored = session.survival.take_stored(number, queues) if session.survival.stored else ()
        if (target.no_local or target.per_message) and any(map(self._is_local, queues)):
            queues = tuple(queue for queue in queues if not self._is_local(queue))
            if not queues:
                session.completions.add(number, ACCEPT if target.explicit else COMPLETE, stored=False)
                return
        if stored:
            queues = tuple(queue for queue in queues if queue not in stored)
        if not queues and stored:
            session.completions.add(number, ACCEPT if target.explicit else COMPLETE, stored=True)
        elif not queues:
            session.completions.add(number, self._unroutable(target), stored=False)
        elif session.hold_back(target, message, queues):
            session.completions.add(number, ACCEPT if target.explicit else COMPLETE, stored=False)
        elif target.service is not None or self._is_wide(target, queues):
            session.work(number, c.MessageTransfer(), self._fan_out(number, target, message, queues))
            session.spend(CHECK)
        else:
            outcome = self._deliver(target, message, queues)
            session.completions.add(number, outcome, stored=target.stored)
            if len(queues) > UNTIMED_QUEUES:
                session.spend(len(queues))

    def plan(self, transfers: Transfers) -> Known | None:
        """What is known of messages that are alike; None: they are to be published one by one."""
        session = self._session
        if self.holds_back or session.survival.stored:
            return None
        if self._topology != session.vhost.router.version:
            self._forget_targets()
        known = self._known.get((transfers.command, transfers.head))
        if known is None:
            try:
                known, _ = self._read(transfers.content(0), len(transfers.head), alone=False)
            except (AmqpError, RemoteProtocolError):
                return None  # the first one raises it again, when its turn comes
        if known is None or not known.exact or not known.target.alike:
            return None
        if any(isinstance(queue, Queue) and queue.asks_all for queue in known.target.queues):
            return None
        if transfers.heads is not None and (
            known.shapes is None or not all(map(known.shapes[0].fits, transfers.heads))
        ):
            return None
        return known

    def publish_run(self, number: int, known: Known, transfers: Transfers) -> None:
        """Execute transfers, with the numbers from `number` on, of which that is known."""
        self.spend_effort()
        session, target, form, channel = self._session, known.target, known.form, transfers.channel
        address, bodies, heads = target.address, transfers.bodies, transfers.heads
        count, stored, queues = len(bodies), target.stored, target.queues
        stored_heads = repeat(known.stored_head(transfers.head)) if heads is None else map(known.stored_head, heads)
        contents = [
            ForeignContent(channel, head + body, len(body) - FRAME_HEADER, form)
            for head, body in zip(stored_heads, bodies)  # noqa: B905  `repeat` has no end
        ]
        messages: list[Message]
        if stored and (marks := session.survival.marks(number, count, target.numbered)):
            messages = list(map(NumberedMessage, repeat(address), contents, marks))
        else:
            messages = list(map(Message, repeat(address), contents))
        if len(queues) == 1 and isinstance(queues[0], Queue):
            refused: Iterable[int] = queues[0].publish_all(messages)
        else:
            outcomes = [[queue.publish(message) for queue in queues] for message in messages]
            refused = [place for place, taken in enumerate(outcomes) if not all(taken)]
        target.count += count
        done = number
        for place in refused:
            if done < number + place:
                session.completions.add_run(done, number + place - 1, _outcome(target, True), stored=stored)
            session.completions.add(number + place, _outcome(target, False), stored=stored)
            done = number + place + 1
        if done < number + count:
            session.completions.add_run(done, number + count - 1, _outcome(target, True), stored=stored)

    def spend_effort(self) -> None:
        """Count what it took to find the routes since the last time, where that was much."""
        if self._effort:
            effort, self._effort = self._effort, 0
            self._session.spend(effort)

    def _is_local(self, sink: Sink) -> bool:
        """Whether the queue takes no messages of this connection, which has it for itself."""
        if not isinstance(sink, Queue) or not sink.no_local:
            return False
        holders = [sink.owner, *(getattr(each, "channel", None) for each in sink.consumers if each.exclusive)]
        return any(getattr(holder, "connection", None) is self._session.connection for holder in holders)

    def _publish_plain(self, number: int, target: Target, content: ForeignContent) -> None:
        session, stored = self._session, target.stored
        message: Message
        if stored and (mark := session.survival.mark(number, target.numbered)):
            message = NumberedMessage(target.address, content, mark)
        else:
            message = Message(target.address, content)
        accepted = True
        for queue in target.queues:
            if not queue.publish(message):
                accepted = False
        target.count += 1
        session.completions.add(number, _outcome(target, accepted), stored=stored)

    def _fan_out(self, number: int, target: Target, message: Message, queues: tuple[Sink, ...]) -> Work:
        positions, batch = self._session.node.store.positions, self._session.batch
        work = positions.begin_work()
        try:
            accepted = yield from self.deliver_in_steps(target, message, queues)
            self._session.completions.add(number, _outcome(target, accepted), stored=True)
        finally:
            batch.when_safe(partial(positions.end_work, work))  # the number is complete then, and not before

    def deliver_in_steps(
        self, target: Target, message: Message, queues: tuple[Sink, ...]
    ) -> Generator[None, None, bool]:
        """Publish a routed message to its queues, to many in steps. Returns whether every queue took it."""
        service = target.service
        if service is None and not self._is_wide(target, queues):
            return self._deliver(target, message, queues) not in (REFUSED, RejectCode.UNSPECIFIED)
        self._count(target, queues)
        if service is not None:
            yield from service.serve(message)
            queues = tuple(queue for queue in queues if queue is not service)
        return (yield from publish_in_steps(self._session.batch, message, queues))

    def _is_wide(self, target: Target, queues: tuple[Sink, ...]) -> bool:
        return not target.immediate and is_wide(self._session.batch, len(queues), stored=target.stored)

    def _deliver(self, target: Target, message: Message, queues: tuple[Sink, ...]) -> int:
        """Publish a routed message to its queues. Returns the outcome for its completion."""
        if target.immediate:
            queues = tuple(queue for queue in queues if queue.can_deliver(message))
        if not queues:
            return self._unroutable(target)
        if queues is target.queues:
            target.count += 1
        else:
            self._count(target, queues)
        accepted = True
        for queue in queues:
            if not queue.publish(message):
                accepted = False
        return _outcome(target, accepted)

    def _unroutable(self, target: Target) -> int:
        counts = self._session.counts
        self._count(target, ())
        if not target.told:
            counts.drop_unroutable += 1
            return ACCEPT if target.explicit else COMPLETE
        counts.return_unroutable += 1
        return RejectCode.IMMEDIATE if target.immediate and target.queues else RejectCode.UNROUTABLE

    def _count(self, target: Target, queues: tuple[Sink, ...]) -> None:
        self._session.counts.publish += 1
        self._session.vhost.count_publications(target.address.exchange, queues, 1)

    def flush_counts(self) -> None:
        """Add the counts of the targets to the session, its exchanges and its queues."""
        for target in self._targets.values():
            if target.count:
                count, target.count = target.count, 0
                self._session.counts.publish += count
                self._session.vhost.count_publications(target.address.exchange, target.queues, count)

    def _forget_targets(self) -> None:
        self.flush_counts()
        self._targets.clear()
        self._forget_known()
        self._topology = self._session.vhost.router.version

    # -- routing -------------------------------------------------------------------------------------------------

    def _resolve(self, content: Content, delivery: bytes) -> Target:
        session = self._session
        command = content.decode_command()
        assert isinstance(command, c.MessageTransfer)
        properties = decode_struct(s.DeliveryProperties, delivery, content.channel)
        exchange, key = command.destination or "", properties.routing_key or ""
        session.access.publish(exchange, key)
        vhost = session.vhost
        if exchange == SYSTEM_EXCHANGE and has_service(session.node, key):
            target = Target(command, properties, (), service=Service(session, key))
        else:
            route = vhost.router.route(exchange, key)
            self._effort += route.effort
            by_message = vhost.router.exchange(exchange).depends_on is Dependence.MESSAGE
            target = Target(
                command, properties, vhost.receivers(route.queues), per_message=not route.cacheable or by_message
            )
        if vhost.trace is not None:
            target.per_message, target.plain, target.alike = True, False, False
        if len(self._targets) >= MAX_TARGETS:
            self._forget_targets()
        self._targets[content.command[4:], delivery] = target
        return target

    def _read(self, content: Content, size: int, *, alone: bool = True) -> tuple[Known | None, Content]:
        """Read and check command and header. Returns what is known now, and the message as it is stored.

        None for a part of a message, which is kept, unless the message is not `alone`, but one of a run. Whether 0-9-1
        can say the same is asked only where that may matter.
        """
        structs = dict(content.structs())
        if FRAGMENT in structs:
            if not alone:
                return None, content
            session = self._session
            whole = session.fragments.whole(session.owner, content, session.connection.engine.max_message_size)
            if whole is not content:
                return (None, content) if whole is None else self._read(whole, size_at(whole.frames, 0))
        small = FRAME_HEADER < size <= MAX_KNOWN_SIZE and content.frames[:2] in _WHOLE_HEADERS
        shape = shape_of(content.frames) if small else None
        if shape is not None and (like := self._shapes.get((content.command, shape.parts))) is not None:
            self._recent[content.command] = like
            if like.head is None:
                return like, content
            frames = like.stored_head(content.frames) + content.frames[size:]
            return like, Content(content.channel, content.command, frames, content.body_size)
        delivery = structs.get(DELIVERY, b"\0\0")
        target = self._targets.get((content.command[4:], delivery))
        if target is None:
            target = self._resolve(content, delivery)
        content.check()
        if len(content.frames) - content.body_size > MAX_HEADER:
            raise ResourceError(f"a header of more than {MAX_HEADER} bytes")
        properties = content.message_properties
        self._check_user(properties.user_id)
        exact = is_exact(content) if target.stored else True
        stored, head = content, None
        if target.delivery is not None:
            stored = content.with_delivery(target.delivery, LARGEST_FRAME)
            head = stored.frames[: int.from_bytes(stored.frames[2:4], "big")]
        if shape is not None:
            return self._read_shape(shape, target, exact, head, content, stored), stored
        known = Known(target, exact, head, Form(stored))
        if small and not _differs_each_time(properties, content):
            self._make_room()
            self._known[content.command, content.frames[:size]] = known
        return known, stored

    def _read_shape(
        self, shape: Shape, target: Target, exact: bool, head: bytes | None, content: Content, stored: Content
    ) -> Known:
        """What is known of messages with that shape, or, where they have too little in common, of this one alone."""
        own = shape if head is None else shape_of(stored.frames)
        if own is None or own.names != shape.names or not takes_shape(stored, own):
            return Known(target, exact, head, Form(stored))
        known = Known(target, exact, head, Form(stored, own))
        known.shapes = (shape, own)
        self._make_room()
        self._shapes[content.command, shape.parts] = self._recent[content.command] = known
        return known

    def _make_room(self) -> None:
        if len(self._known) + len(self._shapes) >= MAX_KNOWN:
            self._forget_known()

    def _forget_known(self) -> None:
        self._known.clear()
        self._shapes.clear()
        self._recent.clear()

    def _check_user(self, user_id: bytes | None) -> None:
        session = self._session
        if user_id is None or user_id == session.user.encode("utf-8", "surrogateescape"):
            return
        if not session.access.impersonates:
            raise AccessRefused(f"user-id is {user_id!r}, but the authenticated user is '{session.user}'")

    def _routed(self, number: int, known: Known, content: Content) -> tuple[Message, tuple[Sink, ...]]:
        """The message and its queues."""
        target, exact = known.target, known.exact
        queues, numbered = target.queues, target.numbered
        vhost = self._session.vhost
        route: Route | None = None
        if target.per_message:
            keys = (target.address.routing_key,)
            properties, _ = properties_of(content)
            route = route_message(vhost.router, target.address.exchange, keys, lambda: properties, lambda: content.body)
            if route.effort:
                self._session.spend(route.effort)
            queues = (*target.direct, *vhost.receivers(route.queues))
            numbered = not (route.delayed or route.remembered or route.chance) and keeps_numbers(queues)
        mark = self._session.survival.mark(number, numbered) if target.stored else b""
        foreign = ForeignContent(content.channel, content.frames, content.body_size, known.form)
        message: Message
        if mark or target.ttl is not None or not exact:
            origin = b"" if exact else content.header
            message = MarkedMessage(target.address, foreign, ttl=target.ttl, origin=origin, number=mark)
        else:
            message = Message(target.address, foreign)
        if route is not None and vhost.trace is not None:
            vhost.trace.published(self._session, message, keys, properties, route.queues)
        if target.ttl is not None:
            for queue in queues:
                queue.enrich()
        if route is not None and (route.delayed or route.remembered):
            queues = (*queues, *vhost.exchange_sinks(route, (target.address.routing_key,)))
        return message, queues


def _is_no_local(sink: Sink) -> bool:
    return isinstance(sink, Queue) and sink.no_local


def _outcome(target: Target, accepted: bool) -> int:
    if accepted:
        return ACCEPT if target.explicit else COMPLETE
    return RejectCode.UNSPECIFIED if target.explicit else REFUSED


def _differs_each_time(properties: s.MessageProperties, content: Content) -> bool:
    if properties.message_id is not None or properties.correlation_id is not None:
        return True
    return content.delivery_properties.timestamp is not None
