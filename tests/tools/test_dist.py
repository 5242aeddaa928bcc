"""What the sdist and the wheels have in them, and what a compiled one has more."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from tools import dist

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="no hatchling: `make setup` installs it"),
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dist.build("pure", tmp_path_factory.mktemp("wheel"))


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as found:
        return set(found.namelist())


def test_a_wheel_has_the_packages_and_nothing_else(wheel: Path) -> None:
    found = names(wheel)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert {name.partition("/")[0].partition("-")[0] for name in found} == {"harebell", "pyspark_harebell"}
    assert "harebell/py.typed" in found
    assert "harebell/admin/console/web/index.html" in found
    assert not [name for name in found if name.endswith((".so", ".pyd", ".pyc", "compiled.json", "~"))]
    sources = {path.relative_to(dist.ROOT / "src").as_posix() for path in (dist.ROOT / "src").rglob("*.py")}
    assert {name for name in found if name.endswith(".py")} == sources
    licences = {Path(name).name for name in found if "/licenses/" in name}
    assert licences == {"LICENSE", "NOTICE"}


def test_the_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as found:
        (name,) = [each for each in found.namelist() if each.endswith(".dist-info/METADATA")]
        metadata = HeaderParser().parsestr(found.read(name).decode())
        (entries,) = [each for each in found.namelist() if each.endswith("entry_points.txt")]
        assert b"harebell = harebell.cli.main:main" in found.read(entries)
    assert (metadata["Name"], metadata["Requires-Python"], metadata["License-Expression"]) == (
        "harebell", ">=3.11", "Apache-2.0",
    )  # fmt: skip
    assert {"server", "spark", "channels", "django", "all"} <= set(metadata.get_all("Provides-Extra", []))
    assert not [each for each in metadata.get_all("Requires-Dist", []) if "extra" not in each]


def test_no_file_knows_the_machine_that_built_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as found:
        for name in found.namelist():
            assert str(dist.ROOT).encode() not in found.read(name), name


def test_an_sdist_builds_the_same_wheel(tmp_path: Path, wheel: Path) -> None:
    sdist = dist.build("sdist", tmp_path / "sdist")
    with tarfile.open(sdist) as found:
        top = {name.split("/")[1] for name in found.getnames() if "/" in name}
        found.extractall(tmp_path, filter="data")
    assert top >= {
        "src",
        "tests",
        "docs",
        "tools",
        "spec",
        "pyproject.toml",
        "LICENSE",
        "NOTICE",
        "README.md",
        "Makefile",
    }
    assert not top & {".venv", "dist", "build", ".git"}
    again = dist.build("pure", tmp_path / "again", tmp_path / sdist.name.removesuffix(".tar.gz"))
    assert names(again) == names(wheel)


def test_a_compiled_wheel_has_the_modules_too(tmp_path: Path, wheel: Path) -> None:
    modules = tmp_path / "modules"
    (modules / "harebell").mkdir(parents=True)
    (modules / "harebell" / "x.so").write_bytes(b"machine code")
    (modules / "harebell__mypyc.so").write_bytes(b"more")
    made = dist.with_modules(wheel, modules, "cp311-cp311-linux_x86_64", tmp_path)
    assert made.name == wheel.name.replace("py3-none-any", "cp311-cp311-linux_x86_64")
    assert names(made) == names(wheel) | {"harebell/x.so", "harebell__mypyc.so"}
    with zipfile.ZipFile(made) as found:
        (said,) = [each for each in found.namelist() if each.endswith(".dist-info/WHEEL")]
        assert "Root-Is-Purelib: false\nTag: cp311-cp311-linux_x86_64" in found.read(said).decode()
        (record,) = [each for each in found.namelist() if each.endswith(".dist-info/RECORD")]
        digest = base64.urlsafe_b64encode(hashlib.sha256(b"machine code").digest()).rstrip(b"=").decode()
        assert f"harebell/x.so,sha256={digest},12" in found.read(record).decode()


def test_the_changelog_of_a_release_can_be_gathered() -> None:
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "0.1.0", "--date", "2026-01-01"]
    done = subprocess.run(command, cwd=dist.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    fragments = [path for path in (dist.ROOT / "changelog.d").glob("*.md") if path.name != "README.md"]
    assert done.stdout.count("\n- ") >= len(fragments)
    assert "## 0.1.0 (2026-01-01)" in done.stdout
