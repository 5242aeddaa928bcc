"""The queues that are tortured, how each is filled, and by whom it is emptied."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from harebell.protocol.v091 import Table

__all__ = ["FAN", "LATER", "QUEUES", "Queue", "sources"]

FAN: Final = "torture.fan"
LATER: Final = "torture.later"
A_DAY: Final = 86_400_000


@dataclass(frozen=True)
class Queue:
    """A durable queue.

    exchange   it is bound to; "": publishers name the queue
    consumers  connections that consume from it at a time; 0: a stream, which has a reader
    rare       there are consumers in some lives of the broker only, so a backlog grows
    dead       the queue of what consumers reject
    """

    name: str
    arguments: Table = field(default_factory=dict)
    exchange: str = ""
    consumers: int = 1
    rare: bool = False
    dead: str | None = None

    @property
    def stream(self) -> bool:
        return self.arguments.get("x-queue-type") == "stream"


def _letters_to(dead: str, **more: str) -> Table:
    arguments: Table = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    arguments.update(more)
    return arguments


SAFE: Final = {
    "x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
}  # fmt: skip

# Those of dead letters stand before those that send there.
QUEUES: Final = (
    Queue("dead"),
    Queue("dead.safe", {"x-queue-type": "quorum"}),
    Queue("work", _letters_to("dead"), consumers=2, dead="dead"),
    Queue("safe", _letters_to("dead.safe", **SAFE), consumers=2, dead="dead.safe"),
    Queue("backlog", rare=True),
    Queue("fan.classic", exchange=FAN),
    Queue("fan.quorum", _letters_to("dead", **{"x-queue-type": "quorum"}), FAN, consumers=3, dead="dead"),
    Queue("fan.priority", {"x-max-priority": 3}, FAN, consumers=2),
    Queue("fan.ttl", {"x-message-ttl": A_DAY}, FAN),
    Queue("fan.stream", {"x-queue-type": "stream"}, FAN, consumers=0),
    Queue("stream", {"x-queue-type": "stream"}, consumers=0),
    Queue("later", exchange=LATER),
)


def sources(queues: tuple[Queue, ...]) -> dict[tuple[str, str], list[Queue]]:
    """(exchange, routing key) of everything that can be published to -> the queues that get it."""
    dead = {queue.dead for queue in queues}
    found: dict[tuple[str, str], list[Queue]] = {}
    for queue in queues:
        if queue.name not in dead:
            found.setdefault((queue.exchange, "" if queue.exchange else queue.name), []).append(queue)
    return found
