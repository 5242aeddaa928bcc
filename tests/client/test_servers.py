"""Which broker it is, whatever it calls itself."""

from __future__ import annotations

import pytest

from harebell.client.servers import answered, product_of, version_of


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
    "first, said",
    [
        (b"\x15\x03\x01\x00\x02\x02\x46", "a server that wants TLS answered: use amqps://"),
        (b"HTTP/1.0 400 Bad Request", "a web server answered: b'HTTP/1.0'"),
        (b"<!DOCTYPE html>", "a web server answered: b'<!DOCTYP'"),
        (b"SSH-2.0-OpenSSH_9.2", "no AMQP broker answered: b'SSH-2.0-'"),
    ],
)
def test_what_answers_in_place_of_a_broker(first: bytes, said: str) -> None:
    assert answered(first) == said
