"""The checked settings of a layer, and the AMQP arguments that follow from them. Pure functions.

Two processes with different expiry or capacity would declare the same queue with different arguments, which a broker
refuses (406); `explained` then names the setting that differs.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from harebell import errors
from harebell.channels.names import MAX_PREFIX, Names, owner_of
from harebell.client.url import parse_url
from harebell.protocol.v091 import Table

__all__ = ["LOCALHOST", "Capacities", "Settings", "explained", "size_of", "urls_of"]

LOCALHOST: Final = "amqp://guest:guest@localhost/"

MARKER_MARGIN: Final = (
    60.0  # seconds a marker queue outlives its message, so that the message expires before its queue is deleted
)
DROPPED_KEPT: Final = 1000  # dead letters stored for `harebell channels dropped`
DROPPED_SECONDS: Final = 86400.0
RECORDS_KEPT: Final = 100_000  # of layers, queues and memberships
CONTROLS_KEPT: Final = 100_000  # for a layer whose connection is lost: as many channels of it may leave meanwhile
PREFIX: Final = re.compile(rf"[\w\-.]{{1,{MAX_PREFIX}}}", re.ASCII)
MOST_MESSAGES: Final = 2**63 - 1  # AMQP has no larger numbers
MAX_SECONDS: Final = 1_000_000.0  # brokers take a queue's times up to 2 ** 32 milliseconds, and some are four of these
OF_ARGUMENT: Final = {
    "x-expires": "expiry (for group members: group_expiry)",
    "x-message-ttl": "expiry (for group members: group_expiry)",
    "x-max-length": "capacity or channel_capacity",
    "x-dead-letter-exchange": "prefix",
}


class Capacities:
    """A number of messages by name of channel or group: the first pattern that matches decides."""

    __slots__ = ("_default", "patterns")

    def __init__(
        self, default: int, patterns: Mapping[str | re.Pattern[str], int] | None, name: str = "channel_capacity"
    ) -> None:
        self._default = _whole("capacity", default)
        self.patterns = [
            (
                pattern if isinstance(pattern, re.Pattern) else re.compile(fnmatch.translate(pattern)),
                _whole(f"{name}[{pattern!r}]", capacity),
            )
            for pattern, capacity in _patterns(name, patterns).items()
        ]

    def of(self, channel: str) -> int:
        for pattern, capacity in self.patterns:
            if pattern.match(channel):
                return capacity
        return self._default


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a layer.

    urls          of brokers, tried in turn; "embedded://" is a broker in this process
    prefix        the beginning of every name on the broker: layers with different prefixes are separate
    expiry        seconds that a message waits for its reader
    group_expiry  seconds that a membership lasts unless it is added again
    capacities    how many messages may wait in a channel
    timeout       seconds after which a call fails when the broker does not answer or is unavailable
    history       groups (patterns as of channel_capacity) and how many of their last messages are stored
    """

    urls: tuple[str, ...]
    prefix: str = "asgi"
    expiry: float = 60.0
    group_expiry: float = 86400.0
    capacities: Capacities = field(default_factory=lambda: Capacities(100, None))
    timeout: float = 30.0
    history: Capacities = field(default_factory=lambda: Capacities(0, None))

    def __post_init__(self) -> None:
        if not self.urls:
            raise errors.InvalidArgument("no URL of a broker was given")
        if not isinstance(self.prefix, str) or not PREFIX.fullmatch(self.prefix) or self.prefix.startswith("amq."):
            raise errors.InvalidArgument(
                f"prefix={self.prefix!r}: 1 to {MAX_PREFIX} ASCII letters, digits, hyphens, underscores or periods are "
                "needed, and another beginning than amq.: with a longer one the names of queues would not fit AMQP"
            )
        for name in ("expiry", "group_expiry", "timeout"):
            seconds = getattr(self, name)
            if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0.001 <= seconds <= MAX_SECONDS:
                raise errors.InvalidArgument(
                    f"{name}={seconds!r}: seconds are needed, from 0.001 to {MAX_SECONDS:,.0f}"
                )

    def queue_arguments(self, names: Names, channel: str, deduplicates: bool) -> Table:
        """The arguments of a channel's queue. The broker deletes the queue when it is unused for two expiries.

        A full queue refuses a message with a nack; expired messages are dead-lettered.
        deduplicates  the broker knows x-message-deduplication: a message published again arrives once
        """
        arguments: Table = {
            "x-queue-type": "classic",
            "x-expires": _ms(2 * self.expiry),
            "x-message-ttl": _ms(self.expiry),
            "x-max-length": self.capacities.of(channel),
            "x-overflow": "reject-publish",
            "x-dead-letter-exchange": names.dead_letters,
        }
        if owner_of(channel) is not None:
            # A broker may know late that a connection is lost: what that one was sent comes before all that came later.
            arguments["x-single-active-consumer"] = True
        if deduplicates and "!" not in channel:
            arguments["x-message-deduplication"] = True
            arguments["x-cache-size"] = 10_000
            arguments["x-cache-ttl"] = _ms(2 * self.timeout)
        return arguments

    def member_arguments(self, names: Names, channel: str) -> Table:
        """The arguments of a member queue: its length is zero, so it dead-letters all into the process's own queue."""
        return {
            "x-queue-type": "classic",
            "x-max-length": 0,
            "x-expires": _ms(self.group_expiry),
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": names.queue(channel),
        }

    def marker_arguments(self, names: Names) -> Table:
        return {
            "x-queue-type": "classic",
            "x-max-length": 1,
            "x-message-ttl": _ms(self.group_expiry),
            "x-expires": _ms(self.group_expiry + MARKER_MARGIN),
            "x-dead-letter-exchange": "",  # not to the queue of what was dropped
            "x-dead-letter-routing-key": names.dead_letters,
        }

    def joined_arguments(self) -> Table:
        """The arguments of the queue that records when a channel was last added to a group."""
        return {
            "x-queue-type": "classic",
            "x-max-length": 1,
            "x-message-ttl": _ms(self.group_expiry),
            "x-expires": _ms(self.group_expiry + MARKER_MARGIN),
        }

    def control_arguments(self) -> Table:
        """The arguments of a layer's queue of control messages: they last as long as a membership."""
        return {
            "x-queue-type": "classic",
            "x-max-length": CONTROLS_KEPT,
            "x-message-ttl": _ms(self.group_expiry),
            "x-expires": _ms(self.group_expiry),
        }

    def dead_letter_arguments(self) -> Table:
        """The arguments of the queue of dead letters, which all layers consume; deleted when unused for a while."""
        return {"x-queue-type": "classic", "x-expires": _ms(2 * max(2 * self.expiry, self.group_expiry))}

    def registry_arguments(self) -> Table:
        return {
            "x-queue-type": "classic",
            "x-max-length": RECORDS_KEPT,
            "x-message-ttl": _ms(self.group_expiry),
            "x-expires": _ms(2 * self.group_expiry),
        }

    def dropped_arguments(self) -> Table:
        return {
            "x-queue-type": "classic",
            "x-max-length": DROPPED_KEPT,
            "x-message-ttl": _ms(DROPPED_SECONDS),
            "x-expires": _ms(2 * DROPPED_SECONDS),
        }


