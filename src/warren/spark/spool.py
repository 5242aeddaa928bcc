"""The durable spool: drains a classic or quorum queue so that a message is neither lost nor reported twice.

A queue that is drained has no memory of what it gave out; the spool is that memory. A drain is named by a ticket and
a part (the task's number). Its messages are written in segments, Arrow files of at most `prefetch` rows:

    <spool>/<vhost>/<queue>/<ticket>/<part>-<n>.arrow     segment n, 0, 1, ...; the last one is empty: the end mark
                                                 .acked   exists once the broker has surely taken the acknowledgement

and for every segment this order holds, because any step may be the last one before a crash:

    receive -> write and fsync a temporary file -> os.link to the segment's name -> fsync the folder
            -> ack multiple -> a round trip -> the .acked mark -> hand the rows to Spark

- Nothing is acknowledged before it is on disk under its final name.
- os.link fails when the name exists, so of two attempts at one segment the first wins. The other closes its
  connection, which gives its messages back, and reads the winner's file.
- Whoever drains the same ticket and part again reads the segments first and goes on after the last; once the end mark
  is there, it reads files only and needs no broker.
- A crash between link and ack makes the broker give messages back that a segment already holds. They come with
  redelivered=true; one whose digest is in a segment that is not marked, or was marked less than `dedup_window`
  seconds ago (a broker's memory of acks is not durable at once), is acknowledged and dropped, as many times as the
  segments hold it.

Known limit: two messages identical in every property and in the body, one of them redelivered for another reason,
cannot be told apart. A message_id removes the limit.

The folder must be on a file system with atomic link and rename (any POSIX one, NFS too; not an object store), shared
by all executors, one folder per broker. It is not a cache: an acknowledged message is nowhere else.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from hashlib import blake2b
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pyarrow as pa

from warren.errors import DeadlineExceeded, InvalidArgument
from warren.spark.amqp import TRANSIENT, Link
from warren.spark.options import SourceOptions
from warren.spark.schema import PROPERTY_COLUMNS, STREAM_OFFSET, Rows, headers_to_json, row_schema

try:
    import fcntl
except ImportError:  # Windows: two attempts at once then both consume, and os.link decides
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from warren.client.records import Delivery

__all__ = ["Spool", "Ticket", "drain", "prune"]

log = logging.getLogger("warren.spark")

DIGEST_BYTES: Final = 16
SEGMENT_BYTES: Final = 32 << 20  # bodies in one segment: bounds a task's memory whatever the message size
_PAUSE: Final = 0.2  # before connecting, or looking, again
_LATE: Final = 0.05  # a broker may say "empty" just before what it has sent out arrives
_SILENCE: Final = 0.2  # then the queue is asked whether it is empty
# Headers that the broker adds when it delivers again; they are not part of a message's identity.
_DELIVERY_HEADERS: Final = ("x-delivery-count", "x-acquired-count")
_IDENTITY: Final = attrgetter(*(name for name in PROPERTY_COLUMNS if name != "headers"))

# A test's place to crash or look: called with the name of each step, with the segment number.
Step = Callable[[str, int], None]


def _no_step(name: str, number: int) -> None:
    pass


class Spool:
    """The spool folder of one queue."""

    def __init__(self, folder: Path, vhost: str, queue: str) -> None:
        self.folder = folder / quote(vhost, safe="") / _file_name(queue)
        self.queue = queue

    def ticket(self, name: str) -> Ticket:
        """The drain of that name, there or not."""
        return Ticket(self, name)

    def segments(self) -> list[Path]:
        """Every segment of every ticket of this queue."""
        return sorted(self.folder.glob("*/*.arrow"))


class Ticket:
    """One drain's folder: segments by part and number."""

    def __init__(self, spool: Spool, name: str) -> None:
        self.spool = spool
        self.folder = spool.folder / name

    def segment(self, part: int, number: int) -> Path:
        """The file of one segment, there or not."""
        return self.folder / f"{part:05d}-{number:06d}.arrow"

    @contextlib.contextmanager
    def lock(self, part: int) -> Iterator[bool]:
        """True for one attempt of this machine at a time; a dead one's lock is free. Does not wait."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if fcntl is None:
            yield True
            return
        with (self.folder / f"{part:05d}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def remove(self) -> None:
        """Deletes the drain's files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def drain(
    options: SourceOptions, ticket: Ticket, part: int, limit: int | None, step: Step = _no_step
) -> Iterator[pa.RecordBatch]:
    """The rows of one part of a drain, all columns, segment by segment; drained now as far as they are not yet there.

    `limit` is the most messages to take, None for as many as are ready when the drain starts. Raises InvalidArgument
    for a stream queue, DeadlineExceeded when the queue has messages and gives none for read_timeout seconds, and the
    connection's error when the broker stays away for retry_timeout seconds without progress.
    """
    return _Drain(options, ticket, part, limit, step).run()


