"""Every Python example in README.md and docs/ runs as it stands, in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def examples() -> list[object]:
    """The blocks that are whole programs: those that run themselves at module level."""
    found: list[object] = []
    for page in PAGES:
        for match in EXAMPLE.finditer(page.read_text()):
            code = match[1]
            if "asyncio.run(" not in code and " = session(" not in code:
                continue
            line = page.read_text()[: match.start()].count("\n") + 2
            marks = [pytest.mark.spark] if "harebell.spark" in code else []
            found.append(pytest.param(code, id=f"{page.relative_to(ROOT)}:{line}", marks=marks))
    return found


@pytest.mark.parametrize("code", examples())
def test_example_runs(code: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", code],
        cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "an example shows something"
