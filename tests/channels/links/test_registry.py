"""The queue of records that tells layers, queues and memberships; tests/channels/test_asgi1.py has what it says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from harebell import errors
from harebell.channels import ChannelLayer
from harebell.channels.names import Names
from harebell.client.channel import Channel
from tests.channels.conftest import Make

READERS: list[Callable[[ChannelLayer], Awaitable[object]]] = [
    lambda layer: layer.group_channels("g"),
    lambda layer: layer.flush(),
]


@pytest.mark.parametrize("read", READERS, ids=["group_channels", "flush"])
async def test_another_consumer_of_the_records_is_said(
    make: Make, names: Names, amqp: Channel, read: Callable[[ChannelLayer], Awaitable[object]]
) -> None:
    layer = make(timeout=1)
    await layer.group_add("g", await layer.new_channel())
    async with amqp.consume(names.registry, exclusive=True):
        with pytest.raises(errors.DeadlineExceeded, match=rf"'{names.registry}'.*within 1 s.*any other consumer"):
            await read(layer)
    await read(layer)
