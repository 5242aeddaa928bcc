"""What a transaction holds, on its way to the disk (`store.prepared`): in parts, so that nobody waits for a long one.

The last part says that it is whole. Without it, nothing was begun: a kill, or an end before, leaves all as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

from harebell.broker.batch import Batch
from harebell.broker.forwarding import Sink
from harebell.broker.message import Message
from harebell.broker.queues.base import Queue
from harebell.broker.queues.stream import StreamQueue
from harebell.broker.slices import Work
from harebell.broker.store.prepared import KeptBranch, KeptMessage, LastCommit, PreparedBranches

__all__ = ["LOOKED_AT", "Record"]

MESSAGES_PER_PART: Final = 128  # a part is written in one step
PLACES_PER_PART: Final = 512
LOOKED_AT: Final = 4096  # publications of a step that writes nothing


class Record:
    """The record of a transaction. Messages are added first, then what it takes, then what it rejects; then it ends.

    kept    what it is known by on disk; its lists stay empty
    places  of its messages that outlast the broker, by the numbers of their publications
    """

    __slots__ = ("_batch", "_part", "_prepared", "kept", "places")

    def __init__(self, kept: KeptBranch, prepared: PreparedBranches, batch: Batch) -> None:
        self.kept = kept
        self.places: dict[int, int] = {}
        self._prepared, self._batch = prepared, batch
        self._part = kept.new_part()

    def adding_messages(self, publications: Iterable[tuple[Message, tuple[Sink, ...]]]) -> Work:
        """Add routed messages, each with its queues. Those that do not outlast the broker are no part of the record."""
        for number, (message, queues) in enumerate(publications):
            if message.content.persistent and any(queue.stored for queue in queues):
                self.places[number] = len(self.places)
                self._part.messages.append(KeptMessage(message, _names(queues)))
                _note_streams(queues, self.kept.streams)
                if len(self._part.messages) == MESSAGES_PER_PART:
                    self._write()
                    yield
            elif number % LOOKED_AT == 0:
                yield

    def adding_taken(self, taken: Collection[tuple[Queue, int]], *, rejected: bool = False) -> Work:
        """Add messages that are taken from their queues, or `rejected`: queue and position of each.

        A message whose queue is deleted is no part of the record. What was added is written before the next step: in
        one part no two queues have the same name.
        """
        entries = iter(taken)
        left = len(taken)
        while left:
            places = self._part.rejected if rejected else self._part.taken
            for queue, position in islice(entries, PLACES_PER_PART):
                if queue.stored and not queue.deleted:
                    places.append((queue.name, position, queue.folder))
            left -= min(left, PLACES_PER_PART)
            if left:
                self._write()
                yield

    def _write(self) -> None:
        if self._holds:
            self._prepared.keep_part(self._part)
            self._part = self.kept.new_part()
            self._batch.relieve()

    @property
    def _holds(self) -> bool:
        """Whether the part that is not written yet has anything."""
        return bool(self._part.messages or self._part.taken or self._part.rejected)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the transaction outlasts the broker."""
        return not (self._holds or self._prepared.has(self.kept))

    def end(self, *, decided: bool, by: LastCommit | None = None) -> None:
        """Write the last part, after which the transaction is prepared, or `decided`; in the step of the last addition.

        `by` is the session that may ask for it.
        """
        self._part.streams, self._part.by = self.kept.streams, by
        self._prepared.keep(self._part, decided=decided)
        self.kept.decided, self.kept.by = decided, by

    def give_up(self) -> None:
        """The transaction is not to be begun any more."""
        if self._prepared.has(self.kept):
            self._prepared.end(self.kept)


def _names(sinks: tuple[Sink, ...]) -> tuple[str, ...] | None:
    """The names of the queues; None where the message goes elsewhere too."""
    queues = [sink for sink in sinks if isinstance(sink, Queue)]
    return tuple(queue.name for queue in queues) if len(queues) == len(sinks) else None


def _note_streams(sinks: tuple[Sink, ...], streams: dict[str, tuple[int, str]]) -> None:
    """Add the streams among them, with an offset that is below those of messages that they get from now on."""
    for sink in sinks:
        if isinstance(sink, StreamQueue) and sink.name not in streams:
            streams[sink.name] = (sink.log.durable, sink.folder)
