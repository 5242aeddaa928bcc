"""The backend of Django's Tasks: checks a task, keeps its result, and has it published when it is time."""

from __future__ import annotations

import functools
import logging
from typing import Any, Final

from django.db import transaction
from django.utils import timezone
from django.utils.crypto import get_random_string

from harebell.django import outbox
from harebell.django.commits import Commit
from harebell.django.framework import BaseTaskBackend, base, exceptions, signals
from harebell.django.messages import UnknownTask, delay_of, failed, record_of, result_of
from harebell.django.options import EMBEDDED, Options
from harebell.django.publishing import Publisher, close_publisher, publisher_of, resolved
from harebell.django.results import results_of
from harebell.errors import ConnectionLost, DeadlineExceeded, HarebellError

__all__ = ["TaskBackend"]

logger = logging.getLogger("harebell.django")

# In one call: to connect, to declare, and to publish. A broker that answers each declaration at the last moment takes
# longer, and the task may be published by two processes then.
PUBLISH_TIMEOUTS: Final = 3


class TaskBackend(BaseTaskBackend):  # type: ignore[misc]
    """Enqueues tasks on an AMQP broker; `manage.py harebell_worker` runs them. OPTIONS: see `options.Options`."""

    supports_defer = True
    supports_async_task = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.settings = Options.of(self.options)
        self.supports_get_result = self.settings.results is not None

    @functools.cached_property
    def connected(self) -> Options:
        """The options with the address of the broker; the embedded one is started here."""
        return resolved(self.settings)

    @property
    def publisher(self) -> Publisher:
        """What publishes this process's tasks; looked up anew each time, as a fork may have been in between."""
        return publisher_of(self.settings)

    @functools.cached_property
    def results(self) -> Any:
        return results_of(self.settings)

    def _new(self, task: Any, args: Any, kwargs: Any) -> Any:
        self.validate_task(task)
        return base.TaskResult(
            task=task,
            id=get_random_string(32),
            status=base.TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue a task, as the option `enqueue` says: after the commit, at once, or through the outbox.

        Raises HarebellError when the broker cannot be reached in time. After a commit there is nobody to raise it to:
        it is logged, and is in the result, which has failed.
        """
        result = self._new(task, args, kwargs)
        if self.settings.enqueue == "outbox":
            object.__setattr__(result, "enqueued_at", timezone.now())
            record = record_of(result)
            self.results.save(record)
            outbox.store(record)
            signals.task_enqueued.send(type(self), task_result=result)
            commit = Commit.of(transaction.get_connection(), self.alias)
            transaction.on_commit(functools.partial(self._relay_committed, commit), robust=True)
        elif self.settings.enqueue == "commit" and transaction.get_connection().in_atomic_block:
            commit = Commit.of(transaction.get_connection(), self.alias)
            publish = functools.partial(self._publish_committed, result, commit)
            transaction.on_commit(publish, robust=True)  # the hooks behind it run whatever becomes of it
        else:
            self._publish(result)
        return result

    def _publish_committed(self, result: Any, commit: Commit) -> None:
        commit.begun = True
        try:
            self._publish(result, commit.unreachable)
        except HarebellError as error:
            if isinstance(error, ConnectionLost | DeadlineExceeded):
                commit.unreachable = error
            logger.error(
                "task %s (%s) is not published, though its transaction is committed: enqueue it again; "
                "OPTIONS with enqueue='outbox' keep such tasks: %s",
                result.id, result.task.module_path, error,
            )  # fmt: skip

    def _publish(self, result: Any, unreachable: HarebellError | None = None) -> None:
        """Publish a task. With the error that tells that the broker cannot be reached, fail at once."""
        record = self._begin(result)
        try:
            if unreachable is not None:
                raise unreachable
            self._run_here(result.task.queue_name)
            self.publisher.publish(record, delay=delay_of(record))
        except HarebellError as error:
            self._failed(result, error)
            raise
        signals.task_enqueued.send(type(self), task_result=result)

    def _run_here(self, queue: str) -> None:
        """On the embedded broker, have this process run the tasks of a queue."""
        if self.settings.url == EMBEDDED:
            from harebell.django.worker.inside import run_here

            run_here(self, self.connected, queue)

    def _begin(self, result: Any) -> dict[str, Any]:
        object.__setattr__(result, "enqueued_at", timezone.now())
        record = record_of(result)
        self.results.save(record)
        return record

    def _failed(self, result: Any, error: Exception) -> None:
        """Note that a task could not be enqueued: nobody may wait for its result."""
        path = f"{type(error).__module__}.{type(error).__qualname__}"
        result.errors.append(base.TaskError(exception_class_path=path, traceback=str(error)))
        object.__setattr__(result, "status", base.TaskResultStatus.FAILED)
        object.__setattr__(result, "finished_at", timezone.now())
        self.results.save(record_of(result))

    def _relay_committed(self, commit: Commit) -> None:
        if not commit.begun:  # else the hook of an earlier task has published them all, or waited for the broker
            commit.begun = True
            self.relay_outbox()

    def relay_outbox(self) -> int:
        """Publish what waits in the outbox; how many. A broker that is away leaves it there, for a worker.

        The result of a task that can never be published is failed.
        """
        try:
            for queue in self.queues or ["default"]:
                self._run_here(queue)
            patience = PUBLISH_TIMEOUTS * self.settings.timeout
            return outbox.relay(self.alias, self.publisher.publish, self._refused, patience)
        except HarebellError as error:
            logger.warning("tasks wait in the outbox: %s", error)
            return 0

    def _refused(self, record: dict[str, Any], error: HarebellError) -> bool:
        """Whether a task of the outbox can never be published; its result says why then."""
        if not self.publisher.is_final(error):
            return False
        logger.error("task %s (%s) of the outbox cannot be published: %s", record["id"], record["task"], error)
        self.results.save(failed(record, error))
        return True

    def get_result(self, result_id: str) -> Any:
        """The result of that id. TaskResultDoesNotExist; NotImplementedError when results are kept nowhere."""
        if not self.supports_get_result:
            return super().get_result(result_id)
        record = self.results.get(result_id)
        if record is None:
            raise exceptions.TaskResultDoesNotExist(result_id)
        try:
            return result_of(record)
        except UnknownTask as error:
            raise exceptions.TaskResultDoesNotExist(f"{result_id}: {error}") from error

    def close(self) -> None:
        """Close this process's connection for publishing, which all threads share; the next task opens it again.

        Tasks that other threads are publishing come first.
        """
        close_publisher(self.settings)

    def check(self, **kwargs: Any) -> list[Any]:
        from django.apps import apps
        from django.core import checks

        needs = self.settings.results == "database" or self.settings.enqueue == "outbox"
        if needs and not apps.is_installed("harebell.django"):
            return [
                checks.Error(
                    "The task backend keeps results or its outbox in the database, and the tables are not installed.",
                    hint="Add 'harebell.django' to INSTALLED_APPS, and run migrate.",
                    id="harebell.E001",
                )
            ]
        return []
