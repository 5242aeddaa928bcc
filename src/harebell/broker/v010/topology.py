"""Declarations, bindings, queries, purges and deletions of exchanges and queues in a session.

The codes are those that the specification names in the rules of each command, and where Qpid's brokers and the tests of
their clients agree on another one, theirs: 531 for a queue without a name, 541 for a binding to a headers exchange
without x-match.

An exclusive queue belongs to its session, and to nobody once the session has ended; with auto-delete it is deleted
then. For the model it is an ordinary queue with an owner, so that a durable one is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, cast

from harebell.broker.audit import Origin, performed
from harebell.broker.auth import Access
from harebell.broker.connections.consume_arguments import refuse_selector
from harebell.broker.node import Node
from harebell.broker.queues.base import NO_LOCAL, Owner, Queue
from harebell.broker.queues.stream import StreamQueue
from harebell.broker.slices import Work
from harebell.broker.v010.commands import LATER, Outcome
from harebell.broker.vhost import VirtualHost
from harebell.errors import (
    IllegalArgument,
    InternalError,
    NotAllowed,
    NotFound,
    NotImplemented as NotImplemented540,
    PreconditionFailed,
    ResourceLocked,
    WrongArgument,
)
from harebell.protocol.conversion.field_values import to_map, to_table
from harebell.protocol.v010 import Command, Map, Struct, commands as c, structs as s
from harebell.protocol.v091 import Table
from harebell.routing import Exchange, to_queue
from harebell.routing.exchanges.exchange import Binding
from harebell.routing.naming import RESERVED_PREFIX
from harebell.routing.qpid_arguments import ALTERNATE, is_qpid
from harebell.routing.steps import Steps, complete
from harebell.routing.table_values import canonical

__all__ = ["HANDLERS", "Topology", "table_of"]

RESERVED: Final = (RESERVED_PREFIX, "qpid.")  # of new names; an exchange "qpid..." is of a client of another dialect
X_MATCH: Final = "x-match"
BY_NAME: Final = (NO_LOCAL, ALTERNATE)
COMPARED: Final = 512  # bindings, exchanges or queues that are compared in one step


class Deleting(Protocol):
    """The subscriptions of the session."""

    def deletes(self, queue: Queue) -> None:
        """Note that the session deletes a queue: its own subscriptions end without an error."""


class TopologySession(Owner, Protocol):
    """The session of the commands."""

    node: Node
    vhost: VirtualHost
    access: Access

    @property
    def origin(self) -> Origin: ...
    @property
    def subscriptions(self) -> Deleting: ...
    def work(self, number: int, command: Command, work: Work) -> None:
        """Execute a long command in slices; the connection's input waits until that is done."""

    def complete(self, low: int, high: int) -> None: ...
    def result(self, number: int, result: Struct) -> None: ...


def table_of(arguments: Map | None, what: str, known: Callable[[str], bool] = lambda _: False) -> Table:
    """The arguments as a table. NotImplemented for those that this broker does not know.

    `known` says of a name without "x-" whether it is checked elsewhere.
    """
    for name in arguments or ():
        if known(name):
            continue
        if not name.startswith("x-"):
            raise NotImplemented540(f"{what}: the argument '{name}' is not implemented")
    return to_table(arguments or {})[0]


