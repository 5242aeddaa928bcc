"""Requests to what is no broker, or none that answers: errors in words, and a connection that is made again."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from harebell.admin import Management
from harebell.broker import Broker
from harebell.cli.http_api.address import parse_address
from harebell.cli.http_api.client import HttpApi
from harebell.cli.http_api.failures import Denied, Missing, NoAnswer, RequestFailed
from harebell.errors import InvalidArgument
from tests.admin.kit import CERTIFICATE, TLS


@contextmanager
def answering(*answers: bytes) -> Iterator[HttpApi]:
    """An API whose server gives one answer on each connection, and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for answer in answers:
                peer, _ = server.accept()
                with peer:
                    peer.recv(65536)
                    peer.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with HttpApi(parse_address(f"http://u:s3cret@127.0.0.1:{server.getsockname()[1]}")) as api:
            yield api
        thread.join()


def answer(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


@pytest.mark.parametrize(("said", "kind", "says"), [
    (answer(200, b"<html>"), NoAnswer, "no HTTP API of a broker"),
    (b"AMQP\x00\x00\x09\x01", NoAnswer, "does not speak HTTP"),
    (b"", NoAnswer, "closed the connection without an answer"),
    (answer(401, b""), Denied, "the login failed; is the password in --url"),
    (answer(401, b'{"error":"x","reason":"Not administrator user"}'), Denied, "harebell users set-tags"),
    (
        answer(403, b'{"reason":"ACCESS_REFUSED - access to queue \'q\' refused for user \'u\'"}'),
        Denied, "`harebell permissions set` gives permissions$",
    ),
    (answer(403, b'{"reason":"ACCESS_REFUSED - queue name \'amq.q\' is reserved"}'), Denied, "'amq.q' is reserved$"),
    (answer(429, b'{"reason":"Too many logins wait"}'), Denied, "takes no login now: Too many"),
    (answer(404, b'{"reason":"no\\nqueue"}'), Missing, "^no queue$"),
    (answer(404, b'{"error":"Object Not Found","reason":"Not Found"}'), Missing, "has no queues/a/b"),
    (answer(500, b"[]"), RequestFailed, "answers with status 500"),
])  # fmt: skip
def test_answers(said: bytes, kind: type[RequestFailed], says: str) -> None:
    with answering(said) as api, pytest.raises(kind, match=says) as refused:
        api.get("queues", "a", "b")
    assert type(refused.value) is kind
    assert "s3cret" not in str(refused.value)


def test_an_idle_connection_that_was_closed() -> None:
    with answering(answer(200, b"1"), answer(200, b"2")) as api:
        assert [api.get("overview"), api.get("overview")] == [1, 2]


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = parse_address(f"http://127.0.0.1:{server.getsockname()[1]}")
        with HttpApi(address, timeout=0.05) as api, pytest.raises(NoAnswer, match="--timeout gives it more"):
            api.get("overview")
    with HttpApi(address) as api, pytest.raises(NoAnswer, match=r"harebell serve.*rabbitmq-plugins enable"):
        api.get("overview")


def test_a_name_that_is_empty_is_not_the_list() -> None:
    with HttpApi(parse_address("http://127.0.0.1:1")) as api:
        for path in (("queues", "/", ""), ("queues", "", "q"), ("users", "")):
            with pytest.raises(InvalidArgument, match=f"a name is empty: /api/{path[0]} "):
                api.delete(*path)


def test_a_host_that_dns_could_not_have() -> None:
    with (
        HttpApi(parse_address("http://a..b")) as api,
        pytest.raises(NoAnswer, match=r"no HTTP API answers at http://a\.\.b"),
    ):
        api.get("overview")


async def test_tls() -> None:
    async with Broker(port=None, tls=TLS, tls_port=0) as broker, Management(broker, port=None, tls_port=0) as own:
        address = parse_address(f"https://localhost:{own.tls_port}")
        with HttpApi(address, ca_file=CERTIFICATE) as api:
            assert await asyncio.to_thread(api.product) == "Harebell"
        with HttpApi(address) as api, pytest.raises(NoAnswer, match=r"self.signed certificate\): --ca-file"):
            await asyncio.to_thread(api.product)
        with HttpApi(replace(address, host="127.0.0.2"), ca_file=CERTIFICATE) as api, pytest.raises(NoAnswer):
            await asyncio.to_thread(api.product)
        with HttpApi(parse_address(f"https://localhost:{own.tls_port}?cacertfile={CERTIFICATE}")) as api:
            assert await asyncio.to_thread(api.product) == "Harebell"
    with pytest.raises(InvalidArgument, match="cannot be used"):
        HttpApi(address, ca_file=Path("/none"))
    with pytest.raises(InvalidArgument, match="/none cannot be used"):
        HttpApi(parse_address("amqps://localhost?cacertfile=/none"))


async def test_no_tls_on_this_port() -> None:
    async with Broker(port=None) as broker, Management(broker, port=0) as own:
        with HttpApi(parse_address(f"https://localhost:{own.port}")) as api, pytest.raises(NoAnswer) as refused:
            await asyncio.to_thread(api.product)
    assert str(refused.value).endswith("no TLS on this port? use http://")


def test_a_port_that_ends_a_greeting_of_tls() -> None:
    with answering(b"") as plain, pytest.raises(NoAnswer, match="no TLS on this port"):
        with HttpApi(replace(plain.address, tls=True)) as api:
            api.get("overview")
