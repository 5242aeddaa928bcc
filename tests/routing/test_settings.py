from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from harebell.errors import PreconditionFailed
from harebell.routing.policies import effective
from harebell.routing.settings import (
    ARGUMENTS,
    COMPARED_QUEUE_ARGUMENTS,
    QueueSettings,
    age_milliseconds,
    check_redeclaration,
    queue_settings,
    queue_type,
    settings_of,
    without_undefined_type,
)

Q = "queue 'q' in vhost '/'"


def refusal(arguments: dict[str, object], **flags: bool) -> str:
    with pytest.raises(PreconditionFailed) as caught:
        queue_settings(arguments, Q, **flags)
    return caught.value.detail


def test_no_arguments_set_nothing() -> None:
    assert queue_settings({}, Q) == QueueSettings()
    assert queue_settings({"x-foo": object(), "other": 1}, Q) == QueueSettings()  # nobody's business


def test_every_setting_of_a_classic_queue() -> None:
    assert queue_settings(
        {
            "x-queue-type": "classic",
            "x-expires": 1,
            "x-message-ttl": 0,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "k",
            "x-dead-letter-strategy": "at-least-once",
            "x-max-length": 3,
            "x-max-length-bytes": 4,
            "x-max-priority": 255,
            "x-overflow": "reject-publish-dlx",
            "x-queue-mode": "lazy",
            "x-queue-version": 2,
            "x-single-active-consumer": True,
            "x-delivery-limit": -1,
            "x-consumer-timeout": 5,
            "x-message-deduplication": True,
            "x-deduplication-header": "id",
            "x-cache-size": 6,
            "x-cache-ttl": 7,
            "x-delayed-retry-type": "failed",
            "x-delayed-retry-min": 8,
            "x-delayed-retry-max": 9,
            "x-queue-master-locator": "min-masters",
            "x-alert-length": 10,
            "x-alert-length-clear": 5,
            "x-alert-length-bytes": 11,
            "x-alert-repeat-gap": 12,
        },
        Q,
    ) == QueueSettings(
        queue_type="classic",
        expires=1,
        message_ttl=0,
        dead_letter_exchange="",
        dead_letter_routing_key="k",
        dead_letter_strategy="at-least-once",
        max_length=3,
        max_length_bytes=4,
        max_priority=255,
        overflow="reject-publish-dlx",
        queue_mode="lazy",
        queue_version=2,
        single_active_consumer=True,
        delivery_limit=-1,
        consumer_timeout=5,
        message_deduplication=True,
        deduplication_header="id",
        cache_size=6,
        cache_ttl=7,
        delayed_retry_type="failed",
        delayed_retry_min=8,
        delayed_retry_max=9,
        alert_length=10,
        alert_length_clear=5,
        alert_length_bytes=11,
        alert_repeat_gap=12,
    )


def test_settings_of_a_stream() -> None:
    assert queue_settings(
        {"x-queue-type": "stream", "x-max-age": "2h", "x-max-length-bytes": 5, "x-stream-max-segment-size-bytes": 6}, Q
    ) == QueueSettings(queue_type="stream", max_age=7_200_000, max_length_bytes=5, stream_max_segment_size_bytes=6)


@pytest.mark.parametrize(
    "text, milliseconds",
    [
        ("1s", 1_000),
        ("2m", 120_000),
        ("3h", 10_800_000),
        ("1D", 86_400_000),
        ("1M", 2_592_000_000),
        ("1Y", 31_536_000_000),
        ("0D", None),
        ("D", None),
        ("", None),
        ("10", None),
        ("-1D", None),
        ("1.5D", None),
        ("1D ", None),
        ("١D", None),
        ("1d", None),
    ],
)
def test_ages(text: str, milliseconds: int | None) -> None:
    assert age_milliseconds(text) == milliseconds


