"""A consumer of one wire channel: where its deliveries go, and what is called at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from harebell import errors
from harebell.client.messages import Acknowledger, Delivery

__all__ = ["ConsumerCore"]


class ConsumerCore:
    """One subscription: where its deliveries go.

    append       called with each delivery
    ended        called once with the reason when the broker cancelled it or the channel died; None after our own cancel
    interrupted  called instead when another wire channel will take the place of this one
    forget       called when the broker takes back what it delivered: drops what the program has not got, gives the tags
    unseen       the deliveries that the program has not got, the earliest first
    settler      what its deliveries are bound to
    """

    __slots__ = (
        "answered", "append", "cancelling", "ended", "forget", "interrupted", "no_ack", "queue", "settler", "tag",
        "unseen",
    )  # fmt: skip

    settler: Acknowledger

    def __init__(
        self,
        tag: str,
        queue: str,
        no_ack: bool,
        append: Callable[[Delivery], None],
        ended: Callable[[errors.HarebellError | None], None],
        forget: Callable[[], Iterable[int]],
        interrupted: Callable[[], None] = lambda: None,
        unseen: Callable[[], Iterable[Delivery]] = tuple,
    ) -> None:
        self.tag = tag
        self.queue = queue
        self.no_ack = no_ack
        self.append = append
        self.ended = ended
        self.forget = forget
        self.interrupted = interrupted
        self.unseen = unseen
        self.answered = False  # its consume-ok is there
        self.cancelling = False
