"""Every command that takes a URL of the HTTP API reaches it by TLS, with certificates of one's own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from harebell.admin import Management
from harebell.broker import Broker
from harebell.cli.ctl.main import main as harebellctl
from harebell.cli.main import main
from tests.admin.kit import CERTIFICATE, TLS
from tests.cli.administering import runner
from tests.cli.test_every_command import COMMANDS

LISTS = [["queues", "list"], ["users", "list"], ["vhosts", "list"], ["permissions", "list"],
         ["definitions", "export"], ["route", "explain", "amq.topic"], ["list_queues"],
         ["authenticate_user", "guest", "guest"]]  # fmt: skip


def test_every_command_has_the_option() -> None:
    for path, command in COMMANDS.items():
        names = {name for each in command.assemble_argument_collection() for name in each.names}
        if {"--url", "--timeout"} <= names and path[0] not in ("ping", "spark"):
            assert "--ca-file" in names, path


@pytest.mark.parametrize("command", LISTS, ids=" ".join)
async def test_certificates_of_ones_own(
    command: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = harebellctl if "_" in command[0] else main
    async with Broker(port=None, tls=TLS, tls_port=0) as broker, Management(broker, port=None, tls_port=0) as own:
        url = f"https://guest:guest@localhost:{own.tls_port}"
        run = runner(monkeypatch, capsys, url, script)
        refused = await asyncio.to_thread(run, *command)
        assert refused.status == 69
        assert "cannot be trusted" in refused.error
        assert "--ca-file" in refused.error
        assert (await asyncio.to_thread(run, *command, "--ca-file", CERTIFICATE)).status == 0
        named = runner(monkeypatch, capsys, f"{url}?cacertfile={CERTIFICATE}", script)
        assert (await asyncio.to_thread(named, *command)).status == 0
        amqps = runner(monkeypatch, capsys, f"amqps://guest:guest@localhost:{broker.tls_port}/", script)
        if command == ["users", "list"]:
            assert (await asyncio.to_thread(amqps, *command)).status == 1
            assert (await asyncio.to_thread(amqps, *command, "--ca-file", CERTIFICATE)).status == 0
