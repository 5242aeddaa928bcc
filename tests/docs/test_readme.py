"""Every Python example in README.md and docs/ runs as it stands, in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FRAMEWORKS = (
    "celery",
    "django",
    "dramatiq",
    "fastapi",
    "faststream",
    "taskiq",
)  # of the development group, or `extra`s
OF_A_LESSON = re.compile(r"# [\w/]+\.py\n")  # its file's name: another test runs it with the other files of its page
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

INSTALLED = re.compile(r"pip install '(?:harebell|\.)\[([\w,]+)\]'")


def examples() -> list[object]:
    """The blocks that are whole programs: those that run themselves at module level."""
    found: list[object] = []
    for page in PAGES:
        for match in EXAMPLE.finditer(page.read_text()):
            code = match[1]
            if OF_A_LESSON.match(code) or not any(
                sign in code for sign in ("asyncio.run(", " = session(", '__name__ == "__main__"')
            ):
                continue
            line = page.read_text()[: match.start()].count("\n") + 2
            marks = [pytest.mark.spark] if "harebell.spark" in code else []
            found.append(pytest.param(code, id=f"{page.relative_to(ROOT)}:{line}", marks=marks))
    return found


@pytest.mark.parametrize("code", examples())
def test_example_runs(code: str, tmp_path: Path) -> None:
    for name in FRAMEWORKS:
        if re.search(rf"^(from|import) {name}\b", code, re.MULTILINE):
            pytest.importorskip(name, reason=f"the example needs {name}: pip install --group dev")
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", code],
        cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "an example shows something"


def test_every_page_installs_extras_that_are_there() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for page in PAGES:
        for named in INSTALLED.findall(page.read_text()):
            assert set(named.split(",")) <= extras.keys(), page.name


@pytest.mark.parametrize("page", ["README.md", "docs/tutorials/first-steps.md"])
def test_a_reader_installs_before_the_first_example(page: str) -> None:
    """In the same words."""
    text = (ROOT / page).read_text()
    before = text[: text.index("```python")]
    assert "Python 3.11 or later" in before
    assert "\n    pip install harebell " in before
    assert "pip install ." in before
