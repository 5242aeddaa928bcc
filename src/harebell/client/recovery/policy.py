"""How a connection comes back: the program's choices, as frozen records. No I/O and no clock here."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final, Literal

from harebell import errors

__all__ = ["Backoff", "Recovery"]

MAX_DOUBLINGS: Final = 60  # a longer outage doubles nothing any more, and must not overflow


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential delays with full jitter: a random part of min(most, base * factor ** n), n counting from 0.

    Full jitter, so that a thousand clients of one broker that restarts do not come back in the same instant.

    base    seconds, the longest first delay
    most    seconds, the longest delay of all
    factor  by which the longest delay grows
    """

    base: float = 0.2
    most: float = 30.0
    factor: float = 2.0

    def __post_init__(self) -> None:
        if not (0 <= self.base <= self.most and self.factor >= 1):
            raise errors.InvalidArgument(f"{self}: 0 <= base <= most and factor >= 1 are needed")

    def delay(self, attempt: int) -> float:
        """Seconds to wait before this attempt; the first is 1."""
        return random.uniform(0.0, min(self.most, self.base * self.factor ** min(attempt - 1, MAX_DOUBLINGS)))


@dataclass(frozen=True, slots=True)
class Recovery:
    """What happens when the connection is lost.

    backoff        delays between attempts; an attempt tries every host once
    give_up_after  seconds without a connection after which it is closed with RecoveryGaveUp; None is never
    topology       what is declared again: "all" that was declared on the connection and not deleted, only the
                   "transient" part (not durable, exclusive or auto-delete, and the bindings of these), or "none"
    calls          "park": a call made during an outage waits for its end, within its own timeout, and a call that was
                   cut is made again when that does no harm; "fail": both raise ConnectionLost
    reopen_channels  a channel that the broker closed with an error (404, 406, ...) is opened again with all it had;
                   the call that failed raises in any case
    first          "once": `connect` tries every host once; "retry": it goes on like a redial, within `timeout`
    """

    backoff: Backoff = field(default_factory=Backoff)
    give_up_after: float | None = None
    topology: Literal["all", "transient", "none"] = "all"
    calls: Literal["park", "fail"] = "park"
    reopen_channels: bool = True
    first: Literal["once", "retry"] = "once"

    def __post_init__(self) -> None:
        for name, allowed in (
            ("topology", ("all", "transient", "none")),
            ("calls", ("park", "fail")),
            ("first", ("once", "retry")),
        ):
            if getattr(self, name) not in allowed:
                raise errors.InvalidArgument(f"{name}={getattr(self, name)!r}: one of {', '.join(allowed)} is needed")
        if self.give_up_after is not None and self.give_up_after < 0:
            raise errors.InvalidArgument(f"give_up_after={self.give_up_after!r}: seconds, 0 or more, or None")
