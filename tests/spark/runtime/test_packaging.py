from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import harebell
from harebell.errors import InvalidArgument, MissingDependency
from harebell.spark.runtime import packaging


def test_the_zip_holds_sources_and_nothing_compiled(tmp_path: Path) -> None:
    path = packaging.package(tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / f"harebell-{harebell.__version__}.zip"
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    assert {
        "harebell/__init__.py",
        "harebell/spark/source.py",
        "pyspark_harebell/__init__.py",
        "harebell/py.typed",
    } <= set(names)
    assert not [name for name in names if name.endswith((".so", ".pyc")) or "__pycache__" in name]
    assert names == sorted(names)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    first = packaging.package(tmp_path).read_bytes()
    assert packaging.package(tmp_path).read_bytes() == first


def test_python_imports_from_it_without_anything_else(tmp_path: Path) -> None:
    path = packaging.package(tmp_path)
    code = f"import sys; sys.path.insert(0, {str(path)!r}); import harebell.client; print(harebell.client.__file__)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{path}/harebell/client/__init__.py"


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgument, match=r"harebell-.*\.zip cannot be written"):
        packaging.package(tmp_path / "file")


def test_without_sources_there_is_nothing_to_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match="sources of harebell are not installed"):
        packaging.package(tmp_path)


def test_the_line_is_quoted_for_a_shell() -> None:
    line = packaging.submit_line(Path("/a b/harebell.zip"), "k8s://https://h:1", "my job.py")
    assert line == (
        "PYTHONPATH='/a b/harebell.zip' spark-submit --master k8s://https://h:1 "
        "--py-files '/a b/harebell.zip' 'my job.py'"
    )


def test_two_programs_write_it_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[zipfile.ZipFile] = []

    class Interrupted(zipfile.ZipFile):
        """The first one stops at its first file until another one is written."""

        def writestr(self, *arguments: Any, **named: Any) -> None:
            if not begun:
                begun.append(self)
                packaging.package(tmp_path)
            super().writestr(*arguments, **named)

    monkeypatch.setattr(zipfile, "ZipFile", Interrupted)
    with zipfile.ZipFile(packaging.package(tmp_path)) as archive:
        assert archive.testzip() is None
    assert len(list(tmp_path.iterdir())) == 1
