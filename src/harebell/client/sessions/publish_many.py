"""The publications of one `publish_many`: written one behind the other, at most a window of them incomplete."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from harebell import errors
from harebell.client.messages import Publication, check_publication
from harebell.client.sessions.calls import Batch, Call, Sent
from harebell.client.sessions.core.session import SessionCore
from harebell.client.sessions.messages import transfer
from harebell.protocol.v010 import commands as c

__all__ = ["PublishMany"]

CHUNK: Final = 256  # publications between two turns of the loop


class PublishMany:
    """Publications under way.

    window    how many may be incomplete
    deadline  in the loop's time, for all of it
    count     how many were written
    """

    def __init__(self, core: SessionCore, window: int, deadline: float) -> None:
        if window < 1:
            raise errors.InvalidArgument(f"window is {window}: at least 1 is needed")
        core.check_transaction("publish_many")
        self.window = window
        self.deadline = deadline
        self.count = 0
        self._core = core
        self._batch = Batch(core.loop)
        self._between = max(1, window // 2)  # publications after which the broker is asked what is complete

    async def put(self, publication: Publication) -> None:
        """Write it as soon as the window has room for it. Raises what has ended the session, DeadlineExceeded."""
        if type(publication) is not Publication:
            check_publication(publication)
        core, batch = self._core, self._batch
        exchange, routing_key = publication.exchange, publication.routing_key
        sent = transfer(publication.message, exchange, routing_key, mandatory=bool(publication.mandatory))
        while len(batch.incomplete) >= self.window and batch.error is None:
            await core.wait(batch.change(), self.deadline, "publish_many")
        if batch.error is not None:
            raise batch.error
        if not core.enter_nowait():
            await core.enter(self.deadline, "publish_many")
        batch.incomplete[core.publish(sent, batch)] = (self.count, exchange, routing_key)
        self.count += 1
        if not self.count % self._between:
            core.issue(Sent(c.ExecutionSync(sync=True)))
        core.flush()

    async def put_all(self, publications: Iterable[Publication]) -> None:
        """`put` each of them; other tasks have their turn after every 256."""
        for publication in publications:
            await self.put(publication)
            if not self.count % CHUNK:
                await asyncio.sleep(0)

    async def finish(self) -> int:
        """Wait until all are complete. Returns how many they are. Raises PublishesFailed, and as `put`."""
        core, failures = self._core, self._batch.failures
        await core.enter(self.deadline, "publish_many")
        call = Call(core.loop)
        core.issue(Sent(c.ExecutionSync(sync=True)), call)
        await core.answered(call, self.deadline, "publish_many")
        if failures:
            first = min(failures)
            raise errors.PublishesFailed(
                f"{len(failures)} of {self.count} publications failed, the first is {first}: {failures[first]}",
                failures,
            )
        return self.count
