"""Django's own tests of task backends, run on this one: started by `test_django6` in a process of Django 6.

    PYTHONPATH=<Django's tests>:src:. python tests/django/django_suite.py

The tests of the backend that runs tasks at once are those of a whole backend; here each enqueue waits until a worker
has run the task. Left out are those of what that backend cannot: `run_after`, results of other processes.
"""

from __future__ import annotations

import importlib
import sys
import time
import unittest
from typing import Any

import django
from django.conf import settings
from django.test.utils import override_settings

settings.configure(
    SECRET_KEY="of a test",
    USE_TZ=True,
    INSTALLED_APPS=["harebell.django"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)
django.setup()

# Of Django's tests, which are on the path.
test_immediate_backend: Any = importlib.import_module("tasks.test_immediate_backend")
test_tasks: Any = importlib.import_module("tasks.test_tasks")

from harebell.django import TaskBackend  # noqa: E402
from harebell.django.framework import signals  # noqa: E402

OPTIONS = {"url": "embedded://", "results": "cache", "enqueue": "now"}
LEFT_OUT = {
    # of Django's class of backend, or of its list of results
    "test_using_correct_backend", "test_cannot_get_result", "test_cannot_refresh_result", "test_cannot_pass_run_after",
    "test_throws_keyboard_interrupt", "test_enqueue_logs", "test_refresh_result", "test_refresh_result_async",
    "test_clear", "test_validate_disallowed_async_task", "test_doesnt_wait_until_transaction_commit_by_default",
    "test_get_backend",
    "test_failed_logs",  # of the order of log records, which here two threads write
}  # fmt: skip


finished: set[str] = set()


def note_finished(task_result: Any, **_: Any) -> None:
    """Called after Django's own receiver, which logs."""
    finished.add(task_result.id)


signals.task_finished.connect(note_finished)


class Immediately(TaskBackend):
    """Waits for the end of each task."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        while result.id not in finished:
            time.sleep(0.005)
        result.refresh()
        return result


class Usual(TaskBackend):
    """As it is; Django's tests begin by clearing the results of another one."""

    def clear(self) -> None:
        pass


IMMEDIATE = {"default": {"BACKEND": f"{__name__}.Immediately", "QUEUES": [], "OPTIONS": OPTIONS}}
sys.modules.setdefault("django_suite", sys.modules[__name__])


# Of the other backend's list of results, and of tasks that nobody runs.
OF_RESULTS = {"test_enqueue_task", "test_enqueue_task_async", "test_get_result", "test_get_result_async"}


def tests_of(case: Any, tasks: dict[str, Any], left_out: set[str]) -> list[Any]:
    """The tests of one of Django's classes, with this setting of TASKS."""
    kept = override_settings(TASKS=tasks)(type(case.__name__, (case,), {}))
    return [kept(name) for name in unittest.TestLoader().getTestCaseNames(kept) if name not in left_out]


def main() -> bool:
    suite = unittest.TestSuite()
    suite.addTests(tests_of(test_immediate_backend.ImmediateBackendTestCase, IMMEDIATE, LEFT_OUT))
    suite.addTests(
        tests_of(
            test_tasks.TaskTestCase,
            {
                "default": {"BACKEND": f"{__name__}.Usual", "QUEUES": ["default", "queue_1"], "OPTIONS": OPTIONS},
                "immediate": IMMEDIATE["default"],
                "missing": {"BACKEND": "does.not.exist"},
            },
            LEFT_OUT | OF_RESULTS,
        )
    )
    outcome = unittest.TextTestRunner(verbosity=2).run(suite)
    return not outcome.wasSuccessful()


if __name__ == "__main__":
    sys.exit(main())
