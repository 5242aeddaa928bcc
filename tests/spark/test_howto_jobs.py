"""The examples of the how-tos about archive, replay and simulate run, one after the other, and do what they say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harebell.client.blocking import connect
from harebell.client.messages import Message, Publication
from harebell.testing import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.spark


def test_the_examples_of_the_pages(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    definitions = {
        "queues": [{"name": name, "vhost": "/"} for name in ("orders.log", "orders.again")],
        "bindings": [],
    }
    (tmp_path / "definitions.json").write_text(json.dumps(definitions))
    with EmbeddedBroker() as server, connect(server.url) as connection, connection.channel() as channel:
        for name, kind in (("orders.log", "stream"), ("audit", "classic"), ("orders.again", "classic")):
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
        channel.confirm_select()
        for name, count in (("orders.log", 30), ("audit", 10)):
            channel.publish_many(Publication(Message(b"%d" % n), "", name) for n in range(count))
        names: dict[str, object] = {"spark": spark, "url": server.url}
        for page in ("spark-archive.md", "spark-replay.md", "spark-simulate.md"):
            examples = EXAMPLE.findall((PAGES / page).read_text())
            assert examples, page
            for example in examples:
                exec(compile(example, page, "exec"), names)
        said = [line for line in capsys.readouterr().out.splitlines() if line[:1].isdigit()]
        assert said == [
            "40 messages archived, 40 in all, sound: True",
            "30 messages chosen",
            "30 messages published and confirmed",
            "25% unroutable; orders.log, orders.again",
        ]
        assert [channel.message_count(name) for name in ("orders.log", "audit", "orders.again")] == [30, 0, 30]
