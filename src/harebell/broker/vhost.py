"""A virtual host: its routing table, its queues, and the changes to them.

It declares and deletes queues and exchanges, and gives its queues the services that they use. It knows the node by
`Host`, and connections only as owners of exclusive queues.

The file is long because each change of the topology is here whole: routes, queues, the catalog, and its steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from harebell.broker.batch import Batch
from harebell.broker.counts import ChannelCounts, Churn, ExchangeCounts, Lasting
from harebell.broker.exchanges.delayed import Delays
from harebell.broker.exchanges.stateful import StatefulExchanges
from harebell.broker.forwarding import Sink, route_message
from harebell.broker.message import Address, Message
from harebell.broker.observers import INTERNAL_USER, Listener, Tracer
from harebell.broker.queues.base import DecoratorFactory, Owner, Queue
from harebell.broker.queues.changes import change_queue
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.queues.message_groups import GroupQueue
from harebell.broker.queues.orphans import rerouting
from harebell.broker.queues.stream import StreamQueue
from harebell.broker.rules.limits import check_queue
from harebell.broker.rules.parameters import Parameters
from harebell.broker.rules.policies import Policies
from harebell.broker.slices import Work
from harebell.broker.store.catalog.catalog import Catalog
from harebell.broker.store.files import Damage
from harebell.broker.store.store import Store
from harebell.broker.store.stream_log.log import StreamLog
from harebell.broker.timers import Timers
from harebell.defaults import FRAME_MAX
from harebell.errors import (
    AccessRefused,
    InternalError,
    InvalidArgument,
    LocalProtocolError,
    NotFound,
)
from harebell.protocol.v091 import Content, FieldValue, Properties, Table, encode_content
from harebell.protocol.v091.fitting import without_long_headers
from harebell.routing import (
    Binding,
    Destination,
    Removed,
    Route,
    Router,
    definitions,
    to_exchange,
    to_queue,
)
from harebell.routing.equivalence import check_property
from harebell.routing.exchanges.exchange_types import ExchangeFactory
from harebell.routing.router import RESERVED_PREFIX
from harebell.routing.settings import QueueSettings, check_redeclaration, queue_settings, without_undefined_type
from harebell.routing.steps import Steps, complete
from harebell.routing.wire_limits import check_value

__all__ = ["VirtualHost", "described"]

log = logging.getLogger("harebell.broker.vhost")

REMEMBERED: Final = 32  # messages of a history that a queue gets in one step
BINDINGS: Final = 32  # bindings removed in one step, ...
FEW_BINDINGS: Final = 256  # ... but for so many that are removed in one step with their queue or exchange
QUEUE_TYPES: Final = ("classic", "quorum", "stream")


class Host(Protocol):
    """The part of a node that its virtual hosts use."""

    batch: Batch
    timers: Timers
    catalog: Catalog
    store: Store
    parameters: Parameters
    events: Listener
    churn: Churn
    lasting: Lasting
    exchange_types: Mapping[str, ExchangeFactory]

    @property
    def decorators(self) -> Sequence[DecoratorFactory]:
        """The factories of decorators for every queue."""

    def watch_consumers(self, timeout: int) -> None:
        """Check often enough for a queue with this consumer timeout, in milliseconds."""


class VirtualHost:
    """A virtual host. `definition` has its description, tags, default queue type and tracing.

    `trace` is its firehose, None while that is off; `counts` are those of its closed channels, `recv_oct` and
    `send_oct` the bytes of its closed connections; `reply_queues` are the addresses of channels, for direct replies.
    """

    def __init__(self, host: Host, name: str) -> None:
        self.name = name
        self.deleted = False
        self.batch, self.timers, self.catalog, self.events = host.batch, host.timers, host.catalog, host.events
        self.lasting = host.lasting
        self._host = host
        self._store, self._churn = host.store, host.churn
        self.definition = definitions.VirtualHost(name)
        self.router = Router(name, types=host.exchange_types)
        self.queues: dict[str, Queue] = {}
        self.policies = Policies(self)
        self.reply_queues: dict[str, Queue] = {}
        self._stateful = StatefulExchanges(self, host.store)
        self.delays = self._stateful.delays  # of delayed exchanges that ever held a message
        self.delay_folders = self._stateful.folders  # of their messages, by exchange in the catalog
        self.trace: Tracer | None = None
        self.counts = ChannelCounts()
        self.recv_oct = self.send_oct = 0
        self._exchange_counts: dict[str, ExchangeCounts] = {}

    @property
    def limits(self) -> Mapping[str, object]:
        """The limits that operators set, by name: see `rules.limits`."""
        return self._host.parameters.limits(self.name)

    @property
    def decorators(self) -> Sequence[DecoratorFactory]:
        return self._host.decorators

    def watch_consumers(self, timeout: int) -> None:
        self._host.watch_consumers(timeout)

    def clearing(self) -> Work:
        """Delete every queue and every exchange: the virtual host is deleted. OSError when the disk refuses."""
        yield from self.deleting(self.queues.values())
        for exchange in tuple(self.router.exchanges):
            if not exchange.name.startswith(RESERVED_PREFIX) and exchange.name:
                yield from self.deleting_exchange(exchange.name)
                yield
        for exchange in self.router.exchanges:  # the server's own are deleted with the virtual host
            self.events.exchange_deleted(self.name, exchange.name, INTERNAL_USER)

    # -- queues --------------------------------------------------------------------------------------------------

    def queue(self, name: str, connection: Owner | None = None) -> Queue:
        """The queue of that name. NotFound for an unknown one; ResourceLocked when another connection owns it."""
        queue = self.queues.get(name)
        if queue is None:
            raise NotFound(f"no queue '{name}' in vhost '{self.name}'")
        if connection is not None:
            queue.check_access(connection)
        return queue

    def declare_queue(
        self,
        connection: Owner | None,
        name: str,
        *,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Table,
        server_named: bool = False,
        owned: bool = False,
    ) -> Queue:
        """Declare a queue: make it, or find an equal one. `server_named`: the broker made the name ("amq.gen-...").

        `owned`: the caller makes it a session's own after this; so it gets no default type that cannot be exclusive.
        Without a connection the broker itself declares: the queue is not exclusive, and the virtual host's limits do
        not apply.
        """
        arguments = self.with_default_type(arguments, durable, exclusive or owned, auto_delete)
        current = self.queues.get(name)
        where = f"queue '{name}' in vhost '{self.name}'"
        if current is not None:
            self.check_equal(current, connection, durable, exclusive, auto_delete, arguments)
            current.renew_lease()
            self._churn.queue_declared += 1
            return current
        if name.startswith(RESERVED_PREFIX) and not server_named:
            raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")
        settings = queue_settings(
            arguments, where, durable=durable, exclusive=exclusive, auto_delete=auto_delete, server_named=server_named
        )
        if connection is not None:
            check_queue(self, name)
        settings = self.policies.settings_for(name, settings.queue_type, arguments)
        try:
            queue = self.make_queue(
                name,
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
                arguments=arguments,
                owner=connection if exclusive else None,
                settings=settings,
                folder=self._new_folder(settings) if durable and not exclusive else None,
            )
        except OSError as error:
            raise InternalError(f"cannot make {where}: {error.strerror}") from error
        if queue.folder:
            self._store_queue(queue)
        if exclusive and connection is not None:
            connection.exclusive_queues.append(queue)
        self._churn.queue_declared += 1
        self._churn.queue_created += 1
        self.events.queue_created(self.name, queue, INTERNAL_USER if connection is None else connection.user)
        return queue

    def with_default_type(self, arguments: Table, durable: bool, exclusive: bool, auto_delete: bool) -> Table:
        """The arguments of a declaration, with the virtual host's default queue type where they have none.

        RabbitMQ's rule since 3.11: quorum and stream are for queues that are durable, not exclusive and not
        auto-deleted; other declarations stay as they are. The type "undefined" is none.
        """
        arguments = without_undefined_type(arguments)
        kind = self.definition.default_queue_type
        if kind is None or "x-queue-type" in arguments:
            return arguments
        if kind != "classic" and (exclusive or auto_delete or not durable):
            return arguments
        return {**arguments, "x-queue-type": kind}

    def open_journal(self, queue: ClassicQueue) -> None:
        """Open the queue's journal, with the messages in it. OSError when the disk refuses."""
        changed = partial(self.batch.has_written, queue)
        journal = self._store.queue_journal(str(queue), queue.folder, changed)
        queue.use_journal(journal, suspect=self._store.suspect)

    def make_queue(
        self,
        name: str,
        *,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Table,
        owner: Owner | None,
        settings: QueueSettings,
        folder: str | None,
        recovered: bool = False,
    ) -> Queue:
        """Make a queue that does not exist: every queue is made here.

        `folder` is that of its messages, below the data folder, and None for a queue that ends with the process.
        `recovered`: an earlier broker left it there; then `open_journal` adds the messages of a queue that is no
        stream, when everything exists that they may be dead-lettered to. OSError when the disk refuses.
        """
        queue: Queue
        stored = folder
        if settings.queue_type == "stream" and folder is not None:
            folder, stream = self._open_log(name, folder, recovered)
            queue = StreamQueue(self, name, arguments, settings, stream)
        else:
            queue = (GroupQueue if settings.message_group is not None else ClassicQueue)(
                self,
                name,
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
                arguments=arguments,
                owner=owner,
                settings=settings,
            )
        if folder is not None:
            queue.folder = folder
            if isinstance(queue, ClassicQueue) and not recovered:
                try:
                    self.open_journal(queue)
                except OSError:
                    queue.forget()  # its timers must not ring: the next queue of that name is another one
                    raise
        self.queues[name] = queue
        left = self.router.bindings_to(to_queue(name))  # of a queue of that name whose deletion has not ended
        if left:
            self._removed(self.router.unbind_some(left), INTERNAL_USER)
        self.router.add_queue(name)
        queue.decorate(self._host.decorators)
        if folder is not None and folder != stored:
            self._store_queue(queue)
        return queue

    def _new_folder(self, settings: QueueSettings) -> str:
        stream = settings.queue_type == "stream"
        return self._store.streams.new_folder() if stream else self._store.new_queue_folder()

    def _open_log(self, name: str, folder: str, recovered: bool) -> tuple[str, StreamLog]:
        """The stream's log and its folder: another one where the old one is gone, for it is another stream then."""
        streams = self._store.streams
        if not recovered:
            stream = streams.create(folder)
        else:
            try:
                stream = self._recover_log(name, folder)
            except FileNotFoundError as error:
                log.error("stream '%s' in vhost '%s': %s is gone; the stream is empty", name, self.name, error.filename)
                folder = streams.new_folder()
                stream = streams.create(folder)
        stream.on_damage = partial(self._report_damage, name)
        return folder, stream

    def _recover_log(self, name: str, folder: str) -> StreamLog:
        """The log in that folder, its damages reported. FileNotFoundError when there is no folder."""
        stream = self._store.streams.recover(folder)
        for damage in stream.damages:
            self._report_damage(name, damage)
        if stream.cut:
            log.warning(
                "stream '%s' in vhost '%s': cut %d bytes of a torn record at its end", name, self.name, stream.cut
            )
        return stream

    def _report_damage(self, name: str, damage: Damage) -> None:
        log.error(
            "stream '%s' in vhost '%s': %s is damaged: %d bytes at %d cannot be read, with at most %d messages "
            "(offsets %d to before %d)",
            name, self.name, damage.path, damage.size, damage.at, damage.lost, *damage.positions,
        )  # fmt: skip

    def _store_queue(self, queue: Queue) -> None:
        self.catalog.put_queue(
            definitions.QueueDefinition(
                self.name, queue.name, queue.durable, queue.auto_delete, dict(queue.arguments), queue.type
            ),
            queue.folder,
        )

    def check_equal(
        self,
        queue: Queue,
        connection: Owner | None,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Table,
    ) -> None:
        """Raise PreconditionFailed or ResourceLocked unless the declaration matches the queue."""
        queue.check_access(connection)
        if exclusive != queue.exclusive:
            raise queue.locked()
        where = str(queue)
        check_property(where, "durable", durable, queue.durable)
        check_property(where, "auto_delete", auto_delete, queue.auto_delete)
        check_redeclaration(where, arguments, queue.arguments)
        queue_settings({"x-queue-type": queue.type, **arguments}, where)

    def change_queue(self, name: str, changes: Mapping[str, FieldValue], connection: Owner | None = None) -> Queue:
        """Change a queue's arguments (`changes.change_queue`). Returns it. Raises the errors of `queue` too."""
        queue = self.queue(name, connection)
        kind = queue.settings.queue_type
        change_queue(queue, changes, lambda arguments: self.policies.settings_for(name, kind, arguments))
        self.batch.end()
        if queue.folder:
            self._store_queue(queue)
        self.events.act(self.name, "queue", name, "changed", told={"arguments": queue.arguments})
        return queue

    def deleting(self, queues: Iterable[Queue]) -> Work:
        """Delete these queues, one a step."""
        for queue in tuple(queues):
            yield from self.deleting_queue(queue)
            yield

    def deleting_queue(
        self, queue: Queue, answer: Callable[[int], None] | None = None, *, user: str = INTERNAL_USER
    ) -> Steps[None]:
        """Delete the queue and cancel its consumers. Its messages go to its alternate exchange before, if it has one.

        A queue without messages, or without an alternate exchange, is deleted in the first step; no route leads to it
        any more, while many bindings are removed in further ones. `answer` is called when all is done, with the number
        of ready messages; without many bindings before the consumers are cancelled: a client that deletes the queue
        that it consumes from gets its answer first, as with RabbitMQ.
        """
        if self._has(queue) and queue.settings.orphan_exchange is not None and isinstance(queue, ClassicQueue):
            yield from rerouting(queue)
        if self._has(queue):
            count, consumers = queue.message_count, queue.everyone()
            rest = self._delete_queue(queue, user)
            if answer is not None and not rest:
                answer(count)
            for consumer in consumers:
                consumer.cancelled_by_broker()
            yield from self._unbinding(rest, INTERNAL_USER)
            if answer is not None and rest:
                answer(count)
        elif answer is not None:
            answer(0)

    def _has(self, queue: Queue) -> bool:
        """Whether this queue itself is here: another one may have its name by now."""
        return self.queues.get(queue.name) is queue

    def _delete_queue(self, queue: Queue, user: str) -> tuple[Binding, ...]:
        """Delete a queue but for those of its bindings that are returned; no route leads to it any more."""
        journal = queue.journal if isinstance(queue, ClassicQueue) else None
        queue.forget()
        for decorator in queue.decorators:
            decorator.deleted()
        del self.queues[queue.name]
        bindings = self.router.forget_queue(queue.name)
        self._removed(self.router.unbind_some(bindings[:FEW_BINDINGS]), INTERNAL_USER)
        if queue.owner is not None and queue in queue.owner.exclusive_queues:
            queue.owner.exclusive_queues.remove(queue)
        if queue.folder:
            self.catalog.remove_queue(self.name, queue.name)
        if isinstance(queue, StreamQueue):
            self.batch.remove_after_commit(queue.log.delete())
        if journal is not None:
            self.batch.remove_after_commit(journal.delete())
        self._churn.queue_deleted += 1
        gone = self.lasting.gone[queue.type]
        gone.add(queue.counts)
        queue.counts = gone
        self.events.queue_deleted(self.name, queue, user)
        return bindings[FEW_BINDINGS:]

    def _unbinding(self, bindings: Sequence[Binding], user: str) -> Work:
        """Remove bindings of an object that is deleted, in steps."""
        for start in range(0, len(bindings), BINDINGS):
            yield
            self._removed(self.router.unbind_some(bindings[start : start + BINDINGS]), user)

    def add_reply_queue(self, queue: Queue) -> None:
        """Have the default exchange reach a channel's own address."""
        self.reply_queues[queue.name] = queue
        self.router.add_address(queue.name)

    def remove_reply_queue(self, queue: Queue) -> None:
        """Have no route lead to the address any more."""
        del self.reply_queues[queue.name]
        self.router.remove_address(queue.name)

    def receivers(self, names: Sequence[str]) -> tuple[Queue, ...]:
        """The queues on a route, and the channels' own addresses, which are no queues to anybody else."""
        queues, addresses = self.queues, self.reply_queues
        return tuple([queues[name] if name in queues else addresses[name] for name in names])

    def reply_queue(self, name: str) -> Queue | None:
        """The target of a reply to `name` through the default exchange: a queue, or a channel's own address."""
        return self.queues.get(name) or self.reply_queues.get(name)

    # -- exchanges and bindings ----------------------------------------------------------------------------------

    def bind(
        self, source: str, destination: Destination, binding_key: str, arguments: Table, *, user: str = INTERNAL_USER
    ) -> None:
        """Bind; a queue newly bound to a recent-history exchange gets the messages that the exchange remembers."""
        complete(self.binding(source, destination, binding_key, arguments, user=user))

    def is_long_to_bind(self, source: str) -> bool:
        """Whether a queue that is bound to this exchange gets many messages."""
        return len(self._stateful.history_of(source)) > REMEMBERED

    def binding(
        self, source: str, destination: Destination, binding_key: str, arguments: Table, *, user: str = INTERNAL_USER
    ) -> Steps[None]:
        """As `bind`, in steps: the binding is made in the first one, and remembered messages follow."""
        binding = self.router.bind(source, destination, binding_key, arguments)
        if binding is not None:
            if self._is_durable(binding):
                self.catalog.put_binding(self._stored_binding(binding))
            self.events.binding("created", self.name, binding, user)
        if binding is not None and destination.kind == "queue":
            queue = self.queues[destination.name]
            for number, message in enumerate(tuple(self._stateful.history_of(source)), 1):
                if message.ttl is not None:
                    queue.enrich()
                queue.publish(message)
                if not number % REMEMBERED:
                    self.batch.relieve()
                    yield

    def unbind(
        self, source: str, destination: Destination, binding_key: str, arguments: Table, *, user: str = INTERNAL_USER
    ) -> None:
        """Remove a binding, and the auto_delete exchanges that are unused then."""
        removed = self.router.unbind(source, destination, binding_key, arguments)
        for binding in removed.bindings[:1]:  # the others are removed with their exchanges
            self.catalog.remove_binding(self._stored_binding(binding))
        self._removed(removed, user, asked=1)

    def _is_durable(self, binding: Binding) -> bool:
        """Whether both ends survive the process."""
        kind, name = binding.destination
        durable = bool(self.queues[name].folder) if kind == "queue" else self.router.exchange(name).durable
        return durable and self.router.exchange(binding.source).durable

    def _stored_binding(self, binding: Binding) -> definitions.BindingDefinition:
        kind, name = binding.destination
        return definitions.BindingDefinition(
            self.name, binding.source, name, kind, binding.binding_key, dict(binding.arguments)
        )

    def declare_exchange(
        self,
        name: str,
        kind: str,
        *,
        passive: bool,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Table,
        user: str = INTERNAL_USER,
    ) -> None:
        """Declare an exchange: make it, or find an equal one, under the policies that apply to it."""
        if self.router.declare_exchange(
            name,
            kind,
            passive=passive,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments,
        ):
            self.policies.apply_to_exchange(name)
            if durable:
                self.catalog.put_exchange(
                    definitions.ExchangeDefinition(
                        self.name, name, kind, durable, auto_delete, internal, dict(arguments)
                    ),
                    self._stateful.new_folder(name),
                )
            self.events.exchange_created(self.name, self.router.exchange(name), user)

    def check_unused(self, name: str) -> None:
        """Raise what the deletion of an exchange is refused for that must not be the source of a binding."""
        self.router.check_unused(name)

    def deleting_exchange(self, name: str, *, user: str = INTERNAL_USER) -> Work:
        """Delete the exchange; of many bindings all but the last ones are removed before, in steps."""
        self.router.check_deletion(name)
        if self.router.has_exchange(name):
            exchange = self.router.exchange(name)
            bindings = (*exchange.bindings(), *self.router.bindings_to(to_exchange(name)))
            yield from self._unbinding(bindings[:-FEW_BINDINGS], user)
            if self.router.has_exchange(name) and self.router.exchange(name) is exchange:
                self._removed(self.router.delete_exchange(name), user)

    def _removed(self, removed: Removed, user: str, *, asked: int = 0) -> None:
        """Drop the state of deleted exchanges, and report them and the bindings deleted with them.

        `asked`: so many of the bindings, the first ones, were removed for themselves.
        """
        for name in removed.exchanges:
            self._exchange_counts.pop(name, None)
            self.catalog.remove_exchange(self.name, name)
            self._stateful.forget(name)
            self.events.exchange_deleted(self.name, name, user)
        for number, binding in enumerate(removed.bindings):
            self.events.binding("deleted", self.name, binding, user, implied=number >= asked)

    def revoke_delayed(self, exchange: str, message_id: str) -> Steps[int]:
        """Drop the messages that a delayed exchange holds under this id, in steps. Returns their number."""
        revoked = yield from self._stateful.revoke(exchange, message_id)
        if revoked:
            self.events.act(self.name, "exchange", exchange, "delayed.deleted", told={"messages": revoked})
        return revoked

    def delays_of(self, name: str) -> Delays:
        """The delays of a delayed exchange; a durable one has those from before a restart too."""
        return self._stateful.delays_of(name)

    def exchange_sinks(self, route: Route, keys: tuple[str, ...]) -> tuple[Sink, ...]:
        """The exchanges on the route that hold the message: delays and histories."""
        return self._stateful.sinks(route, keys)

    def exchange_counts(self, name: str) -> ExchangeCounts:
        counts = self._exchange_counts.get(name)
        if counts is None:
            counts = self._exchange_counts[name] = ExchangeCounts()
        return counts

    def count_publications(self, exchange: str, sinks: tuple[Sink, ...], count: int) -> None:
        """Count `count` messages that were published to the exchange and went to all of these sinks."""
        queues = [sink for sink in sinks if isinstance(sink, Queue)]
        for queue in queues:
            queue.counts.publish += count
        if self.router.has_exchange(exchange):  # else it was deleted since
            counts = self.exchange_counts(exchange)
            counts.publish_in += count
            counts.publish_out += count * len(queues)

    def announce(self, exchange: str, routing_key: str, properties: Properties, body: bytes = b"") -> None:
        """Publish a message of the broker's own. It is encoded only when it reaches a queue.

        It may tell of a client's headers or arguments, which fill a frame by themselves: then its longest headers are
        left out.
        """
        route = route_message(self.router, exchange, (routing_key,), lambda: properties, lambda: body, lenient=True)
        sinks = (*self.receivers(route.queues), *self.exchange_sinks(route, (routing_key,)))
        if not sinks:
            return
        try:
            address = Address(exchange, routing_key)
            properties.headers = without_long_headers(properties.headers or {}, FRAME_MAX)
            frames = encode_content(1, properties, body, FRAME_MAX)
        except LocalProtocolError as error:  # the key or headers are too long: they contain those of a client's message
            log.warning("%s in vhost '%s': cannot say %s: %s", exchange, self.name, routing_key, error)
            return
        message = Message(address, Content(1, b"", frames, len(body)))
        for sink in sinks:
            sink.publish(message)


def described(definition: definitions.VirtualHost) -> definitions.VirtualHost:
    """The definition, completed from its metadata. InvalidArgument for an invalid default queue type."""
    check_value(
        [definition.description, *(definition.tags or ())], f"description and tags of vhost '{definition.name}'"
    )
    told = definition.metadata or {}
    description, tags = definition.description, definition.tags
    if description is None and isinstance(told.get("description"), str):
        description = str(told["description"])
    listed = told.get("tags")
    if tags is None and isinstance(listed, list):
        tags = tuple(map(str, listed))
    kind = definition.default_queue_type or told.get("default_queue_type")
    if kind == "undefined":  # RabbitMQ 3.12 and 3.13 write it for no default
        kind = None
    if kind is not None and kind not in QUEUE_TYPES:
        raise InvalidArgument(
            f"vhost '{definition.name}': default queue type {kind!r} is none of {', '.join(QUEUE_TYPES)}"
        )
    return replace(definition, description=description, tags=tags, default_queue_type=kind)
