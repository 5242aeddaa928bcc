"""`harebell definitions`: out of one broker, into another, running or not."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from harebell.client.blocking import connect
from tests.cli.administering import Command
from tests.wire import BrokerThread


def test_out_of_one_broker_and_into_a_folder(run: Command, broker: BrokerThread, tmp_path: Path) -> None:
    file, folder = tmp_path / "definitions.json", tmp_path / "data"
    with connect(broker.broker.url) as connection, connection.channel() as channel:
        channel.queue_declare("orders", durable=True, arguments={"x-max-length": 5})
        channel.queue_bind("orders", "amq.topic", "a.#")
    exported = run("definitions", "export", file)
    assert (exported.status, exported.output.startswith(f"{file} has the definitions: ")) == (0, True), exported
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    document = json.loads(file.read_text())
    assert run("definitions", "export").json == document
    assert "password_hash" in document["users"][0]

    assert run("users", "list", "--data", folder).status == 1, "no folder yet"
    with BrokerThread(data=folder):
        pass
    imported = run("definitions", "import", file, "--data", folder)
    assert imported.status == 0, imported
    assert "1 queues, 1 bindings" in imported.output
    again = run("definitions", "export", "--data", folder).json
    assert (again["queues"], again["bindings"]) == (document["queues"], document["bindings"])


def test_into_another_virtual_host(run: Command, broker: BrokerThread) -> None:
    run("vhosts", "add", "shop")
    part = {
        "queues": [{"name": "q"}],
        "bindings": [{"source": "gone", "destination": "q", "destination_type": "queue"}],
    }
    imported = run("definitions", "import", "-", "--vhost", "shop", stdin=json.dumps(part))
    assert imported.status == 0, imported
    assert "remark: binding from exchange 'gone'" in imported.error
    only = run("definitions", "export", "--vhost", "shop").json
    assert [queue["name"] for queue in only["queues"]] == ["q"]
    assert "users" not in only


@pytest.mark.parametrize(("text", "says"), [
    ("{", "not JSON"), ("[]", "expected an object"),
    ('{"queues": [{"name": "' + "x" * 300 + '", "vhost": "/"}]}', "has 300 bytes"),
    ('{"exchanges": [{"name": "x", "vhost": "/", "type": "zork"}]}', "unknown exchange type 'zork'"),
    ('{"queues": [{"name": "q", "vhost": "nowhere"}]}', "there is no vhost 'nowhere'"),
])  # fmt: skip
def test_files_that_are_refused(run: Command, broker: BrokerThread, text: str, says: str) -> None:
    before = run("definitions", "export").json
    refused = run("definitions", "import", "-", stdin=text)
    assert (refused.status, says in refused.error) == (1, True), refused
    assert run("definitions", "export").json == before


def test_files_that_cannot_be_used(run: Command, broker: BrokerThread, tmp_path: Path) -> None:
    assert run("definitions", "import", tmp_path / "none").error.endswith(
        "none cannot be read: No such file or directory\n"
    )
    assert "cannot be written" in run("definitions", "export", tmp_path / "no" / "file").error
    assert "no vhost 'x'" in run("definitions", "export", "--vhost", "x").error
