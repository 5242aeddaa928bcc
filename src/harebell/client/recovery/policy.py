"""How a connection comes back: the program's choices, as frozen records. No I/O and no clock here."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Final, Literal

from harebell import errors
from harebell.client.seconds import check_seconds

__all__ = ["Backoff", "Pauses", "Recovery", "check_backoff", "check_recovery"]

MAX_DOUBLINGS: Final = 60  # a longer outage doubles nothing any more, and must not overflow


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential delays with full jitter: a random part of min(most, base * factor ** n), n counting from 0.

    Full jitter, so that a thousand clients of one broker that restarts do not come back in the same instant. The delays
    begin anew with `base` once what was tried has held for `most` seconds; what breaks sooner goes on with longer ones.

    base    seconds, the longest first delay
    most    seconds, the longest delay of all
    factor  by which the longest delay grows
    """

    base: float = 0.2
    most: float = 30.0
    factor: float = 2.0

    def __post_init__(self) -> None:
        for name in ("base", "most"):
            object.__setattr__(self, name, check_seconds(getattr(self, name), f"{name} of a Backoff"))
        factor = self.factor
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor < math.inf:
            raise errors.InvalidArgument(f"factor of a Backoff is {factor!r}: a number is needed, 1 or more")
        if not self.base <= self.most < math.inf:
            raise errors.InvalidArgument(f"{self}: 0 <= base <= most are needed, and an end of both")

    def delay(self, attempt: int) -> float:
        """Seconds to wait before this attempt; the first is 1."""
        return random.uniform(0.0, self.longest(attempt))

    def longest(self, attempt: int) -> float:
        """The longest delay before this attempt, in seconds."""
        try:
            return min(self.most, self.base * self.factor ** min(attempt - 1, MAX_DOUBLINGS))
        except OverflowError:  # of a factor that is large itself
            return self.most


class Pauses:
    """The pauses before the attempts at one thing, over all its successes and losses.

    They grow by the backoff and begin anew once the thing has held for `backoff.most` seconds: a connection that is
    lost at once after every opening is dialled with growing pauses, too. All times are one clock's, in seconds.

    free  how many attempts come without a pause, before the backoff's first
    """

    __slots__ = ("_attempts", "_backoff", "_free", "_held_since")

    def __init__(self, backoff: Backoff, *, free: int = 0) -> None:
        self._backoff = backoff
        self._free = free
        self._attempts = 0
        self._held_since: float | None = None

    def succeeded(self, now: float) -> None:
        """The attempt was successful: the thing holds from now on."""
        self._held_since = now

    def next(self, now: float) -> float:
        """Seconds to wait before the next attempt: the thing is lost, or an attempt at it has failed."""
        if self._held_since is not None and now - self._held_since >= self._backoff.most:
            self._attempts = 0
        self._held_since = None
        self._attempts += 1
        attempt = self._attempts - self._free
        return self._backoff.delay(attempt) if attempt > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Recovery:
    """What happens when the connection is lost.

    backoff        delays between attempts; an attempt tries every host once. They begin anew once a connection has
                   held for `backoff.most` seconds, and so do those of a channel that is opened again
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
        check_backoff(self.backoff)
        for name, allowed in (
            ("topology", ("all", "transient", "none")),
            ("calls", ("park", "fail")),
            ("first", ("once", "retry")),
        ):
            if getattr(self, name) not in allowed:
                raise errors.InvalidArgument(f"{name}={getattr(self, name)!r}: one of {', '.join(allowed)} is needed")
        if self.give_up_after is not None:
            object.__setattr__(self, "give_up_after", check_seconds(self.give_up_after, "give_up_after"))
        if not isinstance(self.reopen_channels, bool):
            raise errors.InvalidArgument(f"reopen_channels={self.reopen_channels!r}: True or False is needed")


def check_backoff(backoff: object) -> None:
    """InvalidArgument for what is no Backoff: it would be found out at the first loss, and end the connection."""
    if not isinstance(backoff, Backoff):
        raise errors.InvalidArgument(
            f"backoff is {backoff!r}: give a Backoff, as Backoff(base=0.2, most=5), or leave it out"
        )


def check_recovery(recovery: object) -> None:
    """InvalidArgument for what is neither a Recovery nor None."""
    if recovery is not None and not isinstance(recovery, Recovery):
        raise errors.InvalidArgument(
            f"recovery is {recovery!r}: give a Recovery, as Recovery(give_up_after=60), or None for a connection that "
            "ends with its transport, or leave it out"
        )