class Topology:
    """The declarations of one session."""

    def __init__(self, session: TopologySession) -> None:
        self._session = session
        self._vhost = session.vhost

    def _work(self, number: int, command: Command, work: Work) -> None:
        """Do long work in the client's name."""
        events, origin = self._session.node.events, self._session.origin
        self._session.work(number, command, performed(events, origin, work, self._vhost.name, command))

    # -- exchanges -----------------------------------------------------------------------------------------------

    def _exchange_declare(self, number: int, command: c.ExchangeDeclare) -> Outcome:
        name, kind, router = command.exchange, command.type, self._vhost.router
        arguments = table_of(command.arguments, "exchange.declare")
        refuse_selector(arguments, f"exchange '{name}'")
        if command.passive:
            exchange = self._exchange(name) if name else None
            if exchange is not None and kind and exchange.type != kind:
                raise NotAllowed(f"exchange '{name}' is of type '{exchange.type}', not '{kind}'")
            return None
        if not name:
            raise WrongArgument("exchange.declare: the default exchange cannot be declared")
        if not router.has_exchange(name) and name.startswith(RESERVED):
            raise NotAllowed(f"exchange name '{name}' has a reserved prefix")
        if kind not in router.types:
            raise NotFound(f"unknown exchange type '{kind}'")
        alternate = command.alternate_exchange
        if router.has_exchange(name):
            self._check_exchange(router.exchange(name), kind, alternate)
            return None
        if alternate:
            self._exchange(alternate)
            arguments[ALTERNATE] = alternate
        self._session.access.declare_exchange(name, kind, arguments)
        self._vhost.declare_exchange(
            name,
            kind,
            passive=False,
            durable=command.durable,
            auto_delete=command.auto_delete,
            internal=False,
            arguments=arguments,
            user=self._session.user,
        )
        return None

    def _check_exchange(self, exchange: Exchange, kind: str, alternate: str | None) -> None:
        """Check the declaration of an exchange that exists: `durable` and `auto_delete` do not matter then."""
        if exchange.type != kind:
            raise NotAllowed(f"exchange '{exchange.name}' is of type '{exchange.type}', not '{kind}'")
        if alternate and alternate != exchange.alternate:
            raise NotAllowed(f"exchange '{exchange.name}' has the alternate '{exchange.alternate}', not '{alternate}'")

    def _exchange_delete(self, number: int, command: c.ExchangeDelete) -> Outcome:
        name = command.exchange
        if not name:
            raise WrongArgument("exchange.delete: the default exchange cannot be deleted")
        exchange = self._exchange(name)
        if name.startswith(RESERVED_PREFIX):
            raise NotAllowed(f"exchange '{name}' is the broker's own")
        self._session.access.delete_exchange(name)
        self._work(number, command, self._deleting_exchange(number, exchange, if_unused=command.if_unused))
        return LATER

    def _deleting_exchange(self, number: int, exchange: Exchange, *, if_unused: bool) -> Work:
        name = exchange.name
        yield from self._checking_alternates(name)
        if self._exchange(name) is not exchange:
            raise NotFound(f"exchange '{name}' in vhost '{self._vhost.name}' is another one by now")
        if if_unused and exchange.is_bound:
            raise PreconditionFailed(f"exchange '{name}' is in use")
        yield from self._vhost.deleting_exchange(name, user=self._session.user)
        self._session.complete(number, number)

    def _checking_alternates(self, name: str) -> Work:
        """Raise NotAllowed where an exchange or a queue has the exchange as its alternate."""
        for count, exchange in enumerate(tuple(self._vhost.router.exchanges), 1):
            if exchange.alternate == name:
                raise NotAllowed(f"exchange '{name}' is the alternate of exchange '{exchange.name}'")
            if not count % COMPARED:
                yield
        for count, queue in enumerate(tuple(self._vhost.queues.values()), 1):
            if name in (queue.settings.dead_letter_exchange, queue.settings.orphan_exchange):
                raise NotAllowed(f"exchange '{name}' is the alternate of {queue}")
            if not count % COMPARED:
                yield

    def _exchange_query(self, number: int, command: c.ExchangeQuery) -> Outcome:
        name, router = command.name or "", self._vhost.router
        if not router.has_exchange(name):
            return s.ExchangeQueryResult(not_found=True)
        exchange = router.exchange(name)
        return s.ExchangeQueryResult(exchange.type, exchange.durable, False, to_map(exchange.arguments))

    def _exchange_bind(self, number: int, command: c.ExchangeBind) -> Outcome:
        exchange, queue = self._ends(command.exchange, command.queue, "exchange.bind")
        arguments = to_table(command.arguments or {})[0]
        refuse_selector(arguments, "a binding")
        if exchange.type == "headers" and X_MATCH not in arguments:
            raise InternalError("exchange.bind: a binding to a headers exchange needs x-match")
        self._session.access.bind("bind", exchange.name, to_queue(queue.name), command.binding_key)
        work = self._vhost.binding(
            exchange.name, to_queue(queue.name), command.binding_key, arguments, user=self._session.user
        )
        if not self._vhost.is_long_to_bind(exchange.name):
            complete(work)
            return None
        self._work(number, command, self._binding(number, work))
        return LATER

    def _binding(self, number: int, work: Steps[None]) -> Work:
        yield from work
        self._session.complete(number, number)

    def _exchange_unbind(self, number: int, command: c.ExchangeUnbind) -> Outcome:
        exchange, queue = self._ends(command.exchange, command.queue, "exchange.unbind")
        self._session.access.bind("unbind", exchange.name, to_queue(queue.name), command.binding_key)
        self._work(number, command, self._unbinding(number, exchange.name, queue, command.binding_key))
        return LATER

    def _unbinding(self, number: int, source: str, queue: Queue, key: str) -> Work:
        found = False
        for count, each in enumerate(self._vhost.router.bindings_to(to_queue(queue.name)), 1):
            if each.source == source and each.binding_key == key:
                found = True
                arguments, user = cast("Table", dict(each.arguments)), self._session.user
                self._vhost.unbind(source, each.destination, key, arguments, user=user)
                yield
            elif not count % COMPARED:
                yield
        if not found:
            raise NotFound(f"queue '{queue.name}' is not bound to '{source}' by '{key}'")
        self._session.complete(number, number)

    def _exchange_bound(self, number: int, command: c.ExchangeBound) -> Outcome:
        router, result = self._vhost.router, s.ExchangeBoundResult()
        name, queue, key = command.exchange or "", command.queue, command.binding_key
        result.exchange_not_found = not router.has_exchange(name)
        result.queue_not_found = bool(queue) and queue not in self._vhost.queues
        if result.exchange_not_found or result.queue_not_found:
            return result
        bindings = tuple(router.exchange(name).bindings())
        steps = _compared(result, bindings, queue, key, to_table(command.arguments or {})[0])
        if len(bindings) <= COMPARED:
            return complete(steps)
        self._session.work(number, command, self._answering(number, steps))
        return LATER

    def _answering(self, number: int, steps: Steps[s.ExchangeBoundResult]) -> Work:
        self._session.result(number, (yield from steps))

    def _exchange(self, name: str) -> Exchange:
        if not self._vhost.router.has_exchange(name):
            raise NotFound(f"no exchange '{name}' in vhost '{self._vhost.name}'")
        return self._vhost.router.exchange(name)

    def _ends(self, exchange: str, queue: str, command: str) -> tuple[Exchange, Queue]:
        """The ends of a binding."""
        if not exchange:
            raise WrongArgument(f"{command}: the default exchange has its own bindings, and no others")
        if not queue:
            raise WrongArgument(f"{command}: the name of a queue is needed")
        return self._exchange(exchange), self._vhost.queue(queue, self._session)

    # -- queues --------------------------------------------------------------------------------------------------

    def _queue_declare(self, number: int, command: c.QueueDeclare) -> Outcome:
        name = self._named(command.queue, "queue.declare")
        arguments = table_of(command.arguments, "queue.declare", lambda name: is_qpid(name) or name in BY_NAME)
        refuse_selector(arguments, f"queue '{name}'")
        if command.passive:
            found = self._vhost.queue(name)  # of another session too: a reply queue is checked so
            if command.exclusive and found.owner is not self._session:
                raise ResourceLocked(f"{found} is not the session's own")
            found.renew_lease()
            return None
        queue = self._vhost.queues.get(name)
        if queue is None:
            queue = self._new_queue(name, command, arguments)
        else:
            self._check_queue(queue, command)
        if command.exclusive and queue.owner is not self._session:
            self._own(queue)
        return None

    def _new_queue(self, name: str, command: c.QueueDeclare, arguments: Table) -> Queue:
        if name.startswith(RESERVED):
            raise NotAllowed(f"queue name '{name}' has a reserved prefix")
        if command.exclusive and arguments.get("x-queue-type") == "stream":  # before there is one
            raise PreconditionFailed(f"queue '{name}' would be a stream, which cannot be exclusive")
        alternate = command.alternate_exchange
        if alternate:
            self._exchange(alternate)
            arguments[ALTERNATE] = alternate
        self._session.access.declare_queue(name, arguments, new=True, server_named=False)
        queue = self._vhost.declare_queue(
            self._session,
            name,
            durable=command.durable,
            exclusive=False,
            auto_delete=command.auto_delete,
            arguments=arguments,
            owned=command.exclusive,
        )
        queue.ends_with_owner = command.exclusive and command.auto_delete
        return queue

    def _check_queue(self, queue: Queue, command: c.QueueDeclare) -> None:
        """Check the declaration of a queue that exists: `durable` and `auto_delete` do not matter then."""
        queue.check_access(self._session)
        self._session.access.declare_queue(queue.name, {}, new=False, server_named=False)
        alternate = command.alternate_exchange
        if alternate and alternate != queue.settings.orphan_exchange:
            raise NotAllowed(f"{queue} has the alternate '{queue.settings.orphan_exchange}', not '{alternate}'")
        if command.exclusive and queue.owner is not self._session and queue.everyone():
            raise ResourceLocked(f"{queue} has subscribers of other sessions")
        queue.renew_lease()

    def _own(self, queue: Queue) -> None:
        """Make a queue the session's own."""
        if isinstance(queue, StreamQueue):
            raise PreconditionFailed(f"{queue} is a stream, which cannot be exclusive")
        queue.owner, queue.exclusive = self._session, True
        self._session.exclusive_queues.append(queue)

    def _queue_delete(self, number: int, command: c.QueueDelete) -> Outcome:
        queue = self.queue(command.queue, "queue.delete")
        self._session.access.delete_queue(queue.name)
        if command.if_empty and not queue.is_empty:
            raise PreconditionFailed(f"{queue} is not empty")
        if command.if_unused and queue.everyone():
            raise PreconditionFailed(f"{queue} has subscribers")
        self._session.subscriptions.deletes(queue)
        self._work(number, command, self._deleting_queue(number, queue))
        return LATER

    def _deleting_queue(self, number: int, queue: Queue) -> Work:
        yield from self._vhost.deleting_queue(queue, user=self._session.user)
        self._session.complete(number, number)

    def _queue_purge(self, number: int, command: c.QueuePurge) -> Outcome:
        queue = self.queue(command.queue, "queue.purge")
        self._session.access.read_queue("purge", queue.name)
        self._work(number, command, self._purging(number, queue))
        return LATER

    def _purging(self, number: int, queue: Queue) -> Work:
        yield from queue.purging()
        self._session.node.events.act(self._vhost.name, "queue", queue.name, "purged")
        self._session.complete(number, number)

    def _queue_query(self, number: int, command: c.QueueQuery) -> Outcome:
        queue = self._vhost.queues.get(command.queue)
        if queue is None:
            return s.QueueQueryResult()
        return s.QueueQueryResult(
            queue.name,
            queue.settings.orphan_exchange,
            queue.durable,
            queue.exclusive,
            queue.auto_delete,
            to_map(queue.arguments),
            min(queue.message_count, 0xFFFF_FFFF),
            len(queue.everyone()),
        )

    def queue(self, name: str, command: str) -> Queue:
        """The queue that a command names. IllegalArgument without a name, NotFound, or ResourceLocked."""
        return self._vhost.queue(self._named(name, command), self._session)

    def _named(self, name: str, command: str) -> str:
        if not name:
            raise IllegalArgument(f"{command}: the name of a queue is needed")
        return name


