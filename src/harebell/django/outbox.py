"""The outbox: tasks that are rows of the program's own transaction, and are published when it has committed.

A process claims rows for a while, publishes their tasks, and deletes each row once the broker has confirmed its task.
No transaction is open meanwhile: others write to the database however long the broker takes. A process that dies in
between leaves the row, and when the claim has ended the task is published again, under the same id: a queue on Harebell
takes it once. The row of a task that can never be published stays, with the error, and those behind it go on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

from django.db.models import Q
from django.utils.crypto import get_random_string

from harebell.django.messages import delay_of
from harebell.errors import HarebellError

__all__ = ["relay", "store"]

AT_ONCE: Final = 100  # rows that are claimed together
CLAIM_SECONDS: Final = 60.0  # in which the rows of a claim are begun; the others are claimed anew

Publish = Callable[..., None]
Refused = Callable[[dict[str, Any], HarebellError], bool]


def store(record: dict[str, Any]) -> None:
    """Put a task into the outbox, as a part of the transaction."""
    from harebell.django.models import OutboxTask

    OutboxTask.objects.create(backend=record["backend"], record=json.dumps(record))


def relay(backend: str, publish: Publish, refused: Refused, patience: float) -> int:
    """Publish the tasks of one backend that wait in the outbox; how many. Raises what `publish` raises.

    Those that another process has claimed are left to it.

    refused   called with a task and the error of `publish`: whether it can never be published
    patience  seconds that one call of `publish` takes at most
    """
    from harebell.django.models import OutboxTask

    count = 0
    claimed_by = get_random_string(32)
    try:
        while rows := _claim(backend, claimed_by, CLAIM_SECONDS + patience):
            until = time.monotonic() + CLAIM_SECONDS
            for row in rows:
                record = json.loads(row.record)
                try:
                    publish(record, delay=delay_of(record))
                except HarebellError as error:
                    if not refused(record, error):
                        raise
                    text = str(error) or type(error).__name__  # a row without one waits
                    OutboxTask.objects.filter(id=row.id).update(error=text)
                else:
                    OutboxTask.objects.filter(id=row.id).delete()
                    count += 1
                if time.monotonic() > until:
                    break
    finally:
        OutboxTask.objects.filter(claimed_by=claimed_by).update(claimed_by="", claimed_until=0)
    return count


def _claim(backend: str, claimed_by: str, seconds: float) -> list[Any]:
    """The next rows of a backend, which no other process publishes in so many seconds."""
    from harebell.django.models import OutboxTask

    while True:
        now = time.time()
        free = Q(claimed_until__lt=now) | Q(claimed_by=claimed_by)
        waiting = OutboxTask.objects.filter(free, backend=backend, error="").order_by("id")
        if not (ids := list(waiting.values_list("id", flat=True)[:AT_ONCE])):
            return []
        # One statement, which looks again whether they are free: of two processes one has a row.
        waiting.filter(id__in=ids).order_by().update(claimed_by=claimed_by, claimed_until=now + seconds)
        if rows := list(OutboxTask.objects.filter(id__in=ids, claimed_by=claimed_by).order_by("id")):
            return rows
