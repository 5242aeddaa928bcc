"""The tables of results and of the outbox."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):  # type: ignore[misc]
    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar[list[object]] = [
        migrations.CreateModel(
            name="OutboxTask",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("backend", models.CharField(max_length=255)),
                ("record", models.TextField()),
                ("run_after", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="TaskRecord",
            fields=[
                ("id", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("status", models.CharField(max_length=16)),
                ("finished", models.BooleanField(default=False)),
                ("record", models.TextField()),
                ("changed_at", models.DateTimeField()),
            ],
            options={"indexes": [models.Index(fields=["finished", "changed_at"], name="harebell_task_age")]},
        ),
    ]