def explained(error: errors.PreconditionFailed) -> errors.InvalidArgument:
    """The broker's refusal of a declaration, in the words of the settings."""
    found = re.search(r"inequivalent arg '([^']+)' for (queue|exchange) '([^']+)'", str(error))
    argument, entity = (found[1], f"{found[2]} {found[3]!r}") if found else ("?", "a queue")
    setting = OF_ARGUMENT.get(argument, "settings")
    told = errors.InvalidArgument(
        f"{entity} was declared by a process with another {setting}: give all processes of this prefix the same "
        f"CONFIG, or another prefix ({error})"
    )
    told.__cause__ = error
    return told


def size_of(name: str, value: object) -> int:
    """A size in bytes. InvalidArgument for what is no whole number above 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise errors.InvalidArgument(f"{name}={value!r}: a whole number of bytes, 1 or more, is needed")
    return value


def _whole(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_MESSAGES:
        raise errors.InvalidArgument(f"{name}={value!r}: a whole number, 0 or more, is needed")
    return value


def _patterns(name: str, given: object) -> Mapping[str | re.Pattern[str], int]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise errors.InvalidArgument(f"{name}={given!r}: numbers by pattern of a name are needed, as {{'chat.*': 10}}")
    for pattern in given:
        text = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
        if not isinstance(text, str) or not text:
            raise errors.InvalidArgument(f"{name}: {pattern!r} is no pattern of a name: text, or re.compile of it")
    return given


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def urls_of(url: object, hosts: object) -> tuple[str, ...]:
    """The URLs of the settings `url`, LOCALHOST where it is left out, and `hosts`.

    InvalidArgument for one that cannot be understood, and for None, which is a missing one, unless there are hosts.
    """
    if url is not LOCALHOST and url is not None and hosts is not None:
        raise errors.InvalidArgument("url= and hosts= were both given: one of them is enough")
    if hosts is None:
        return (_url("url", url),)
    if isinstance(hosts, str | bytes) or not isinstance(hosts, Iterable):
        raise errors.InvalidArgument(f"hosts={hosts!r}: a list of URLs is needed; for one, url=")
    return tuple(_url(f"hosts[{number}]", host) for number, host in enumerate(hosts))


def _url(name: str, value: object) -> str:
    if value is None:
        raise errors.InvalidArgument(
            f"{name} is None (is a setting or an environment variable missing?): give text such as "
            "amqp://user:password@host/vhost, or embedded://"
        )
    if not isinstance(value, str):
        raise errors.InvalidArgument(
            f"{name} is a {type(value).__name__}: a URL is needed, as a str: amqp://user:password@host:port/vhost, "
            "or embedded://"
        )
    if value.startswith("embedded:"):
        if value.rstrip("/") != "embedded:":
            raise errors.InvalidArgument(f"{name}={value!r}: the broker of this process is embedded://, without more")
        return value
    try:
        parse_url(value)
    except errors.InvalidArgument as error:
        raise errors.InvalidArgument(f"{name}: {error}") from None
    return value
