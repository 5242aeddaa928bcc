"""The OPTIONS of the backend, checked. Knows no AMQP."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from harebell.client.url import parse_url
from harebell.errors import InvalidArgument

__all__ = ["EMBEDDED", "Options"]

EMBEDDED: Final = "embedded://"
PREFIX: Final = re.compile(r"[\w\-.]{1,60}", re.ASCII)
ENQUEUE: Final = ("commit", "now", "outbox")
RESULTS: Final = (None, "cache", "database")
MAX_LEVELS: Final = 201  # one for each of Django's priorities


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What OPTIONS may have.

    url              of the broker; "embedded://" is one in this process, whose tasks run in a thread of this process
    prefix           the beginning of every name on the broker
    enqueue          "commit": a task is published when the transaction commits, at once without one; "now": at once;
                     "outbox": it is a row of the transaction, which is published after it, by this process or a worker
    results          where results are kept: "cache", "database", or None for nowhere
    cache            the alias of the cache
    result_ttl       seconds that a result is kept; in a cache those that its task waits to be due come on top
    attempts         how often a task is tried that raises an exception
    backoff          seconds before the second attempt; twice as many before each further one
    backoff_max      seconds between two attempts at most
    priority_levels  how many priorities the broker tells apart, 1 to 201
    timeout          seconds after which publishing fails when the broker is unavailable
    dead_ttl         seconds that a task that has failed for good is kept in the queue of dead tasks
    """

    url: str = "amqp://guest:guest@localhost/"
    prefix: str = "tasks"
    enqueue: str = "commit"
    results: str | None = "cache"
    cache: str = "default"
    result_ttl: float = 86400.0
    attempts: int = 1
    backoff: float = 10.0
    backoff_max: float = 3600.0
    priority_levels: int = 11
    timeout: float = 10.0
    dead_ttl: float = 7 * 86400.0

    def __post_init__(self) -> None:
        if not isinstance(self.url, str):
            raise _wrong("url", self.url, "a URL: amqp://user:password@host:port/vhost, or embedded://")
        if self.url != EMBEDDED:
            try:
                parse_url(self.url)
            except InvalidArgument as error:
                raise ImproperlyConfigured(f"TASKS: OPTIONS: url: {error}") from None
        if not isinstance(self.prefix, str) or not PREFIX.fullmatch(self.prefix) or self.prefix.startswith("amq."):
            raise _wrong("prefix", self.prefix, "1 to 60 ASCII letters, digits, hyphens, underscores or periods")
        for name, allowed in (("enqueue", ENQUEUE), ("results", RESULTS)):
            if getattr(self, name) not in allowed:
                raise _wrong(name, getattr(self, name), f"one of {', '.join(map(repr, allowed))}")
        if not isinstance(self.cache, str) or (self.results == "cache" and self.cache not in settings.CACHES):
            raise _wrong("cache", self.cache, f"an alias in CACHES, which has {', '.join(map(repr, settings.CACHES))},")
        for name, least, most in (("attempts", 1, 1000), ("priority_levels", 1, MAX_LEVELS)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise _wrong(name, value, f"a whole number from {least} to {most}")
        for name in ("result_ttl", "backoff", "backoff_max", "timeout", "dead_ttl"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 4e6:
                raise _wrong(name, value, "seconds, more than 0 and at most 4,000,000")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """The options that a TASKS setting has. ImproperlyConfigured for an unknown one or a wrong value."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(str(name), known, 1)
                meant = f": {near[0]!r}?" if near else f", there are {', '.join(known)}"
                raise ImproperlyConfigured(f"TASKS: OPTIONS: there is no option {name!r}{meant}")
        return cls(**given)

    def delay(self, attempt: int) -> float:
        """Seconds before the attempt after this one, which is the first, the second..."""
        return float(min(self.backoff_max, self.backoff * 2.0 ** min(attempt - 1, 60)))

    def level(self, priority: int) -> int:
        """The broker's priority for one of Django's (-100 to 100)."""
        return round((priority + 100) / 200 * (self.priority_levels - 1))


def _wrong(name: str, value: object, needed: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"TASKS: OPTIONS: {name}={value!r}: {needed} is needed")
