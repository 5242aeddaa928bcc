"""Sends the rows of one attempt under their numbers, each block behind the record that names it; acts on rejections.

The order of numbers, with the record R and the rows r of each block: R1 R2 r1 R3 r2 ... Rn r(n-1) gap rn. So the next
record is on its way to the disk while rows are sent, and a record can say which numbers its rows will have. Where there
is no next record, its number is announced as a gap.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from harebell import errors
from harebell.client.recovery.policy import Backoff
from harebell.protocol.conversion.header_columns import encode_header_columns
from harebell.protocol.v010.domains import RejectCode
from harebell.spark.sink.fingerprints import SIZE
from harebell.spark.sink.ledger import Place, Record
from harebell.spark.sink.rate_limit import RateLimit
from harebell.spark.sink.row_encoding import PERSISTENT, Part

if TYPE_CHECKING:
    from harebell.client.blocking.sessions.numbered import Numbered
    from harebell.client.sessions.calls import Rejection
    from harebell.protocol.v091 import FieldValue
    from harebell.spark.options import SinkOptions

__all__ = ["Block", "NumberedRows", "Sent"]

log = logging.getLogger("harebell.spark")

BACKOFF: Final = Backoff(0.1, 3.0)


class Block:
    """Rows that have one record.

    prints    the fingerprints of all; `serials` their places among all rows
    replaces  numbers that the broker has rejected, of rows that are sent again as these
    """

    __slots__ = ("parts", "prints", "record", "replaces", "serials")

    def __init__(
        self, parts: Sequence[Part], prints: bytes, serials: Sequence[int], replaces: Sequence[int] = ()
    ) -> None:
        self.parts = parts
        self.prints = prints
        self.serials = serials
        self.replaces = replaces
        self.record: Record | None = None

    def __len__(self) -> int:
        return len(self.serials)


class Sent:
    """Messages that were sent and are not complete, of one part: number of the first, and what a record has of each.

    replaces  numbers that the broker may forget when these are complete
    """

    __slots__ = ("first", "part", "prints", "replaces", "serials")

    def __init__(
        self, first: int, part: Part, prints: bytes, serials: Sequence[int], replaces: Sequence[int] = ()
    ) -> None:
        self.first = first
        self.part = part
        self.prints = prints
        self.serials = serials
        self.replaces = replaces


class NumberedRows:
    """The rows of one attempt on their way.

    number  the next one that is free
    sent    whether a row was sent
    """

    def __init__(
        self,
        session: Numbered,
        options: SinkOptions,
        place: Place,
        number: int,
        counts: Counter[str],
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self.number = number
        self.sent = False
        self._session = session
        self._options = options
        self._place = place
        self._counts = counts
        self._clock, self._sleep = clock, sleep
        self._rate = None if options.max_rate is None else RateLimit(options.max_rate, clock, sleep)
        self._waiting: Block | None = None  # its record is sent, its rows are not
        self._under_way: deque[Sent] = deque()
        self._again: deque[Block] = deque()  # what was rejected, and is to be sent again
        self._refusals = 0  # in a row

    def add(self, block: Block) -> None:
        """Sends the record of a block, and the rows of the block before. Raises as SessionPublisher.publish."""
        while self._again:
            self._step(self._again.popleft())
        self._step(block)

    def recorded(self) -> None:
        """Waits until the record that was sent last is on disk."""
        if self._waiting is not None and self._waiting.record is not None:
            self._wait_for(self._waiting.record)

    def put(self, sent: Sent) -> None:
        """Sends rows whose record is on disk, as soon as the window has room for them."""
        part = sent.part
        if self._rate is not None:
            self._rate.take(len(part))
        self._answer(self._options.window - len(part))
        self.sent = True
        self._session.put(sent.first, part.exchange, part.properties, part.bodies)
        self._under_way.append(sent)

    def finish(self) -> None:
        """Sends what is left, and returns when the broker has answered for every row."""
        while True:
            self._step(None)
            self._answer(0)
            if not self._again:
                return
            while self._again:
                self._step(self._again.popleft())

    def _step(self, block: Block | None) -> None:
        before, self._waiting = self._waiting, block
        own = self.number
        after = own + 1 + (0 if before is None else len(before))
        if block is not None:
            block.record = record = Record(
                self._place.batch, own, after + 1, block.serials, block.prints, block.replaces
            )
            self._put_record(record)
        elif before is not None:
            self._session.gap([own])
        if before is not None and before.record is not None:
            self._wait_for(before.record)
            at = 0
            for part in before.parts:
                stop = at + len(part)
                replaces = before.replaces if part is before.parts[-1] else ()
                prints = before.prints[SIZE * at : SIZE * stop]
                self.put(Sent(own + 1 + at, part, prints, before.serials[at:stop], replaces))
                at = stop
        if block is not None or before is not None:
            self.number = after

    def _put_record(self, record: Record) -> None:
        properties: dict[str, FieldValue] = {"delivery_mode": PERSISTENT, "headers": record.headers}
        headers = encode_header_columns(1, "", self._place.ledger, {}, properties, mandatory=True)
        self._session.put(record.own, "", headers, [record.fingerprints])

    def _wait_for(self, record: Record) -> None:
        self._session.wait(record.own)
        if (rejection := self._session.rejections.get(record.own)) is not None:
            raise errors.NotFound(
                f"queue {self._place.ledger}, which the records of {self._place} go to: {rejection.text}"
            )

    # -- answers -----------------------------------------------------------------------------------------------------

    def _answer(self, most: int) -> None:
        """Waits until at most so many messages are incomplete, and counts those that are complete."""
        self._session.settled(max(most, 0))
        while self._under_way:
            sent = self._under_way[0]
            if self._session.missing(sent.first, sent.first + len(sent.part) - 1):
                return
            self._under_way.popleft()
            self._complete(sent)

    def _complete(self, sent: Sent) -> None:
        first, count, rejections = sent.first, len(sent.part), self._session.rejections
        refused = [place for place in range(count) if first + place in rejections] if rejections else []
        self._counts["confirmed"] += count - len(refused)
        if not refused:
            self._refusals = 0
        unroutable: list[int] = []
        nacked: list[int] = []
        for place in refused:
            code = rejections[first + place].code
            (unroutable if code in (RejectCode.UNROUTABLE, RejectCode.IMMEDIATE) else nacked).append(place)
        if unroutable:
            self._returned(sent, unroutable, rejections[first + unroutable[0]])
        if nacked:
            self._nacked(sent, nacked, rejections[first + nacked[0]])
        if sent.replaces:
            self._session.acted_on(sent.replaces)

    def _returned(self, sent: Sent, places: list[int], why: Rejection) -> None:
        options, part = self._options, sent.part
        exchange, key = part.address(places[0])
        text = (
            f"{len(places)} of {len(part)} messages reached no queue; the first went to exchange {exchange!r} with "
            f"routing key {key!r} ({why.text})"
        )
        if not part.diverted and not options.mandatory:
            self._counts["confirmed"] += len(places)  # as a broker does that was not asked to return them
            self._session.acted_on([sent.first + place for place in places])
        elif part.diverted or options.on_unroutable == "fail":
            hint = "which is where alternate messages go" if part.diverted else "or say option onUnroutable"
            raise errors.Unroutable(f"{text}: bind a queue to it, {hint}")
        elif options.on_unroutable == "drop":
            self._drop("unroutable dropped", sent, places, text)
        else:
            self._counts["unroutable diverted"] += len(places)
            self._send_again(part.only(places).divert(), sent, places)

    def _nacked(self, sent: Sent, places: list[int], why: Rejection) -> None:
        options, part = self._options, sent.part
        exchange, key = part.address(places[0])
        text = (
            f"the broker refused {len(places)} of {len(part)} messages, the first to exchange {exchange!r} with "
            f"routing key {key!r}: a queue is full (x-overflow=reject-publish), or it has failed ({why.text})"
        )
        if part.diverted or options.on_nack == "fail":
            raise errors.Nacked(text)
        if options.on_nack == "drop":
            self._drop("nacked dropped", sent, places, text)
            return
        if options.on_nack == "alternate":
            self._counts["nacked diverted"] += len(places)
            self._send_again(part.only(places).divert(), sent, places)
            return
        again, now = part.only(places), self._clock()
        if again.since is None or len(places) < len(part):  # since then some of them went through
            again.since, self._refusals = now, 0
        elif now - again.since >= options.retry_timeout:
            raise errors.Nacked(f"{text}; it did so for {options.retry_timeout:g} s")
        self._counts["nacked retried"] += len(places)
        self._refusals += 1
        self._sleep(BACKOFF.longest(self._refusals))
        self._send_again(again, sent, places)

    def _drop(self, what: str, sent: Sent, places: list[int], text: str) -> None:
        self._counts[what] += len(places)
        log.warning("dropped: %s", text)
        self._session.acted_on([sent.first + place for place in places])

    def _send_again(self, part: Part, sent: Sent, places: list[int]) -> None:
        prints = b"".join([sent.prints[SIZE * place : SIZE * (place + 1)] for place in places])
        serials = [sent.serials[place] for place in places]
        self._again.append(Block([part], prints, serials, [sent.first + place for place in places]))
