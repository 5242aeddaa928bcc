"""Django's Tasks over AMQP: a backend for Django 6.0 and later, and for the package django-tasks below it.

    TASKS = {"default": {"BACKEND": "harebell.django.TaskBackend", "OPTIONS": {"url": "amqp://localhost/"}}}

`backend` takes tasks from programs; `messages` turns them into messages and back; `topology` names and declares what is
on the broker, delays included; `publishing` is a process's connection for publishing. `results` keeps results in a
cache or the database, `outbox` keeps tasks in the database until they are published, `commits` knows what is published
after the same commit. `worker` runs tasks, and `manage.py harebell_worker` runs workers. Only `framework` knows whether
Django or django-tasks has the Tasks framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import harebell.logs  # noqa: F401  log records are one line each
from harebell.lazy import lazy_names

if TYPE_CHECKING:
    from harebell.django.backend import TaskBackend
else:  # Django loads this package before its settings are usable
    __getattr__ = lazy_names(__name__, {"backend": ("TaskBackend",)})

__all__ = ["TaskBackend"]
