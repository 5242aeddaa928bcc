"""A task as a message, and back: JSON that any program can read. Knows no broker.

The body has the path of the task's function, its arguments, and what has become of it so far; a message of a later
attempt has the errors of the earlier ones.
"""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from django.utils.module_loading import import_string

from harebell.client.messages import Message
from harebell.django.framework import base, exceptions
from harebell.django.options import Options
from harebell.errors import UndecodableBody

__all__ = ["DUE", "UnknownTask", "delay_of", "failed", "message_of", "read", "record_of", "result_of"]

PERSISTENT: Final = 2
TIMES: Final = ("enqueued_at", "started_at", "finished_at", "last_attempted_at")
DUE: Final = "due"  # a header of what waits at the broker: milliseconds since 1970
DEDUPLICATION: Final = "x-deduplication-header"  # Harebell's queues take a message with the same one once


class UnknownTask(Exception):
    """The function of a task cannot be imported, is no task, or TASKS has not its backend or its queue."""


def record_of(result: Any) -> dict[str, Any]:
    """A TaskResult as what JSON can say."""
    task = result.task
    return {
        "id": result.id,
        "task": task.module_path,
        "args": result.args,
        "kwargs": result.kwargs,
        "queue": task.queue_name,
        "priority": task.priority,
        "run_after": _text(task.run_after),
        "backend": result.backend,
        "status": str(result.status.value),
        "errors": [[error.exception_class_path, error.traceback] for error in result.errors],
        "worker_ids": result.worker_ids,
        "return_value": result._return_value,
        **{name: _text(getattr(result, name)) for name in TIMES},
    }


def delay_of(record: dict[str, Any]) -> float:
    """Seconds until a task is due; 0 or less when it is.

    A time without a zone (USE_TZ=False) is this machine's, to which Django sets TIME_ZONE. Both kinds are compared as
    seconds since 1970: a clock that is put forward or back in between changes nothing.
    """
    due = _time(record["run_after"])
    return 0.0 if due is None else due.timestamp() - time.time()


def failed(record: dict[str, Any], error: Exception) -> dict[str, Any]:
    """The record of a task that has failed for good without being run."""
    return {
        **record,
        "errors": [*record.get("errors", []), [f"{type(error).__module__}.{type(error).__qualname__}", str(error)]],
        "status": str(base.TaskResultStatus.FAILED.value),
        "finished_at": timezone.now().isoformat(),
    }


def result_of(record: dict[str, Any]) -> Any:
    """The TaskResult of a record. UnknownTask when this program has no such task."""
    try:
        task = import_string(record["task"])
    except (ImportError, AttributeError) as error:
        raise UnknownTask(f"{record['task']}: {error}") from error
    if not isinstance(task, base.Task):
        raise UnknownTask(f"{record['task']} is no task: its decorator @task is missing")
    try:
        task = task.using(
            priority=record["priority"],
            queue_name=record["queue"],
            run_after=_time(record["run_after"]),
            backend=record["backend"],
        )
    except (exceptions.TaskException, ImproperlyConfigured) as error:
        raise UnknownTask(f"{record['task']}: {error}") from error
    result = base.TaskResult(
        task=task,
        id=record["id"],
        status=base.TaskResultStatus(record["status"]),
        args=record["args"],
        kwargs=record["kwargs"],
        backend=record["backend"],
        errors=[base.TaskError(exception_class_path=path, traceback=text) for path, text in record["errors"]],
        worker_ids=list(record["worker_ids"]),
        **{name: _time(record[name]) for name in TIMES},
    )
    object.__setattr__(result, "_return_value", record["return_value"])
    return result


def message_of(record: dict[str, Any], options: Options, attempt: int = 1, waits: int = 0) -> Message:
    """The message of a task's record.

    attempt  which one it is for, from 1
    waits    how often the task was found to be early
    """
    return Message(
        json.dumps(record, separators=(",", ":")).encode(),
        headers={DEDUPLICATION: f"{record['id']}.{attempt}.{waits}", "attempt": attempt, "waits": waits},
        content_type="application/json",
        delivery_mode=PERSISTENT,
        priority=options.level(record["priority"]),
        message_id=record["id"],
        type=record["task"],
    )


def read(body: bytes) -> dict[str, Any]:
    """The record in a message's body. UndecodableBody."""
    try:
        record = json.loads(body)
        missing = {"id", "task", "args", "kwargs", "queue", "priority", "run_after", "backend", "status"} - set(record)
    except (ValueError, TypeError) as error:
        raise UndecodableBody(f"no task: {error}") from error
    if missing:
        raise UndecodableBody(f"no task: without {', '.join(sorted(missing))}")
    return dict(record)


def _text(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat()


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
