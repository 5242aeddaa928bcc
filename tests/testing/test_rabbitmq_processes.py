"""The processes of the test kit's RabbitMQ, with stand-ins for its programs: what is started is ended, at any time."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from harebell.errors import LocalProtocolError, ServerUnavailable
from harebell.testing import RabbitMQ, rabbitmq as module
from tests.testing.stand_in import install

Use = Callable[..., RabbitMQ]


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Use]:
    """Makes a RabbitMQ of stand-ins, which behave as asked; it is closed after the test."""
    made: list[RabbitMQ] = []

    def make(how: str = "well", *, epmd: bool = True, config: dict[str, str] | None = None) -> RabbitMQ:
        monkeypatch.setattr(module, "SERVER_SCRIPTS", (str(install(tmp_path, how, epmd=epmd)),))
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        made.append(RabbitMQ(config=config, plugins=["one", "two"]))
        return made[-1]

    yield make
    for each in made:
        each.close()


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_starts_and_leaves_nothing(use: Use) -> None:
    server = use(config={"channel_max": "64"})
    with server:
        assert "listens, with channel_max = 64" in server.log()
        assert server.log().startswith("the script begins\n")
        assert server.node_name == f"harebell{server.port}@localhost"
        assert server.url == f"amqp://guest:guest@127.0.0.1:{server.port}/%2F"
        directory = server._require_directory()
        assert (directory / "plugins").read_text() == "[one,two].\n"
        assert server._node is not None
        assert server._epmd is not None
        assert server._guard is not None
        started = [server.pid, server._node.pid, server._epmd.pid, server._guard.pid]
        assert all(map(alive, started))
        with pytest.raises(LocalProtocolError, match="already running"):
            server.start()
    wait_until(lambda: not any(map(alive, started)))
    assert not directory.exists()
    for ask in (lambda: server.port, server.log, lambda: server.url):
        with pytest.raises(LocalProtocolError, match=r"call start\(\)"):
            ask()
    with pytest.raises(LocalProtocolError, match="is not running"):
        _ = server.pid
    server.close()


def test_a_stop_is_clean_and_a_kill_is_not_and_both_keep_data_and_ports(use: Use) -> None:
    server = use()
    server.start()
    port, stops = server.port, 0
    for clean in (True, False, True):
        machine = server.pid
        (server.stop if clean else server.kill)()
        stops += clean
        assert not alive(machine)
        assert server.log().count("stopped cleanly") == stops
        with pytest.raises(LocalProtocolError, match="is not running"):
            _ = server.pid
        server.stop()  # again: harmless
        server.start()
        assert (server.port, server.pid != machine) == (port, True)


def test_a_machine_that_does_not_stop_is_killed(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS", 0.2)
    server = use("deaf")
    server.start()
    machine = server.pid
    server.stop()
    wait_until(lambda: not alive(machine))
    assert "stopped cleanly" not in server.log()


def test_a_machine_that_ended_by_itself(use: Use) -> None:
    server = use()
    server.start()
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: not alive(server._pid))
    server.stop()
    server.start()
    assert alive(server.pid)


@pytest.mark.parametrize(
    "how, epmd, told",
    [
        ("fails", True, r"RabbitMQ ended with status 78\n(.*\n)*cannot read the configuration"),
        ("http", True, r"RabbitMQ gave no AMQP answer in 1 s\n(.*\n)*listens"),
        ("well", False, r"Erlang's epmd does not come up\n(.*\n)*no epmd today"),
    ],
)
def test_a_node_that_does_not_come_up_says_why_and_leaves_nothing(
    use: Use, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str, epmd: bool, told: str
) -> None:
    monkeypatch.setattr(module, "START_SECONDS", 1.0 if how == "http" else 30.0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    server = use(how, epmd=epmd)
    with pytest.raises(ServerUnavailable, match=told):
        server.start()
    assert not list(tmp_path.glob("harebell-rabbitmq-*"))
    mine = str(tmp_path)
    wait_until(lambda: not any(mine in " ".join(each.cmdline()) for each in psutil.Process().children(recursive=True)))


def test_without_epmd_the_error_names_it(use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = use()
    (tmp_path / "epmd").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerUnavailable, match="`epmd` is not on PATH"):
        server.start()


def test_ctl_asks_this_node_and_waits_for_it(use: Use) -> None:
    server = use()
    server.start()
    assert server.ctl("list_queues", "name") == f"--quiet --node {server.node_name} list_queues name\n"
    assert server.ctl("late").endswith(" late\n")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        server.ctl("wrong")
    assert caught.value.__notes__ == ["no such command\n"]


def test_evaluate_gives_the_value_of_an_expression(use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = use()
    with pytest.raises(LocalProtocolError, match=r"call start\(\)"):
        server.evaluate("node()")
    server.start()
    assert server.evaluate("first(), node()") == "node()"
    server.sync_declarations()
    with pytest.raises(subprocess.CalledProcessError) as caught:
        server.evaluate("wrong")
    assert caught.value.__notes__ == ['{error, "no such value"}\n']
    (tmp_path / "erl_call").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerUnavailable, match="erl_call"):
        server.evaluate("node()")


def test_a_command_that_is_always_late_fails_in_the_end(use: Use, tmp_path: Path) -> None:
    server = use()
    server.start()
    (tmp_path / "rabbitmqctl").write_text("#!/bin/sh\necho \"requires the 'rabbit' app to be running\"; exit 69\n")
    with pytest.raises(subprocess.CalledProcessError):
        server.ctl("status", timeout=0.5)


def test_variables_of_the_systems_own_node_are_not_taken(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RABBITMQ_NODE_PORT", "RABBITMQ_BASE", "ERL_LIBS", "NOTIFY_SOCKET"):
        monkeypatch.setenv(name, "1")
    server = use()
    server.start()
    given = psutil.Process(server.pid).environ()
    assert given["RABBITMQ_NODE_PORT"] == str(server.port)
    assert not {"RABBITMQ_BASE", "ERL_LIBS", "NOTIFY_SOCKET"} & given.keys()


def test_the_node_ends_with_a_process_that_is_killed(use: Use, tmp_path: Path) -> None:
    use()
    program = (
        "import sys, time; from harebell.testing import RabbitMQ, rabbitmq as module\n"
        "module.SERVER_SCRIPTS = (sys.argv[1],)\n"
        "server = RabbitMQ(); server.start()\n"
        "print(server.pid, server._epmd.pid, server._require_directory(), flush=True); time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", program, str(tmp_path / "rabbitmq-server")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        machine, epmd, directory = process.stdout.readline().split()
        assert alive(int(machine))
        process.kill()
    wait_until(lambda: not alive(int(machine)) and not alive(int(epmd)) and not Path(directory).exists())


def test_ports_are_not_given_out_when_there_are_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        monkeypatch.setattr(module, "PORTS", range(port, port + 1))
        with pytest.raises(ServerUnavailable, match="fewer than 2 free ports"):
            module.free_ports(2)
