"""Runs `harebell users`, `vhosts` and `permissions` in this process, against a broker in a thread of it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from harebell.cli.main import main

__all__ = ["Command", "Run", "runner"]


class Run(NamedTuple):
    status: int
    output: str
    error: str

    @property
    def json(self) -> Any:
        assert self.status == 0, self.error
        return json.loads(self.output)


Command = Callable[..., Run]


def runner(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    url: str = "amqp://127.0.0.1:1/",
    script: Callable[[Sequence[str]], None] = main,
) -> Command:
    """`run("users", "add", ..., stdin="...")`; `url` is that of the environment, `script` the command's function."""
    monkeypatch.setenv("HAREBELL_URL", url)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: object, stdin: str = "") -> Run:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        capsys.readouterr()
        status: object = 0
        try:
            script([str(each) for each in arguments])
        except SystemExit as end:
            status = end.code or 0
        output, error = capsys.readouterr()
        assert isinstance(status, int)
        return Run(status, output, error)

    return run
