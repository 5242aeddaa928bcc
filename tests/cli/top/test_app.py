"""`harebell top` by its keys, on a terminal of 80 columns and 24 lines, against a broker's HTTP API."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

import harebell

pytest.importorskip("textual")

from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from harebell.cli.http_api.address import parse_address
from harebell.cli.http_api.client import HttpApi
from harebell.cli.top import command
from harebell.cli.top.app import Top
from harebell.cli.top.feed import Feed
from harebell.cli.top.queue_screen import QueueScreen
from harebell.testing.rabbitmq import free_ports
from tests.admin.kit import ApiThread, part
from tests.cli.administering import runner
from tests.wire import PATIENCE

HOSTILE = "[red]\x1b[2J\tx"
RARELY = 3600.0  # seconds between readings: the tests ask for each of them


@asynccontextmanager
async def showing(serving: ApiThread) -> AsyncIterator[Pilot[bool]]:
    with HttpApi(parse_address(f"http://guest:guest@127.0.0.1:{serving.api_port}")) as api, Feed(api) as feed:
        async with Top(feed, every=RARELY).run_test(size=(80, 24), notifications=True) as pilot:
            await pilot.app.workers.wait_for_complete()
            yield pilot


def fill(serving: ApiThread, name: str, messages: int) -> None:
    api = serving.api()
    assert api.put(f"/api/queues/%2F/{part(name)}", {"durable": True}) == 201
    for number in range(messages):
        body = {
            "properties": {"headers": {"n": number}}, "routing_key": name, "payload": f"body {number}",
            "payload_encoding": "string",
        }  # fmt: skip
        assert api("POST", "/api/exchanges/%2F/amq.default/publish", body).json == {"routed": True}


def names(pilot: Pilot[bool]) -> list[str]:
    table = pilot.app.query_one("#list", DataTable)
    return [str(table.get_row_at(row)[0]) for row in range(table.row_count)]


def text(pilot: Pilot[bool]) -> list[str]:
    """The screen as lines of text."""
    strips = pilot.app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]


def shown(pilot: Pilot[bool], selector: str) -> str:
    return str(pilot.app.screen.query_one(selector, Static).render())


async def until(pilot: Pilot[bool], condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await pilot.pause(0.01)


async def test_queues_in_order_and_filtered() -> None:
    with ApiThread() as serving:
        for name, messages in (("alpha", 1), ("beta", 3), (HOSTILE, 2)):
            fill(serving, name, messages)
        async with showing(serving) as pilot:
            hostile = r"[red]\x1b[2J\tx"
            assert names(pilot) == ["beta", hostile, "alpha"]
            lines = text(pilot)
            assert (len(lines), max(map(len, lines)) <= 80) == (24, True)
            assert re.sub(r":\d+ ", ":PORT ", lines[0]) == "http://127.0.0.1:PORT  3 queues by ready, largest first"
            assert lines[1].startswith("ready 6  unacked 0  in/s ")
            assert [line.split() for line in lines[2:6]] == [
                ["name", "vhost", "type", "ready", "unacked", "cons", "in/s", "out/s"],
                ["beta", "/", "classic", "3", "0", "0", *lines[3].split()[6:]],
                [hostile, "/", "classic", "2", "0", "0", *lines[4].split()[6:]],
                ["alpha", "/", "classic", "1", "0", "0", *lines[5].split()[6:]],
            ]
            await until(pilot, lambda: "Quit" in text(pilot)[23])
            await pilot.press("r")
            await until(pilot, lambda: names(pilot) == ["alpha", hostile, "beta"])
            await pilot.press("slash", "b", "e")
            await until(pilot, lambda: names(pilot) == ["beta"])
            await pilot.press("enter")
            assert "filter 'be'" in shown(pilot, "#title")
            await pilot.press("slash", "escape")
            await until(pilot, lambda: len(names(pilot)) == 3)
            for _ in range(5):  # round to the name
                await pilot.press("s")
            await until(pilot, lambda: "by name" in shown(pilot, "#title"))
            assert names(pilot) == [hostile, "alpha", "beta"]
            await pilot.press("p")
            assert "paused" in shown(pilot, "#title")


async def test_a_long_name_is_whole() -> None:
    name = "".join(f"{number:03}" for number in range(40))
    with ApiThread() as serving:
        fill(serving, name, 0)
        async with showing(serving) as pilot:
            lines = text(pilot)[3:9]
            assert "".join(line.split()[0] for line in lines if line.strip()[:1].isdigit()) == name


async def test_down_into_a_queue_and_its_messages() -> None:
    with ApiThread() as serving:
        fill(serving, "orders", 2)
        async with showing(serving) as pilot:
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(pilot.app.screen, QueueScreen))
            await until(pilot, lambda: "ready      2" in shown(pilot, "#figures"))
            await pilot.press("b")
            table = pilot.app.screen.query_one("#messages", DataTable)
            await until(pilot, lambda: table.row_count == 2)
            assert str(table.get_row_at(0)[4]) == "body 0"
            await pilot.press("down", "enter")
            await until(pilot, lambda: "body 1" in shown(pilot, "#message"))
            assert "headers          n=1" in shown(pilot, "#message")
            assert max(map(len, text(pilot))) <= 80
            for _ in range(3):
                await pilot.press("escape")
            await until(pilot, lambda: not isinstance(pilot.app.screen, QueueScreen))
        (message, _) = serving.api().get("/api/queues/%2F/orders/browse")["items"]
        assert (message["redelivered"], message["delivery_count"]) == (False, 0)


async def test_connections() -> None:
    with ApiThread() as serving:
        async with harebell.connect(serving.broker.url), showing(serving) as pilot:
            await pilot.press("2")
            await until(pilot, lambda: "1 connections by in B/s" in shown(pilot, "#title"))
            assert "->" in names(pilot)[0]
            await pilot.press("enter")  # there is nothing below a connection
            assert not isinstance(pilot.app.screen, QueueScreen)
            await pilot.press("1")
            await until(pilot, lambda: "0 queues" in shown(pilot, "#title"))


async def test_a_broker_that_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    monkeypatch.setattr(ApiThread, "http_port", port)
    with ApiThread() as first:
        fill(first, "before", 0)
        context = showing(first)
        pilot = await context.__aenter__()
    app = pilot.app
    assert isinstance(app, Top)
    try:
        await app.reload()
        assert "no figures since" in shown(pilot, "#status")
        assert app.query_one("#status").display
        assert names(pilot) == ["before"]
        with ApiThread() as second:
            fill(second, "after", 0)
            await app.reload()
            assert names(pilot) == ["after"]
            assert not app.query_one("#status").display
    finally:
        await context.__aexit__(None, None, None)


async def test_a_queue_that_goes_and_a_broker_that_goes() -> None:
    with ApiThread() as serving:
        fill(serving, "orders", 0)
        context = showing(serving)
        pilot = await context.__aenter__()
        app = pilot.app
        assert isinstance(app, Top)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, QueueScreen))
        await pilot.press("b")
        await until(pilot, lambda: any("no ready messages" in line for line in text(pilot)))
        assert serving.api()("DELETE", "/api/queues/%2F/orders").status == 204
        await app.reload()
        assert shown(pilot, "#figures") == "the queue is deleted"
    try:
        await app.reload()
        await until(pilot, lambda: any("no figures since" in line for line in text(pilot)))
        await pilot.press("b")
        await until(pilot, lambda: any("no HTTP API answers" in line for line in text(pilot)))
        assert shown(pilot, "#figures") == "the queue is deleted"
    finally:
        await context.__aexit__(None, None, None)


async def test_keys_while_a_broker_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    silence = threading.Event()
    with ApiThread() as serving:
        fill(serving, "orders", 1)
        async with showing(serving) as pilot:
            ask = HttpApi.get
            monkeypatch.setattr(HttpApi, "get", lambda *args, **query: (silence.wait(PATIENCE), ask(*args, **query))[1])
            try:
                async with asyncio.timeout(PATIENCE / 2):
                    await pilot.press("s", "r", "p")
                    assert "by unacked, smallest first, paused" in shown(pilot, "#title")
                    await pilot.press("enter", "b")
                    assert isinstance(pilot.app.screen, QueueScreen)
                    await pilot.press("escape")
                    assert not isinstance(pilot.app.screen, QueueScreen)
                    await pilot.press("2", "p", "p")  # the queues stay on the screen, in their order
                    assert "1 queues by unacked" in shown(pilot, "#title")
                    await pilot.press("enter")
            finally:
                silence.set()
            await until(pilot, lambda: "ready      1" in shown(pilot, "#figures"))
            await pilot.press("escape")
            await until(pilot, lambda: "0 connections" in shown(pilot, "#title"))


async def test_the_end_while_a_broker_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    silence = threading.Event()
    monkeypatch.setattr(HttpApi, "get", lambda *_, **__: silence.wait(PATIENCE) and {})
    try:
        with HttpApi(parse_address("http://127.0.0.1:1")) as api, Feed(api) as feed:
            async with asyncio.timeout(PATIENCE / 2), Top(feed, every=RARELY).run_test() as pilot:
                await pilot.press("q")
        assert pilot.app.return_code == 0
    finally:
        silence.set()


@pytest.mark.parametrize("keys", [(), ("slash", "a"), ("enter",), ("enter", "b")], ids=" ".join)
async def test_ctrl_c_ends_it_wherever_it_is(keys: tuple[str, ...]) -> None:
    with ApiThread() as serving:
        fill(serving, "orders", 1)
        async with showing(serving) as pilot:
            await pilot.press(*keys, "ctrl+c")
        assert pilot.app.return_value is True


async def test_messages_of_rabbitmq(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpApi, "product", lambda self: "RabbitMQ")
    with ApiThread() as serving:
        fill(serving, "orders", 1)
        async with showing(serving) as pilot:
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(pilot.app.screen, QueueScreen))
            await pilot.press("b")
            await until(pilot, lambda: any("RabbitMQ cannot" in line for line in text(pilot)))


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run = runner(monkeypatch, capsys)
    without = run("top")
    assert (without.status, "there is no terminal: `harebell queues list --watch 2`" in without.error) == (1, True)
    assert "from 0.2 to" in run("top", "--every", "0.1").error
    monkeypatch.setattr(command, "at_terminal", lambda: True)
    nobody = run("top", "--url", "http://127.0.0.1:1")
    assert (nobody.status, "no HTTP API answers" in nobody.error) == (69, True)
    shown: list[Top] = []
    monkeypatch.setattr(Top, "run", lambda self: shown.append(self))
    with ApiThread() as serving:
        assert run("top", "--url", f"http://guest:guest@127.0.0.1:{serving.api_port}").status == 0
        monkeypatch.setattr(Top, "run", lambda self: True)
        interrupted = run("top", "--url", f"http://guest:guest@127.0.0.1:{serving.api_port}")
    assert len(shown) == 1
    assert (interrupted.status, interrupted.error) == (130, "harebell: interrupted\n")
