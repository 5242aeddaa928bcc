"""`harebell spark tap` against a broker that runs."""

from __future__ import annotations

from harebell.client.blocking import connect
from tests.cli.command import harebell
from tests.wire import BrokerThread


def test_a_queue_is_tapped(broker: BrokerThread) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{broker.port}/"
    with connect(url, timeout=60) as connection, connection.channel() as channel:
        channel.queue_declare("work", durable=True)
        refused = harebell("spark", "tap", "work", "--url", url)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith("harebell: queue 'work' has no binding")
        channel.queue_bind("work", "amq.topic", "orders.#")
        done = harebell("spark", "tap", "work", "--url", url, "--max-age", "12h")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == [
            "stream queue 'work.tap' gets what is published to",
            "  exchange 'amq.topic' with key 'orders.#'",
        ]
        channel.confirm_select()
        channel.publish(b"x", "amq.topic", "orders.1")
        assert [channel.queue_declare(name, passive=True).message_count for name in ("work", "work.tap")] == [1, 1]
        keys = ("--key", "a", "--key", "b")
        more = harebell("spark", "tap", "--url", url, "--exchange", "amq.direct", "--stream", "other", *keys)
        assert more.stdout.splitlines()[1:] == [
            "  exchange 'amq.direct' with key 'a'", "  exchange 'amq.direct' with key 'b'",
        ]  # fmt: skip
