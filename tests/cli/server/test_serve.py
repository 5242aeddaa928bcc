"""`harebell serve`: the ready line, stopping by signals, and the lines for what cannot work."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from harebell.broker.auth.passwords import RABBITMQ_SHA256, SCRYPT
from harebell.broker.auth.users import make_user
from harebell.broker.net.listening import ListenError, shown_host
from harebell.cli.server.folders import data_folder
from harebell.cli.server.serve import explain, to_log_in
from harebell.client.blocking import connect
from harebell.client.messages import Message
from harebell.config import OPTIONS
from harebell.errors import AccessRefused, ConnectionLost, NotAllowed, PreconditionFailed, PublishOrphaned
from harebell.routing.definitions import User
from tests.broker.net.addresses import has_ipv6
from tests.cli.command import environment, harebell

READY = re.compile(r"harebell \S+ ready at (amqp://guest:guest@(.+):\d+/)\n")
STOP_SECONDS = 30.0  # far more than it takes; the limit for a machine under load


@contextmanager
def serving(
    *arguments: str | Path, shown: str = "127.0.0.1", **changes: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """(process, url) of a broker that is ready; killed at the end, if it is still there."""
    with subprocess.Popen(
        [sys.executable, "-m", "harebell", "serve", "--port", "0", *map(str, arguments)],
        env=environment(**changes), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            match = READY.fullmatch(line)
            assert match, line + (process.stderr.read() if process.stderr and not line else "")
            assert match[2] == shown
            yield process, match[1]
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serves_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    with serving("--data", tmp_path) as (process, url):
        with connect(url) as connection:
            channel = connection.channel()
            queue = channel.queue_declare(exclusive=True).name
            channel.confirm_select()
            channel.publish(b"hello", "", queue)
            delivery = channel.get(queue, no_ack=True)
            assert delivery is not None
            assert delivery.body == b"hello"
        process.send_signal(number)
        output, log = process.communicate(timeout=STOP_SECONDS)
        assert process.returncode == 0
        assert output == "", "standard output has the ready line only"
        assert f"on disk, in {tmp_path}: 1 virtual hosts, 1 users, what is set for them, 0 durable queues" in log
        assert "in memory" in log
        assert "the broker before" not in log
        assert "--no-sync" not in log


@pytest.mark.parametrize("users, shown", [
    ([make_user("guest", "guest", (), RABBITMQ_SHA256)], "amqp://guest:guest@127.0.0.1:5672/"),
    ([make_user("guest", "guest", (), SCRYPT)], "amqp://guest:guest@127.0.0.1:5672/"),
    ([make_user("guest", "other", (), RABBITMQ_SHA256)], "amqp://127.0.0.1:5672/"),
    ([make_user("guest", "other", (), SCRYPT)], "amqp://127.0.0.1:5672/"),
    ([make_user("guest", None)], "amqp://127.0.0.1:5672/"),
    ([make_user("orders", "guest")], "amqp://127.0.0.1:5672/"),
    ([], "amqp://127.0.0.1:5672/"),
])  # fmt: skip
def test_the_url_has_a_login_that_works(users: list[User], shown: str) -> None:
    assert to_log_in("amqp://guest:guest@127.0.0.1:5672/", {user.name: user for user in users}) == shown


def test_a_guest_who_is_gone_is_not_in_the_ready_line(tmp_path: Path) -> None:
    with serving("--data", tmp_path) as (process, _):
        process.terminate()
        process.communicate(timeout=STOP_SECONDS)
    assert harebell("users", "delete", "guest", "--data", tmp_path).returncode == 0
    with subprocess.Popen(
        [sys.executable, "-m", "harebell", "serve", "--port", "0", "--data", str(tmp_path)],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert re.fullmatch(r"harebell \S+ ready at amqp://127\.0\.0\.1:\d+/\n", process.stdout.readline())
        finally:
            process.kill()


def test_stops_with_a_connected_client(tmp_path: Path) -> None:
    with (
        serving("--data", tmp_path) as (process, url),
        socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1].rstrip("/")))),
    ):
        process.terminate()
        process.communicate(timeout=STOP_SECONDS)
        assert process.returncode == 0


def test_stream_queues_outlive_a_restart(tmp_path: Path) -> None:
    with serving("--data", tmp_path) as (process, url):
        with connect(url) as connection:
            channel = connection.channel()
            channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
            channel.confirm_select()
            channel.publish(b"kept", "", "log")
        process.terminate()
        process.communicate(timeout=STOP_SECONDS)
    with serving("--data", tmp_path) as (_, url), connect(url) as connection:
        channel = connection.channel()
        consumer = channel.consume("log", prefetch=10, arguments={"x-stream-offset": "first"})
        assert [delivery.body for delivery in consumer.receive(1)] == [b"kept"]


def test_a_declaration_that_was_answered_outlives_a_kill(tmp_path: Path) -> None:
    for number in range(3):
        with serving("--data", tmp_path) as (process, url):
            with connect(url) as connection:
                channel = connection.channel()
                for before in range(number):
                    channel.queue_declare(f"q{before}", passive=True)
                    channel.exchange_declare(f"x{before}", "topic", passive=True)
                channel.exchange_declare(f"x{number}", "topic", durable=True)
                channel.queue_declare(f"q{number}", durable=True)
                process.kill()
            _, log = process.communicate(timeout=STOP_SECONDS)
        assert ("the broker before was not stopped but ended by a kill" in log) is bool(number)
        assert f"{number} durable queues" in log


def test_definitions_are_there_when_it_is_ready(tmp_path: Path) -> None:
    path = tmp_path / "definitions.json"
    path.write_text('{"queues": [{"vhost": "/", "name": "q", "durable": true, "auto_delete": false, "arguments": {}}]}')
    for arguments, variables in ((("--definitions", path), {}), ((), {"HAREBELL_DEFINITIONS": str(path)})):
        with serving("--data", tmp_path / "data", *arguments, **variables) as (process, url):
            with connect(url) as connection:
                connection.channel().queue_declare("q", passive=True)
            process.terminate()
            assert f"definitions of {path} applied" in process.communicate(timeout=STOP_SECONDS)[1]


@pytest.mark.parametrize(
    "text, problem",
    [
        ("{", "definitions: not JSON"),
        ('{"queues": [{"name": "q"}]}', "queues[0].vhost: missing"),
        (
            '{"policies": [{"vhost": "/", "name": "p", "pattern": "(", "definition": {"max-length": 1}}]}',
            "policy 'p' in vhost '/': Validation failed pattern should be regular expression",
        ),
        (
            '{"queues": [{"vhost": "/", "name": "q", "arguments": {"x-max-length": "no"}}]}',
            "invalid arg 'x-max-length' for queue 'q' in vhost '/'",
        ),
    ],
)
def test_definitions_that_are_none(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "definitions.json"
    path.write_text(text)
    said = one_line("--port", "0", "--data", tmp_path / "data", "--definitions", path)
    assert f"definitions file {path}: {problem}" in said


def test_definitions_that_are_not_there(tmp_path: Path) -> None:
    said = one_line("--port", "0", "--data", tmp_path, "--definitions", tmp_path / "nope.json")
    assert said == f"harebell: definitions file {tmp_path / 'nope.json'} cannot be read: No such file or directory\n"


FIRST, SECOND = (Path(__file__).parents[2] / folder / "tls" for folder in ("client", "broker"))


@contextmanager
def serving_tls(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker on a TLS port alone, with copies of the first certificate in the folder."""
    shutil.copy(FIRST / "certificate.pem", folder / "cert.pem")
    shutil.copy(FIRST / "key.pem", folder / "key.pem")
    files = ("--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem"))
    command = [
        sys.executable,
        "-m",
        "harebell",
        "serve",
        "--data",
        str(folder / "data"),
        "--tls-port",
        "0",
        "--tls-only",
    ]
    with subprocess.Popen(
        [*command, *files, *arguments],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            match = re.fullmatch(r"harebell \S+ ready at (amqps://guest:guest@127\.0\.0\.1:\d+/)\n", line)
            assert match, line + (process.stderr.read() if process.stderr and not line else "")
            yield process, match[1]
        finally:
            process.kill()


def log_line(process: subprocess.Popen[str], text: str) -> str:
    """The next line of the log that has the text."""
    assert process.stderr is not None
    return next(line for line in process.stderr if text in line)


def test_tls_and_a_certificate_that_is_replaced(tmp_path: Path) -> None:
    with serving_tls(tmp_path) as (process, url):
        with connect(f"{url}?cacertfile={FIRST / 'certificate.pem'}") as connection:
            shutil.copy(SECOND / "server.pem", tmp_path / "cert.pem")
            process.send_signal(signal.SIGHUP)
            assert log_line(process, "the certificate that was in use stays")
            shutil.copy(SECOND / "server-key.pem", tmp_path / "key.pem")
            process.send_signal(signal.SIGHUP)
            assert log_line(process, "certificate read again")
            connect(f"{url}?cacertfile={SECOND / 'server.pem'}").close()
            with pytest.raises(ConnectionLost, match="CERTIFICATE_VERIFY_FAILED"):
                connect(f"{url}?cacertfile={FIRST / 'certificate.pem'}")
            connection.channel().queue_declare(exclusive=True)
        process.terminate()
        process.communicate(timeout=STOP_SECONDS)
        assert process.returncode == 0


def test_client_certificates_and_mechanisms(tmp_path: Path) -> None:
    options = ("--tls-ca", str(SECOND / "client.pem"), "--tls-verify", "required", "--mechanisms", "external,anonymous")
    with serving_tls(tmp_path, *options) as (_, url):
        bare = url.replace("guest:guest@", "") + f"?cacertfile={FIRST / 'certificate.pem'}"
        certificate = f"&certfile={SECOND / 'client.pem'}&keyfile={SECOND / 'client-key.pem'}"
        with pytest.raises(AccessRefused, match="the broker offers EXTERNAL ANONYMOUS"):
            connect(f"{bare}{certificate}&auth_mechanism=plain")
        with pytest.raises(AccessRefused, match="mechanism EXTERNAL"):  # there is no user of that name
            connect(f"{bare}{certificate}&auth_mechanism=external")


def test_no_sync_is_said(tmp_path: Path) -> None:
    with serving("--data", tmp_path, "--no-sync") as (process, _):
        process.terminate()
        assert "WARNING harebell.serve: --no-sync" in process.communicate(timeout=STOP_SECONDS)[1]


def test_events_are_told(tmp_path: Path) -> None:
    with serving("--data", tmp_path, "--events") as (_, url), connect(url) as connection:
        channel = connection.channel()
        queue = channel.queue_declare(exclusive=True).name
        channel.queue_bind(queue, "amq.rabbitmq.event", "exchange.*")
        channel.exchange_declare("x", "fanout")
        event = channel.get(queue, no_ack=True)
        assert event is not None
        assert event.routing_key == "exchange.created"


def test_default_folder_is_the_users(tmp_path: Path) -> None:
    with serving(XDG_DATA_HOME=str(tmp_path)) as (process, _):
        process.terminate()
        assert f"on disk, in {tmp_path / 'harebell'}:" in process.communicate(timeout=STOP_SECONDS)[1]
    assert (tmp_path / "harebell").is_dir()


def test_data_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_DATA_HOME", "/elsewhere")
    assert data_folder() == Path("/elsewhere/harebell")
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_DATA_HOME", ignored)
        assert data_folder() == Path("/home/somebody/.local/share/harebell")


def one_line(*arguments: str | Path, **changes: str) -> str:
    """What a `harebell serve` that cannot start says."""
    result = harebell("serve", *arguments, **changes)
    assert result.returncode == 1, result.stderr
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def test_port_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = one_line("--port", str(port), "--data", tmp_path)
    assert text.startswith(f"harebell: port {port} of 127.0.0.1 is taken")
    assert "--port" in text


def test_tls_options_that_cannot_work(tmp_path: Path) -> None:
    data, key = ("--port", "0", "--data", tmp_path), FIRST / "key.pem"
    assert "give one with --tls-cert" in one_line(*data, "--tls-key", key)
    assert "give one with --tls-cert" in one_line(*data, "--tls-only")
    assert "TLS certificate" in one_line(*data, "--tls-port", "0", "--tls-cert", tmp_path / "missing")
    assert "give them with --tls-ca" in one_line(*data, "--tls-cert", key, "--tls-verify", "required")
    assert "no SASL mechanism MAGIC" in one_line(*data, "--mechanisms", "plain,magic")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        text = one_line(*data, "--tls-cert", FIRST / "certificate.pem", "--tls-key", key, "--tls-port", port)
    assert text.startswith(f"harebell: port {port} of 127.0.0.1 is taken")
    assert "--tls-port" in text


def test_data_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    text = one_line("--port", "0", "--data", tmp_path / "file")
    assert text.startswith(f"harebell: data folder {tmp_path / 'file'} cannot be used")
    assert "--data" in text


def test_data_folder_in_use(tmp_path: Path) -> None:
    with serving("--data", tmp_path):
        text = one_line("--port", "0", "--data", tmp_path)
    assert text.startswith(f"harebell: data folder {tmp_path} is in use by another broker")


def test_address_of_another_machine(tmp_path: Path) -> None:
    text = one_line("--port", "0", "--host", "192.0.2.1", "--data", tmp_path)  # RFC 5737: nobody has it
    assert text.startswith("harebell: 192.0.2.1 is not an address of this machine")


def test_store_of_another_format(tmp_path: Path) -> None:
    folder = tmp_path / "streams" / "x"
    folder.mkdir(parents=True)
    (folder / "queue.json").write_text('{"format": 99}')
    text = one_line("--port", "0", "--data", tmp_path)
    assert text.startswith(f"harebell: data folder {tmp_path}: ")
    assert "store format 99" in text


def test_reserved_port() -> None:
    denied = os.strerror(errno.EACCES)
    said = explain(ListenError(errno.EACCES, denied, "::1", 671), Path("/data"))
    assert said == "port 671 is reserved for root: take one above 1023, such as --port 5672"
    said = explain(ListenError(errno.EACCES, denied, "::1", 671), Path("/data"), 671)
    assert said.endswith("such as --tls-port 5672")
    said = explain(ListenError(errno.EACCES, denied, "::1", 5672), Path("/data"))
    assert said == "cannot listen on [::1]:5672: Permission denied"
    assert explain(PermissionError(errno.EACCES, denied), Path("/data")).startswith("data folder /data: ")


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")
@pytest.mark.parametrize("hosts, shown, dialled", [
    ((), "127.0.0.1", ("127.0.0.1", "::1")), (("--host", "::1"), "[::1]", ("::1",)),
    (("--host", "[::1],127.0.0.1"), "[::1]", ("::1", "127.0.0.1")),
    (("--host", "127.0.0.1", "--host", "::1"), "127.0.0.1", ("::1", "127.0.0.1")),
    (("--host", "*"), "127.0.0.1", ("::1", "127.0.0.1", "127.0.0.2")), (("--host", "::"), "[::1]", ("::1",)),
])  # fmt: skip
def test_addresses(tmp_path: Path, hosts: tuple[str, ...], shown: str, dialled: tuple[str, ...]) -> None:
    with serving("--data", tmp_path, *hosts, shown=shown) as (_, url):
        port = int(url.rstrip("/").rpartition(":")[2])
        for host in dialled:
            with connect(f"amqp://guest:guest@{shown_host(host)}:{port}/") as connection:
                assert connection.is_open


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")
def test_a_port_taken_on_one_of_the_addresses(tmp_path: Path) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
        text = one_line("--port", str(port), "--data", tmp_path)
    assert text.startswith(f"harebell: port {port} of ::1 is taken")


def test_addresses_by_variable_and_file(tmp_path: Path) -> None:
    file = tmp_path / "harebell.toml"
    file.write_text(f'data = "{tmp_path / "data"}"\nhost = ["127.0.0.1", "localhost"]\n')
    with serving("--config", file):
        pass
    text = one_line("--port", "0", "--config", file, HAREBELL_HOST="127.0.0.1,192.0.2.1")
    assert text.startswith("harebell: 192.0.2.1 is not an address of this machine")


# -- configuration, signals, service managers ------------------------------------------------------------------------


def test_a_configuration_file_and_its_reload(tmp_path: Path) -> None:
    file = tmp_path / "harebell.toml"
    file.write_text(f'data = "{tmp_path / "data"}"\nmax_connections = 1\nmax_message_size = 10\n')
    with serving("--config", file) as (process, url):
        with connect(url) as connection:
            with pytest.raises(NotAllowed, match=r"node connection limit \(1\) is reached"):
                connect(url)
            channel = connection.channel()
            channel.confirm_select()
            with pytest.raises(PreconditionFailed, match="message size 11 is larger than configured max size 10"):
                channel.publish(b"x" * 11, "", "q")
            file.write_text("max_connections = 'many'\n")
            process.send_signal(signal.SIGHUP)
            assert f"{file}: max_connections must be" in log_line(process, "SIGHUP")
            file.write_text(f'data = "{tmp_path / "other"}"\nmax_connections = 2\nlog_level = "error"\n')
            process.send_signal(signal.SIGHUP)
            assert "data was" in log_line(process, "takes a restart")
            assert "max_message_size was 10, is 16MiB" in log_line(process, "max_message_size")
            while True:  # a connection may be ahead of the signal
                try:
                    connect(url).close()
                    break
                except NotAllowed:
                    pass
        process.terminate()
        assert process.communicate(timeout=STOP_SECONDS)[1] == ""  # errors alone are logged now
    assert (tmp_path / "data").is_dir()
    assert not (tmp_path / "other").exists()


def test_a_reload_compares_with_what_runs(tmp_path: Path) -> None:
    file = tmp_path / "harebell.toml"

    def reload(text: str, logged: str) -> str:
        file.write_text(f'data = "{tmp_path / "data"}"\n{text}\n')
        process.send_signal(signal.SIGHUP)
        return log_line(process, logged)

    file.write_text(f'data = "{tmp_path / "data"}"\n')
    with serving("--config", file) as (process, _):
        for _ in range(2):  # it waits for a restart as long as it is there
            assert "events was false, is true: takes a restart" in reload("events = true", "events")
        assert "SIGHUP: the configuration is the one that runs" in reload("", "SIGHUP")
        assert "events was false, is true: takes a restart" in reload("heartbeat = 7\nevents = true", "events")
        assert "heartbeat was 60, is 7" in log_line(process, "heartbeat")
        assert "SIGHUP: the configuration is the one that runs" in reload("heartbeat = 7", "SIGHUP")
        assert "heartbeat was 7, is 60" in reload("", "heartbeat")


def test_a_configuration_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("prot = 1")
    assert "there is no option prot; did you mean port?" in one_line("--config", tmp_path / "c.toml")
    assert "--port must be a whole number from 0 to 65535; it is 'x'" in one_line("--port", "x")


def test_a_misspelt_variable_is_remarked(tmp_path: Path) -> None:
    with serving("--data", tmp_path, HAREBELL_PROT="1") as (process, _):
        process.terminate()
        assert "did you mean HAREBELL_PORT?" in process.communicate(timeout=STOP_SECONDS)[1]


def test_a_service_manager_is_told(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(STOP_SECONDS)

        def told(what: str) -> None:
            while what not in manager.recv(1000).decode().split("\n"):
                pass

        variables = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "200000"}
        with serving("--data", tmp_path / "data", **variables) as (process, _):
            told("READY=1")
            told("WATCHDOG=1")
            told("WATCHDOG=1")
            process.send_signal(signal.SIGHUP)
            told("RELOADING=1")
            told("READY=1")
            process.terminate()
            told("STOPPING=1")
            process.communicate(timeout=STOP_SECONDS)
            assert process.returncode == 0


def test_a_store_that_fails_ends_the_process(tmp_path: Path) -> None:
    """Its clients are told, the watchdog hears no more that it lives, and the next start has what was confirmed."""
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(STOP_SECONDS)
        variables = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "200000"}
        with serving("--data", tmp_path / "data", **variables) as (process, url):
            with connect(url, recovery=None) as connection:
                channel = connection.channel()
                channel.queue_declare("q", durable=True)
                channel.confirm_select()
                channel.publish(Message(b"kept", delivery_mode=2), "", "q")
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1000, 1000))  # no file may grow above that
                with pytest.raises(PublishOrphaned, match="the broker's store failed"):
                    channel.publish(Message(bytes(5000), delivery_mode=2), "", "q")
            _, log = process.communicate(timeout=STOP_SECONDS)
            assert process.returncode == 1
            assert "the store failed, the broker stops" in log
            assert "ended, because the store failed" in log
            said = []
            manager.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    said += manager.recv(1000).decode().split("\n")
            failed = next(at for at, each in enumerate(said) if each.startswith("STATUS=the store failed"))
            assert said[failed + 1 :] == [f"ERRNO={errno.EFBIG}", "STOPPING=1"]
    with serving("--data", tmp_path / "data") as (_, url), connect(url) as connection:
        delivery = connection.channel().get("q", no_ack=True)
        assert delivery is not None
        assert (delivery.body, connection.channel().get("q")) == (b"kept", None)


