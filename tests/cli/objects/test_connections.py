"""`harebell connections`, `channels` and `consumers` against a broker's HTTP API."""

from __future__ import annotations

import pytest

from harebell.client.blocking import connect
from harebell.errors import HarebellError
from tests.admin.kit import ApiThread
from tests.cli.administering import Command


def test_a_connection_with_a_consumer(run: Command, serving: ApiThread, vhost: str) -> None:
    run("queues", "declare", "q", "--vhost", vhost)
    serving.api().put(f"/api/permissions/{vhost}/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    url = f"amqp://guest:guest@127.0.0.1:{serving.port}/{vhost}"
    with connect(url, recovery=None) as connection, connection.channel() as channel:
        channel.qos(prefetch_count=7)
        with channel.consume("q", consumer_tag="reader"):
            (consumer,) = run("consumers", "list", "--vhost", vhost, "--json").json
            assert (consumer["consumer_tag"], consumer["prefetch_count"]) == ("reader", 7)
            assert "reader" in run("consumers", "list", "--vhost", vhost).output
            (name,) = (row["name"] for row in run("connections", "list", "--json").json if row["vhost"] == vhost)
            assert run("connections", "show", name, "--json").json["user"] == "guest"
            assert vhost in run("connections", "list").output
            (row,) = (row for row in run("channels", "list", "--json").json if row["vhost"] == vhost)
            assert (row["consumer_count"], row["prefetch_count"]) == (1, 7)
            assert (
                run("channels", "show", row["name"], "--json").json["consumer_details"][0]["consumer_tag"] == "reader"
            )
            assert vhost in run("channels", "list").output
            wrong = run("connections", "close", name[:-1] + "?")
            assert (wrong.status, f"did you mean '{name}'?" in wrong.error) == (65, True)
            assert (
                run("connections", "close", name, "--reason", "moving\nhouse").output
                == f"connection '{name}' is closed\n"
            )
            with pytest.raises(HarebellError, match="moving house"):
                channel.queue_declare("q", passive=True)
