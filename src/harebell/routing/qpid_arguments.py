"""Qpid's names of queue arguments: what each means in `x-` arguments, and those that are refused.

Rules (Qpid's C++ broker, unless a line says otherwise):

- `qpid.max_count` and `qpid.max_size` are limits on ready messages, as numbers or as strings of digits; 0 is no limit.
  Without `qpid.policy_type` and without `x-overflow` a queue refuses messages beyond them, where an `x-` limit alone
  drops the head.
- `qpid.policy_type`: reject, ring, self_destruct (also self-destruct), or flow_to_disk. A ring with priorities drops
  the oldest message of the lowest one.
  flow_to_disk limits memory, not the queue: the limits have no effect then, because the broker keeps a long backlog of
  a durable queue on disk anyway.
- `qpid.priorities` is a number of levels. Ten priorities of a message fall onto them as the specification of AMQP 0-10
  has it (rule priority-level-implementation): with two levels 0 to 4 and 5 to 9.
- `qpid.fairshare` is the most messages of one level in a row, `qpid.fairshare-N` that of level N; 0 is no limit.
- `qpid.group_header_key` needs `qpid.shared_msg_group`: a group belongs to a consumer until its messages are settled.
  A message without the header belongs to no group (Qpid's C++ broker gives it to a group of its own).
- `qpid.alert_count` and `qpid.alert_size`, or the same with `_up`, are numbers of ready messages and bytes at which an
  alert is told, `qpid.alert_..._down` those at which it ends, half as many where that is not given; 0 is none.
  `qpid.alert_repeat_gap` is in seconds. Alerts at a part of a queue's limit, as Qpid's broker has them, have to be
  asked for.
- `alternate-exchange`, which is a field in AMQP 0-10, is the dead-letter exchange of a queue that names no other one,
  and takes the messages of a queue that is deleted (`x-orphan-exchange`).
- An argument may be given by both names, with the same meaning only (not Qpid's rule).
- Any other name that begins with "qpid." is refused: it asks for what this broker does not have.

A queue's arguments stay as they were given; this module is asked wherever they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from harebell.errors import NotImplemented as NotImplemented540, PreconditionFailed
from harebell.routing.argument_checks import Check, from_, header_name, one_of, string
from harebell.routing.table_values import Table, canonical, type_name

__all__ = ["ALTERNATE", "PREFIX", "QPID_ARGUMENTS", "UNAVAILABLE", "QpidArgument", "as_x_arguments", "is_qpid"]

PREFIX: Final = "qpid."
ALTERNATE: Final = "alternate-exchange"
MAX_SECONDS: Final = 315_360_000
"""Ten years."""

PRIORITIES: Final = 10
"""The priorities of a message in AMQP 0-10, and the most levels of a queue that tell them apart."""

_LIMITS: Final = ("qpid.max_count", "qpid.max_size")
_POLICY: Final = "qpid.policy_type"
_GROUP: Final = "qpid.group_header_key"
_SHARED: Final = "qpid.shared_msg_group"
_FAIRSHARE: Final = ("qpid.fairshare", "x-qpid-fairshare")
_OVERFLOWS: Final[Mapping[object, str]] = {
    "reject": "reject-publish",
    "ring": "drop-head",
    "self_destruct": "delete-queue",
    "self-destruct": "delete-queue",
}


class QpidArgument(NamedTuple):
    """An argument of Qpid's: the check of its value, and what a checked value means in `x-` arguments."""

    check: Check
    means: Callable[[object], Table]


def _count(value: object) -> str | None:
    digits = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20
    return None if digits else from_(0)(value)


def _limit(name: str) -> QpidArgument:
    return QpidArgument(_count, lambda value: {name: int(str(value))} if int(str(value)) else {})