def test_many_clients_that_never_answer_do_not_keep_it(tmp_path: Path) -> None:
    """1,000 of them, some in the middle of their login; the limit of time is what a service manager may rely on."""
    with serving("--data", tmp_path) as (process, url), ExitStack() as sockets:
        port = int(url.rsplit(":", 1)[1].rstrip("/"))
        for number in range(1000):
            client = sockets.enter_context(socket.create_connection(("127.0.0.1", port)))
            if number % 2:
                client.sendall(b"AMQP\0\0\x09\x01")
                assert client.recv(1)
        process.terminate()
        process.communicate(timeout=STOP_SECONDS)
        assert process.returncode == 0


def test_told_twice_it_waits_for_nobody(tmp_path: Path) -> None:
    with (
        serving("--data", tmp_path) as (process, url),
        socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1].rstrip("/")))) as silent,
    ):
        silent.sendall(b"AMQP\0\0\x09\x01")
        assert silent.recv(1)
        process.terminate()
        assert "stopping" in log_line(process, "stopping")
        process.terminate()
        log = process.communicate(timeout=STOP_SECONDS)[1]
        assert process.returncode == 0
        assert "told again" in log


def test_the_configuration_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "harebell.toml"
    file.write_text("heartbeat = 5\n")
    result = harebell("config", "--port", "7", "--config", file, HAREBELL_SYNC="no", HAREBELL_HOSTT="x")
    assert result.returncode == 0, result.stderr
    lines = {line.split(" = ")[0]: line.split(" = ")[-1].split() for line in result.stdout.splitlines()}
    assert lines["port"] == ["7", "#", "--port"]
    assert lines["heartbeat"] == ["5", "#", str(file)]
    assert lines["sync"] == ["false", "#", "HAREBELL_SYNC"]
    assert lines["# max_message_size"] == ['"16MiB"', "#", "default"]
    assert "did you mean HAREBELL_HOST?" in result.stdout
    again = tmp_path / "again.toml"
    again.write_text(result.stdout)
    assert "heartbeat = 5" in harebell("config", "--config", again).stdout  # it is a configuration file


def test_every_option_is_in_the_help() -> None:
    text = " ".join(harebell("serve", "--help").stdout.replace("│", " ").split())
    assert "--empty-" not in text, "an empty list of addresses is refused, so that no flag gives one"
    for each in OPTIONS.values():
        assert each.flag in text
        assert f"env: {each.variable}" in text
        assert f"file: {each.name}]" in text


def test_ping(tmp_path: Path) -> None:
    with serving("--data", tmp_path) as (process, url):
        assert " answered in " in harebell("ping", url).stdout
        assert "guest:guest" not in harebell("ping", HAREBELL_URL=url).stdout
        wrong = harebell("ping", url.replace("guest@", "wrong@"))
        assert wrong.returncode == 1
        assert "ACCESS_REFUSED" in wrong.stderr
        process.terminate()
        process.communicate(timeout=STOP_SECONDS)
        gone = harebell("ping", url)
        assert gone.returncode == 1
        assert gone.stderr.count("\n") == 1
