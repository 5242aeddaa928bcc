"""Which broker it is, whatever it calls itself."""

from __future__ import annotations

import pytest

from harebell.client.servers import product_of, version_of


@pytest.mark.parametrize(
    "properties, product, version",
    [
        ({"product": "RabbitMQ", "version": "3.10.8"}, "RabbitMQ", "3.10.8"),
        ({"product": "RabbitMQ", "version": "3.13.7", "harebell": "0.1.0"}, "Harebell", "0.1.0"),
        ({"product": 5, "version": None}, None, None),
        ({}, None, None),
    ],
)
def test_who_it_is(properties: dict[str, object], product: str | None, version: str | None) -> None:
    assert (product_of(properties), version_of(properties)) == (product, version)
