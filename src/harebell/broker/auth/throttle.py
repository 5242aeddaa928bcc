"""Limits on guessing passwords: how often a user's may be tried from an address, and how often any from there.

    of                              free in a minute     then one in
    ------------------------------  -------------------  ----------------------
    one user at one address         10                   250 ms, 500 ms, 1 s
    all users at one address        100                  100 ms, 200 ms, 250 ms

Failures and verifications under way count, so that guesses side by side gain nothing. Who comes later waits for a turn,
and is refused at once when no turn is left within MOST_WAIT_MS. A minute without a failure resets a count. Another user
at the same address does not wait for the first, and neither does the same user elsewhere: an attack locks nobody out.
What is known to be right or wrong is no guess and does not come here (`login`).

A site's IPv6 addresses (/64) count as one. Beyond MOST_RECORDS the oldest are dropped.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final, NamedTuple

from harebell.broker.timers import Timers

__all__ = ["Throttle", "site"]

FORGET_MS: Final = 60_000
MOST_WAIT_MS: Final = 8_000  # below the time limit of a handshake
MOST_RECORDS: Final = 20_000


class Level(NamedTuple):
    """Guesses that are free, and the pauses between those that follow, in milliseconds: the last is repeated."""

    free: int
    pauses: tuple[int, ...]


USER: Final = Level(10, (250, 500, 1000))
ADDRESS: Final = Level(100, (100, 200, 250))


class _Record:
    __slots__ = ("failures", "last_failure", "next_turn", "running")

    def __init__(self) -> None:
        self.failures = self.running = self.last_failure = self.next_turn = 0

    def turn(self, level: Level, now: int) -> int:
        """When the next guess may start."""
        if now - self.last_failure >= FORGET_MS:
            self.failures = 0
        over = self.failures + self.running - level.free
        if over < 0:
            return now
        return max(now, self.next_turn) + level.pauses[min(over, len(level.pauses) - 1)]


class Throttle:
    """The counts of all addresses. `user` and `address` are the limits; each `admit` that is True wants an `ended`."""

    def __init__(self, timers: Timers) -> None:
        self.user = USER
        self.address = ADDRESS
        self._timers = timers
        self._records: dict[tuple[str, str | None], _Record] = {}

    def __len__(self) -> int:
        """The number of records."""
        return len(self._records)

    def admit(self, host: str, user: str, go_on: Callable[[], None]) -> bool:
        """Call `go_on`, now or at its turn, to verify a guess; False when there is no turn soon."""
        now = self._timers.now()
        mine, all_users = self._record(host, user), self._record(host, None)
        turn = max(mine.turn(self.user, now), all_users.turn(self.address, now))
        if turn > now + MOST_WAIT_MS:
            return False
        for record in (mine, all_users):
            record.running += 1
            if turn > now:
                record.next_turn = turn
        if turn > now:
            self._timers.at(turn, go_on)
        else:
            go_on()
        return True

    def ended(self, host: str, user: str, *, failed: bool) -> None:
        """A guess was verified, or given up."""
        for name in (user, None):
            record = self._record(host, name)
            record.running = max(0, record.running - 1)
            if failed:
                record.failures += 1
                record.last_failure = self._timers.now()

    def _record(self, host: str, user: str | None) -> _Record:
        key = site(host), user
        record = self._records.pop(key, None) or _Record()
        self._records[key] = record  # at the end: the dictionary is in the order of use
        if len(self._records) > MOST_RECORDS:
            del self._records[next(iter(self._records))]
        return record


def site(host: str) -> str:
    """The name of all addresses that count as one with this."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 6 and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host
