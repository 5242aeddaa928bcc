"""Layers on both brokers, each test under a prefix of its own."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from harebell.channels import AsgiChannelLayer, ChannelLayer
from tests.client.conftest import broker_url, harebell_url  # noqa: F401

Make = Callable[..., ChannelLayer]
MakeSync = Callable[..., AsgiChannelLayer]


@pytest.fixture
def prefix() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
async def make(broker_url: str, prefix: str) -> AsyncIterator[Make]:  # noqa: F811
    """Layers like those of several processes: the same prefix, another client."""
    made: list[ChannelLayer] = []

    def make_one(**settings: Any) -> ChannelLayer:
        layer = ChannelLayer(broker_url, **{"prefix": prefix, "expiry": 5, "timeout": 15, **settings})
        made.append(layer)
        return layer

    yield make_one
    for layer in made:
        await layer.close()


@pytest.fixture
def make_sync(broker_url: str, prefix: str) -> Iterator[MakeSync]:  # noqa: F811
    made: list[AsgiChannelLayer] = []

    def make_one(**settings: Any) -> AsgiChannelLayer:
        settings = {"prefix": prefix, "expiry": 5, "timeout": 15, "block_seconds": 10.0, **settings}
        layer = AsgiChannelLayer(broker_url, **settings)
        made.append(layer)
        return layer

    yield make_one
    for layer in made:
        layer.close()


@pytest.fixture
async def layer(make: Make) -> ChannelLayer:
    return make()
