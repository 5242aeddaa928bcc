"""What was declared on a connection: recorded as the methods that declared it, to be declared again after a reconnect.

Rules:
1. An entity is recorded once the broker has accepted it, and forgotten once it is deleted or unbound: that one and no
   other. A binding is known by both ends, its key and its arguments. Passive declares are questions and leave no trace.
2. What the broker deletes by itself goes too: with a queue or an exchange its bindings; with the last consumer an
   auto-delete queue; with the last binding from it an auto-delete exchange.
3. Everything is recorded under the names that the program knows. A queue whose name the broker chose gets another one
   when it is declared again: `renamed` leads from the first name to the present one, and `translated` puts it into
   requests.

No I/O here: `plan` says what to send, `redeclare` sends it.
"""

from __future__ import annotations

import copy
import weakref
from collections import Counter
from collections.abc import Collection
from typing import Final, Literal

from harebell import errors
from harebell.client.core.slots import Reply
from harebell.protocol.v091 import methods as m
from harebell.protocol.v091.fields import write_table

__all__ = ["Bind", "Entity", "Key", "Late", "Topology", "described", "key_of"]

Late = dict[str, errors.HarebellError]
"""Queues that are unavailable until the broker has closed a lost connection of ours, each with the error that it gave:
that connection still holds them (405), or took them with it (404)."""

Bind = m.ExchangeBind | m.QueueBind
Entity = m.ExchangeDeclare | m.QueueDeclare | m.ExchangeBind | m.QueueBind

_NAMING_A_QUEUE: Final = (
    m.QueueDeclare,
    m.QueueBind,
    m.QueueUnbind,
    m.QueuePurge,
    m.QueueDelete,
    m.BasicConsume,
    m.BasicGet,
)
Key = tuple[type[m.Method], str, str, str, bytes]
"""What an entity is known by: its kind, and its name or (for a binding) its ends, its key and its arguments."""


def described(entity: m.Method) -> str:
    """The entity as a text names it."""
    match entity:
        case m.ExchangeDeclare():
            return f"exchange {entity.exchange!r}"
        case m.QueueDeclare():
            return f"queue {entity.queue!r}"
        case m.ExchangeBind():
            return f"binding of exchange {entity.destination!r} to {entity.source!r} with key {entity.routing_key!r}"
        case m.QueueBind():
            return f"binding of queue {entity.queue!r} to {entity.exchange!r} with key {entity.routing_key!r}"
    return entity.NAME


def _ends(bind: Bind | m.ExchangeUnbind | m.QueueUnbind) -> tuple[str, str]:
    """(destination, source)"""
    if isinstance(bind, m.ExchangeBind | m.ExchangeUnbind):
        return bind.destination, bind.source
    return bind.queue, bind.exchange


def key_of(entity: Entity) -> Key:
    """What the entity is known by."""
    match entity:
        case m.ExchangeDeclare():
            return m.ExchangeDeclare, entity.exchange, "", "", b""
        case m.QueueDeclare():
            return m.QueueDeclare, entity.queue, "", "", b""
    return _key(entity)


def _key(bind: Bind | m.ExchangeUnbind | m.QueueUnbind) -> Key:
    kind = m.ExchangeBind if isinstance(bind, m.ExchangeBind | m.ExchangeUnbind) else m.QueueBind
    arguments = write_table(dict(sorted(bind.arguments.items())))
    return (kind, *_ends(bind), bind.routing_key, arguments)


