"""The value of a parameter "shovel": what it means, and every refusal, beside RabbitMQ's own."""

from __future__ import annotations

from typing import Any

import pytest

from harebell.bridge import Destination, ShovelOptions, Source, parse_shovel
from harebell.bridge.options import is_local, without_credentials
from harebell.errors import InvalidArgument

URI = "amqp://guest:guest@127.0.0.1:1"
BASE: dict[str, Any] = {"src-uri": URI, "dest-uri": URI, "src-queue": "a", "dest-queue": "b"}


def without(*keys: str, **more: Any) -> dict[str, Any]:
    return {key: value for key, value in BASE.items() if key not in keys} | {
        key.replace("_", "-"): value for key, value in more.items()
    }


# value, words of the refusal; the same words from RabbitMQ
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "Must specify 'src-exchange' or 'src-queue'"),
    ({}, 'Key "dest-uri" not found in x'),
    ({}, 'Key "src-uri" not found in x'),
    (without(src_exchange="e"), "Cannot specify 'src-exchange' and 'src-queue'"),
    (without(dest_exchange="e"), "Cannot specify 'dest-exchange' and 'dest-queue'"),
    (without(nope=1), "Unrecognised terms"),
    (without(ack_mode="x"), "ack-mode should be one of"),
    (without(ack_mode="no-ack", src_delete_after=5), "Cannot specify 'no-ack' and"),
    (without(src_delete_after="x"), 'a number greater than or equal to 0, "never" or "queue-length", actually was'),
    (without(src_delete_after=-1), "src-delete-after should be a number greater than or equal to 0"),
    (without(src_prefetch_count="x"), "src-prefetch-count should be a number"),
    (without(reconnect_delay="5"), "reconnect-delay should be a number, actually was"),
    (without(src_uri="http://x"), "not a valid URI"),
    (without(src_uri=5), "src-uri should be"),
    (without(dest_publish_properties={"headers": {"a": 1}}), "Unrecognised terms"),
    (without(dest_publish_properties={"nope": 1}), "in dest-publish-properties"),
    (without(dest_add_forward_headers="x"), "dest-add-forward-headers should be boolean, actually was"),
    (without(dest_add_timestamp_header=1), "dest-add-timestamp-header should be boolean, actually was"),
]

# refused here alone
STRICTER: list[tuple[Any, str]] = [
    ("text", "must be an object"),
    (without(src_uri=[]), "src-uri should be a URI or a list of them"),
    (without(reconnect_delay=-1), "reconnect-delay should be a number"),
    (without(src_prefetch_count=0), "from 1 to 65535"),
    (without(src_protocol="amqp10"), "src-protocol 'amqp10' is not supported: only amqp091 is"),
    (without(dest_protocol="amqp10", dest_address="q"), "Unrecognised terms"),
    (without(ack_mode="no-ack", src_delete_after="queue-length"), "Cannot specify 'no-ack' and 'delete-after'"),
    (without(src_queue_args=5), "src-queue-args should be an object"),
    (without(dest_publish_properties={"priority": 256}), "from 0 to 255"),
    (without(dest_publish_properties={"delivery_mode": "2"}), "delivery_mode should be a number"),
]


@pytest.mark.parametrize("value, words", [*REFUSED, *STRICTER])
def test_refused(value: object, words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_shovel(value, "x")
    assert words in str(caught.value)


def test_refusals_come_together_and_keep_passwords() -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_shovel({"src-uri": "amqp://u:secret@h/a/b", "dest-uri": URI, "nope": 1})
    assert str(caught.value).count("\n") == 4, caught.value
    assert "secret" not in str(caught.value)


def test_defaults() -> None:
    assert parse_shovel(BASE) == ShovelOptions(
        Source((URI,), queue="a", prefetch=1000), Destination((URI,), queue="b"), "on-confirm", 5.0
    )


def test_everything() -> None:
    value = {
        "src-protocol": "amqp091", "src-uri": [URI, "amqps://b"], "src-exchange": "e", "src-exchange-key": "k.#",
        "src-queue-args": {"x-expires": 1}, "src-consumer-args": {"x-priority": -1}, "src-prefetch-count": 7,
        "src-delete-after": 9, "src-predeclared": True, "dest-protocol": "amqp091", "dest-uri": f"{URI} amqp://c",
        "dest-exchange": "f", "dest-exchange-key": "l", "dest-queue-args": {"x-max-length": 2},
        "dest-publish-properties": {"delivery_mode": 2, "content-type": "t", "cluster_id": "c"},
        "dest-add-forward-headers": True, "dest-add-timestamp-header": True, "dest-predeclared": True,
        "ack-mode": "on-publish", "reconnect-delay": 0.5,
    }  # fmt: skip
    assert parse_shovel(value) == ShovelOptions(
        Source((URI, "amqps://b"), None, "e", "k.#", {"x-expires": 1}, {"x-priority": -1}, 7, 9, True),
        Destination(
            (URI, "amqp://c"), None, "f", "l", {"x-max-length": 2},
            {"delivery_mode": 2, "content_type": "t", "reserved": "c"}, True, True, True,
        ),
        "on-publish", 0.5,
    )  # fmt: skip


def test_old_names() -> None:
    old = {
        "delete-after": "queue-length", "prefetch-count": 3, "add-forward-headers": True,
        "add-timestamp-header": True, "publish-properties": {"app_id": "a"},
    }  # fmt: skip
    options = parse_shovel(BASE | old)
    assert (options.source.delete_after, options.source.prefetch) == ("queue-length", 3)
    assert (options.destination.forward_headers, options.destination.timestamp_header) == (True, True)
    assert options.destination.properties == {"app_id": "a"}


@pytest.mark.parametrize(
    "uri, local, shown",
    [
        ("amqp://", True, "amqp:"),
        ("amqp:///v", True, "amqp:///v"),
        ("amqp://u:p@h:5/v?heartbeat=5", False, "amqp://h:5/v"),
        ("amqps://h", False, "amqps://h"),
    ],
)
def test_uris(uri: str, local: bool, shown: str) -> None:
    assert is_local(uri) is local
    assert without_credentials(uri).rstrip("/") == shown
