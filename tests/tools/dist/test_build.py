"""What the sdist and the wheels have in them, and what a compiled one has more."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import stat
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

import pytest

from tools.dist import build as dist
from tools.dist.commands import ROOT, Failed

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="no hatchling: `make setup` installs it"),
]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dist.build("sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dist.build("pure", tmp_path_factory.mktemp("wheel"))


def names(file: Path) -> set[str]:
    return set(dist.contents(file))


def text_of(wheel: Path, ending: str) -> str:
    """The text of the one file in a wheel with that end of its name."""
    with zipfile.ZipFile(wheel) as found:
        (name,) = [each for each in found.namelist() if each.endswith(ending)]
        return found.read(name).decode()


def metadata_of(wheel: Path) -> Message:
    return HeaderParser().parsestr(text_of(wheel, ".dist-info/METADATA"))


def test_a_wheel_has_the_packages_and_nothing_else(wheel: Path) -> None:
    found = names(wheel)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert {name.partition("/")[0].partition("-")[0] for name in found} == {"harebell", "pyspark_harebell"}
    assert "harebell/py.typed" in found
    assert "harebell/admin/console/web/index.html" in found
    assert not [name for name in found if name.endswith((".so", ".pyd", ".pyc", "compiled.json", "~"))]
    sources = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert {name for name in found if name.endswith(".py")} == sources
    licences = {name.partition("/licenses/")[2] for name in found if "/licenses/" in name}
    assert licences == {"LICENSE", "NOTICE", "spec/NOTICE"}


def test_a_wheel_has_every_file_of_the_package_that_git_knows(wheel: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    known = subprocess.run(["git", "ls-files", "-z", "src"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = {name.removeprefix("src/") for name in known.stdout.split("\0") if name}
    assert {name for name in names(wheel) if ".dist-info/" not in name} == {
        name for name in files if (ROOT / "src" / name).exists()
    }


def test_the_metadata(wheel: Path) -> None:
    assert "harebell = harebell.cli.entry:harebell" in text_of(wheel, "entry_points.txt")
    assert "Root-Is-Purelib: true" in text_of(wheel, ".dist-info/WHEEL")
    metadata = metadata_of(wheel)
    assert (metadata["Name"], metadata["Requires-Python"], metadata["License-Expression"]) == (
        "harebell", ">=3.11", "Apache-2.0",
    )  # fmt: skip
    assert {"server", "spark", "channels", "django", "all"} <= set(metadata.get_all("Provides-Extra", []))
    assert not [each for each in metadata.get_all("Requires-Dist", []) if "extra" not in each]


def test_the_description_is_the_readme(wheel: Path) -> None:
    metadata = metadata_of(wheel)
    assert metadata["Description-Content-Type"] == "text/markdown"
    shown = metadata.get_payload()
    assert isinstance(shown, str)
    assert shown.startswith("# Harebell\n")
    assert "](docs/" not in shown


def test_an_index_takes_the_metadata(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    pytest.importorskip("twine", reason="no twine: `make setup` installs it")
    dist.check_metadata([sdist, wheel])
    broken = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as found, zipfile.ZipFile(broken, "w") as made:
        for name in found.namelist():
            if name.endswith(".dist-info/METADATA"):
                made.writestr(name, "Metadata-Version: 2.4\nName: harebell\nVersion: 0.1.0\n")
    with pytest.raises(Failed, match="long_description"):
        dist.check_metadata([broken])


def test_no_file_knows_the_machine_that_built_it(sdist: Path, wheel: Path) -> None:
    assert dist.leaks(sdist) == []
    assert dist.leaks(wheel) == []


def test_paths_of_the_machine_are_found(tmp_path: Path) -> None:
    wheel = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("a.so", b"\x7fELF\0" + str(ROOT).encode() + b"\0")
        made.writestr("b.py", f"x = '{Path.home()}/x'")
        made.writestr("c.py", f"x = '{tmp_path}'")
        made.writestr("d.sh", f"x=$fresh{Path.home()}")
    assert dist.leaks(wheel, tmp_path) == ["a.so", "b.py", "c.py"]


def test_an_sdist_has_what_git_knows(sdist: Path) -> None:
    found = names(sdist)
    assert {
        "pyproject.toml", "LICENSE", "NOTICE", "README.md", "CHANGELOG.md", "Makefile", "PKG-INFO", "spec/NOTICE",
        "src/harebell/py.typed", "tools/compile.py", "tools/dist/build.py", "tools/readme.py", "tests/conftest.py", "docs/README.md",
    } <= found  # fmt: skip
    assert {name.partition("/")[0] for name in found if "/" in name} == {
        "benchmarks", "changelog.d", "docs", "examples", "spec", "src", "tests", "tools",
    }  # fmt: skip


def test_a_file_that_git_does_not_know_is_a_stray(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    sdist = tmp_path / "x-1.tar.gz"
    with tarfile.open(sdist, "w:gz") as made:
        for name in ("a.py", "b.py", "PKG-INFO"):
            made.addfile(tarfile.TarInfo(f"x-1/{name}"), io.BytesIO())
    assert dist.strays(sdist, root) == []
    (root / "a.py").touch()
    for command in ("init", "add a.py"):
        subprocess.run(["git", *command.split()], cwd=root, capture_output=True, check=True)
    assert dist.strays(sdist, root) == ["b.py"]


def test_an_sdist_builds_the_same_wheel(tmp_path: Path, sdist: Path, wheel: Path) -> None:
    source = dist.unpack(sdist, tmp_path)
    again = dist.build("pure", tmp_path / "again", source)
    assert names(again) == names(wheel)


def test_a_compiled_wheel_has_the_modules_too(tmp_path: Path, wheel: Path) -> None:
    modules = tmp_path / "modules"
    (modules / "harebell").mkdir(parents=True)
    (modules / "harebell" / "x.so").write_bytes(b"machine code")
    (modules / "harebell__mypyc.so").write_bytes(b"more")
    made = dist.with_modules(wheel, modules, "cp311-cp311-linux_x86_64", tmp_path)
    assert made.name == wheel.name.replace("py3-none-any", "cp311-cp311-linux_x86_64")
    assert names(made) == names(wheel) | {"harebell/x.so", "harebell__mypyc.so"}
    assert "Root-Is-Purelib: false\nTag: cp311-cp311-linux_x86_64" in text_of(made, ".dist-info/WHEEL")
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"machine code").digest()).rstrip(b"=").decode()
    assert f"harebell/x.so,sha256={digest},12" in text_of(made, ".dist-info/RECORD")


def test_a_wheel_that_auditwheel_refuses_keeps_its_tag(tmp_path: Path, wheel: Path) -> None:
    """A pure wheel has nothing to examine."""
    assert dist.for_other_machines(wheel, tmp_path / "portable") == wheel


def test_this_python_is_found() -> None:
    version = "{}.{}".format(*sys.version_info[:2])
    found = dist.find_python(version)
    if found is None:
        pytest.skip(f"Python {version} is neither on PATH nor in pyenv's folder")
    said = subprocess.run([found, "-V"], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"Python {version}.")


def test_a_name_on_path_that_is_no_python_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\necho 'not installed' >&2\nexit 127\n")
    shim.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert dist.find_python("3.99") is None
    inner = tmp_path / "versions" / "3.99.1" / "bin"
    inner.mkdir(parents=True)
    python = inner / "python"
    python.write_text("#!/bin/sh\necho 3.99\n")
    python.chmod(stat.S_IRWXU)
    assert dist.find_python("3.99") == python


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("True\n/include\nsh -pthread\nsh -shared", ""),
        ("False\n/include\nsh\nsh", "no Python.h in /include"),
        ("True\n/include\nno-such-compiler -pthread\nx", "no C compiler (no-such-compiler)"),
    ],
)
def test_what_a_python_lacks_to_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, wanted: str
) -> None:
    monkeypatch.delenv("CC", raising=False)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ncat <<E\n{said}\nE\n")
    python.chmod(stat.S_IRWXU)
    assert dist.lacks(python) == wanted


def test_the_changelog_of_a_release_can_be_gathered() -> None:
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "0.1.0", "--date", "2026-01-01"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    fragments = [path for path in (ROOT / "changelog.d").glob("*.md") if path.name != "README.md"]
    assert done.stdout.count("\n- ") >= len(fragments)
    assert "## 0.1.0 (2026-01-01)" in done.stdout
