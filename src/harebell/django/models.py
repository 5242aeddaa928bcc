"""Tables: results of tasks (`results`), and tasks that wait to be published (`outbox`)."""

from __future__ import annotations

from django.db import models

__all__ = ["OutboxTask", "TaskRecord"]


class TaskRecord(models.Model):  # type: ignore[misc]
    """What has become of one task: `record` is its JSON."""

    id = models.CharField(primary_key=True, max_length=64)
    status = models.CharField(max_length=16)
    finished = models.BooleanField(default=False)
    record = models.TextField()
    changed_at = models.DateTimeField()

    class Meta:
        app_label = "harebell"
        indexes = (models.Index(fields=["finished", "changed_at"], name="harebell_task_age"),)

    def __str__(self) -> str:
        return f"{self.id}: {self.status}"


class OutboxTask(models.Model):  # type: ignore[misc]
    """A task of a committed transaction that is not published yet; with an `error`, one that never can be.

    A process that publishes tasks claims their rows until a time, in seconds since 1970.
    """

    id = models.BigAutoField(primary_key=True)
    backend = models.CharField(max_length=255)
    record = models.TextField()
    error = models.TextField(default="")
    claimed_by = models.CharField(max_length=32, default="")
    claimed_until = models.FloatField(default=0)

    class Meta:
        app_label = "harebell"

    def __str__(self) -> str:
        return f"{self.id} of {self.backend}"