@pytest.mark.parametrize(
    "arguments, problem",
    [
        ({"x-message-ttl": -1}, ": {value_negative,-1}"),
        ({"x-message-ttl": "10"}, ': "expected integer, got longstr"'),
        ({"x-message-ttl": 315_360_000_001}, ": {value_too_large,315360000001}"),
        ({"x-expires": 0}, ": {value_zero,0}"),
        ({"x-expires": True}, ': "expected integer, got bool"'),
        ({"x-max-priority": 256}, ": {max_value_exceeded,256}"),
        ({"x-overflow": "zzz"}, ": invalid_overflow"),
        ({"x-overflow": "drop-lowest-priority"}, ": drop_lowest_priority_but_no_max_priority_defined"),
        ({"x-alert-length": 0}, ": {value_zero,0}"),
        ({"x-alert-length-clear": 1}, ": alert_clear_but_no_alert_defined"),
        ({"x-alert-length": 2, "x-alert-length-clear": 2}, ": alert_clear_not_below_alert"),
        ({"x-alert-length-bytes": 2, "x-alert-length-bytes-clear": 3}, ": alert_clear_not_below_alert"),
        ({"x-alert-repeat-gap": 1}, ": alert_repeat_gap_but_no_alert_defined"),
        ({"x-overflow": 1}, ": {unacceptable_type,signedint}"),
        ({"x-queue-mode": "zz"}, ": \"unsupported queue mode 'zz'\""),
        ({"x-queue-version": 3}, ": \"unsupported queue version '3'\""),
        ({"x-queue-version": -3}, ": {value_negative,-3}"),
        ({"x-single-active-consumer": 1}, ": {unacceptable_type,signedint}"),
        ({"x-dead-letter-routing-key": "k"}, ": routing_key_but_no_dlx_defined"),
        ({"x-dead-letter-routing-key": 1}, ": {unacceptable_type,signedint}"),
        ({"x-queue-type": "zzz"}, ": \"unsupported queue type 'zzz'\""),
        ({"x-queue-type": 1}, ": {unacceptable_type,signedint}"),
        ({"x-delayed-retry-type": "all"}, ": delayed_retry_but_no_min_defined"),
        ({"x-max-priority": 3, "x-message-group": "g"}, ": group_and_max_priority_defined"),
        ({"x-queue-type": "stream", "x-max-age": "D"}, ": invalid_max_age"),
        ({"x-queue-type": "stream", "x-max-age": "\u0663D"}, ": invalid_max_age"),
        ({"x-queue-type": "stream", "x-max-age": 1}, ": {unacceptable_type,signedint}"),
        ({"x-queue-type": "quorum", "x-max-priority": 1}, " of queue type rabbit_quorum_queue"),
        ({"x-max-age": 1}, " of queue type rabbit_classic_queue"),
    ],
)
def test_refusals(arguments: dict[str, object], problem: str) -> None:
    assert refusal(arguments) == f"invalid arg '{list(arguments)[-1]}' for queue 'q' in vhost '/'{problem}"


def test_refusals_of_another_form() -> None:
    assert refusal({"x-dead-letter-exchange": 1}) == f"invalid type 'signedint' for arg 'x-dead-letter-exchange' in {Q}"
    segments: dict[str, object] = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 3_000_000_001}
    assert refusal(segments) == "Exceeded max value for x-stream-max-segment-size-bytes"


@pytest.mark.parametrize("value", [None, b"x", [1], {"a": 1}, 1.5, Decimal("1.5"), datetime(2020, 1, 1, tzinfo=UTC)])
@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_no_argument_takes_what_is_neither_number_nor_string_nor_bool(name: str, value: object) -> None:
    kind = sorted(ARGUMENTS[name].types)[0]
    text = refusal({"x-queue-type": kind} | {name: value})
    assert f"'{name}'" in text


