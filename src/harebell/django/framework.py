"""The Tasks framework: Django's own (6.0 and later), or the package django-tasks.

Its module `checks` is imported, too: that has `manage.py check` ask each backend.
"""

from __future__ import annotations

from typing import Any

try:
    from django.tasks import base, checks, exceptions, signals, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.utils.json import normalize_json

    InvalidTask: Any = exceptions.InvalidTask
except ImportError:
    try:
        from django_tasks import base, checks, exceptions, signals, task_backends
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.utils import normalize_json
    except ImportError:
        raise ImportError(
            "Django has no Tasks framework before 6.0: install django-tasks (pip install 'harebell[django]')"
        ) from None
    InvalidTask = exceptions.InvalidTaskError

__all__ = [
    "BaseTaskBackend",
    "InvalidTask",
    "base",
    "checks",
    "exceptions",
    "normalize_json",
    "signals",
    "task_backends",
]
