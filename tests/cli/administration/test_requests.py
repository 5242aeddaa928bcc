"""Whom `harebell users`, `vhosts` and `permissions` ask: a broker that runs, a data folder, and nobody else."""

from __future__ import annotations

import getpass
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from harebell.broker.operations.alarms import Machine
from harebell.client.blocking import connect
from harebell.config import Limits
from harebell.testing.rabbitmq import RabbitMQ
from tests.admin.kit import ApiThread
from tests.cli.administering import Command, runner
from tests.wire import BrokerThread


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command; nothing listens where its environment points."""
    return runner(monkeypatch, capsys)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a broker that was stopped."""
    with BrokerThread(tmp_path):
        pass
    return tmp_path


def test_a_data_folder(alone: Command, folder: Path) -> None:
    at = ("--data", folder)
    assert alone("users", "add", "orders", "--password-file", "-", *at, stdin="secret\n").status == 0
    assert alone("vhosts", "add", "shop", *at).status == 0
    assert alone("permissions", "set", "orders", "--vhost", "shop", *at).status == 0
    assert alone("users", "delete", "guest", *at).status == 0
    assert [user["name"] for user in alone("users", "list", "--json", *at).json] == ["orders"]
    assert "no user 'x'" in alone("users", "delete", "x", *at).error
    with BrokerThread(folder) as broker:
        connect(f"amqp://orders:secret@127.0.0.1:{broker.port}/shop").close()
        in_use = alone("users", "list", *at)
        assert (in_use.status, "in use by a broker that runs: ask that one, with --url" in in_use.error) == (1, True)


