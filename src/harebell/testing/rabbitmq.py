"""A real RabbitMQ node for tests and benchmarks: started for one user, removed afterwards.

    with RabbitMQ() as server:
        pika.BlockingConnection(pika.URLParameters(server.url))

Each node has its own port, node name, distribution port, epmd and data directory, listens on 127.0.0.1 only, and
shares nothing with other nodes of the machine, the system's own service included. Any user may run it, root too: the
system's wrapper script, which would switch to the user `rabbitmq`, is not used. The node ends with this process, even
when this process is killed. Its configuration is that of its package.

The RabbitMQ is this machine's, or that of a folder with another Debian system (`root`), so that several versions run
side by side. Such a node sees the files of this machine, but with the folder's /usr as /usr: one bind mount in a mount
namespace of its own, which ends with its last process. Nothing is ever mounted outside.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from harebell.errors import LocalProtocolError, ServerUnavailable

__all__ = ["REMEDY", "RabbitMQ", "find_server", "find_version"]

REMEDY: Final = "install it with `apt-get install rabbitmq-server` (`make test` does so when run by root)"
REMEDY_OF_ROOT: Final = "make one with `mmdebstrap --variant=minbase --include=rabbitmq-server RELEASE FOLDER`, as root"
START_SECONDS: Final = 120.0  # a node takes 3 to 6 s; a machine under load may need twenty times that
STARTED: Final = "Server startup complete"  # in the log of every version
CALL_SECONDS: Final = 120.0  # a call of rabbitmqctl takes 1 to 2 s
STOP_SECONDS: Final = 20.0  # a clean stop that takes longer becomes a kill
KILL_SECONDS: Final = 5.0  # for the kernel to remove a killed machine
POLL_SECONDS: Final = 0.05
LOG_TAIL_LINES: Final = 40
# Below the range that kernels hand out to outgoing connections, so that a stopped node finds its ports free again.
PORTS: Final = range(20000, 32000)

# The real script first: /usr/sbin/rabbitmq-server of Debian and Red Hat changes the user and the directories.
DEBIAN_SCRIPT: Final = "/usr/lib/rabbitmq/bin/rabbitmq-server"
SERVER_SCRIPTS: Final = (DEBIAN_SCRIPT, "/opt/homebrew/sbin/rabbitmq-server")
VERSIONED: Final = re.compile(r"rabbitmq_server-(\d+\.\d+\.\d+)")

# Started by `unshare`: $1 is the other system's root folder, the rest is the command.
ENTER: Final = 'mount --bind "$1/usr" /usr && shift && exec "$@"'

# Waits on a pipe whose other end this process holds. A line means that this process stopped the node; an end of file
# means that it died before that, so the guard kills the node.
GUARD: Final = 'if read -r _; then exit 0; fi; kill -KILL "-$1" "$2" 2>/dev/null; sleep 1; rm -rf "$3"'

# The node writes the value of the second text into the file of the first. At once it may not have started all
# applications; and erl_call prints no Unicode, and shortens what is long.
ASK: Final = (
    "(fun Up() -> rabbit:is_running() orelse begin timer:sleep(50), Up() end end)(), "
    'file:write_file("{}", unicode:characters_to_binary(io_lib:format("~9999999tp", [begin {} end]))).\n'
)

NOT_UP_YET: Final = "requires the 'rabbit' app to be running"
"""Part of rabbitmqctl's error about a node that answers AMQP but has not started all other applications."""

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
METHOD_FRAME: Final = b"\x01"


def find_server() -> Path:
    """The rabbitmq-server script to run. Raises ServerUnavailable, with the remedy, when there is none."""
    for candidate in (*SERVER_SCRIPTS, shutil.which("rabbitmq-server")):
        if candidate is not None and os.access(candidate, os.X_OK):
            return Path(candidate)
    raise ServerUnavailable(f"no RabbitMQ on this machine: {REMEDY}")


