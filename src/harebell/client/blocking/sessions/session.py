"""The blocking API: a session. What it does is done by the asyncio session, on the process's I/O thread.

Calls that only forward are generated (`forwarded_session`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, cast

from harebell.client import sessions as asyncio_api
from harebell.client.blocking.docs import documented_by
from harebell.client.blocking.sessions.consumer import Consumer
from harebell.client.blocking.sessions.delivery import Delivery, Settler
from harebell.client.blocking.sessions.forwarded_session import ForwardedSession
from harebell.client.blocking.sessions.harness import SessionHarness
from harebell.client.blocking.sessions.transactions import Branch, Transaction
from harebell.client.messages import Publication
from harebell.client.sessions import Xid
from harebell.client.sessions.publish_many import PublishMany
from harebell.protocol.v091 import TableLike

if TYPE_CHECKING:
    from harebell.client.blocking.sessions.connection import Connection  # the type of a public attribute

__all__ = ["Session"]

PART: Final = 256  # publications of publish_many for which the I/O thread is asked once


@documented_by(asyncio_api.Session)
class Session(ForwardedSession):
    """A session, over every connection that carries it. Made by `connection.session`."""

    def __init__(self, connection: Connection, inner: asyncio_api.Session) -> None:
        super().__init__(connection.io, inner)
        self.connection = connection
        with self.io.turn:
            deliveries = inner.core.deliveries
            deliveries.settler, deliveries.make = Settler(self.io, deliveries), Delivery

    def test(self) -> SessionHarness:
        return SessionHarness(self.io, self.inner.test())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            with self.io.turn:  # an interrupted program does not wait for the network
                self.io.loop.call_soon(partial(self.inner.core.hang_up, keep=self.inner.keep))
            return
        self.io.run(self.inner.__aexit__, kind, error, traceback)

    # -- publishing --------------------------------------------------------------------------------------------------

    def publish_many(
        self, publications: Iterable[Publication], *, window: int = 5000, timeout: float | None = None
    ) -> int:
        io, core = self.io, self.inner.core
        source = iter(publications)  # the program's own code: it must not run on the I/O thread
        io.check()
        with io.turn:
            many = PublishMany(core, window, core.deadline(timeout))
        failed: Exception | None = None
        while failed is None:
            part: list[Publication] = []
            try:
                part.extend(islice(source, PART))
            except Exception as error:  # the program's own; what came before it is published
                failed = error
            if not part:
                break
            io.run(many.put_all, part)
        if failed is not None:
            raise failed
        return io.run(many.finish)

    def transaction(self, *, timeout: float | None = None) -> Transaction:
        """What is published and accepted in `with session.transaction()` takes effect as one unit.

        timeout  seconds for the commit, or the rollback after an error in the block

        One at a time. From the first one on the session is transactional: publishing and accepting outside of a
        transaction is a LocalProtocolError. What a consumer without acceptance (no_ack) gets belongs to none.
        """
        return Transaction(self.io, self.inner.transaction(timeout=timeout))

    def branch(self, xid: Xid, *, join: bool = False, timeout: float | None = None) -> Branch:
        """What is published and accepted in `with session.branch(xid)` belongs to a distributed transaction.

        join     another session works, or has worked, in the branch
        timeout  seconds for the begin and the end of the block

        Afterwards any session of the user prepares, commits or rolls the branch back. One that is not prepared within
        60 seconds (`set_branch_timeout`), or whose session ends inside the block, is rolled back. NotAllowed for a name
        that is known already, NotFound with `join` for one that is not: both end the session.
        """
        return Branch(self.io, self.inner.branch(xid, join=join, timeout=timeout))

    # -- consuming ---------------------------------------------------------------------------------------------------

    def consume(
        self,
        queue: str,
        *,
        window: int = 500,
        window_bytes: int | None = None,
        no_ack: bool = False,
        exclusive: bool = False,
        consumer_tag: str = "",
        selector: str | None = None,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> Consumer:
        """An iterator over the messages of a queue: `for delivery in session.consume("work")`.

        window        how many deliveries may be unsettled (with `no_ack`: not taken) at a time; at most 32,768
        window_bytes  how many bytes they may have together, headers included; a message larger than that never comes
        no_ack        a message is settled when it is sent (accept-mode none)
        exclusive     no other consumer may have the queue
        consumer_tag  a name of one's own; "" makes one
        selector      a condition on headers and properties: only messages of which it is true ("price > 10")
        timeout       seconds for subscribing; waiting for a delivery has no deadline, but in `Consumer.receive`

        A missing queue (NotFound), a selector that cannot be read (WrongArgument) and the like end the session.
        """
        with self.io.turn:
            inner = self.inner.consume(
                queue,
                window=window,
                window_bytes=window_bytes,
                no_ack=no_ack,
                exclusive=exclusive,
                consumer_tag=consumer_tag,
                selector=selector,
                arguments=arguments,
                timeout=timeout,
            )
        return Consumer(self, self.io, inner)

    def browse(
        self,
        queue: str,
        *,
        window: int = 500,
        window_bytes: int | None = None,
        consumer_tag: str = "",
        selector: str | None = None,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> Consumer:
        with self.io.turn:
            inner = self.inner.browse(
                queue,
                window=window,
                window_bytes=window_bytes,
                consumer_tag=consumer_tag,
                selector=selector,
                arguments=arguments,
                timeout=timeout,
            )
        return Consumer(self, self.io, inner)

    def get(self, queue: str, *, no_ack: bool = False, timeout: float | None = None) -> Delivery | None:
        """One message, or None when the queue is empty.

        When this is interrupted, a message that comes all the same goes back to the queue; with `no_ack` it is lost.
        """

        def give_back(delivery: asyncio_api.Delivery | None) -> None:
            if delivery is not None:
                self.inner.core.deliveries.give_back(delivery)

        found = self.io.run_or_undo(give_back, self.inner.get, queue, no_ack=no_ack, timeout=timeout)
        return cast("Delivery | None", found)

    def copies(self, queue: str, *, most: int | None = None, timeout: float | None = None) -> list[Delivery]:
        return cast("list[Delivery]", self.io.run(self.inner.copies, queue, most=most, timeout=timeout))

    def acquire(self, deliveries: Iterable[Delivery], *, timeout: float | None = None) -> list[Delivery]:
        taken = self.io.run(self.inner.core.deliveries.acquire_all, list(deliveries), timeout)
        return cast("list[Delivery]", taken)