class Topology:
    """The exchanges, queues and bindings of one connection.

    scope     which of them `plan` declares again: "all", "transient" or "none"
    renamed   the present name of each server-named queue that has changed it
    declared_again  the queues that were declared again on the present connection
    declared_by  the channels that have declared each entity
    given_up  what is no longer declared again because the broker ended a connection over it: to be reported
    """

    def __init__(self, scope: Literal["all", "transient", "none"] = "all") -> None:
        self.scope = scope
        self.renamed: dict[str, str] = {}
        self.declared_again: set[str] = set()
        self.exchanges: dict[str, m.ExchangeDeclare] = {}
        self.queues: dict[str, m.QueueDeclare] = {}
        self.server_named: set[str] = set()
        self.binds: dict[Key, Bind] = {}
        self.declared_by: dict[Key, tuple[weakref.ref[object], ...]] = {}
        self.given_up: list[tuple[str, errors.HarebellError]] = []
        self._consumers: Counter[str] = Counter()

    # -- what the program did ----------------------------------------------------------------------------------------

    def record(self, request: m.Method, reply: Reply | None = None, channel: object = None) -> None:
        """The broker has accepted this request, which the channel has sent."""
        key = self._record(request, reply)
        if key is not None and channel is not None:
            others = [other for other in self.declared_by.get(key, ()) if other() not in (None, channel)]
            self.declared_by[key] = (*others, weakref.ref(channel))

    def keys_of(self, channel: object) -> set[Key]:
        """What the channel has declared, and is there."""
        return {key for key, by in self.declared_by.items() if any(other() is channel for other in by)}

    def _record(self, request: m.Method, reply: Reply | None) -> Key | None:
        """The key of what the request has declared."""
        match request:
            case m.ExchangeDeclare(passive=False) if request.exchange:
                self.exchanges[request.exchange] = request
                return key_of(request)
            case m.QueueDeclare(passive=False) if isinstance(reply, m.QueueDeclareOk):
                if not request.queue:
                    request = copy.copy(request)
                    request.queue = reply.queue
                    self.server_named.add(reply.queue)
                self.queues[request.queue] = request
                return key_of(request)
            case m.ExchangeBind() | m.QueueBind():
                self.binds[_key(request)] = request
                return _key(request)
            case m.ExchangeUnbind() | m.QueueUnbind():
                bind = self._pop_bind(_key(request))
                if bind is not None:
                    self._source_unbound(_ends(bind)[1])
            case m.QueueDelete():
                self.forget_queue(request.queue)
            case m.ExchangeDelete():
                self.forget_exchange(request.exchange)
        return None

    def consuming(self, queue: str) -> None:
        """A subscription to the queue has begun."""
        self._consumers[queue] += 1

    def consumer_gone(self, queue: str, *, comes_back: bool = False) -> None:
        """A subscription to the queue has ended for good; `comes_back`: another one will take its place."""
        self._consumers[queue] -= 1
        if self._consumers[queue] <= 0:
            del self._consumers[queue]
            declared = self.queues.get(queue)
            if declared is not None and declared.auto_delete and not comes_back:
                self.forget_queue(queue)

    def forget_queue(self, name: str) -> None:
        self.queues.pop(name, None)
        self.declared_by.pop(key_of(m.QueueDeclare(name)), None)
        self.server_named.discard(name)
        self.renamed.pop(name, None)
        self.declared_again.discard(name)
        self._forget_binds([key for key in self.binds if key[0] is m.QueueBind and key[1] == name])

    def forget_exchange(self, name: str) -> None:
        self.exchanges.pop(name, None)
        self.declared_by.pop(key_of(m.ExchangeDeclare(name)), None)
        keys = [key for key in self.binds if key[2] == name or (key[0] is m.ExchangeBind and key[1] == name)]
        self._forget_binds(keys)

    def give_up(self, request: m.Method, error: errors.ConnectionError) -> None:
        """The broker ended the connection over this request: sent again after each reconnect, it would end each."""
        if (error.class_id, error.method_id) != (request.CLASS_ID, request.METHOD_ID):
            return
        match request:
            case m.ExchangeDeclare():
                self.forget_exchange(request.exchange)
            case m.QueueDeclare():
                self.forget_queue(request.queue)
            case m.ExchangeBind() | m.QueueBind():
                self._pop_bind(_key(request))
        self.given_up.append((described(request), error))

    def _pop_bind(self, key: Key) -> Bind | None:
        self.declared_by.pop(key, None)
        return self.binds.pop(key, None)

    def _forget_binds(self, keys: list[Key]) -> None:
        for key in keys:
            self._pop_bind(key)
        for source in {key[2] for key in keys}:
            self._source_unbound(source)

    def _source_unbound(self, source: str) -> None:
        exchange = self.exchanges.get(source)
        if exchange is not None and exchange.auto_delete and not any(key[2] == source for key in self.binds):
            self.forget_exchange(source)

    # -- declaring it again --------------------------------------------------------------------------------------------

    def translated(self, request: m.Method) -> m.Method:
        """The request with the present name of its queue."""
        if not self.renamed or not isinstance(request, _NAMING_A_QUEUE) or request.queue not in self.renamed:
            return request
        request = copy.copy(request)
        request.queue = self.renamed[request.queue]
        return request

    def queue_named(self, request: m.Method) -> str:
        """The queue that the request names, as the program knows it; "" for none."""
        return request.queue if isinstance(request, _NAMING_A_QUEUE) else ""

    def has_auto_delete(self, queue: str) -> bool:
        """Whether the queue goes with its last consumer."""
        declared = self.queues.get(queue)
        return declared is not None and declared.auto_delete

    def with_auto_delete(self, queues: Collection[str]) -> set[Key]:
        """Those of the queues that go with their last consumer, and their bindings."""
        gone = {queue for queue in queues if self.has_auto_delete(queue)}
        return {key_of(self.queues[queue]) for queue in gone} | {
            key for key in self.binds if key[0] is m.QueueBind and key[1] in gone
        }

    def is_stream(self, queue: str) -> bool:
        """Whether the queue was declared as a stream."""
        declared = self.queues.get(queue)
        return declared is not None and declared.arguments.get("x-queue-type") == "stream"

    def has_exclusive(self, queue: str) -> bool:
        """Whether the queue is this connection's own."""
        declared = self.queues.get(queue)
        return declared is not None and declared.exclusive

    def may_have_gone(self, queue: str) -> bool:
        """Whether a queue that was just declared again can go with the connection that was lost.

        Its last consumer was there (auto-delete), or the broker notices the end late: RabbitMQ 3.10 deletes an
        exclusive queue by its name, also when another connection has declared it meanwhile.
        """
        declared = self.queues.get(queue)
        return declared is not None and (declared.exclusive or declared.auto_delete) and queue in self.declared_again

    def plan(
        self, only: set[str] | None = None, keys: Collection[Key] | None = None
    ) -> tuple[list[m.ExchangeDeclare], list[m.QueueDeclare], list[Bind]]:
        """What to declare, in this order: bindings between exchanges come before those of queues.

        only  these queues and their bindings alone
        keys  what is known by these alone
        """
        if self.scope == "none":
            return [], [], []
        transient = self.scope == "transient"
        exchanges = [x for x in self.exchanges.values() if not transient or _transient(x)]
        queues = [q for q in self.queues.values() if not transient or _transient(q)]
        binds = [bind for bind in self.binds.values() if not transient or self._on_transient(bind)]
        if only is not None:
            exchanges = []
            queues = [queue for queue in queues if queue.queue in only]
            binds = [bind for bind in binds if isinstance(bind, m.QueueBind) and bind.queue in only]
        if keys is not None:
            exchanges = [exchange for exchange in exchanges if key_of(exchange) in keys]
            queues = [queue for queue in queues if key_of(queue) in keys]
            binds = [bind for bind in binds if _key(bind) in keys]
        return exchanges, queues, sorted(binds, key=lambda bind: isinstance(bind, m.QueueBind))

    def _on_transient(self, bind: Bind) -> bool:
        destination, source = _ends(bind)
        to = (self.queues if isinstance(bind, m.QueueBind) else self.exchanges).get(destination)
        origin = self.exchanges.get(source)
        return (to is not None and _transient(to)) or (origin is not None and _transient(origin))


def _transient(entity: m.ExchangeDeclare | m.QueueDeclare) -> bool:
    return not entity.durable or entity.auto_delete or (isinstance(entity, m.QueueDeclare) and entity.exclusive)
