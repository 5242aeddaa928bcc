"""One attempt at one partition of a write, exactly once: the broker recognises the rows of the attempts before it.

Each partition of a batch has a session of AMQP 0-10 in the broker, which keeps it when an attempt, an executor, the
driver or the broker itself is gone; its command numbers are the rows'. A ledger says which row has which (`ledger`).

Rules:
1. An attempt takes the session by force: whatever an earlier one still sends is refused. One whose session is taken
   waits until the other attempt has ended, and fails then: Spark has ended it by that time, or starts another one.
2. Rows are sent when the record that names them is on disk, and not before (`numbered_rows`).
3. Rows that the ledger names are sent under their numbers, in the order of these, and those that the broker has not at
   all. Others wait until all of the named ones have been recognised: when one of them is missing, the rows are not the
   same, and nothing more is sent.
4. Where it cannot be known which rows are there (the broker has forgotten the session, the ledger is gone, the rows are
   not the same) the attempt fails, unless failOnLostState=false: then it publishes all that it does not recognise.
5. The session of a batch ends when a later batch has begun: Spark has logged the earlier one then.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from harebell import errors
from harebell.client.blocking import sessions
from harebell.client.blocking.sessions.numbered import Numbered
from harebell.client.recovery.policy import Backoff
from harebell.defaults import GOODBYE_SECONDS
from harebell.spark.connection import retrying
from harebell.spark.sink.fingerprints import SIZE, fingerprints
from harebell.spark.sink.ledger import Memory, Place, Record
from harebell.spark.sink.numbered_rows import Block, NumberedRows, Sent
from harebell.spark.sink.row_encoding import Part, RowEncoder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from harebell.spark.options import SinkOptions

__all__ = ["SessionPublisher", "clean_up", "has_sessions"]

log = logging.getLogger("harebell.spark")

T = TypeVar("T")

BACKOFF: Final = Backoff(0.1, 3.0)
BLOCK_ROWS: Final = 5000  # rows of a record: one more message, and one more wait for the disk, for so many
PUT_ROWS: Final = 1000  # rows of an earlier attempt that are sent together
LEDGER_DAYS: Final = 14  # that a ledger stays which no task asks for
DAY: Final = 86_400_000  # milliseconds
WATCH_SECONDS: Final = 1.0  # between two looks at a session that another attempt has
STARTS: Final = 20  # attempts to begin with a broker that is killed each time
MUCH_HELD: Final = 256 << 20  # bytes of rows that wait, above which the log says so


class SessionPublisher:
    """Publishes the rows of one partition.

    counts  messages so far: `confirmed` have arrived, by this attempt or an earlier one; `recognised` are those of them
            that an earlier one has published; the rest as TaskPublisher has it
    """

    def __init__(
        self,
        options: SinkOptions,
        schema: StructType,
        place: Place,
        prefix: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._options = options
        self._place = place
        self._prefix = prefix
        self._clock, self._sleep = clock, sleep
        self._names = [field.name for field in schema.fields]
        self._encoder = RowEncoder(options, schema, sessions=True)
        self._serial = 0
        self._earlier: set[int] = set()  # batches whose sessions end with this attempt
        self._to_renew: deque[Block] = deque()  # rows that the broker has rejected, when an earlier attempt sent them

    def publish(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Publishes all rows, and returns when the broker has answered for each. Nothing is opened for no rows.

        Raises Nacked, Unroutable, SessionStateLost (rule 4), SessionDetached (rule 1), DeadlineExceeded and
        RecoveryGaveUp for a broker that is away or takes nothing, and what it refuses the publishing with.
        """
        slices = (piece for batch in batches if batch.num_rows for piece in self._encoder.slices(batch))
        first = next(slices, None)
        if first is None:
            return
        with _connected(self._options, self._options.retry_timeout) as connection:
            try:
                self._run(connection, chain([first], slices))
            except errors.SessionStateLost as error:
                error.add_note(f"while {self._place} was published")
                raise
            except errors.SessionDetached as error:
                self._wait_for_the_other(connection, error)
                raise

    def _run(self, connection: sessions.Connection, slices: Iterator[pa.RecordBatch]) -> None:
        self._open(connection)
        try:
            self._send(connection, slices)
        except errors.DeadlineExceeded as error:
            raise errors.DeadlineExceeded(
                f"the broker has taken or stored no messages for {self._options.blocked_timeout:g} s (option "
                f"'blockedTimeout') while {self._place} was published: look whether it has an alarm of memory or disk "
                f"({error})"
            ) from error
        self._session.close(keep=True)
        for batch in self._earlier:
            _end(connection, Place(self._place.query, batch, self._place.partition), self._options)

    def _send(self, connection: sessions.Connection, slices: Iterator[pa.RecordBatch]) -> None:
        self._serial = self._memory.serial
        blocks = chain(self._blocks(self._recognised(slices) if len(self._memory) else slices), self._rejected())
        first = next(blocks, None)
        if first is not None:
            self._begin(connection, first)
        for block in blocks:
            self._rows.add(block)
        self._rows.finish()

    # -- the beginning -----------------------------------------------------------------------------------------------

    def _open(self, connection: sessions.Connection) -> None:
        """Takes the session, and reads what the ledger says."""
        options, place = self._options, self._place
        self._session = session = Numbered(
            connection,
            place.session,
            timeout=options.session_timeout,
            seconds=options.timeout,
            blocked=options.blocked_timeout,
        )
        self._check_timeout(session.granted)
        with _ledger(connection, place, options) as ledger:
            self._read(ledger)

    def _read(self, ledger: _Ledger) -> None:
        options, place, session = self._options, self._place, self._session
        records = ledger.read()
        newest = max((record.batch for record, _ in records), default=place.batch)
        if newest > place.batch:
            raise errors.SessionStateLost(
                f"{place} is over: batch {newest} has begun, so Spark has logged this one; this attempt comes too late"
            )
        self._earlier |= {record.batch for record, _ in records if record.batch < place.batch}
        present = [record for record, _ in records if record.batch == place.batch]
        obsolete = [copy for record, copy in records if record.batch < place.batch]
        if unsure := self._unsure(present):
            if options.fail_on_lost_state:
                raise errors.SessionStateLost(unsure)
            log.warning("%s; going on, as failOnLostState=false has it", unsure)
            present, obsolete = [], [copy for _, copy in records]
        ledger.remove(obsolete)
        self._memory = Memory(present, self._are_complete, session.rejections)
        number = max(session.next, self._memory.next)
        known = set(self._memory.numbers.tolist())
        missing = [each for low, high in session.missing(0, number - 1) for each in range(low, high + 1)]
        session.gap([each for each in missing if each not in known])  # records, which the ledger has; what no row has
        self._rows = NumberedRows(session, options, place, number, self.counts, self._clock, self._sleep)

    def _unsure(self, present: Sequence[Record]) -> str:
        """Why it cannot be known which rows are there; "" where it can."""
        rows = sum(map(len, present))
        if rows and not self._session.resumed:
            return (
                f"{self._place} was begun by an attempt whose session the broker no longer has: up to {rows} messages "
                "are there or not. The broker keeps a session for 'sessionTimeout' seconds, and over a restart if its "
                "rows go to classic and quorum queues. failOnLostState=false publishes all of them, some for a second "
                "time"
            )
        if self._session.next and not present:
            return (
                f"{self._place} was begun by an attempt whose ledger, the queue {self._place.ledger}, has lost its "
                f"records: up to {self._session.next} messages are there. failOnLostState=false publishes all of them, "
                "some for a second time"
            )
        return ""

    def _check_timeout(self, granted: int) -> None:
        options, asked = self._options, self._options.session_timeout
        if not granted:
            raise errors.ResourceError(
                f"the broker keeps no session for {self._place}: there are as many as its options max_sessions and "
                "max_sessions_per_user allow (or session_timeout is 0). Each partition of a query has two: raise them"
            )
        if granted < asked and options.timeout_given:
            raise errors.InvalidArgument(
                f"option 'sessionTimeout' is {asked}, but the broker keeps a session for {granted} s at most: that is "
                "its option session_timeout"
            )
        if granted < asked:
            log.warning("the broker keeps a session for %d s: a query that is started again later fails", granted)

    def _are_complete(self, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Which of the numbers the broker has."""
        found = np.ones(len(numbers), bool)
        if len(numbers):
            for low, high in self._session.missing(int(numbers.min()), int(numbers.max())):
                found[(numbers >= low) & (numbers <= high)] = False
        return found

    def _begin(self, connection: sessions.Connection, block: Block) -> None:
        """Sends the first record. Until it is on disk nothing has happened, and a killed broker loses nothing."""
        for start in range(1, STARTS + 1):
            try:
                self._rows.add(block)
                self._rows.recorded()
                return
            except errors.SessionStateLost:
                if self._rows.sent or start == STARTS:
                    raise
                log.info("%s: the broker was restarted before anything was sent; beginning again", self._place)
                self._session.hang_up()
                self._open(connection)
                if len(self._memory):
                    raise

    # -- rows of earlier attempts ------------------------------------------------------------------------------------

    def _recognised(self, slices: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Sends the rows that the ledger names; gives the others, when all of those were there."""
        memory, todo = self._memory, deque(self._memory.numbers.tolist())
        at_hand: dict[int, tuple[Sent, int]] = {}  # by number: rows, and the place among them
        held: list[pa.RecordBatch] = []
        size = 0
        for piece in slices:
            places = memory.recognise(fingerprints(self._names, piece, _bodies(self._names, piece)))
            unknown = [row for row, place in enumerate(places) if place < 0]
            rejected = [(row, place) for row, place in enumerate(places) if place >= 0 and memory.is_rejected(place)]
            named = [
                (row, place)
                for row, place in enumerate(places)
                if place >= 0 and not memory.is_rejected(place) and not memory.is_complete(place)
            ]
            if known := len(places) - len(unknown) - len(rejected) - len(named):
                self.counts["recognised"] += known
                self.counts["confirmed"] += known
            if rejected:
                rows = self._named(piece, rejected)
                replaces = [memory.number(place) for _, place in rejected]
                self._to_renew.append(Block([rows.part], rows.prints, rows.serials, replaces))
            if named:
                rows = self._named(piece, named)
                at_hand.update({memory.number(place): (rows, at) for at, (_, place) in enumerate(named)})
                self._send_in_order(todo, at_hand)
            if unknown:
                held.append(piece if len(unknown) == len(places) else piece.take(unknown))
                before, size = size, size + held[-1].nbytes
                if before < MUCH_HELD <= size:
                    log.warning("%s: %d MB of rows wait for those of an earlier attempt", self._place, size >> 20)
            if not len(memory):
                yield from held
                held = []
        if len(memory):
            self._differ(todo)
        yield from held

    def _rejected(self) -> Iterator[Block]:
        """What the broker has rejected, to be sent again."""
        while self._to_renew:
            yield self._to_renew.popleft()

    def _named(self, piece: pa.RecordBatch, named: Sequence[tuple[int, int]]) -> Sent:
        """The rows of a piece that have a number, and are to be sent."""
        serials = [self._memory.serial_of(place) for _, place in named]
        part = self._encoder.part(piece.take([row for row, _ in named]), self._prefix, serials)
        return Sent(0, part, b"".join([self._memory.print_of(place) for _, place in named]), serials)

    def _send_in_order(self, todo: deque[int], at_hand: dict[int, tuple[Sent, int]]) -> None:
        """Sends what is at hand of the numbers that come next."""
        while todo and todo[0] in at_hand:
            first = todo[0]
            chosen: list[tuple[Sent, int]] = []
            while todo and todo[0] == first + len(chosen) and todo[0] in at_hand and len(chosen) < PUT_ROWS:
                chosen.append(at_hand.pop(todo.popleft()))
            prints = b"".join([rows.prints[SIZE * place : SIZE * (place + 1)] for rows, place in chosen])
            serials = [rows.serials[place] for rows, place in chosen]
            self._rows.put(Sent(first, Part.of([(rows.part, place) for rows, place in chosen]), prints, serials))
            self.counts["repeated"] += len(chosen)

    def _differ(self, todo: deque[int]) -> None:
        """Rows of an earlier attempt are not among those of this one."""
        text = (
            f"{self._place}: {len(self._memory)} rows of an earlier attempt are not among those of this one, which are "
            "to be the same, in any order. The query makes others each time (rand(), uuid(), the time of day), or its "
            "batches are cut in another way since it was started again; rows that have a message_id are told by that "
            "alone"
        )
        if self._options.fail_on_lost_state:
            raise errors.SessionStateLost(f"{text}. failOnLostState=false publishes these rows beside the earlier ones")
        log.warning("%s; going on, as failOnLostState=false has it", text)
        self._session.gap(todo)

    # -- new rows ----------------------------------------------------------------------------------------------------

    def _blocks(self, slices: Iterable[pa.RecordBatch]) -> Iterator[Block]:
        most = min(BLOCK_ROWS, self._options.window)
        parts: list[Part] = []
        prints: list[bytes] = []
        start = self._serial
        for piece in slices:
            part = self._encoder.part(piece, self._prefix, range(self._serial, self._serial + piece.num_rows))
            self._serial += piece.num_rows
            parts.append(part)
            prints.append(fingerprints(self._names, piece, part.bodies))
            if self._serial - start >= most:
                yield Block(parts, b"".join(prints), range(start, self._serial))
                parts, prints, start = [], [], self._serial
        if parts:
            yield Block(parts, b"".join(prints), range(start, self._serial))

    # -- the end -----------------------------------------------------------------------------------------------------

    def _wait_for_the_other(self, connection: sessions.Connection, taken: errors.SessionDetached) -> None:
        """Another attempt has the session: returns when that has ended."""
        log.warning("%s: another attempt has taken over; waiting for its end", self._place)
        while True:
            try:
                other = Numbered(
                    connection, self._place.session, timeout=self._options.session_timeout, seconds=60.0, force=False
                )
            except errors.SessionDetached:
                self._sleep(WATCH_SECONDS)
            else:
                other.close(keep=other.resumed)
                taken.add_note("the other attempt has ended, too")
                return


class _Ledger:
    """The records of one partition in the broker."""

    def __init__(self, control: sessions.Session, place: Place, options: SinkOptions) -> None:
        self._control = control
        self._queue = place.ledger
        self._timeout = max(options.timeout, options.blocked_timeout)

    def read(self) -> list[tuple[Record, sessions.Delivery]]:
        """All records, with the copies by which they are removed."""
        while True:
            try:
                self._control.queue_declare(self._queue, durable=True, arguments={"x-expires": LEDGER_DAYS * DAY})
                copies = self._control.copies(self._queue, timeout=self._timeout)
                return [(self._record(copy), copy) for copy in copies]
            except errors.SessionStateLost:  # the broker was restarted
                self._control.start_over()
            except errors.AccessRefused as error:
                error.add_note("exactlyOnce keeps records in queues harebell.spark.*: configure, write and read them")
                raise

    def remove(self, copies: Sequence[sessions.Delivery]) -> None:
        """Takes records out that nothing needs any more."""
        if copies:
            try:
                for delivery in self._control.acquire(copies):
                    delivery.accept()
                self._control.sync()
            except errors.SessionStateLost:
                self._control.start_over()  # the next attempt removes them

    def _record(self, copy: sessions.Delivery) -> Record:
        try:
            return Record.read(copy.headers, copy.body)
        except errors.InvalidArgument as error:
            raise errors.InvalidArgument(f"queue {self._queue}, the ledger of a Spark query: {error}") from None


@contextlib.contextmanager
def _ledger(connection: sessions.Connection, place: Place, options: SinkOptions) -> Iterator[_Ledger]:
    control = connection.session()
    try:
        yield _Ledger(control, place, options)
    finally:
        with contextlib.suppress(errors.HarebellError):
            control.close()


def _bodies(names: Sequence[str], piece: pa.RecordBatch) -> list[bytes]:
    column = next(column for name, column in zip(names, piece.columns, strict=True) if name in ("body", "value"))
    bodies: list[bytes] = column.cast("binary").to_pylist()
    return bodies


@contextlib.contextmanager
def _connected(options: SinkOptions, patience: float) -> Iterator[sessions.Connection]:
    """A connection that comes back, and is left without much waiting; the broker may be away so many seconds first."""
    connection = retrying(lambda: _connect(options), patience, "connecting")
    try:
        yield connection
    finally:
        connection.close(timeout=GOODBYE_SECONDS)


def _connect(options: SinkOptions) -> sessions.Connection:
    hosts = options.url.parameters(options.timeout)
    try:
        return sessions.connect(hosts, timeout=options.timeout, backoff=BACKOFF, give_up_after=options.retry_timeout)
    except errors.NotImplemented as error:
        raise errors.InvalidArgument(
            "exactlyOnce=sessions needs a broker that speaks AMQP 0-10, as Harebell does and RabbitMQ does not. With "
            f"exactlyOnce=none messages are published at least once, with ids that tell copies ({error})"
        ) from error
    except errors.ConnectionLost as error:
        if isinstance(error.__cause__, ssl.SSLCertVerificationError):
            raise errors.InvalidArgument(f"{error}; option 'cacertFile' names the authority to trust") from error
        raise


def has_sessions(options: SinkOptions) -> bool:
    """Whether the broker has sessions; asked at the start of a write, of a broker that is to answer soon.

    Raises InvalidArgument where the options ask for sessions and it has none.
    """
    try:
        with _connected(options, options.first_patience):
            return True
    except errors.InvalidArgument as error:
        if options.exactly_once == "auto" and isinstance(error.__cause__, errors.NotImplemented):
            return False
        raise


def clean_up(places: Iterable[Place], options: SinkOptions, patience: float) -> None:
    """Ends the sessions and deletes the ledgers of a write that is over; what cannot be done is logged.

    patience  seconds that the broker may be away
    """
    places = list(places)
    if not places:
        return
    try:
        with _connected(options, patience) as connection:
            for place in places:
                _end(connection, place, options)
                with connection.session() as session, contextlib.suppress(errors.NotFound):
                    session.queue_delete(place.ledger)
    except (errors.HarebellError, OSError) as error:
        log.warning("what the broker keeps of write %s could not be removed: %s", places[0].query, error)


def _end(connection: sessions.Connection, place: Place, options: SinkOptions) -> None:
    """Ends the session of a partition that is logged. One that stays ends by its timeout."""
    try:
        Numbered(connection, place.session, timeout=1, seconds=options.timeout).close(keep=False)
    except errors.HarebellError as error:
        log.info("session %s is left to its timeout: %s", place.session, error)
