"""What each argument of Qpid's means; tests/broker/v010/test_queue_arguments.py declares queues with them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from harebell.errors import AmqpError, NotImplemented as NotImplemented540, PreconditionFailed
from harebell.routing.policies import Policy, effective
from harebell.routing.qpid_arguments import QPID_ARGUMENTS, as_x_arguments, is_qpid
from harebell.routing.settings import QueueSettings, check_redeclaration, queue_settings

Q = "queue 'q' in vhost '/'"
Table = Mapping[str, object]

MEANT: list[tuple[Table, Table]] = [
    ({}, {}),
    ({"x-max-length": 3, "strange": 1}, {"x-max-length": 3, "strange": 1}),
    ({"qpid.max_count": 3}, {"x-max-length": 3, "x-overflow": "reject-publish"}),
    ({"qpid.max_size": 3}, {"x-max-length-bytes": 3, "x-overflow": "reject-publish"}),
    ({"qpid.max_count": 0, "qpid.max_size": 0}, {}),
    ({"qpid.max_count": 3, "qpid.policy_type": "reject"}, {"x-max-length": 3, "x-overflow": "reject-publish"}),
    ({"qpid.max_count": 3, "qpid.policy_type": "ring"}, {"x-max-length": 3, "x-overflow": "drop-head"}),
    ({"qpid.max_count": 3, "qpid.max_size": 3, "qpid.policy_type": "flow_to_disk"}, {}),
    ({"qpid.policy_type": "flow_to_disk", "x-max-length": 3}, {"x-max-length": 3}),
    ({"qpid.max_count": 3, "x-overflow": "drop-head"}, {"x-max-length": 3, "x-overflow": "drop-head"}),
    ({"qpid.policy_type": "ring", "x-max-length": 3}, {"x-max-length": 3, "x-overflow": "drop-head"}),
    ({"qpid.max_count": 3, "x-max-length": 3}, {"x-max-length": 3, "x-overflow": "reject-publish"}),
    ({"qpid.max_size": 3, "x-queue-type": "stream"}, {"x-max-length-bytes": 3, "x-queue-type": "stream"}),
    ({"qpid.priorities": 1}, {"x-max-priority": 0, "x-priority-base": 4}),
    ({"qpid.priorities": 2}, {"x-max-priority": 1, "x-priority-base": 4}),
    ({"x-qpid-priorities": 3}, {"x-max-priority": 2, "x-priority-base": 3}),
    ({"qpid.priorities": 10, "x-qpid-priorities": 10}, {"x-max-priority": 9, "x-priority-base": 0}),
    ({"qpid.group_header_key": "g", "qpid.shared_msg_group": 1}, {"x-message-group": "g"}),
    ({"qpid.group_header_key": "g", "qpid.shared_msg_group": True}, {"x-message-group": "g"}),
    ({"qpid.shared_msg_group": 0}, {}),
    ({"qpid.max_count": "3", "qpid.max_size": "0"}, {"x-max-length": 3, "x-overflow": "reject-publish"}),
    (
        {"qpid.max_count": 3, "qpid.policy_type": "ring", "qpid.priorities": 10},
        {"x-max-length": 3, "x-overflow": "drop-lowest-priority", "x-max-priority": 9, "x-priority-base": 0},
    ),
    (
        {"qpid.priorities": 3, "qpid.fairshare": 5, "x-qpid-fairshare": 5, "qpid.fairshare-0": 2},
        {"x-max-priority": 2, "x-priority-base": 3, "x-fairshare": [2, 5, 5]},
    ),
    (
        {"x-qpid-priorities": 3, "x-qpid-fairshare-1": 2},
        {"x-max-priority": 2, "x-priority-base": 3, "x-fairshare": [0, 2, 0]},
    ),
    ({"qpid.last_value_queue_key": "k"}, {"x-last-value-key": "k"}),
    ({"qpid.queue_msg_sequence": "n"}, {"x-sequence-header": "n"}),
    ({"qpid.auto_delete_timeout": 3}, {"x-auto-delete-delay": 3000}),
    ({"qpid.auto_delete_timeout": 0}, {}),
    ({"qpid.policy_type": "self_destruct", "qpid.max_count": 3}, {"x-overflow": "delete-queue", "x-max-length": 3}),
    ({"qpid.policy_type": "self-destruct"}, {"x-overflow": "delete-queue"}),
    ({"qpid.alert_count": 9, "qpid.alert_size": "99"}, {"x-alert-length": 9, "x-alert-length-bytes": 99}),
    (
        {"qpid.alert_count_up": 9, "qpid.alert_count_down": 3, "qpid.alert_size_up": 9, "qpid.alert_size_down": 3},
        {
            "x-alert-length": 9,
            "x-alert-length-clear": 3,
            "x-alert-length-bytes": 9,
            "x-alert-length-bytes-clear": 3,
        },
    ),
    ({"qpid.alert_count": 9, "qpid.alert_repeat_gap": 60}, {"x-alert-length": 9, "x-alert-repeat-gap": 60_000}),
    ({"qpid.alert_count": 0, "qpid.alert_size": 0, "qpid.alert_repeat_gap": 0}, {}),
    ({"alternate-exchange": "a"}, {"x-dead-letter-exchange": "a", "x-orphan-exchange": "a"}),
    (
        {"alternate-exchange": "a", "x-dead-letter-exchange": "d"},
        {"x-dead-letter-exchange": "d", "x-orphan-exchange": "a"},
    ),
]

REFUSED: list[tuple[Table, type[AmqpError], str]] = [
    ({"qpid.max_count": -1}, PreconditionFailed, "'qpid.max_count' for {}: {value_negative,-1}"),
    ({"qpid.max_size": "foo"}, PreconditionFailed, "'qpid.max_size' for {}: \"expected integer, got longstr\""),
    ({"qpid.max_count": "2.5"}, PreconditionFailed, "'qpid.max_count' for {}: \"expected integer, got longstr\""),
    ({"qpid.policy_type": "other"}, PreconditionFailed, "'qpid.policy_type' for {}: invalid_policy_type"),
    ({"qpid.policy_type": "ring_strict"}, NotImplemented540, "'qpid.policy_type' for {}: ring_strict: limits are"),
    ({"qpid.priorities": 0}, PreconditionFailed, "'qpid.priorities' for {}: {value_zero,0}"),
    ({"x-qpid-priorities": 11}, PreconditionFailed, "'x-qpid-priorities' for {}: {max_value_exceeded,11}"),
    ({"qpid.priorities": 2, "x-qpid-priorities": 3}, PreconditionFailed, "'x-qpid-priorities' for {}: it means"),
    ({"qpid.group_header_key": 1}, PreconditionFailed, "'qpid.group_header_key' for {}: {unacceptable_type"),
    ({"qpid.shared_msg_group": "x"}, PreconditionFailed, "'qpid.shared_msg_group' for {}: {unacceptable_type"),
    ({"qpid.group_header_key": "g"}, NotImplemented540, "both are needed"),
    ({"qpid.shared_msg_group": 1}, NotImplemented540, "both are needed"),
    (
        {"qpid.max_count": 3, "x-max-length": 4},
        PreconditionFailed,
        "'qpid.max_count' for {}: it means x-max-length 3, and x-max-length is 4",
    ),
    (
        {"qpid.policy_type": "ring", "x-overflow": "reject-publish"},
        PreconditionFailed,
        "'qpid.policy_type' for {}: it means x-overflow drop-head, and x-overflow is reject-publish",
    ),
    ({"qpid.file_count": 8}, NotImplemented540, "'qpid.file_count' for {}: the broker decides about files"),
    ({"qpid.file_size": 8}, NotImplemented540, "'qpid.file_size' for {}: the broker decides about files"),
    ({"qpid.fairshare": 8}, PreconditionFailed, "'qpid.fairshare' for {}: the queue has no qpid.priorities"),
    (
        {"qpid.priorities": 2, "qpid.fairshare-2": 8},
        PreconditionFailed,
        "'qpid.fairshare-2' for {}: the queue has levels",
    ),
    (
        {"qpid.priorities": 2, "qpid.fairshare-x": 8},
        PreconditionFailed,
        "'qpid.fairshare-x' for {}: the queue has levels",
    ),
    ({"qpid.priorities": 2, "qpid.fairshare": -8}, PreconditionFailed, "'qpid.fairshare' for {}: {value_negative,-8}"),
    (
        {"qpid.priorities": 2, "qpid.fairshare": 8, "x-qpid-fairshare": 7},
        PreconditionFailed,
        "'x-qpid-fairshare' for {}: it has another value by its other name",
    ),
    ({"qpid.last_value_queue_key": ""}, PreconditionFailed, "'qpid.last_value_queue_key' for {}: invalid_header_name"),
    (
        {"qpid.last_value_queue_key": "k", "qpid.group_header_key": "g", "qpid.shared_msg_group": 1},
        PreconditionFailed,
        "'x-last-value-key' for {}: last_value_key_and_group_defined",
    ),
    (
        {"qpid.last_value_queue_key": "k", "qpid.priorities": 2, "qpid.fairshare": 1},
        PreconditionFailed,
        "'x-last-value-key' for {}: last_value_key_and_fairshare_defined",
    ),
    ({"x-priority-base": 1}, PreconditionFailed, "'x-priority-base' for {}: priority_base_but_no_max_priority_defined"),
    ({"x-fairshare": [1]}, PreconditionFailed, "'x-fairshare' for {}: fairshare_but_no_max_priority_defined"),
    ({"x-max-priority": 1, "x-fairshare": [1, "x"]}, PreconditionFailed, "'x-fairshare' for {}: \"expected integer"),
    ({"x-max-priority": 1, "x-fairshare": 1}, PreconditionFailed, "'x-fairshare' for {}: {unacceptable_type"),
    ({"qpid.auto_delete_timeout": -1}, PreconditionFailed, "'qpid.auto_delete_timeout' for {}: {value_negative,-1}"),
    ({"alternate-exchange": 1}, PreconditionFailed, "'x-dead-letter-exchange' in {}"),
    ({"qpid.strange": 8}, NotImplemented540, "'qpid.strange' for {}: unknown argument"),
]


@pytest.mark.parametrize(("arguments", "meant"), MEANT, ids=[str(arguments) for arguments, _ in MEANT])
def test_what_arguments_mean(arguments: Table, meant: Table) -> None:
    assert as_x_arguments(arguments, Q) == meant


@pytest.mark.parametrize(("arguments", "error", "text"), REFUSED, ids=[str(row[0]) for row in REFUSED])
def test_refusals(arguments: Table, error: type[AmqpError], text: str) -> None:
    with pytest.raises(error) as caught:
        queue_settings(arguments, Q)
    assert text.replace("{}", Q) in str(caught.value)


def test_each_argument_has_a_row() -> None:
    given = {name for arguments, _ in MEANT for name in arguments if is_qpid(name) and "fairshare" not in name}
    assert given == set(QPID_ARGUMENTS)


def test_without_any_the_table_is_the_same_object() -> None:
    arguments = {"x-max-length": 3}
    assert as_x_arguments(arguments) is arguments


def test_settings() -> None:
    assert queue_settings({"qpid.max_count": 3, "qpid.priorities": 2}, Q) == QueueSettings(
        max_length=3, overflow="reject-publish", max_priority=1, priority_base=4
    )


def test_fair_shares_are_by_level() -> None:
    settings = queue_settings({"x-max-priority": 1, "x-fairshare": [2, 0]}, Q)
    assert settings.fairshare == (2, 0)
    assert queue_settings({"qpid.priorities": 2, "qpid.fairshare": 3}, Q).fairshare == (3, 3)


def test_policies_are_merged_with_the_meaning() -> None:
    policy = Policy("/", "p", "", {"max-length": 2, "overflow": "drop-head"})
    values = {key: setting.value for key, setting in effective({"qpid.max_count": 3}, policy, None).items()}
    assert values == {"max-length": 2, "overflow": "reject-publish"}


def test_a_second_declaration_is_compared_by_the_meaning() -> None:
    current = {"qpid.max_count": 3, "qpid.policy_type": "ring"}
    check_redeclaration(Q, {"x-max-length": 3, "x-overflow": "drop-head"}, current)
    with pytest.raises(PreconditionFailed, match="inequivalent arg 'x-max-length'"):
        check_redeclaration(Q, {**current, "qpid.max_count": 4}, current)


@pytest.mark.parametrize("levels", range(1, 11))
def test_priorities_fall_onto_levels_in_order(levels: int) -> None:
    meant = as_x_arguments({"qpid.priorities": levels})
    base, top = meant["x-priority-base"], meant["x-max-priority"]
    assert isinstance(base, int)
    assert isinstance(top, int)
    seen = [min(max(priority - base, 0), top) for priority in range(10)]
    assert seen == sorted(seen)
    assert set(seen) == set(range(levels))
    lowest, highest = 5 - (levels + 1) // 2, 4 + levels // 2  # the specification's rule
    assert seen[: lowest + 1] == [0] * (lowest + 1)
    assert set(seen[highest:]) == {levels - 1}
