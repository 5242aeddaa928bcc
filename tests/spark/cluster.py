"""Spark in processes of its own on this machine: a standalone cluster, a Connect server. Loopback only.

Rules: what the workers inherit names no source tree, so an executor has of ours only what a job brings it. Every
process leads a group of its own and is ended with it; the cluster leaves nothing behind.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from harebell.errors import MissingDependency, ServerUnavailable
from harebell.spark.runtime.java import find_java
from tests.fixtures.spark import FROM_ARCHIVE
from tests.torture.server import free_port

__all__ = ["QUICK_START", "ConnectServer", "SparkCluster", "bare_environment", "spark_home"]

START_SECONDS: Final = 120.0  # a JVM on a machine under load
EXECUTOR: Final = "CoarseGrainedExecutorBackend"
# The C1 compiler and the serial collector: a JVM is ready sooner, and does not live long enough to miss the others.
QUICK_START: Final = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {FROM_ARCHIVE}"
REGISTERED: Final = re.compile(r"Registering worker ")


def spark_home() -> Path:
    """Where PySpark is installed. Raises MissingDependency."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingDependency("PySpark is not installed")
    return Path(spec.origin).parent


def bare_environment() -> dict[str, str]:
    """This process's environment without what names Python's modules or Spark's settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}


class SparkCluster:
    """Use it in a `with` block; `master` is then its URL. `folder` takes logs and the workers' files."""

    def __init__(self, folder: Path, workers: int = 2, cores: int = 1, memory: str = "700m") -> None:
        self.folder = folder
        self._port = free_port()
        self._workers, self._cores, self._memory = workers, cores, memory
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._spawn(
                "master", "master.Master", "--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0"
            )
            for number in range(self._workers):
                # Each on a host of its own: Spark speculates on another host only.
                self._spawn(
                    f"worker{number}", "worker.Worker", "--host", f"127.0.0.{number + 1}", "--webui-port", "0",
                    "--cores", str(self._cores), "--memory", self._memory,
                    "--work-dir", str(self.folder / f"work{number}"), self.master,
                )  # fmt: skip
            self._wait()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def executors(self) -> list[int]:
        """The processes of the executors that run now."""
        found = []
        for worker in self._processes[1:]:
            for child in psutil.Process(worker.pid).children(recursive=True):
                try:
                    if EXECUTOR in " ".join(child.cmdline()):
                        found.append(child.pid)
                except psutil.NoSuchProcess:
                    pass
        return found

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))

    def close(self) -> None:
        """Ends every process of the cluster. May be called again."""
        end(self._processes)
        self._processes.clear()

    def _spawn(self, name: str, main: str, *arguments: str) -> None:
        environment = {
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_LOCAL_IP": arguments[arguments.index("--host") + 1],
        }
        self._processes.append(
            spawn(self.folder / f"{name}.log", environment, f"org.apache.spark.deploy.{main}", *arguments)
        )

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while len(REGISTERED.findall((self.folder / "master.log").read_text())) < self._workers:
            if any(process.poll() is not None for process in self._processes) or time.monotonic() > deadline:
                raise ServerUnavailable(f"the Spark cluster does not come up:\n{self.log()[-3000:]}")
            time.sleep(0.1)


class ConnectServer:
    """A Spark Connect server over local[2], in a `with` block.

    `paths` is the PYTHONPATH of its Python workers, and `python` what starts them.
    """

    def __init__(self, folder: Path, paths: str, python: str = sys.executable) -> None:
        self.folder = folder
        self._python = python
        self._paths = paths
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def remote(self) -> str:
        return f"sc://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "800m",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
        }
        self._process = spawn(
            self.folder / "server.log",
            {"PYTHONPATH": self._paths, "PYSPARK_PYTHON": self._python, "SPARK_SUBMIT_OPTS": QUICK_START},
            "org.apache.spark.deploy.SparkSubmit",
            *("--master", "local[2]"),
            *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
        )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__(None, None, None)
                raise ServerUnavailable(f"the Spark Connect server does not come up:\n{self.log()[-3000:]}")
            time.sleep(0.1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        end([self._process])

    def log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


def spawn(log: Path, environment: dict[str, str], main: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A JVM with that main class of Spark's, leader of its own group."""
    environment = bare_environment() | {
        "JAVA_HOME": str(find_java().path),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": QUICK_START,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
    } | environment  # fmt: skip
    with log.open("ab") as output:
        return subprocess.Popen(
            [str(spark_home() / "bin" / "spark-class"), main, *arguments],
            env=environment, cwd=log.parent, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Kills the processes, last first, and what they have started: an executor has a group of its own."""
    for process in reversed(processes):
        below = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        for child in below:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                pass
        process.wait()
