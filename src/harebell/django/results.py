"""Where results are kept: in a cache, in the database, or nowhere. Each keeps the record of a task under its id."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, Protocol

from django.db import IntegrityError, transaction
from django.utils import timezone

from harebell.django.messages import delay_of
from harebell.django.options import Options

__all__ = ["Results", "results_of"]

CACHE_KEY: Final = "harebell.tasks"
FINISHED: Final = ("FAILED", "SUCCESSFUL")


class Results(Protocol):
    """Keeps the records of tasks."""

    def save(self, record: dict[str, Any]) -> None: ...

    def get(self, id: str) -> dict[str, Any] | None: ...


class CacheResults:
    """In one of Django's caches, which all processes must share."""

    def __init__(self, options: Options) -> None:
        from django.core.cache import caches

        self._cache = caches[options.cache]
        self._prefix = f"{CACHE_KEY}.{options.prefix}"
        self._options = options

    def save(self, record: dict[str, Any]) -> None:
        self._cache.set(f"{self._prefix}.{record['id']}", json.dumps(record), self._seconds(record))

    def _seconds(self, record: dict[str, Any]) -> float:
        """How long a record is kept: longer by the time that its task waits to be due, or for its next attempt."""
        seconds = self._options.result_ttl
        if record["status"] in FINISHED:
            return seconds
        seconds += max(0.0, delay_of(record))
        return seconds + self._options.delay(len(record["errors"])) if record["errors"] else seconds

    def get(self, id: str) -> dict[str, Any] | None:
        text = self._cache.get(f"{self._prefix}.{id}")
        return None if text is None else dict(json.loads(text))


class DatabaseResults:
    """In a table of Django's database; old ones are deleted by workers."""

    def __init__(self, options: Options) -> None:
        self._ttl = options.result_ttl

    def save(self, record: dict[str, Any]) -> None:
        from harebell.django.models import TaskRecord

        values = {
            "record": json.dumps(record),
            "status": record["status"],
            "finished": record["status"] in FINISHED,
            "changed_at": timezone.now(),
        }
        if not TaskRecord.objects.filter(id=record["id"]).update(**values):
            try:
                with transaction.atomic():
                    TaskRecord.objects.create(id=record["id"], **values)
            except IntegrityError:  # another process was first
                TaskRecord.objects.filter(id=record["id"]).update(**values)

    def get(self, id: str) -> dict[str, Any] | None:
        from harebell.django.models import TaskRecord

        found = TaskRecord.objects.filter(id=id).values_list("record", flat=True).first()
        return None if found is None else dict(json.loads(found))

    def clean(self) -> int:
        """Delete results that are older than their time; how many."""
        from harebell.django.models import TaskRecord

        old = timezone.now() - timedelta(seconds=self._ttl)
        return int(TaskRecord.objects.filter(finished=True, changed_at__lt=old).delete()[0])


class NoResults:
    """Nowhere."""

    def save(self, record: dict[str, Any]) -> None: ...

    def get(self, id: str) -> dict[str, Any] | None:
        return None


_KINDS: Final[dict[str | None, Callable[[Options], Results]]] = {
    None: lambda options: NoResults(),
    "cache": CacheResults,
    "database": DatabaseResults,
}


def results_of(options: Options) -> Results:
    """What keeps the results, as the options say."""
    return _KINDS[options.results](options)
