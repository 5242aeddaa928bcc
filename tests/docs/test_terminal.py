"""The page on the terminal: its commands print what it says, and the table of commands is that of the code."""

from __future__ import annotations

import re
import shlex

import pytest

from harebell.cli.ctl import main as ctl
from harebell.cli.ctl.command import KNOWN
from harebell.cli.main import main
from tests.admin.kit import ApiThread
from tests.cli.administering import runner
from tools.command_table import PAGE, ROOT, rendered

GUIDE = ROOT / "docs" / "how-to" / "terminal.md"
EXAMPLE = re.compile(r"^    \$ (harebell|harebellctl) (.*)\n((?:    (?!\$ ).*\n)*)", re.MULTILINE)


def test_the_examples(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with ApiThread() as serving:
        monkeypatch.setenv("HAREBELL_HTTP_URL", f"http://guest:guest@127.0.0.1:{serving.api_port}")
        scripts = {"harebell": main, "harebellctl": ctl.main}
        runs = {name: runner(monkeypatch, capsys, script=script) for name, script in scripts.items()}
        examples = EXAMPLE.findall(GUIDE.read_text("utf-8"))
        assert len(examples) > 10
        for script, command, said in examples:
            done = runs[script](*shlex.split(command))
            assert trimmed(done.output + done.error) == trimmed(said), command


def trimmed(text: str) -> list[str]:
    """The lines without indents, and a rule under titles without its length."""
    return [re.sub("─+", "─", line.strip()) for line in text.splitlines()]


def test_the_page_names_the_commands_of_scripts() -> None:
    page = (ROOT / "docs" / "reference" / "harebellctl.md").read_text("utf-8")
    table = page.partition("## Commands")[2].partition("| option |")[0]
    assert set(re.findall(r"`([a-z]+_[a-z_]+|[a-z]+)`", table)) == set(KNOWN)


def test_the_table_is_that_of_the_code() -> None:
    page = PAGE.read_text("utf-8")
    assert rendered(page) == page, "run: python tools/command_table.py"
    assert page.count("| `harebell ") > 20
