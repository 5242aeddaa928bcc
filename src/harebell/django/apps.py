"""The Django application: the command `harebell_worker`, and the tables of results and of the outbox."""

from __future__ import annotations

from django.apps import AppConfig

__all__ = ["HarebellConfig"]


class HarebellConfig(AppConfig):  # type: ignore[misc]
    name = "harebell.django"
    label = "harebell"
    verbose_name = "Harebell"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from harebell.django import framework  # noqa: F401  `manage.py check` looks at TASKS then
