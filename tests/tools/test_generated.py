"""The modules that tools write are as their sources give them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import generate_blocking, generate_providers, generated

HAND_WRITTEN = "x = 1\n"


@pytest.mark.parametrize("files", [generate_blocking.files, generate_providers.files], ids=["blocking", "providers"])
def test_generated_files_are_current(files: Callable[[], dict[Path, str]]) -> None:
    assert generated.outdated(files()) == []


def test_check_says_which_file_differs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["tools/generate_x.py", "--check"])
    path = generated.path_of("harebell.errors")
    assert generated.run({path: HAND_WRITTEN}) == 1
    assert capsys.readouterr().out == (
        "src/harebell/errors.py differs from its source: run python -m tools.generate_x\n"
    )


def test_a_file_is_written_as_ruff_formats_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["tools/generate_x.py"])
    monkeypatch.setattr(generated, "ROOT", tmp_path)
    path = tmp_path / "written.py"
    assert generated.run({path: "import sys\nimport ast\nx=[ ast,  sys ]"}) == 0
    assert path.read_text() == "import ast\nimport sys\n\nx = [ast, sys]\n"
    monkeypatch.setattr(sys, "argv", ["tools/generate_x.py", "--check"])
    assert generated.run({path: "import ast, sys\n\nx = [ast, sys]"}) == 0


def test_imports_of_what_an_annotation_names() -> None:
    from harebell.client import connection

    node = generated.definition(connection.Connection.events)
    assert generated.needed([node.returns], connection) == {"from harebell.client import events as e"}
    node = generated.definition(connection.Connection.channel)
    assert generated.needed([node.returns], connection) == {
        "from harebell.client.connection import Opening",
        "from harebell.client.channel import Channel",
    }
