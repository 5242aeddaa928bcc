"""`harebell spark package` as its users run it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli.command import harebell


def test_it_writes_the_zip_and_prints_the_line(tmp_path: Path) -> None:
    result = harebell("spark", "package", tmp_path, "--master", "spark://h:7077", "--job", "a job.py")
    assert result.returncode == 0, result.stderr
    (written,) = tmp_path.iterdir()
    assert re.match(rf"wrote {re.escape(str(written))} \(\d+ KiB\)", result.stdout)
    line = f"PYTHONPATH={written} spark-submit --master spark://h:7077 --py-files {written} 'a job.py'"
    assert line in result.stdout.splitlines()


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = harebell("spark", "package", tmp_path / "file")
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "cannot be written" in result.stderr
