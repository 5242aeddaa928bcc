"""The RabbitMQ of the test kit: answers, takes configuration, keeps its data over a restart, leaves nothing behind."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import psutil
import pytest

from harebell.errors import LocalProtocolError, ServerUnavailable
from harebell.testing import RabbitMQ, rabbitmq as module


def connect(server: RabbitMQ) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(server.url))


@pytest.fixture(scope="module")
def own_server() -> Iterator[RabbitMQ]:
    """A node for the tests that stop it."""
    try:
        module.find_server()
    except ServerUnavailable as error:
        pytest.skip(str(error))
    with RabbitMQ(config={"channel_max": "77"}) as server:
        yield server


def test_pika_publishes_and_gets(rabbitmq: RabbitMQ) -> None:
    with connect(rabbitmq) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.basic_publish("", queue, b"hello")
        assert channel.basic_get(queue, auto_ack=True)[2] == b"hello"


def test_values_of_expressions(any_rabbitmq: RabbitMQ) -> None:
    assert any_rabbitmq.evaluate('A = <<"one">>, [A, {two, 3}]') == '[<<"one">>,{two,3}]'
    assert any_rabbitmq.evaluate("lists:seq(1, 20000)").endswith(",19999,20000]")
    for wrong, said in (("error(oops)", "oops"), ("1 +", "syntax error"), ("no:such()", "undef")):
        with pytest.raises(subprocess.CalledProcessError) as failed:
            any_rabbitmq.evaluate(wrong)
        assert said in failed.value.output


def test_pid_is_the_erlang_machine(rabbitmq: RabbitMQ) -> None:
    assert psutil.Process(rabbitmq.pid).name() == "beam.smp"


def test_listens_on_loopback_only(rabbitmq: RabbitMQ) -> None:
    listening = {c.laddr for c in psutil.Process(rabbitmq.pid).net_connections("tcp") if c.status == "LISTEN"}
    assert rabbitmq.port in {address.port for address in listening}
    assert {address.ip for address in listening} == {"127.0.0.1"}


def test_stream_queues_are_there(rabbitmq: RabbitMQ) -> None:
    with connect(rabbitmq) as connection:
        channel = connection.channel()
        name = f"stream.{os.getpid()}"
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_delete(name)


def test_epmd_is_its_own_and_not_a_daemon(rabbitmq: RabbitMQ) -> None:
    assert rabbitmq._epmd is not None
    assert rabbitmq._epmd.poll() is None, "the one that start() began and kill() ends is the one in use"
    assert rabbitmq._ports[2] in {c.laddr.port for c in psutil.Process(rabbitmq._epmd.pid).net_connections("tcp")}


def test_ctl_speaks_to_this_node(rabbitmq: RabbitMQ) -> None:
    assert rabbitmq.evaluate("node()").strip("'") == rabbitmq.node_name


@pytest.mark.rabbitmq
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_data_and_port_outlive_a_restart(own_server: RabbitMQ, how: str) -> None:
    with connect(own_server) as connection:
        assert connection._impl.params.channel_max == 77, "the node runs with the configuration it was given"
        connection.channel().queue_declare("kept", durable=True)
    own_server.evaluate("mnesia:sync_log()")  # it answers a declaration before the disk has it
    port = own_server.port
    getattr(own_server, how)()
    with pytest.raises(LocalProtocolError):
        _ = own_server.pid
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    own_server.start()
    assert own_server.port == port
    with connect(own_server) as connection:
        connection.channel().queue_declare("kept", passive=True)


@pytest.mark.rabbitmq
def test_a_killed_owner_takes_the_node_along(own_server: RabbitMQ) -> None:
    del own_server  # for its skip
    script = (
        "from harebell.testing import RabbitMQ\n"
        "server = RabbitMQ(); server.start()\n"
        "print(server.pid, server._epmd.pid, server._directory, flush=True)\n"
        "input()\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as owner:
        assert owner.stdout is not None
        assert select.select([owner.stdout], [], [], module.START_SECONDS)[0]
        beam, epmd, directory = owner.stdout.readline().decode().split()
        owner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while (runs(int(beam)) or runs(int(epmd)) or Path(directory).exists()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not runs(int(beam))
    assert not runs(int(epmd))
    assert not Path(directory).exists()


def runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_without_rabbitmq_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "SERVER_SCRIPTS", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerUnavailable, match="apt-get install rabbitmq-server"):
        RabbitMQ().start()


@pytest.mark.rabbitmq
def test_a_node_that_does_not_come_up_shows_its_output(
    own_server: RabbitMQ, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    del own_server  # for its skip: this needs Erlang's epmd
    script = tmp_path / "rabbitmq-server"
    script.write_text("#!/bin/sh\necho cannot read the configuration\nexit 78\n")
    script.chmod(0o755)
    monkeypatch.setattr(module, "SERVER_SCRIPTS", (str(script),))
    server = RabbitMQ()
    with pytest.raises(ServerUnavailable, match=r"status 78\n(.*\n)*cannot read the configuration"):
        server.start()
    with pytest.raises(LocalProtocolError):
        server.log()


def test_a_server_that_was_never_started_says_so() -> None:
    server = RabbitMQ()
    with pytest.raises(LocalProtocolError, match=r"call start\(\)"):
        _ = server.url
    server.close()  # harmless


def test_free_ports_are_different_and_free() -> None:
    ports = module.free_ports(3)
    assert len(set(ports)) == 3
    for port in ports:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", port))


def make_system(root: Path, version: str = "4.0.5") -> Path:
    """A folder that looks like a Debian system with RabbitMQ."""
    home = root / "usr/lib/rabbitmq"
    for folder in (home / "bin", home / f"lib/rabbitmq_server-{version}"):
        folder.mkdir(parents=True)
    (home / "bin/rabbitmq-server").touch()
    return root


def use_unshare(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    (folder / "unshare").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_the_version_of_another_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_unshare(monkeypatch, tmp_path, "exit 0")
    assert module.find_version(make_system(tmp_path / "system")) == "4.0.5"
    with pytest.raises(ServerUnavailable, match="nothing says which version"):
        module.find_version(make_system(tmp_path / "odd", "new"))
    with pytest.raises(ServerUnavailable, match="empty: make one with `mmdebstrap"):
        module.find_version(tmp_path / "empty")


def test_where_namespaces_are_refused_the_error_has_the_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_unshare(monkeypatch, tmp_path, "echo not permitted >&2; exit 1")
    with pytest.raises(ServerUnavailable, match="mount namespace, which this system refuses: not permitted"):
        RabbitMQ(root=make_system(tmp_path / "system")).start()


def test_without_unshare_the_error_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerUnavailable, match="`unshare` of util-linux is not on PATH"):
        module.find_version(make_system(tmp_path / "system"))


def test_another_systems_rabbitmq_runs_beside_this_machines(rabbitmq: RabbitMQ, rabbitmq4: RabbitMQ) -> None:
    assert rabbitmq4.version.startswith("4.0.")
    assert rabbitmq4.ctl("version").strip() == rabbitmq4.version
    assert psutil.Process(rabbitmq4.pid).name() == "beam.smp"
    with connect(rabbitmq4) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.basic_publish("", queue, b"hello")
        assert channel.basic_get(queue, auto_ack=True)[2] == b"hello"
    with connect(rabbitmq):
        pass


def test_nothing_of_another_system_is_mounted_here(rabbitmq4: RabbitMQ) -> None:
    theirs = Path(f"/proc/{rabbitmq4.pid}/mountinfo").read_text()
    ours = Path("/proc/self/mountinfo").read_text()
    assert " /usr " in theirs
    assert " /usr " not in ours or rabbitmq4.version not in ours
    assert Path(f"/proc/{rabbitmq4.pid}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink()