def find_version(root: Path | None = None) -> str:
    """The version of the RabbitMQ of this machine, or of the Debian system in the folder `root`: "4.0.5".

    Raises ServerUnavailable when there is none, when nothing says its version, or when this process may not make the
    mount namespace that a node of `root` needs.
    """
    if root is None:
        home = find_server().resolve().parents[1]
    else:
        script = root / DEBIAN_SCRIPT.removeprefix("/")
        home = script.parents[1]
        if not script.exists():
            raise ServerUnavailable(f"no Debian system with RabbitMQ in the folder {root}: {REMEDY_OF_ROOT}")
        _entrance(root)
    for folder in (home, *home.glob("lib/rabbitmq_server-*")):
        if found := VERSIONED.search(folder.name):
            return found[1]
    raise ServerUnavailable(f"nothing says which version of RabbitMQ is in {home}")


@cache
def _entrance(root: Path) -> tuple[str, ...]:
    """The words in front of a command that is to run with the /usr of `root`."""
    unshare = shutil.which("unshare")
    if unshare is None:
        raise ServerUnavailable(f"`unshare` of util-linux is not on PATH; the RabbitMQ in {root} needs it")
    said = ""
    for namespaces in (("--mount",), ("--mount", "--map-root-user")):  # root's; any user's, where the system allows it
        entrance = (unshare, *namespaces, "/bin/sh", "-c", ENTER, "enter", str(root))
        done = subprocess.run([*entrance, "true"], stdin=subprocess.DEVNULL, capture_output=True)
        if not done.returncode:
            return entrance
        said = done.stderr.decode(errors="replace").strip()
    raise ServerUnavailable(f"the RabbitMQ in {root} needs a mount namespace, which this system refuses: {said}")


def free_ports(count: int) -> list[int]:
    """`count` different ports of 127.0.0.1 that have no listener now."""
    held: list[socket.socket] = []
    try:
        for port in random.sample(PORTS, len(PORTS)):
            sock = socket.socket()
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                sock.close()
                continue
            held.append(sock)
            if len(held) == count:
                return [sock.getsockname()[1] for sock in held]
        raise ServerUnavailable(f"fewer than {count} free ports between {PORTS.start} and {PORTS.stop}")
    finally:
        for sock in held:
            sock.close()


