"""docs/tutorials/channels.md, followed: two web servers, a visitor of each, and a broker that is killed twice."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from harebell.testing.rabbitmq import free_ports
from tests.docs.lesson import Lesson

pytestmark = pytest.mark.slow
for needed in ("channels", "daphne", "django", "websocket"):  # extras, and the development group
    pytest.importorskip(needed)

PATIENT, IMPATIENT = '"timeout": 30', '"timeout": 2'


def test_the_lesson(tmp_path: Path) -> None:
    ports = dict(zip(("5672", "8001", "8002"), map(str, free_ports(3)), strict=True))
    changes = {**ports, PATIENT: '"timeout": 240', "within 30 s": "within 2 s"}
    with Lesson("channels.md", tmp_path, changes, {"HAREBELL_PORT": ports["5672"]}) as lesson:
        broker = lesson.start("harebell serve")
        lesson.run("django-admin startproject")
        servers = [lesson.start("daphne -p 8001"), lesson.start("daphne -p 8002")]
        visitors = [lesson.start("python visitor.py 8001"), lesson.start("python visitor.py 8002")]
        said = ["connected"]

        def everybody_reads(notice: str) -> None:
            assert notice.startswith("notice: ")
            said.append(notice.rstrip())
            for visitor in visitors:
                visitor.expect(notice)
                assert visitor.output().splitlines() == said

        visitors[0].type("tea is ready")
        everybody_reads(lesson.shown())
        lesson.run("python manage.py announce")
        everybody_reads(lesson.shown())

        lesson.kill()
        assert not broker.runs
        lost = lesson.shown("... the channel layer has lost")
        for server in servers:
            server.expect(lost)
        visitors[0].type("is anybody here?")
        broker = lesson.start("harebell serve")
        again = lesson.shown("... the channel layer is connected")
        for server in servers:
            server.expect(again)
        everybody_reads(lesson.shown())
        lesson.run("python manage.py announce")
        everybody_reads(lesson.shown())

        lesson.kill()
        assert not broker.runs
        settings = tmp_path / "board" / "settings.py"
        settings.write_text(settings.read_text().replace(lesson.change(PATIENT), IMPATIENT))
        lesson.run("python manage.py announce", status=1)
        lesson.finish()
        for visitor in visitors:
            visitor.end(signal.SIGINT, status=-signal.SIGINT)
        for server in servers:
            server.end(signal.SIGTERM)
