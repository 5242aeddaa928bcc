"""Failed logins delay the next logins from the same address.

After FREE failures within a minute each login from the address is verified only after a pause, which doubles with every
further failure up to MOST_MS; a minute without a failure resets it. Logins are delayed rather than refused, so that
good clients behind the same address can still log in. Where many logins already wait, the next is refused at once:
guessing in parallel gains nothing. Beyond MOST_ADDRESSES the oldest are dropped. A site's IPv6 addresses (/64) count as
one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final

from harebell.broker.timers import Timers

__all__ = ["Throttle"]

FREE: Final = 10
FIRST_MS: Final = 250
MOST_MS: Final = 4_000  # well below the time limit of a handshake
FORGET_MS: Final = 60_000
MOST_WAITING: Final = 16
MOST_ADDRESSES: Final = 10_000


class _Record:
    __slots__ = ("failures", "last", "waiting")

    def __init__(self) -> None:
        self.failures = self.last = self.waiting = 0


class Throttle:
    """The failure counts of all addresses. `free` failures of an address cause no pause."""

    def __init__(self, timers: Timers, free: int = FREE) -> None:
        self.free = free
        self._timers = timers
        self._records: dict[str, _Record] = {}

    def __len__(self) -> int:
        """The number of addresses with a record."""
        return len(self._records)

    def admit(self, host: str, go_on: Callable[[], None]) -> bool:
        """Call `go_on`, now or after the pause; False when too many logins from that address wait already."""
        record = self._records.get(_site(host))
        if record is None or self._timers.now() - record.last >= FORGET_MS or record.failures < self.free:
            go_on()
            return True
        if record.waiting >= MOST_WAITING:
            return False
        pause = min(MOST_MS, FIRST_MS << min(record.failures - self.free, 10))
        record.waiting += 1

        def over() -> None:
            record.waiting -= 1
            go_on()

        self._timers.at(self._timers.now() + pause, over)
        return True

    def failed(self, host: str) -> None:
        site, now = _site(host), self._timers.now()
        record = self._records.pop(site, None) or _Record()
        if now - record.last >= FORGET_MS:
            record.failures = 0
        record.failures += 1
        record.last = now
        self._records[site] = record  # at the end: the dictionary is in the order of the last failures
        if len(self._records) > MOST_ADDRESSES:
            del self._records[next(iter(self._records))]


def _site(host: str) -> str:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 6 and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host
