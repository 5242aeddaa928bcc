"""The page on the terminal: its commands print what it says, and the table of commands is that of the code."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.admin.kit import ApiThread
from tests.cli.administering import runner
from tools.command_table import PAGE, ROOT, rendered

GUIDE = ROOT / "docs" / "how-to" / "terminal.md"
EXAMPLE = re.compile(r"^    \$ harebell (.*)\n((?:    (?!\$ ).*\n)*)", re.MULTILINE)


def test_the_examples(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with ApiThread() as serving:
        monkeypatch.setenv("HAREBELL_HTTP_URL", f"http://guest:guest@127.0.0.1:{serving.api_port}")
        run = runner(monkeypatch, capsys)
        examples = EXAMPLE.findall(GUIDE.read_text("utf-8"))
        assert len(examples) > 10
        for command, said in examples:
            done = run(*shlex.split(command))
            assert trimmed(done.output + done.error) == trimmed(said), command


def trimmed(text: str) -> list[str]:
    """The lines without indents, and a rule under titles without its length."""
    return [re.sub("─+", "─", line.strip()) for line in text.splitlines()]


def test_the_table_is_that_of_the_code() -> None:
    page = PAGE.read_text("utf-8")
    assert rendered(page) == page, "run: python tools/command_table.py"
    assert page.count("| `harebell ") > 20
