"""The scripts: Ctrl-C at any moment of a command, its loading included, is one line and status 130."""

from __future__ import annotations

import pytest

from tests.cli.command import python

INTERRUPTING = """
import sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
sys.argv = [{script!r}, *{given}]
from harebell.cli.entry import {script}
{script}()
"""


@pytest.mark.parametrize(("script", "given", "module"), [
    ("harebell", ["ping"], "harebell.cli.main"), ("harebell", ["ping"], "harebell.errors"),
    ("harebell", ["ping"], "cyclopts"), ("harebell", ["ping"], "rich"), ("harebell", ["ping"], "harebell.cli.ping"),
    ("harebell", ["serve"], "harebell.broker"), ("harebell", ["queues", "list"], "rich.table"),
    ("harebell", ["--version"], "harebell.printable"), ("harebellctl", ["status"], "harebell.cli.ctl.main"),
    ("harebellctl", ["status"], "cyclopts"), ("harebellctl", ["status"], "harebell.cli.ctl.command"),
])  # fmt: skip
def test_ctrl_c_while_a_command_is_loaded(script: str, given: list[str], module: str) -> None:
    result = python(INTERRUPTING.format(script=script, given=given, module=module))
    assert (result.returncode, result.stdout, result.stderr) == (130, "", f"{script}: interrupted\n")
