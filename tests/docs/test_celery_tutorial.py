"""docs/tutorials/celery.md, followed: results, and kills of the worker, of one of its processes and of the broker."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.docs.lesson import Lesson
from tests.torture.server import free_port

pytestmark = pytest.mark.slow
pytest.importorskip("celery")  # of the development group

# The second cake takes until the test allows it: the kills come before it.
BAKING = "time.sleep(1)"
WAITING = "[time.sleep(0.02) for _ in iter(lambda: cake > 1 and not os.path.exists('hot'), False)]"
WORKER = "celery -A shop worker"


def test_the_lesson(tmp_path: Path) -> None:
    port = str(free_port())
    with Lesson("celery.md", tmp_path, {"5672": port, BAKING: WAITING}, {"HAREBELL_PORT": port}) as lesson:
        broker = lesson.start("harebell serve")
        worker = lesson.start(WORKER)
        lesson.run("python price.py")
        lesson.run("python pay.py")
        worker.expect(lesson.shown())
        waited = re.search(r"after ([\d.]+) seconds", lesson.run("python later.py"))
        assert waited is not None
        assert float(waited[1]) >= 2.9  # it is rounded
        lesson.run("python menu.py")

        customer = lesson.start("python party.py")
        worker.expect(lesson.shown("... bake in process"))
        lesson.kill()
        assert not worker.runs
        worker = lesson.start(WORKER)
        (process,) = re.findall(r"bake again, in process (\d+)", worker.output())
        lesson.skip("kill -9")
        os.kill(int(process), signal.SIGKILL)
        (tmp_path / "hot").touch()
        worker.expect(lesson.shown("... exited with"))
        assert customer.wait() == lesson.shown()

        worker.end(signal.SIGINT, status=1)  # Celery's, after Ctrl-C
        lesson.run("python orders.py")
        lesson.kill()
        assert not broker.runs
        broker = lesson.start("harebell serve")
        worker = lesson.start(WORKER)
        lesson.kill()
        assert not broker.runs
        worker.expect(lesson.shown("... consumer: Connection to broker lost"))
        broker = lesson.start("harebell serve")
        worker.expect(lesson.shown("... Connected to"))
        lesson.run("python price.py")
        worker.end(signal.SIGINT, status=1)
        broker.end(signal.SIGINT)
        lesson.finish()
