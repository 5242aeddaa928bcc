from __future__ import annotations

from typing import ClassVar

from django.db import migrations


class Migration(migrations.Migration):  # type: ignore[misc]
    dependencies: ClassVar[list[tuple[str, str]]] = [("harebell", "0002_outboxtask_error")]
    operations: ClassVar[list[object]] = [
        # The record has the time, with its zone or without one; a column of a database takes one of the two only.
        migrations.RemoveField(model_name="OutboxTask", name="run_after"),
    ]
