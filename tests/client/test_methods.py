"""Every method that a client can send has a call; the page that lists them is run."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path

import pytest

import harebell
from harebell.broker import Broker
from harebell.client.url import QUERY_KEYS
from harebell.protocol.v091 import Engine, Role, methods as m

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "client-methods.md"
ROW = re.compile(r"^\| ([a-z]+\.[a-z-]+) \| (.*) \|$", re.MULTILINE)


def sections() -> list[list[tuple[str, str]]]:
    """The rows of the tables: with calls, answers, not sent."""
    return [ROW.findall(section) for section in PAGE.read_text().split("\n## ")[:3]]


def methods_in(data: bytes) -> list[str]:
    """The names of the methods in what was written."""
    names, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at + 3 : at + 7], "big")
        if data[at] == m.FRAME_METHOD:
            method = m.METHODS[data[at + 7 : at + 11]].decode(data[at + 7 : at + 7 + size])
            assert not getattr(method, "no_wait", False)  # as the page says
            assert not getattr(method, "no_local", False)
            names.append(method.NAME)
        at += 7 + size + 1
    return names


def test_every_method_is_in_one_of_the_tables() -> None:
    listed = {name for section in sections() for name, _ in section}
    assert listed == {method.NAME for method in m.CLIENT_SENDS}
    calls, answers, never = ({name for name, _ in section} for section in sections())
    assert not calls & (answers | never)
    assert not answers & never


def test_every_argument_of_the_url_is_listed() -> None:
    table = PAGE.read_text().split("\n## ")[-1]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(QUERY_KEYS)


async def test_each_call_sends_its_method(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    plain = Engine.data_to_send

    def data_to_send(engine: Engine) -> bytes:
        data = plain(engine)
        if engine.role is Role.CLIENT:
            written.append(data)
        return data

    monkeypatch.setattr(Engine, "data_to_send", data_to_send)
    async with Broker() as broker:
        names: dict[str, object] = {"harebell": harebell, "url": broker.url}
        last = ""
        for method, cell in sections()[0]:
            code = cell.strip("`")
            if code != last:
                written.clear()
                coroutine = eval(compile(code, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
                if coroutine is not None:
                    await coroutine
                await asyncio.sleep(0)  # what is not awaited is written at the end of the turn
                last = code
            sent = b"".join(written).removeprefix(b"AMQP\x00\x00\x09\x01")
            assert method in methods_in(sent), code