class RabbitMQ:
    """A RabbitMQ node. `start` and `close` it, or use it in a `with` block.

    `config` are lines of rabbitmq.conf ({"channel_max": "64"}), `plugins` the names to enable. `root` is a folder with
    a Debian system (of mmdebstrap or debootstrap) whose RabbitMQ is to run in place of this machine's. `stop`, `kill`
    and `start` may alternate: ports and data stay until `close`, as they would on a machine that reboots.
    """

    def __init__(
        self, *, config: Mapping[str, str] | None = None, plugins: Sequence[str] = (), root: Path | None = None
    ) -> None:
        self._config = dict(config or {})
        self._plugins = tuple(plugins)
        self._root = root
        self._directory: Path | None = None
        self._ports: list[int] = []
        self._pid = 0
        self._node: subprocess.Popen[bytes] | None = None
        self._epmd: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """The AMQP port, on 127.0.0.1."""
        self._require_directory()
        return self._ports[0]

    @property
    def url(self) -> str:
        """The AMQP URL of the virtual host "/", with user and password guest."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    @property
    def pid(self) -> int:
        """The process id of the Erlang machine, whose CPU time and memory are the broker's."""
        if self._node is None:
            raise LocalProtocolError("this RabbitMQ is not running: call start()")
        return self._pid

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not stopped since."""
        return self._node is not None

    @property
    def node_name(self) -> str:
        return f"harebell{self.port}@localhost"

    @property
    def version(self) -> str:
        """RabbitMQ's version: "4.0.5"."""
        return find_version(self._root)

    def log(self) -> str:
        """All output of the node: that of the start script, then its log, which grows at the end."""
        directory = self._require_directory()
        files = [directory / "output", *sorted((directory / "log").glob("*.log"), reverse=True)]
        return "".join(file.read_text(errors="replace") for file in files if file.exists())

    def evaluate(self, expression: str, timeout: float = CALL_SECONDS) -> str:
        """The value of an Erlang expression on the node, or of the last of several between commas, as Erlang prints it.

        `server.evaluate("rabbit_trace:start(<<\"/\">>)")`: as `rabbitmqctl eval`, but in milliseconds.

        Raises subprocess.CalledProcessError with the node's words when it fails, subprocess.TimeoutExpired after
        `timeout` seconds, and ServerUnavailable when Erlang's `erl_call` is not there.
        """
        environment = self._environment()
        if not (shutil.which("erl_call") if self._root is None else (self._root / "usr/bin/erl_call").exists()):
            raise ServerUnavailable("RabbitMQ is there but Erlang's `erl_call` is not on PATH")
        command = [*self._prefix(), "erl_call", "-sname", self.node_name, "-e"]
        with tempfile.NamedTemporaryFile(dir=self._directory) as value:
            done = subprocess.run(
                command,
                input=ASK.format(value.name, expression).encode(),
                env=environment,
                timeout=timeout,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            text = done.stdout.decode(errors="replace")
            if text.strip() != "{ok, ok}":
                raise _failure(done.returncode or 1, command, text)
            return value.read().decode()

    def ctl(self, *arguments: str, timeout: float = CALL_SECONDS) -> str:
        """The output of `rabbitmqctl` for these arguments. Takes about two seconds: it starts an Erlang machine.

        Raises subprocess.CalledProcessError when it fails and subprocess.TimeoutExpired after `timeout` seconds.
        """
        script = str(self._server_script().with_name("rabbitmqctl"))
        command = [*self._prefix(), script, "--quiet", "--node", self.node_name, *arguments]
        deadline = time.monotonic() + timeout
        while True:
            done = subprocess.run(
                command,
                env=self._environment(),
                timeout=timeout,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            text = done.stdout.decode(errors="replace")
            if not done.returncode:
                return text
            if NOT_UP_YET in text and time.monotonic() < deadline:
                time.sleep(0.2)
                continue
            raise _failure(done.returncode, command, text)

    def run_tool(self, tool: str, *arguments: str, timeout: float = CALL_SECONDS) -> subprocess.CompletedProcess[str]:
        """What `rabbitmqctl` or `rabbitmq-diagnostics` prints for these arguments, and its status, whatever that is.

        Takes about two seconds. Raises subprocess.TimeoutExpired after `timeout` seconds.
        """
        script = str(self._server_script().with_name(tool))
        return subprocess.run(
            [*self._prefix(), script, "--node", self.node_name, *arguments],
            env=self._environment(), timeout=timeout, capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip

    def sync_declarations(self) -> None:
        """Wait until all declarations are on disk, so that a kill cannot lose them.

        RabbitMQ answers a declaration before its Mnesia log is written: killed within some 60 ms it comes back without
        the durable queue, and without the messages that it confirmed there (3.10 under load: 3 of 32). The name of a
        quorum queue's log is on disk when no other was declared for half a second: killed before that, it comes back
        with the newest one empty and without a leader, so that basic.consume is never answered.
        """
        self.evaluate("mnesia:sync_log(), [ok = dets:sync(Table) || Table <- dets:all()]")

    def start(self) -> None:
        """Start the node; returns when it answers AMQP.

        Raises ServerUnavailable when RabbitMQ is not installed, or when the node ends or does not answer; the text
        then has the end of its log.
        """
        if self._node is not None:
            raise LocalProtocolError("this RabbitMQ is already running")
        script = self._server_script()
        directory = self._prepare_directory()
        try:
            epmd = self._start_epmd()
            starts = self.log().count(STARTED)
            self._node = self._spawn(str(script))
            self._guard = subprocess.Popen(
                ["/bin/sh", "-c", GUARD, "guard", str(self._node.pid), str(epmd), str(directory)],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )
            self._wait_ready(starts)
        except BaseException:
            self.close()
            raise

    def stop(self) -> None:
        """Stop the node cleanly, as a service manager does; its data stay for the next `start`."""
        self._end_machine(signal.SIGTERM, STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End the node at once, as a power cut does; its data stay for the next `start`."""
        if self._node is not None:
            # First the Erlang machine alone: the script is its parent, and ends after it. Then the rest of the
            # script's process group: all of it, if the machine had not started yet.
            self._end_machine(signal.SIGKILL, KILL_SECONDS)
            try:
                os.killpg(self._node.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._node.wait()
            self._node = None
            self._pid = 0
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None
        if self._guard is not None:
            self._guard.communicate(b"done\n")
            self._guard = None

    def close(self) -> None:
        """End the node and remove its directory. May be called at any time, and again."""
        self.kill()  # a clean stop would only protect data that is removed now
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _require_directory(self) -> Path:
        if self._directory is None:
            raise LocalProtocolError("this RabbitMQ was never started, or is closed: call start()")
        return self._directory

    def _prepare_directory(self) -> Path:
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="harebell-rabbitmq-"))
            self._ports = free_ports(3)
            lines = "".join(f"{key} = {value}\n" for key, value in self._config.items())
            (self._directory / "rabbitmq.conf").write_text(lines)
            (self._directory / "plugins").write_text(f"[{','.join(self._plugins)}].\n")
            self._furnish(self._directory)
        (self._directory / "pid").unlink(missing_ok=True)
        return self._directory

    def _furnish(self, directory: Path) -> None:
        """Add to a new directory what this kind of node needs."""

    def _server_script(self) -> Path:
        if self._root is None:
            return find_server()
        find_version(self._root)  # raises when there is none
        return Path(DEBIAN_SCRIPT)

    def _prefix(self) -> tuple[str, ...]:
        return () if self._root is None else _entrance(self._root)

    def _environment(self) -> dict[str, str]:
        directory = self._require_directory()
        port, dist_port, epmd_port = (str(number) for number in self._ports)
        foreign = ("RABBITMQ_", "ERL_", "NOTIFY_SOCKET")
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        return inherited | {
            "HOME": str(directory),  # Erlang stores its cookie here
            "LC_ALL": "C.UTF-8",
            "ERL_EPMD_PORT": epmd_port,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"harebell{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": port,
            "RABBITMQ_DIST_PORT": dist_port,
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",  # ignore the settings of the system's own node
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _end_machine(self, signal_number: int, patience: float) -> None:
        if self._node is None or self._pid == 0:
            return
        try:
            os.kill(self._pid, signal_number)
            self._node.wait(patience)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            return  # it ended by itself, or does not react: the caller kills it
        self._pid = 0

    def _spawn(self, command: str) -> subprocess.Popen[bytes]:
        with (self._require_directory() / "output").open("ab") as output:
            return subprocess.Popen(
                [*self._prefix(), command],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C in a terminal reaches only the tests, which then stop the node cleanly
            )

    def _start_epmd(self) -> int:
        """The process id of the node's epmd; else the node would start a daemon, which no stop ends."""
        epmd = shutil.which("epmd") if self._root is None else "/usr/bin/epmd"
        if epmd is None:
            raise ServerUnavailable("RabbitMQ is there but Erlang's `epmd` is not on PATH")
        self._epmd = self._spawn(epmd)
        self._wait_epmd()
        return self._epmd.pid

    def _wait_epmd(self) -> None:
        assert self._epmd is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._epmd.poll() is None:
            with socket.socket() as sock:
                if sock.connect_ex(("127.0.0.1", self._ports[2])) == 0:
                    return
            time.sleep(POLL_SECONDS)
        raise ServerUnavailable(f"Erlang's epmd does not come up\n{self._log_tail()}")

    def _wait_ready(self, starts: int) -> None:
        """Return once it answers and has said that its start is complete, which it did `starts` times before.

        RabbitMQ 4 listens earlier, and drops the replies of direct reply-to meanwhile.
        """
        assert self._node is not None
        pid_file = self._require_directory() / "pid"
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._node.poll() is not None:
                raise ServerUnavailable(f"RabbitMQ ended with status {self._node.returncode}\n{self._log_tail()}")
            if pid_file.exists() and (text := pid_file.read_text().strip()) and self._answers():
                self._pid = int(text)
                if self.log().count(STARTED) > starts:
                    return
            time.sleep(POLL_SECONDS)
        raise ServerUnavailable(f"RabbitMQ gave no AMQP answer in {START_SECONDS:.0f} s\n{self._log_tail()}")

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as sock:
                sock.sendall(PROTOCOL_HEADER)
                return sock.recv(1) == METHOD_FRAME
        except OSError:
            return False

    def _log_tail(self) -> str:
        return "\n".join(self.log().splitlines()[-LOG_TAIL_LINES:])


def _failure(status: int, command: Sequence[str], output: str) -> subprocess.CalledProcessError:
    error = subprocess.CalledProcessError(status, command, output)
    error.add_note(output)  # it explains the error
    return error
