"""The log: a reader who stops reading stops nobody, and is told afterwards what is missing."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harebell.cli.server import log_writer
from harebell.cli.server.log_writer import LogWriter
from harebell.protocol.v091.codec import PROTOCOL_HEADER
from tests.wire import PATIENCE, Wire

LINES = 2000  # of fifty bytes and more: a pipe takes 64 KiB


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def record(text: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("x", logging.INFO, "", 0, text, arguments, None)


def read(descriptor: int, last: bytes) -> list[str]:
    data = b""
    while not data.endswith(last + b"\n"):
        data += os.read(descriptor, 1 << 16)
    return data.decode().splitlines()


def test_lines_are_written_in_order(pipe: tuple[int, int]) -> None:
    writer = LogWriter(pipe[1], "utf-8")
    for number in range(100):
        writer.emit(record("%d é", number))
    writer.flush()
    assert read(pipe[0], b"99 \xc3\xa9") == [f"{number} é" for number in range(100)]


def test_what_is_missing_is_counted(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "FAREWELL", 0.01)
    writer = LogWriter(pipe[1], "utf-8")
    count = 3 * log_writer.MOST_WAITING  # some in the pipe, some in the thread's hands, some waiting
    for number in range(count):
        writer.emit(record("%050d", number))
    writer.flush()  # waits for nobody for long
    writer.emit(record("more"))
    lines = read(pipe[0], b"was not read")
    (said,) = (re.match(r"(\d+) lines of the log are missing", line) for line in lines if "missing" in line)
    assert said is not None
    kept = [line for line in lines if line.isdigit()]
    assert kept == [f"{number:050}" for number in range(len(kept))]
    assert len(kept) + int(said[1]) == count + 1


def test_a_record_that_cannot_be_written_is_reported_and_ends_nothing(
    pipe: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.Logger("of a plug-in")
    logger.addHandler(LogWriter(pipe[1], "utf-8"))
    logger.error("%d", "no number")
    logger.error("more")
    assert read(pipe[0], b"more") == ["more"]
    assert "no number" in capsys.readouterr().err


def test_a_character_that_the_encoding_lacks_is_an_escape(pipe: tuple[int, int]) -> None:
    writer = LogWriter(pipe[1], "ascii")
    writer.emit(record("é"))
    assert read(pipe[0], b"xe9") == ["\\xe9"]


def test_a_file_that_does_not_wait(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    writer = LogWriter(pipe[1], "utf-8")
    for number in range(LINES):
        writer.emit(record("%050d", number))
    writer.emit(record("end"))
    assert len(read(pipe[0], b"end")) == LINES + 1


def test_a_reader_that_is_gone_stops_nobody() -> None:
    source, sink = os.pipe()
    os.close(source)
    writer = LogWriter(sink, "utf-8")
    for _ in range(3):
        writer.emit(record("x"))
        writer.flush()
    os.close(sink)


def test_a_broker_whose_log_nobody_reads_serves_and_stops(tmp_path: Path, pipe: tuple[int, int]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "harebell", "serve", "--port", "0", "--no-management", "--data", tmp_path / "data"],
        stdout=subprocess.PIPE,
        stderr=pipe[1],
        text=True,
    )
    with process:
        assert process.stdout is not None
        port = int(process.stdout.readline().split("amqp://", 1)[1].split("/")[0].rsplit(":", 1)[1])
        for _ in range(800):  # each a line in the log
            with Wire(port) as wire:
                wire.socket.sendall(b"HTTP/1.1")
                assert wire.socket.recv(100) == PROTOCOL_HEADER
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_the_line_comes_whole_behind_the_log_of_the_start(tmp_path: Path) -> None:
    """Both streams lead to one pipe, and nothing is buffered."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-u",
            "-m",
            "harebell",
            "serve",
            "--port",
            "0",
            "--no-management",
            "--data",
            tmp_path / "data",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        assert process.stdout is not None
        before = []
        while not (line := process.stdout.readline()).startswith("harebell "):
            before.append(line)
        assert re.fullmatch(r"harebell \S+ ready at amqp://\S+\n", line)
        assert any("in memory, gone when this process ends" in each for each in before)
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=PATIENCE)
        assert rest.endswith("\n")
