"""RabbitMQ's own shovel beside ours: the same refusals, the same headers."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

import harebell
from harebell.bridge import Shovels
from harebell.broker import Broker
from harebell.errors import ServerUnavailable
from harebell.protocol.v091.fields import Table
from harebell.testing import RabbitMQ
from tests.bridge.kit import End, message, until
from tests.bridge.test_options import BASE, REFUSED

pytestmark = pytest.mark.rabbitmq

PUBLISHED = {"content_type": "other/type", "app_id": "shovel", "priority": 1}


@pytest.fixture(scope="module")
def server() -> Iterator[RabbitMQ]:
    try:
        with RabbitMQ(plugins=["rabbitmq_shovel"]) as server:
            yield server
    except ServerUnavailable as error:
        pytest.skip(str(error))


def test_the_same_refusals(server: RabbitMQ) -> None:
    values = [json.dumps(value) for value, _ in REFUSED] + [json.dumps(BASE)]
    encoded = ",".join(f'"{base64.b64encode(value.encode()).decode()}"' for value in values)
    output = server.evaluate(
        f"""[begin
            R = rabbit_runtime_parameters:parse_set(<<"/">>, <<"shovel">>, <<"x">>, base64:decode(V), none),
            io_lib:format("~9999tp", [R])
        end || V <- [{encoded}]]"""
    )
    *refusals, last = output.replace('\\\\\\"', '"').replace('\\"', '"').split('"error_string"')[1:]
    assert '"ok"' in last
    for (value, words), said in zip(REFUSED, [*refusals, last], strict=True):
        assert words in said, value


async def test_the_same_headers(server: RabbitMQ) -> None:
    """One message by each shovel, from and to the same queues, told the same."""
    shovels = Shovels()
    async with (
        Broker(components={"shovel": shovels}) as broker,
        shovels.of(broker),
        harebell.connect(server.url) as connection,
        connection.channel() as channel,
    ):
        await channel.confirm_select()
        for queue in ("from", "to"):
            await channel.queue_declare(queue, durable=True)
        end = End(server.url, "from", channel)
        value: dict[str, Any] = {
            "src-uri": server.url, "src-queue": "from", "dest-uri": server.url, "dest-queue": "to",
            "dest-add-forward-headers": True, "dest-add-timestamp-header": True,
            "dest-publish-properties": PUBLISHED, "src-delete-after": 1,
        }  # fmt: skip
        await end.fill(1)
        server.ctl("set_parameter", "shovel", "s", json.dumps(value))
        await end.until(1, "to")
        (theirs,) = await end.take("to")
        await end.fill(1)
        broker.set_parameter("shovel", "s", value)
        await until(lambda: not broker.parameter_status("shovel"))
        (ours,) = await end.take("to")
    for delivery in (theirs, ours):
        (entry,) = cast("list[Table]", delivery.headers["x-shovelled"])
        assert isinstance(entry, dict)
        assert entry.pop("shovelled-by")
        assert isinstance(delivery.headers.pop("x-shovelled-timestamp"), int)
    assert ours.properties == theirs.properties
    assert ours.properties.app_id == "shovel"
    assert ours.properties.message_id == message(0).properties.message_id
