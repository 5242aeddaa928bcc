from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):  # type: ignore[misc]
    dependencies: ClassVar[list[tuple[str, str]]] = [("harebell", "0001_initial")]
    operations: ClassVar[list[object]] = [
        migrations.AddField(model_name="OutboxTask", name="error", field=models.TextField(default="")),
    ]
