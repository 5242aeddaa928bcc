"""The test files on the pages on testing are run as an application's would be."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
FILE = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("page", "passed"), [("how-to/test-kit.md", 5), ("tutorials/testing.md", 3)])
def test_the_tests_of_the_page_pass(tmp_path: Path, page: str, passed: int) -> None:
    for name, code in FILE.findall((DOCS / page).read_text()):
        (tmp_path / name).write_text(code)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert f"{passed} passed" in done.stdout, done.stdout + done.stderr
