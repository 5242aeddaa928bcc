"""The outbox: tasks that are rows of the program's own transaction, and are published when it has committed.

A row is deleted in a transaction that commits once the broker has confirmed its task. A process that dies in between
leaves the row, and the task is published again, under the same id: a queue on Harebell takes it once. The row of a task
that can never be published stays, with the error, and those behind it go on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from django.db import transaction

from harebell.django.messages import delay_of
from harebell.errors import HarebellError

__all__ = ["relay", "store"]

AT_ONCE: Final = 100  # rows that are read together

Publish = Callable[..., None]
Refused = Callable[[dict[str, Any], HarebellError], bool]


def store(record: dict[str, Any]) -> None:
    """Put a task into the outbox, as a part of the transaction."""
    from harebell.django.models import OutboxTask

    OutboxTask.objects.create(backend=record["backend"], record=json.dumps(record))


def relay(backend: str, publish: Publish, refused: Refused) -> int:
    """Publish the tasks of one backend that wait in the outbox; how many. Raises what `publish` raises.

    refused  called with a task and the error of `publish`: whether it can never be published
    """
    from harebell.django.models import OutboxTask

    count = 0
    while rows := list(OutboxTask.objects.filter(backend=backend, error="").order_by("id")[:AT_ONCE]):
        for row in rows:
            with transaction.atomic():
                # Deleted first, so that another process that has read the row waits here, and finds nothing then.
                if not OutboxTask.objects.filter(id=row.id).delete()[0]:
                    continue
                record = json.loads(row.record)
                try:
                    publish(record, delay=delay_of(record))
                except HarebellError as error:
                    if not refused(record, error):
                        raise
                    row.error = str(error) or type(error).__name__  # a row without one waits
                    row.save(force_insert=True)
                else:
                    count += 1
    return count
