from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):  # type: ignore[misc]
    dependencies: ClassVar[list[tuple[str, str]]] = [("harebell", "0003_remove_outboxtask_run_after")]
    operations: ClassVar[list[object]] = [
        migrations.AddField("OutboxTask", "claimed_by", models.CharField(max_length=32, default="")),
        migrations.AddField("OutboxTask", "claimed_until", models.FloatField(default=0)),
    ]