def _levels(value: object) -> Table:
    levels = int(str(value))
    return {"x-max-priority": levels - 1, "x-priority-base": PRIORITIES // 2 - (levels + 1) // 2}


def _flag(value: object) -> str | None:
    return None if isinstance(value, int) else f"{{unacceptable_type,{type_name(value)}}}"


_PRIORITIES: Final = QpidArgument(from_(1, PRIORITIES, "max_value_exceeded"), _levels)

QPID_ARGUMENTS: Final[Mapping[str, QpidArgument]] = {
    "qpid.max_count": _limit("x-max-length"),
    "qpid.max_size": _limit("x-max-length-bytes"),
    _POLICY: QpidArgument(
        one_of((*map(str, _OVERFLOWS), "flow_to_disk", "ring_strict"), "invalid_policy_type"),
        lambda value: {"x-overflow": _OVERFLOWS[value]} if value in _OVERFLOWS else {},
    ),
    "qpid.priorities": _PRIORITIES,
    "x-qpid-priorities": _PRIORITIES,
    "qpid.last_value_queue_key": QpidArgument(header_name, lambda value: {"x-last-value-key": value}),
    "qpid.queue_msg_sequence": QpidArgument(header_name, lambda value: {"x-sequence-header": value}),
    "qpid.auto_delete_timeout": QpidArgument(
        from_(0, MAX_SECONDS), lambda value: {"x-auto-delete-delay": int(str(value)) * 1000} if value else {}
    ),
    "qpid.alert_count": _limit("x-alert-length"),
    "qpid.alert_count_up": _limit("x-alert-length"),
    "qpid.alert_count_down": _limit("x-alert-length-clear"),
    "qpid.alert_size": _limit("x-alert-length-bytes"),
    "qpid.alert_size_up": _limit("x-alert-length-bytes"),
    "qpid.alert_size_down": _limit("x-alert-length-bytes-clear"),
    "qpid.alert_repeat_gap": QpidArgument(
        from_(0, MAX_SECONDS), lambda value: {"x-alert-repeat-gap": int(str(value)) * 1000} if value else {}
    ),
    _GROUP: QpidArgument(string, lambda value: {"x-message-group": value}),
    _SHARED: QpidArgument(_flag, lambda _: {}),
}
"""Every argument of Qpid's that a queue may have, in the order of the checks."""

UNAVAILABLE: Final[Mapping[str, str]] = {
    "qpid.file_count": "the broker decides about files of its own",
    "qpid.file_size": "the broker decides about files of its own",
}
"""Arguments of Qpid's that are refused, with the reason; so is any other of that prefix."""

_POLICIES_UNAVAILABLE: Final[Mapping[object, str]] = {
    "ring_strict": "limits are on ready messages: a full queue drops its head or refuses messages, whatever its "
    "consumers hold; use ring or reject",
}


def is_qpid(name: str) -> bool:
    """Whether the argument's name is one of Qpid's."""
    return name.startswith((PREFIX, _FAIRSHARE[1])) or name in QPID_ARGUMENTS


def as_x_arguments(arguments: Table, queue: str = "the queue") -> Table:
    """The arguments with those of Qpid's as the `x-` arguments that they mean; the same table when it has none.

    `queue` is the queue in the error text: "queue 'q' in vhost '/'". PreconditionFailed for a value that is not
    allowed, and for an argument with two meanings; NotImplemented for what this broker does not have.
    """
    if ALTERNATE in arguments:
        alternate = arguments[ALTERNATE]
        others = {name: value for name, value in arguments.items() if name != ALTERNATE}
        arguments = {"x-dead-letter-exchange": alternate, "x-orphan-exchange": alternate, **others}
    if not any(map(is_qpid, arguments)):
        return arguments
    _check(arguments, queue)
    meant = {name: value for name, value in arguments.items() if not is_qpid(name)}
    if (shares := _fairshare(arguments, queue)) is not None:
        meant["x-fairshare"] = shares
    for name, argument in QPID_ARGUMENTS.items():
        if name not in arguments or (name in _LIMITS and arguments.get(_POLICY) == "flow_to_disk"):
            continue
        for x_name, value in argument.means(arguments[name]).items():
            if x_name in meant and canonical(meant[x_name]) != canonical(value):
                raise PreconditionFailed(
                    f"invalid arg '{name}' for {queue}: it means {x_name} {value}, and {x_name} is {meant[x_name]}"
                )
            meant[x_name] = value
    limited = any(name in arguments and QPID_ARGUMENTS[name].means(arguments[name]) for name in _LIMITS)
    if limited and _POLICY not in arguments and arguments.get("x-queue-type") != "stream":
        meant.setdefault("x-overflow", _OVERFLOWS["reject"])
    if arguments.get(_POLICY) == "ring" and "x-max-priority" in meant:
        meant["x-overflow"] = "drop-lowest-priority"
    return meant


def _fairshare(arguments: Table, queue: str) -> list[int] | None:
    """The most messages of each level in a row; None where nothing says so."""
    given = [name for name in arguments if name.startswith(_FAIRSHARE)]
    if not given:
        return None
    levels = arguments.get("qpid.priorities", arguments.get("x-qpid-priorities"))
    if not isinstance(levels, int):
        raise PreconditionFailed(f"invalid arg '{given[0]}' for {queue}: the queue has no qpid.priorities")
    shares: dict[str, int] = {}
    for name in given:
        value, level = arguments[name], name.partition("fairshare")[2]
        problem = from_(0)(value)
        if problem is None and level and not (level.isascii() and level[1:].isdecimal() and int(level[1:]) < levels):
            problem = f"the queue has levels 0 to {levels - 1}"
        if problem is None and shares.setdefault(level[1:], int(str(value))) != value:
            problem = "it has another value by its other name"
        if problem is not None:
            raise PreconditionFailed(f"invalid arg '{name}' for {queue}: {problem}")
    return [shares.get(str(level), shares.get("", 0)) for level in range(levels)]


def _check(arguments: Table, queue: str) -> None:
    for name, argument in QPID_ARGUMENTS.items():
        problem = argument.check(arguments[name]) if name in arguments else None
        if problem is not None:
            raise PreconditionFailed(f"invalid arg '{name}' for {queue}: {problem}")
    for name in arguments:
        if is_qpid(name) and name not in QPID_ARGUMENTS and not name.startswith(_FAIRSHARE):
            reason = next((text for begin, text in UNAVAILABLE.items() if name.startswith(begin)), "unknown argument")
            raise NotImplemented540(f"arg '{name}' for {queue}: {reason}")
    policy = arguments.get(_POLICY)
    if policy in _POLICIES_UNAVAILABLE:
        raise NotImplemented540(f"arg '{_POLICY}' for {queue}: {policy}: {_POLICIES_UNAVAILABLE[policy]}")
    if bool(arguments.get(_SHARED)) is not (_GROUP in arguments):
        raise NotImplemented540(
            f"args '{_GROUP}' and '{_SHARED}' for {queue}: both are needed, because the messages of a group go to one "
            "consumer until they are settled, and then to any"
        )