class _Drain:
    def __init__(self, options: SourceOptions, ticket: Ticket, part: int, limit: int | None, step: Step) -> None:
        self._options = options
        self._ticket = ticket
        self._part = part
        self._limit = limit
        self._step = step
        self._number = 0  # of the next segment
        self._taken = 0  # messages in the segments so far
        self._known = _Known(ticket.spool, options.dedup_window)
        self._rows = Rows(row_schema())
        self._ended = False
        self._checked = False  # that the queue is not a stream

    def run(self) -> Iterator[pa.RecordBatch]:
        deadline: float | None = None
        while True:
            yield from self._read_existing()
            if self._ended:
                return
            with self._ticket.lock(self._part) as ours:
                if ours:
                    yield from self._read_existing()  # what came before the lock was ours
                    before = self._number
                    try:
                        yield from self._consume()
                        continue
                    except TRANSIENT as error:
                        now = time.monotonic()
                        if deadline is None or self._number > before:
                            deadline = now + self._options.retry_timeout
                        if now >= deadline:
                            raise
                        log.warning("draining %s: %s; connecting again", self._ticket.spool.queue, error)
            # The broker is away, or another attempt drains: what that one writes is read as it comes.
            time.sleep(_PAUSE)

    def _read_existing(self) -> Iterator[pa.RecordBatch]:
        """Segments that an earlier attempt, or a faster one on another machine, has written."""
        while not self._ended:
            path = self._ticket.segment(self._part, self._number)
            if not path.exists():
                return
            yield from self._finished(read_segment(path))

    def _finished(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._number += 1
        self._taken += batch.num_rows
        if batch.num_rows == 0:
            self._ended = True
        else:
            yield batch

    def _consume(self) -> Iterator[pa.RecordBatch]:
        """Drains on one connection until the end mark is written or another attempt overtakes this one."""
        options, queue = self._options, self._ticket.spool.queue
        if self._ended:
            return
        with Link(options.url, options.timeout) as link:
            if self._limit is None:
                self._limit = self._taken + link.count(queue)
            consuming, window = False, 0
            while not self._ended:
                if not consuming and self._limit > self._taken:
                    # Never more unacknowledged messages than are still wanted: so none has to be given back.
                    window = min(options.prefetch, self._limit - self._taken)
                    link.consume(queue, window)
                    consuming = True
                segment = self._fill(link, window) if consuming else _Segment()
                left = self._limit - self._taken - len(segment.rows)
                if consuming and (segment.emptied or left < window):
                    while segment.size < window and (rest := link.receive(window - segment.size, _LATE)):
                        self._add(segment, rest)
                    link.cancel()  # before the ack, which would open the whole window again
                    consuming = False
                if segment.emptied:
                    self._limit = self._taken + len(segment.rows)
                if segment.last_tag and not segment.rows:
                    link.ack(segment.last_tag)  # all of it was known
                    continue
                batch = self._rows.batch(queue, segment.rows, None)
                if not self._write(batch, segment.digests):
                    return  # another attempt has this segment; closing gives the messages back
                if segment.last_tag:
                    self._step("linked", self._number)
                    link.ack(segment.last_tag)
                    self._step("acked", self._number)
                    link.count(queue)  # an answer means that the broker has handled the ack before it
                    mark_acked(self._ticket.segment(self._part, self._number))
                self._step("marked", self._number)
                yield from self._finished(batch)

    def _fill(self, link: Link, window: int) -> _Segment:
        """Receives up to a window of messages; fewer when the queue is empty or the bodies are large."""
        segment, queue = _Segment(), self._ticket.spool.queue
        deadline = time.monotonic() + self._options.read_timeout
        while segment.size < window and segment.bytes < SEGMENT_BYTES:
            got = link.receive(window - segment.size, _SILENCE)
            if got:
                self._add(segment, got)
            elif link.count(queue) == 0:
                segment.emptied = True
                break
            elif segment.rows:
                break  # save what is here before waiting for more
            elif time.monotonic() > deadline:
                raise DeadlineExceeded(
                    f"queue '{queue}' has messages but delivered none in {self._options.read_timeout} s "
                    "(is there an exclusive or single active consumer on it?)"
                )
        return segment

    def _add(self, segment: _Segment, got: Sequence[Delivery]) -> None:
        if not self._checked and STREAM_OFFSET in (got[0].properties.headers or {}):
            raise InvalidArgument(f"queue '{self._ticket.spool.queue}' is a stream queue: set queueType=stream")
        self._checked = True
        segment.last_tag = got[-1].delivery_tag
        segment.size += len(got)
        if any(delivery.redelivered for delivery in got):
            self._known.refresh()
        for delivery in got:
            mark = digest(delivery)
            if delivery.redelivered and self._known.has(mark):
                continue
            segment.rows.append(delivery)
            segment.digests.append(mark)
            segment.bytes += len(delivery.body)

    def _write(self, batch: pa.RecordBatch, digests: list[bytes]) -> bool:
        """Makes the segment durable under its name; False when another attempt was first."""
        path = self._ticket.segment(self._part, self._number)
        full = batch.append_column("digest", pa.array(digests, pa.binary(DIGEST_BYTES)))
        temporary = path.with_name(f"{path.name}.{os.getpid()}.{time.monotonic_ns()}.tmp")
        try:
            with temporary.open("wb") as file:
                with pa.ipc.new_file(file, full.schema) as writer:
                    writer.write_batch(full)
                file.flush()
                os.fsync(file.fileno())
            self._step("written", self._number)
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(path.parent)
        return True


class _Segment:
    """What has been received for the next segment. `size` counts deliveries, dropped ones too."""

    __slots__ = ("bytes", "digests", "emptied", "last_tag", "rows", "size")

    def __init__(self) -> None:
        self.rows: list[Delivery] = []
        self.digests: list[bytes] = []
        self.size = self.bytes = self.last_tag = 0
        self.emptied = False  # the queue said that it has no more


class _Known:
    """Digests of messages that a segment holds and the broker may still give back."""

    def __init__(self, spool: Spool, window: float) -> None:
        self._spool = spool
        self._window = window
        self._loaded: set[Path] = set()
        self._left: Counter[bytes] = Counter()

    def has(self, mark: bytes) -> bool:
        """Whether one more copy of it is in a segment; counts it off."""
        if self._left[mark] == 0:
            return False
        self._left[mark] -= 1
        return True

    def refresh(self) -> None:
        """Looks at segments that are new: an attempt that died a moment ago may have left one behind."""
        for path in self._spool.segments():
            if path in self._loaded:
                continue
            self._loaded.add(path)
            with contextlib.suppress(FileNotFoundError):  # pruned meanwhile
                acked = path.with_suffix(".acked")
                if not acked.exists() or time.time() - acked.stat().st_mtime <= self._window:
                    self._left.update(read_segment(path).column("digest").to_pylist())


def read_segment(path: Path) -> pa.RecordBatch:
    """A segment's only batch, with the column `digest`."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
        return reader.get_batch(0)


def mark_acked(segment: Path) -> None:
    """Notes that the broker has taken the acknowledgement of this segment; the time is the file's."""
    segment.with_suffix(".acked").touch()


def sync_folder(folder: Path) -> None:
    """Makes a new name in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest(delivery: Delivery) -> bytes:
    """16 bytes that are the same for every delivery of one message: exchange, key, properties, body."""
    properties = delivery.properties
    headers = properties.headers
    if headers:
        headers = {name: value for name, value in headers.items() if name not in _DELIVERY_HEADERS}
    identity = delivery.exchange, delivery.routing_key, headers_to_json(headers), _IDENTITY(properties)
    return blake2b(repr(identity).encode() + delivery.body, digest_size=DIGEST_BYTES).digest()


def prune(folder: Path, older_than: timedelta) -> list[str]:
    """Deletes the tickets whose last file is older than that, and returns their folders' names.

    For batch reads, whose end Spark does not report: call it when their results are safe. A ticket with a segment that
    was never acknowledged is kept, because the broker may still give its messages back.
    """
    limit = time.time() - older_than.total_seconds()
    removed = []
    for ticket in sorted(folder.glob("*/*/*")):
        files = list(ticket.iterdir()) if ticket.is_dir() else []
        segments = [file for file in files if file.suffix == ".arrow"]
        newest = max((file.stat().st_mtime for file in files), default=0.0)
        if not segments or newest > limit:
            continue
        if any(not s.with_suffix(".acked").exists() and read_segment(s).num_rows for s in segments):
            continue
        shutil.rmtree(ticket)
        removed.append(ticket.name)
    return removed


def _file_name(queue: str) -> str:
    name = quote(queue, safe="")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) > 200:  # a queue name has up to 255 bytes and quoting may triple them; a file name has 255
        name = f"{name[:160]}-{blake2b(queue.encode(), digest_size=8).hexdigest()}"
    return name