def _compared(
    result: s.ExchangeBoundResult, found: Sequence[Binding], queue: str | None, key: str | None, wanted: Table
) -> Steps[s.ExchangeBoundResult]:
    """Compare bindings with what exchange.bound asks for. Returns the result, completed."""
    if queue:
        of_queue = yield from _those(found, lambda each: each.destination == to_queue(queue))
        result.queue_not_matched = not of_queue
        found = of_queue or found
    if key is not None:
        by_key = yield from _those(found, lambda each: each.binding_key == key)
        result.key_not_matched = not by_key
        found = by_key or found
    if wanted:
        result.args_not_matched = not (yield from _those(found, lambda each: _contains(each.arguments, wanted)))
    return result


def _those(bindings: Sequence[Binding], wanted: Callable[[Binding], bool]) -> Steps[list[Binding]]:
    found: list[Binding] = []
    for start in range(0, len(bindings), COMPARED):
        found += filter(wanted, bindings[start : start + COMPARED])
        yield
    return found


def _contains(table: Mapping[str, object], wanted: Mapping[str, object]) -> bool:
    return all(name in table and canonical(table[name]) == canonical(value) for name, value in wanted.items())


Handler: TypeAlias = "Callable[[Topology, int, Any], Outcome]"  # each takes the command type that is its key

HANDLERS: Final[dict[type[Command], Handler]] = {
    c.ExchangeDeclare: Topology._exchange_declare,
    c.ExchangeDelete: Topology._exchange_delete,
    c.ExchangeQuery: Topology._exchange_query,
    c.ExchangeBind: Topology._exchange_bind,
    c.ExchangeUnbind: Topology._exchange_unbind,
    c.ExchangeBound: Topology._exchange_bound,
    c.QueueDeclare: Topology._queue_declare,
    c.QueueDelete: Topology._queue_delete,
    c.QueuePurge: Topology._queue_purge,
    c.QueueQuery: Topology._queue_query,
}
