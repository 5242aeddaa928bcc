"""The same declarations here and on RabbitMQ: accepted by both, or refused by both with the same text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal

import pika
import pytest
from hypothesis import given, settings, strategies as st
from pika.exceptions import AMQPChannelError, AMQPConnectionError

from harebell.errors import AmqpError, PreconditionFailed
from harebell.routing.settings import (
    ARGUMENTS,
    COMPARED_QUEUE_ARGUMENTS,
    QueueType,
    check_redeclaration,
    queue_settings,
)
from harebell.testing import RabbitMQ
from tests.fixtures.profiles import scaled
from tests.fixtures.rabbitmq import OLDER

NAME = "settings-differential"
QUEUE = f"queue '{NAME}' in vhost '/'"

OURS = {
    "x-delivery-limit": "RabbitMQ 3.10 takes any value, and on quorum queues only",
    "x-dead-letter-strategy": "only quorum queues have it there",
    "x-consumer-timeout": "unknown to 3.10",
    "x-message-deduplication": "known to a plugin only",
    "x-deduplication-header": "known to a plugin only",
    "x-cache-size": "known to a plugin only",
    "x-cache-ttl": "known to a plugin only",
    "x-delayed-retry-type": "unknown to 3.10",
    "x-delayed-retry-min": "unknown to 3.10",
    "x-delayed-retry-max": "unknown to 3.10",
    "x-stream-filter-size-bytes": "unknown to 3.10",
    "x-message-group": "ours alone",
    "x-priority-base": "ours alone",
    "x-fairshare": "ours alone",
    "x-last-value-key": "ours alone",
    "x-sequence-header": "ours alone",
    "x-auto-delete-delay": "ours alone",
    "x-orphan-exchange": "ours alone",
    "x-alert-length": "ours alone",
    "x-alert-length-clear": "ours alone",
    "x-alert-length-bytes": "ours alone",
    "x-alert-length-bytes-clear": "ours alone",
    "x-alert-repeat-gap": "ours alone",
    "x-queue-master-locator": "a wrong value closes the connection with 541 there",
}
"""The arguments that are meant to differ, and why. Wrong ages of streams are a 541 there as well, and a 406 here."""

COMMON = [name for name in ARGUMENTS if name not in OURS and name != "x-queue-type"]
NUMBERS = [-1, 0, 1, 2, 255, 256, 2**31, 3_000_000_000, 3_000_000_001, 315_360_000_000, 315_360_000_001, 2**62]
STRINGS = [
    "", "zzz", "drop-head", "reject-publish-dlx", "lazy", "default", "client-local", "balanced", "random", "1D", "0D",
    "5m", "10", "1Z",
]  # fmt: skip
OTHERS = [True, False, None, b"x", b"\x00\xff", [1], {"a": 1}, Decimal("1.5"), datetime(2020, 1, 1)]
KINDS = [None, "quorum", "stream"]

Declare = Callable[..., str]


@pytest.fixture(scope="module")
def declare(rabbitmq_server: RabbitMQ) -> Iterator[Declare]:
    """What RabbitMQ says to a declaration: "" when it is fine. The queue is gone afterwards, unless `keep`."""
    state: dict[str, pika.BlockingConnection] = {}

    def channel() -> pika.adapters.blocking_connection.BlockingChannel:
        if "connection" not in state or not state["connection"].is_open:
            state["connection"] = pika.BlockingConnection(pika.URLParameters(rabbitmq_server.url))
        return state["connection"].channel()

    def declare(arguments: dict[str, object], *, keep: bool = False, name: str = NAME, **flags: bool) -> str:
        opened = channel()
        try:
            made = opened.queue_declare(name, arguments=arguments, **{"durable": True} | flags)
        except (AMQPChannelError, AMQPConnectionError) as error:
            return str(error.reply_text)
        if not keep:
            opened.queue_delete(made.method.queue)
        opened.close()
        return ""

    yield declare
    channel().queue_delete(NAME)
    state["connection"].close()


def ours(arguments: dict[str, object], **flags: bool) -> str:
    try:
        queue_settings(arguments, QUEUE, **flags)
    except AmqpError as error:
        return error.reply_text
    return ""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", COMMON)
def test_every_argument_with_every_kind_of_value(declare: Declare, kind: str | None, name: str, version: str) -> None:
    if (kind, name, version) == (None, "x-queue-leader-locator", OLDER):
        return  # a classic queue has it since RabbitMQ 3.12
    typed: dict[str, object] = {} if kind is None else {"x-queue-type": kind}
    for value in [*NUMBERS, *STRINGS, *OTHERS]:
        table = typed | {name: value}
        if name == "x-dead-letter-routing-key":
            table["x-dead-letter-exchange"] = "x"
        theirs = declare(table)
        if theirs == "INTERNAL_ERROR":
            assert name == "x-max-age"
            assert ours(table).endswith("invalid_max_age")
        else:
            assert ours(table) == theirs, table


@pytest.mark.parametrize("value", ["classic", "quorum", "stream", "zzz", "", 1, True, None, b"x", [1]])
def test_types(declare: Declare, value: object) -> None:
    assert ours({"x-queue-type": value}) == declare({"x-queue-type": value})


@pytest.mark.parametrize("kind", KINDS)
def test_flags_and_their_order(declare: Declare, kind: str | None) -> None:
    for durable, exclusive, auto_delete, bad in itertools.product([True, False], repeat=4):
        typed: dict[str, object] = {} if kind is None else {"x-queue-type": kind}
        if bad:
            typed["x-max-length-bytes"] = -1
        flags = {"durable": durable, "exclusive": exclusive, "auto_delete": auto_delete}
        assert ours(typed, **flags) == declare(typed, **flags), (typed, flags)
    if kind is not None:
        typed = {"x-queue-type": kind, "x-max-length-bytes": -1}
        assert ours(typed, server_named=True) == declare(typed, name="")
        segment = {"x-queue-type": kind, "x-stream-max-segment-size-bytes": 2**40}
        assert ours(segment, durable=False) == declare(segment, durable=False)


UNFIT = re.compile(r"arg '[^']+' for( .* of queue type \w+)$")
wrong = st.dictionaries(
    st.sampled_from([*COMMON, "x-foo"]), st.sampled_from([-1, 0, "zzz", True, None, 2**40]), min_size=2, max_size=6
)


@settings(max_examples=scaled(60))
@given(kind=st.sampled_from(KINDS), table=wrong)
def test_several_wrong_arguments(declare: Declare, version: str, kind: str | None, table: dict[str, object]) -> None:
    if version == OLDER and kind is None:
        table = {name: value for name, value in table.items() if name != "x-queue-leader-locator"}
    if kind is not None:
        table = table | {"x-queue-type": kind}
    said = ours(table)
    if said:  # what is right is the other tests' matter, and takes long to start
        theirs = declare(table)
        if UNFIT.search(said):  # RabbitMQ 4 names any of several
            said, theirs = (UNFIT.sub(r"arg '*' for\1", text) for text in (said, theirs))
        assert theirs == said or (theirs == "INTERNAL_ERROR" and "invalid_max_age" in said)


SECOND = {
    "x-expires": 600_000, "x-message-ttl": 1, "x-dead-letter-exchange": "x", "x-dead-letter-routing-key": "k",
    "x-max-length": 1, "x-max-length-bytes": 1000, "x-max-in-memory-length": 1, "x-max-in-memory-bytes": 1,
    "x-max-priority": 1, "x-overflow": "drop-head", "x-queue-mode": "lazy", "x-queue-version": 1,
    "x-single-active-consumer": True, "x-quorum-initial-group-size": 1, "x-max-age": "1D",
    "x-stream-max-segment-size-bytes": 1_000_000, "x-initial-cluster-size": 1, "x-queue-leader-locator": "client-local",
}  # fmt: skip


@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
def test_second_declarations(declare: Declare, version: str, kind: QueueType) -> None:
    """The first argument told is that of the same name here and there, however many are missing."""
    names = [name for name in COMPARED_QUEUE_ARGUMENTS[kind] if name in SECOND]
    if version == OLDER and kind == "classic":
        names.remove("x-queue-leader-locator")  # a classic queue has it since RabbitMQ 3.12
    current = {"x-queue-type": kind} | {name: SECOND[name] for name in names}
    assert declare({}) == ""  # the name is free
    assert declare(current, keep=True) == ""
    differences = []
    for start in range(len(names) + 1):
        received = {"x-queue-type": kind} | {name: SECOND[name] for name in names[:start]}
        told = ""
        try:
            check_redeclaration(QUEUE, received, current)
        except PreconditionFailed as error:
            told = error.reply_text
        theirs = declare(received, keep=True)
        if theirs != told:
            differences.append((theirs, told))
    declare(current)
    assert differences == []
