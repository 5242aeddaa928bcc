"""The package's view of the client: which refusals are final, what is tried again, how a queue's kind is found."""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace
from typing import Any

import pytest

from harebell import errors
from harebell.client.messages import Message, Publication
from harebell.spark import connection as connecting
from harebell.spark.connection import TRANSIENT, Link, probe_family, retrying
from harebell.testing import EmbeddedBroker, FaultProxy
from tests.replaced_time import replace_time


class Channel:
    """Answers consume with `refusal`, or takes it."""

    def __init__(self, refusal: errors.AmqpError | None) -> None:
        self.refusal = refusal

    def queue_declare(self, name: str, passive: bool) -> Any:
        return SimpleNamespace(message_count=0, consumer_count=0)

    def consume(self, queue: str, prefetch: int, exclusive: bool, arguments: Any) -> Any:
        def start() -> None:
            if self.refusal:
                raise self.refusal

        return SimpleNamespace(start=start)


def refusing(monkeypatch: pytest.MonkeyPatch, refusal: errors.AmqpError | None) -> None:
    channel = Channel(refusal)
    connection = SimpleNamespace(channel=lambda: channel, close=lambda timeout: None, blocked=None)
    monkeypatch.setattr(connecting, "connect", lambda url, timeout, recovery: connection)


@pytest.mark.parametrize(
    "refusal, kind",
    [
        (None, "stream"),
        (errors.PreconditionFailed("invalid arg 'x-stream-offset' for queue 'q' of queue type classic"), "spool"),
    ],
)
def test_the_kind_is_told_by_what_the_broker_refuses(
    monkeypatch: pytest.MonkeyPatch, refusal: errors.AmqpError | None, kind: str
) -> None:
    refusing(monkeypatch, refusal)
    assert probe_family("amqp://", "q", 1.0) == kind


@pytest.mark.parametrize(
    "refusal",
    [
        errors.NotFound("home node 'n' of durable queue 'q' in vhost '/' is down or inaccessible"),
        errors.PreconditionFailed("stream queue 'q' does not have a running replica on the local node"),
    ],
)
def test_a_queue_that_is_not_ready_is_not_mistaken(monkeypatch: pytest.MonkeyPatch, refusal: errors.AmqpError) -> None:
    refusing(monkeypatch, refusal)
    with pytest.raises(errors.QueueNotReady):
        probe_family("amqp://", "q", 1.0)
    assert issubclass(errors.QueueNotReady, TRANSIENT)


def test_other_refusals_are_final(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, errors.AccessRefused("access to queue 'q' refused"))
    with pytest.raises(errors.AccessRefused), Link("amqp://", 1.0) as link:
        link.consume("q", 1)


def test_retrying_gives_up_when_the_time_is_up_and_at_once_for_other_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    replace_time(
        monkeypatch,
        connecting,
        monotonic=lambda: clock[0],
        sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds),
    )
    calls = []

    def away() -> None:
        calls.append(clock[0])
        raise errors.ConnectionLost("away")

    with pytest.raises(errors.ConnectionLost):
        retrying(away, 10.0, "asking")
    assert calls == pytest.approx([0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.1, 9.1])

    def wrong() -> None:
        calls.append(-1)
        raise errors.NotFound("no queue")

    with pytest.raises(errors.NotFound):
        retrying(wrong, 10.0, "asking")
    assert calls.count(-1) == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOENT, errno.EACCES])
def test_what_a_disk_refuses_is_not_cured_by_trying_again(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    replace_time(monkeypatch, connecting, sleep=lambda seconds: pytest.fail("it waited"))

    def full() -> None:
        raise OSError(number, "the disk")

    with pytest.raises(OSError, match="the disk"):
        retrying(full, 3600.0, "writing")


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize(
    "exchange, kind", [("missing", errors.NotFound), ("internal", errors.AccessRefused), ("", errors.ConnectionLost)]
)
def test_publications_without_an_answer_tell_what_ended_their_channel(
    exchange: str, kind: type[errors.HarebellError], count: int
) -> None:
    with EmbeddedBroker() as server:

        def publish(url: str) -> None:
            with Link(url, 10) as link:
                link.channel.queue_declare("q")
                link.channel.exchange_declare("internal", internal=True)
                link.confirm_select()
                link.publish([Publication(Message(b"x" * 100_000), exchange, "q")] * count, 1000, 10)

        async def publishing() -> None:
            async with FaultProxy("127.0.0.1", server.port) as proxy:
                if not exchange:
                    proxy.cut_after(50_000, "to_server")
                await asyncio.to_thread(publish, f"amqp://guest:guest@{proxy.host}:{proxy.port}")

        with pytest.raises(kind) as raised:
            asyncio.run(publishing())
        assert isinstance(raised.value, TRANSIENT) == (not exchange)