def test_the_order_of_refusals_is_fixed() -> None:
    assert "x-expires" in refusal({"x-message-ttl": -1, "x-expires": 0})
    assert "x-dead-letter-exchange" in refusal({"x-queue-type": "zz", "x-dead-letter-exchange": 1})
    assert "x-max-length" in refusal({"x-max-age": 1, "x-max-length": -1})  # wrong values before misplaced names
    assert "x-delivery-limit" in refusal({"x-queue-type": "stream", "x-delivery-limit": 1, "x-expires": 1})


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_the_flags_of_what_lasts(kind: str) -> None:
    table: dict[str, object] = {"x-queue-type": kind}
    everything = {"durable": False, "exclusive": True, "auto_delete": True}
    assert queue_settings(table, Q).queue_type == kind
    assert refusal(table, **everything) == f"invalid property 'auto-delete' for {Q}"
    assert refusal(table, durable=False, exclusive=True) == f"invalid property 'exclusive-owner' for {Q}"
    assert refusal(table, durable=False) == f"invalid property 'non-durable' for {Q}"
    assert refusal(table | {"x-foo": 1}, server_named=True) == (
        f"Cannot declare a server-named queue for type rabbit_{kind}_queue"
    )
    assert queue_settings({}, Q, server_named=True, **everything) == QueueSettings()


def test_a_second_declaration() -> None:
    check_redeclaration(Q, {"x-max-length": 1, "x-foo": 1}, {"x-max-length": 1, "x-foo": 2})
    check_redeclaration(Q, {}, {"x-queue-type": "classic"})
    check_redeclaration(Q, {"x-queue-type": "classic"}, {})
    check_redeclaration(Q, {"x-queue-type": "quorum", "x-max-priority": 3}, {"x-queue-type": "quorum"})
    refused: list[tuple[dict[str, object], dict[str, object], str]] = [
        ({"x-max-length": 2, "x-message-ttl": 2}, {"x-max-length": 1, "x-message-ttl": 1}, "'2' but current is '1'"),
        ({}, {"x-queue-type": "quorum"}, "received 'classic' but current is 'quorum'"),
        ({"x-queue-type": "classic"}, {"x-queue-type": "quorum"}, "received 'classic' but current is 'quorum'"),
        ({"x-queue-type": "quorum"}, {}, "received 'quorum' but current is 'classic'"),
    ]  # fmt: skip
    for received, current, text in refused:
        with pytest.raises(PreconditionFailed, match=text) as caught:
            check_redeclaration(Q, received, current)
        assert ("'x-message-ttl'" if "x-message-ttl" in received else "'x-queue-type'") in caught.value.detail


def test_every_type_compares_its_own() -> None:
    for kind, names in COMPARED_QUEUE_ARGUMENTS.items():
        assert len(set(names)) == len(names)
        assert set(names) == {name for name, argument in ARGUMENTS.items() if kind in argument.types}


def test_settings_by_the_names_of_policies() -> None:
    assert settings_of({"max-length": 3, "max-age": "1s", "alternate-exchange": "x"}) == QueueSettings(
        max_length=3, max_age=1_000
    )
    assert queue_type({}, Q) == "classic"


values = st.one_of(
    st.sampled_from(["classic", "quorum", "stream", "lazy", "drop-head", "all", "1D", "at-least-once", ""]),
    st.integers(-2, 300),
    st.sampled_from([True, False, None, 2**40, b"x", [1], {"a": 1}]),
)


@given(
    arguments=st.dictionaries(st.sampled_from([*ARGUMENTS, "x-foo"]), values, max_size=5),
    durable=st.booleans(),
    exclusive=st.booleans(),
)
def test_any_table_makes_settings_or_is_refused(arguments: dict[str, object], durable: bool, exclusive: bool) -> None:
    before = dict(arguments)
    try:
        settings = queue_settings(arguments, Q, durable=durable, exclusive=exclusive)
    except PreconditionFailed:
        return
    assert arguments == before
    check_redeclaration(Q, arguments, before)
    in_force = effective(arguments, None, None)
    assert settings_of({key: setting.value for key, setting in in_force.items()}) == settings


def test_the_type_undefined_names_no_type() -> None:
    assert without_undefined_type({"x-queue-type": "undefined", "x-max-length": 1}) == {"x-max-length": 1}
    for arguments in ({"x-queue-type": "quorum"}, {}):
        assert without_undefined_type(arguments) is arguments
