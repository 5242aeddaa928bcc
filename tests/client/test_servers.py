"""Which broker it is, whatever it calls itself."""

from __future__ import annotations

import pytest

from harebell.client.servers import BrokerIdentity, identity_of, product_of, version_of


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


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"cluster_name": "rabbit@a"}, {"cluster_name": "rabbit@a"}, True),
        ({"cluster_name": "rabbit@a"}, {"cluster_name": "rabbit@b"}, False),
        ({"cluster_name": "harebell@a", "cluster_id": "1"}, {"cluster_name": "harebell@a", "cluster_id": "2"}, False),
        ({"cluster_name": "harebell@a", "cluster_id": "1"}, {"cluster_name": "harebell@b", "cluster_id": "1"}, True),
        ({"cluster_name": "harebell@a"}, {"cluster_name": "harebell@a", "cluster_id": "2"}, True),  # an older version
        ({"cluster_name": 5}, {}, False),  # two addresses
    ],
)
def test_which_broker_it_is(one: dict[str, object], other: dict[str, object], same: bool) -> None:
    first, second = identity_of(one, "here:5672"), identity_of(other, "there:5672")
    assert first.is_same(first)
    assert (first.is_same(second), second.is_same(first)) == (same, same)


def test_a_broker_is_shown_with_name_and_id() -> None:
    assert [str(BrokerIdentity("rabbit@a")), str(BrokerIdentity("harebell@a", "7f"))] == ["rabbit@a", "harebell@a (7f)"]
