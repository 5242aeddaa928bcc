"""Plug-ins by name: `harebell serve --plugins`, the commands on a data folder, `harebell route explain`; errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harebell.cli.server.plugins import load_plugins
from harebell.client.blocking import connect
from harebell.client.messages import Message
from harebell.errors import InvalidArgument
from tests.cli.administering import Command
from tests.cli.server.test_serve import STOP_SECONDS, serving

EXAMPLE = Path(__file__).parents[3] / "examples" / "nearby"
PARIS = {"latitude": 48.86, "longitude": 2.35}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with modules; afterwards Python has forgotten them."""
    (tmp_path / "nearby.py").write_text((EXAMPLE / "nearby.py").read_text())
    (tmp_path / "broken.py").write_text("raise ZeroDivisionError('in the module')")
    (tmp_path / "incomplete.py").write_text("import no_such_module_anywhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in {"nearby", "broken", "incomplete"} - before:
        sys.modules.pop(name, None)


def test_the_working_directory_has_modules(here: Path) -> None:
    (plugin,) = load_plugins(["nearby:PLUGIN"])
    assert list(plugin.exchange_types) == ["x-nearby"]
    assert load_plugins([]) == ()


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ("nearby", "write MODULE:NAME"),
        ("no_such_module:PLUGIN", "cannot be imported: No module named 'no_such_module'"),
        ("incomplete:PLUGIN", "cannot be imported: No module named 'no_such_module_anywhere'"),
        ("broken:PLUGIN", r"failed as it was imported: ZeroDivisionError\('in the module'\)"),
        ("nearby:NOTHING", "the module nearby has no NOTHING"),
        ("nearby:Nearby", "must be a harebell.broker.Plugin"),
    ],
)
def test_a_plug_in_that_cannot_be_had(here: Path, reference: str, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        load_plugins([reference])


def test_a_broker_with_a_plug_in_and_the_commands_on_its_folder(
    here: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = here / "data"
    with (
        serving("--data", data, "--plugins", "nearby:PLUGIN") as (process, url),
        connect(url) as connection,
        connection.channel() as channel,
    ):
        channel.exchange_declare("x", "x-nearby", durable=True)
        channel.queue_declare("paris", durable=True)
        channel.queue_bind("paris", "x", "48.86,2.35")
        channel.publish(Message(b"1", headers=PARIS), "x", mandatory=True)
        process.terminate()
        process.wait(timeout=STOP_SECONDS)
    explain = ("route", "explain", "x", "--data", data, "--header", "latitude=48.86", "--header", "longitude=2.35")
    without = run(*explain)
    assert without.status == 1
    assert "no plug-in has its type 'x-nearby'" in without.error
    assert run(*explain, "--plugins", "nearby:PLUGIN").output.endswith("reaches 'paris'\n")
    monkeypatch.setenv("HAREBELL_PLUGINS", "nearby:PLUGIN")
    assert run(*explain).output.endswith("reaches 'paris'\n")
    definitions = here / "definitions.json"
    assert run("definitions", "export", definitions, "--data", data).status == 0
    from_file = ("route", "explain", "x", "--definitions", definitions, "--property", "type=t", "--body", "b")
    assert run(*from_file).output.endswith("reaches no queue\n")
    assert "write a number" in run(*from_file, "--property", "priority=high").error