def test_a_data_folder_on_a_full_disk(
    alone: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody publishes to it: no alarm is told."""
    monkeypatch.setattr(Machine, "disk_free", lambda machine: 0)
    monkeypatch.setattr(Machine, "memory_used", lambda machine: 1 << 60)
    listed = alone("users", "list", "--data", folder)
    assert (listed.status, listed.error, caplog.text) == (0, "", "")


def test_no_data_folder(alone: Command, tmp_path: Path) -> None:
    refused = alone("users", "list", "--data", tmp_path / "none")
    assert (refused.status, "is no data folder of a broker" in refused.error) == (1, True)
    assert not (tmp_path / "none").exists()


def test_two_places(alone: Command, folder: Path) -> None:
    refused = alone("users", "list", "--data", folder, "--url", "amqp://127.0.0.1:1/")
    assert (refused.status, "either --url" in refused.error) == (1, True)


def test_nobody_there(alone: Command) -> None:
    refused = alone("users", "list")
    assert (refused.status, refused.error.count("\n")) == (1, 1)
    assert "127.0.0.1:1" in refused.error


def test_the_url_wins_over_the_environment(alone: Command, broker: BrokerThread) -> None:
    assert alone("users", "list", "--json", "--url", broker.broker.url).json[0]["name"] == "guest"


def test_who_is_no_administrator(run: Command, broker: BrokerThread) -> None:
    run("users", "add", "orders", "--password-file", "-", stdin="pw")
    run("permissions", "set", "orders")
    refused = run("users", "list", "--url", f"amqp://orders:pw@127.0.0.1:{broker.port}/")
    assert (refused.status, "'orders' is no administrator" in refused.error) == (1, True)
    run("users", "set-tags", "orders", "administrator")
    run("permissions", "set", "orders", "--write", "^q$")
    refused = run("users", "list", "--url", f"amqp://orders:pw@127.0.0.1:{broker.port}/")
    assert (refused.status, "amq.system" in refused.error) == (1, True)
    run("users", "delete", "orders")


def test_a_password_is_asked_for_twice(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter(["secret", "secret", "one", "other", ""])
    prompts: list[str] = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return next(typed)

    monkeypatch.setattr(getpass, "getpass", ask)
    monkeypatch.setattr("harebell.cli.administration.requests._at_terminal", lambda: True)
    assert run("users", "add", "typed").status == 0
    assert prompts == ["Password of typed: ", "The same again: "]
    assert "not the same twice" in run("users", "set-password", "typed").error
    monkeypatch.setattr(getpass, "getpass", lambda prompt: "")
    assert "a password cannot be empty" in run("users", "set-password", "typed").error
    run("users", "delete", "typed")


@pytest.mark.parametrize("given", [("users", "add", "typed"), ("users", "set-password", "guest")], ids=" ".join)
@pytest.mark.parametrize("answers", [0, 1])
@pytest.mark.parametrize(("error", "says"), [
    (EOFError(), "no password was typed: nothing was changed"),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "no UTF-8 form: nothing was changed"),
])  # fmt: skip
def test_a_password_that_is_not_typed(
    given: tuple[str, ...], answers: int, error: Exception, says: str, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = iter(range(answers))

    def ask(prompt: str) -> str:
        if next(asked, None) is None:
            raise error
        return "secret"

    before = run("definitions", "export").json
    monkeypatch.setattr(getpass, "getpass", ask)
    monkeypatch.setattr("harebell.cli.administration.requests._at_terminal", lambda: True)
    refused = run(*given)
    assert (refused.status, refused.error.count("\n")) == (1, 1)
    assert says in refused.error
    assert run("definitions", "export").json == before


MISSPELT = (
    ("users", "delete", "gest"), ("users", "set-password", "gest", "--password-file", "-"),
    ("users", "set-tags", "gest", "a"), ("users", "set-limits", "gest", "--max-channels", "1"),
    ("vhosts", "delete", "shpo", "--yes"), ("vhosts", "set-limits", "shpo", "--max-queues", "1"),
    ("permissions", "list", "--user", "gest"), ("permissions", "list", "--vhost", "shpo"),
    ("permissions", "set", "gest"), ("permissions", "set", "guest", "--vhost", "shpo"),
    ("permissions", "clear", "gest"), ("permissions", "clear", "guest", "--vhost", "shpo"),
    ("permissions", "set-topic", "gest", "amq.topic"), ("permissions", "clear-topic", "guest", "--vhost", "shpo"),
    ("definitions", "export", "--vhost", "shpo"),
)  # fmt: skip


@pytest.mark.parametrize("way", ["amqp", "http", "data"])
def test_a_name_that_is_misspelt(alone: Command, tmp_path: Path, way: str) -> None:
    with ExitStack() as stack:
        if way == "data":
            with BrokerThread(tmp_path):
                pass
            where = ("--data", str(tmp_path))
        else:
            serving = stack.enter_context(ApiThread())
            http = f"http://guest:guest@127.0.0.1:{serving.api_port}"
            where = ("--url", http if way == "http" else serving.broker.url)
        assert alone("vhosts", "add", "shop", *where).status == 0
        for given in MISSPELT:
            refused = alone(*given, *where, stdin="secret")
            noun, name, near = ("user", "gest", "guest") if "gest" in given else ("vhost", "shpo", "shop")
            said = f"harebell: no {noun} '{name}': did you mean '{near}'?\n"
            assert (refused.status, refused.output, refused.error) == (65, "", said), given
        far = alone("users", "delete", "zzz", *where)
        assert far.error == "harebell: no user 'zzz': `harebell users list` has them all\n"


def test_a_broker_that_takes_no_publications(alone: Command) -> None:
    """The closing waits for nothing that the request has waited for."""
    with BrokerThread(disk_free_limit=1 << 60) as thread:
        began = time.monotonic()
        refused = alone("vhosts", "list", "--timeout", "4", "--url", thread.broker.url)
        assert time.monotonic() - began < 10, "12 and more when each step waits as long"
        thread.run(lambda: thread.broker.node.set_limits(Limits(disk_free_limit=0)))
    assert refused.status == 1
    assert "takes no publications now (low on disk)" in refused.error
    assert "give the URL of its HTTP API" in refused.error


def test_rabbitmq_has_its_own_command(alone: Command, rabbitmq: RabbitMQ) -> None:
    url = ("--url", f"amqp://guest:guest@127.0.0.1:{rabbitmq.port}/")
    for arguments, command in (
        (("users", "list"), "list_users"),
        (("users", "set-tags", "x", "y"), "set_user_tags"),
        (("vhosts", "add", "x"), "add_vhost"),
        (("permissions", "set", "x"), "set_permissions"),
    ):
        refused = alone(*arguments, *url)
        assert refused.status == 1
        assert "RabbitMQ" in refused.error
        assert f"`rabbitmqctl {command}`" in refused.error
