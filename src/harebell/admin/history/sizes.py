"""The bytes of a queue's messages: exact for short queues, estimated for long ones.

The broker does not count bytes per message, because that would cost each message. So they are added up when somebody
asks: all messages up to EXACT of them, else the average of so many at the head and the tail, times their number. A
queue that has priorities or limits knows its bytes. The bytes of unacknowledged messages are estimated by the average
of the ready ones. Messages that are only on disk have the average size of those in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import Final, NamedTuple

from harebell.broker.message import Message
from harebell.broker.queues.base import Queue
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.queues.stream import StreamQueue

__all__ = ["Sizes", "head_timestamp", "sizes"]

EXACT: Final = 256  # messages
PER_MESSAGE: Final = 400  # bytes of memory that a message takes beside its content
PER_QUEUE: Final = 4096


class Sizes(NamedTuple):
    """Bytes and numbers of a queue's messages. `in_memory` of `ready`; `persistent` is the part of all that is."""

    ready: int
    unacked: int
    in_memory: int
    in_memory_count: int
    persistent: float
    memory: int


def sizes(queue: Queue, unacked: int) -> Sizes:
    """The sizes of a queue with so many unacknowledged messages."""
    count = queue.message_count
    if isinstance(queue, StreamQueue):
        size = queue.log.size
        return Sizes(size, 0, 0, 0, 1.0, PER_QUEUE)
    if not isinstance(queue, ClassicQueue):
        return Sizes(0, 0, 0, 0, 0.0, PER_QUEUE)
    if not count:  # most queues, mostly
        return Sizes(0, 0, 0, 0, float(queue.stored), PER_QUEUE)
    held, bytes_held, sample = _in_memory(queue)
    persistent = _persistent(sample) if queue.stored else 0.0
    average = bytes_held / held if held else 0.0
    ready = bytes_held if held == count else round(average * count)
    memory = PER_QUEUE + held * PER_MESSAGE + bytes_held
    return Sizes(ready, round(average * unacked), bytes_held, held, persistent, memory)


def _in_memory(queue: ClassicQueue) -> tuple[int, int, Sequence[Message]]:
    """The number of messages in memory, their bytes, and some of them, for a queue on disk."""
    backlog, line = queue.backlog, queue.line
    if backlog is not None:
        return backlog.count, backlog.bytes, [held.message for held in islice(backlog, EXACT if queue.stored else 0)]
    count = len(line.ready) + len(line.returned)
    returned = [held.message for held in islice(line.returned, EXACT)]
    if count <= EXACT:
        sample = [*line.ready, *returned]
        return count, _bytes(sample), sample
    some = EXACT // 2
    sample = [*islice(line.ready, some), *islice(reversed(line.ready), some)] or returned
    return count, round(_bytes(sample) / len(sample) * count), sample


def _bytes(messages: Iterable[Message]) -> int:
    return sum([message.content.body_size for message in messages])


def _persistent(messages: Sequence[Message]) -> float:
    return sum(message.content.persistent for message in messages) / len(messages) if messages else 1.0


def head_timestamp(queue: Queue) -> int | None:
    """The timestamp of the first ready message, in seconds since 1970; None: it has none, or it is only on disk."""
    if not isinstance(queue, ClassicQueue) or not queue.message_count:
        return None
    backlog, line = queue.backlog, queue.line
    if backlog is not None:
        held = backlog.first()
        message = None if held is None else held.message
    else:
        held = line.returned.first()
        message = held.message if held is not None else line.ready[0] if line.ready else None
    stamp = None if message is None else message.content.decode_properties().timestamp
    return int(stamp.timestamp()) if isinstance(stamp, datetime) else stamp
