"""Generated modules are up to date with their sources, and the generators refuse what they cannot forward."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harebell.client.blocking import connection
from harebell.client.channel import Channel
from tools import generate_blocking, generate_providers, generate_v010, generated

HAND_WRITTEN = "x = 1\n"


@pytest.mark.parametrize(
    "files",
    [generate_blocking.files, generate_providers.files, generate_v010.files],
    ids=["blocking", "providers", "0-10"],
)
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
    node = generated.definition(connection.Connection.events)
    assert generated.needed([node.returns], connection) == {"from harebell.client.blocking.events import Events"}
    node = generated.definition(connection.Connection.test)
    assert generated.needed([node.returns, None], connection) == {
        "from harebell.client.blocking.harness import ConnectionHarness"
    }
    node = generated.definition(connection.connect)
    notes = [argument.annotation for argument in node.args.kwonlyargs]
    assert {"import ssl", "from harebell.client.blocking.connection import Connection"} <= generated.needed(
        [*notes, node.returns], connection
    )


class Model:
    """Stands for a class of the asyncio API."""

    async def plain(self, name: str = "x", *, flag: bool = False) -> int:
        """Say it."""
        return 1

    async def several(self, *names: str) -> None: ...

    async def awaiting(self) -> None:
        """Call it with await."""

    def told(self) -> None: ...

    @property
    def state(self) -> str:
        return ""


BY_HAND = {"several": "takes any number", "awaiting": "speaks of await"}


def written(**by_hand: str) -> list[str]:
    writer = generate_blocking.Writer()
    writer.write_class(generate_blocking.Forwarded(Model, by_hand=by_hand))
    return writer.lines


def test_each_kind_of_member_is_forwarded_in_its_way() -> None:
    text = "\n".join(written(**BY_HAND))
    assert (
        '''\
    def plain(self, name: str='x', *, flag: bool=False) -> int:
        """Say it."""
        return self.io.run(self.inner.plain, name, flag=flag)'''
        in text
    )
    assert (
        """\
    def told(self) -> None:
        with self.io.turn:
            self.inner.told()"""
        in text
    )
    assert (
        """\
    @property
    def state(self) -> str:
        return self.inner.state"""
        in text
    )
    assert "several" not in text


@pytest.mark.parametrize(
    "by_hand, message",
    [
        ({**BY_HAND, "gone": "was there once"}, "Model has no gone"),
        ({"awaiting": ""}, r"Model.several: \*args, \*\*kwargs and / are not forwarded"),
        ({"several": ""}, "Model.awaiting is documented for asyncio alone: write it by hand"),
    ],
)
def test_what_cannot_be_forwarded_is_refused(by_hand: dict[str, str], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        written(**by_hand)


def test_what_is_written_by_hand_is_not_generated() -> None:
    (forwarded,) = generate_blocking.FILES["channel"]
    text = generated.path_of(f"{generate_blocking.PACKAGE}.forwarded_channel").read_text()
    for name, _ in generate_blocking.members(Channel):
        assert (f"    def {name}(" in text) != (name in forwarded.by_hand), name
