"""`harebell channels dropped`: what nobody read in time, and that looking takes nothing away."""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest

from harebell.channels import ChannelLayer
from harebell.cli.main import main
from tests.client.conftest import broker_url, harebell_url  # noqa: F401


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["channels", "dropped", *arguments])
    return int(ended.value.code or 0)


def test_what_expired_is_listed(broker_url: str, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    prefix = f"t{uuid.uuid4().hex[:10]}"

    async def drop() -> None:
        layer = ChannelLayer(broker_url, prefix=prefix, expiry=0.2)
        await layer.send("jobs", {"type": "x"})
        await layer.send("server!one", {"type": "y"})
        async with asyncio.timeout(60):
            while layer.statistics()["expired"] < 2:  # noqa: ASYNC110  the broker announces nothing
                await asyncio.sleep(0.05)
        await layer.close()

    asyncio.run(drop())
    for _ in range(2):
        assert run(broker_url, "--prefix", prefix, "--json") == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert sorted((row["channel"], row["why"]) for row in rows) == [("jobs", "expired"), ("server!one", "expired")]
        assert all(row["bytes"] and row["when"] for row in rows)
    assert run(broker_url, "--prefix", prefix) == 0
    assert "server!one" in capsys.readouterr().out


def test_no_layer(broker_url: str, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    for options in ((), ("--json",)):
        assert run(broker_url, "--prefix", "nobody", *options) == 1
        shown = capsys.readouterr()
        assert (shown.out, shown.err.count("\n")) == ("", 1)
        assert "no channel layer with prefix 'nobody'" in shown.err
