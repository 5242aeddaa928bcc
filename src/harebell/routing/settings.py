"""A queue's arguments: the known ones, their allowed values, and the typed settings made from them.

Rules (RabbitMQ's; texts and order were probed on 3.10.8 and are tested against it):

- Arguments are checked in one fixed order, whatever the order of the table, each for the type of its value and then for
  its range. An argument that belongs to another type of queue only is refused after those; one that no type of queue
  knows is not checked and stays as it is.
- A group of messages keeps its order, so `x-message-group` and `x-max-priority` exclude each other (not RabbitMQ's
  rule).
- `x-overflow` drop-lowest-priority (not RabbitMQ's) goes with `x-max-priority` only.
- `x-priority-base` (not RabbitMQ's) goes with `x-max-priority` only.
- Arguments of Qpid's are checked and compared as the `x-` arguments that they mean (`qpid_arguments`).
- A quorum queue and a stream are durable, not exclusive, not auto-deleted, and named by their client.
- A second declaration is compared by the arguments of the queue's type. `x-queue-type` classic and none are the same.

Beyond RabbitMQ 3.10: `x-delivery-limit`, `x-dead-letter-strategy`, `x-consumer-timeout`, deduplication, delayed retry
and message groups are settings of classic and quorum queues alike, and their values are checked. Times are in
milliseconds, sizes in bytes.

The broker implements the settings; `harebell.routing.policies` has what policies add to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from re import ASCII, compile as pattern
from typing import Final, Literal, NamedTuple, TypeVar, cast, get_args

from harebell.defaults import MAX_TIME
from harebell.errors import PreconditionFailed
from harebell.routing.argument_checks import Check, boolean, from_, header_name, integer, one_of, string
from harebell.routing.equivalence import check_arguments
from harebell.routing.qpid_arguments import as_x_arguments
from harebell.routing.table_values import Table, type_name

__all__ = [
    "ARGUMENTS",
    "COMPARED_QUEUE_ARGUMENTS",
    "MAX_PRIORITY",
    "OVERFLOWS",
    "Argument",
    "Overflow",
    "QueueSettings",
    "QueueType",
    "check_redeclaration",
    "age_milliseconds",
    "queue_settings",
    "queue_type",
    "settings_of",
    "without_undefined_type",
]

A = TypeVar("A", bound=Mapping[str, object])

QueueType = Literal["classic", "quorum", "stream"]

Overflow = Literal["drop-head", "reject-publish", "reject-publish-dlx", "drop-lowest-priority", "delete-queue"]

OVERFLOWS: Final[tuple[Overflow, ...]] = get_args(Overflow)
"""What a queue does with messages beyond its limit. RabbitMQ has all but the last two."""

MAX_PRIORITY: Final = 255

MAX_SEGMENT_SIZE: Final = 3_000_000_000
"""Bytes in a segment of a stream."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue, in milliseconds and bytes. None: not set. A `delivery_limit` below 0 is no limit.

    Priorities of messages up to `priority_base` are on level 0, the next one on level 1, and so on to `max_priority`.
    `fairshare` is the most messages of each level in a row, from level 0 on; 0: no limit. `orphan_exchange` takes the
    messages of a queue that is deleted.
    """

    queue_type: QueueType = "classic"
    expires: int | None = None
    message_ttl: int | None = None
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    dead_letter_strategy: Literal["at-most-once", "at-least-once"] | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    max_priority: int | None = None
    priority_base: int | None = None
    overflow: Overflow | None = None
    queue_mode: Literal["default", "lazy"] | None = None
    queue_version: int | None = None
    single_active_consumer: bool | None = None
    max_age: int | None = None
    stream_max_segment_size_bytes: int | None = None
    stream_filter_size_bytes: int | None = None
    delivery_limit: int | None = None
    consumer_timeout: int | None = None
    message_deduplication: bool | None = None
    deduplication_header: str | None = None
    cache_size: int | None = None
    cache_ttl: int | None = None
    message_group: str | None = None
    delayed_retry_type: Literal["disabled", "all", "failed", "returned"] | None = None
    delayed_retry_min: int | None = None
    delayed_retry_max: int | None = None
    fairshare: tuple[int, ...] | None = None
    last_value_key: str | None = None
    sequence_header: str | None = None
    auto_delete_delay: int | None = None
    alert_length: int | None = None
    alert_length_clear: int | None = None
    alert_length_bytes: int | None = None
    alert_length_bytes_clear: int | None = None
    alert_repeat_gap: int | None = None
    orphan_exchange: str | None = None


def _version(value: object) -> str | None:
    return from_(0)(value) or (None if value in (1, 2) else f"\"unsupported queue version '{value}'\"")


def _shares(value: object) -> str | None:
    if not isinstance(value, list):
        return f"{{unacceptable_type,{type_name(value)}}}"
    return next((problem for share in value if (problem := from_(0)(share)) is not None), None)


def _filter_size(value: object) -> str | None:
    return from_(0, 255)(value) or (None if isinstance(value, int) and value >= 16 else f"{{value_too_small,{value}}}")


def _max_age(value: object) -> str | None:
    return string(value) or (None if age_milliseconds(str(value)) is not None else "invalid_max_age")


_AGE: Final = pattern(r"(\d{1,18})([YMDhms])", ASCII)
_AGE_UNITS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "D": 86_400_000, "M": 2_592_000_000, "Y": 31_536_000_000}


def age_milliseconds(text: str) -> int | None:
    """An age such as "7D" in milliseconds: Y is 365 days, M 30, then D, h, m and s. None for 0 and what is no age."""
    age = _AGE.fullmatch(text)
    return int(age[1]) * _AGE_UNITS[age[2]] or None if age else None


class Argument(NamedTuple):
    """A queue argument: its check, and the types of queue that it belongs to."""

    name: str
    check: Check
    types: frozenset[QueueType]


_CLASSIC: Final[frozenset[QueueType]] = frozenset({"classic"})
_QUORUM: Final[frozenset[QueueType]] = frozenset({"quorum"})
_STREAM: Final[frozenset[QueueType]] = frozenset({"stream"})
_QUEUES: Final = _CLASSIC | _QUORUM
_ALL: Final = _QUEUES | _STREAM

_LOCATORS: Final = ("client-local", "balanced", "least-leaders", "random")
_TYPE_CHECK: Final = one_of(("classic", "quorum", "stream"), "\"unsupported queue type '{}'\"")

ARGUMENTS: Final[Mapping[str, Argument]] = {
    name: Argument(name, check, types)
    for name, check, types in (
        ("x-expires", from_(1, MAX_TIME), _QUEUES),
        ("x-message-ttl", from_(0, MAX_TIME), _QUEUES),
        ("x-dead-letter-exchange", string, _QUEUES),
        ("x-dead-letter-routing-key", string, _QUEUES),
        ("x-dead-letter-strategy", one_of(("at-most-once", "at-least-once"), "invalid_dlx_strategy"), _QUEUES),
        ("x-max-length", from_(0), _QUEUES),
        ("x-max-length-bytes", from_(0), _ALL),
        ("x-max-in-memory-length", from_(0), _QUORUM),
        ("x-max-in-memory-bytes", from_(0), _QUORUM),
        ("x-max-priority", from_(0, MAX_PRIORITY, "max_value_exceeded"), _CLASSIC),
        ("x-priority-base", from_(0, MAX_PRIORITY, "max_value_exceeded"), _CLASSIC),
        ("x-overflow", one_of(OVERFLOWS, "invalid_overflow"), _QUEUES),
        ("x-queue-mode", one_of(("default", "lazy"), "\"unsupported queue mode '{}'\""), _CLASSIC),
        ("x-queue-version", _version, _CLASSIC),
        ("x-single-active-consumer", boolean, _QUEUES),
        ("x-queue-type", _TYPE_CHECK, _ALL),
        ("x-quorum-initial-group-size", from_(1), _QUORUM),
        ("x-max-age", _max_age, _STREAM),
        ("x-stream-max-segment-size-bytes", from_(0), _STREAM),
        ("x-stream-filter-size-bytes", _filter_size, _STREAM),
        ("x-initial-cluster-size", from_(1), _STREAM),
        ("x-queue-leader-locator", one_of(_LOCATORS, "invalid_queue_locator_arg"), _ALL),
        (
            "x-queue-master-locator",
            one_of(("client-local", "min-masters", "random"), "invalid_queue_locator_arg"),
            _CLASSIC,
        ),
        ("x-delivery-limit", integer, _QUEUES),
        ("x-consumer-timeout", from_(1, MAX_TIME), _QUEUES),
        ("x-message-deduplication", boolean, _QUEUES),
        ("x-deduplication-header", string, _QUEUES),
        ("x-cache-size", from_(1), _QUEUES),
        ("x-cache-ttl", from_(1, MAX_TIME), _QUEUES),
        ("x-message-group", header_name, _QUEUES),
        ("x-fairshare", _shares, _CLASSIC),
        ("x-last-value-key", header_name, _QUEUES),
        ("x-sequence-header", header_name, _QUEUES),
        ("x-auto-delete-delay", from_(1, MAX_TIME), _CLASSIC),
        ("x-orphan-exchange", string, _QUEUES),
        ("x-alert-length", from_(1), _QUEUES),
        ("x-alert-length-clear", from_(0), _QUEUES),
        ("x-alert-length-bytes", from_(1), _QUEUES),
        ("x-alert-length-bytes-clear", from_(0), _QUEUES),
        ("x-alert-repeat-gap", from_(1, MAX_TIME), _QUEUES),
        (
            "x-delayed-retry-type",
            one_of(("disabled", "all", "failed", "returned"), "invalid_delayed_retry_type"),
            _QUEUES,
        ),
        ("x-delayed-retry-min", from_(1, MAX_TIME), _QUEUES),
        ("x-delayed-retry-max", from_(1, MAX_TIME), _QUEUES),
    )
}
"""Every known argument, in the order of the checks. Those that place a queue in a cluster or in memory are checked and
compared, and have no field in QueueSettings: on one machine there is nothing to place."""

# RabbitMQ reports differences in an order of its own for each type: these first, the others in the order of the checks
_FIRST_COMPARED: Final[Mapping[QueueType, tuple[str, ...]]] = {
    "classic": (),
    "quorum": (
        "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-expires", "x-max-length",
        "x-max-length-bytes", "x-max-in-memory-length", "x-max-in-memory-bytes", "x-overflow",
        "x-single-active-consumer", "x-queue-type", "x-quorum-initial-group-size", "x-delivery-limit", "x-message-ttl",
    ),
    "stream": ("x-max-length-bytes", "x-queue-type"),
}  # fmt: skip

COMPARED_QUEUE_ARGUMENTS: Final[Mapping[QueueType, tuple[str, ...]]] = {
    kind: tuple(dict.fromkeys((*first, *(argument.name for argument in ARGUMENTS.values() if kind in argument.types))))
    for kind, first in _FIRST_COMPARED.items()
}
"""For each type of queue, the arguments that a second declaration must repeat, in the order in which RabbitMQ reports
them."""


def queue_type(arguments: Table, queue: str) -> QueueType:
    """The type that `x-queue-type` names, classic when there is none. Raises PreconditionFailed.

    `queue` is the queue in the error text: "queue 'q' in vhost '/'".
    """
    kind = arguments.get("x-queue-type", "classic")
    match kind:
        case "classic" | "quorum" | "stream":
            return kind
    raise PreconditionFailed(f"invalid arg 'x-queue-type' for {queue}: {_TYPE_CHECK(kind)}")


def without_undefined_type(arguments: A) -> A:
    """The arguments without `x-queue-type` "undefined", which RabbitMQ 4 takes for a declaration that names no type."""
    if arguments.get("x-queue-type") != "undefined":
        return arguments
    return cast("A", {name: value for name, value in arguments.items() if name != "x-queue-type"})


def queue_settings(
    arguments: Table,
    queue: str,
    *,
    durable: bool = True,
    exclusive: bool = False,
    auto_delete: bool = False,
    server_named: bool = False,
) -> QueueSettings:
    """The settings of a new queue with these arguments and flags. Raises PreconditionFailed for those not allowed.

    NotImplemented for an argument of Qpid's that this broker does not have.

    `queue` is the queue in the error text: "queue 'q' in vhost '/'". The caller has checked the name
    (`harebell.routing.naming`).
    """
    if server_named and arguments.get("x-queue-type") in ("quorum", "stream"):
        raise PreconditionFailed(
            f"Cannot declare a server-named queue for type rabbit_{arguments['x-queue-type']}_queue"
        )
    arguments = as_x_arguments(arguments, queue)
    exchange = arguments.get("x-dead-letter-exchange", "")
    if not isinstance(exchange, str):
        raise PreconditionFailed(f"invalid type '{type_name(exchange)}' for arg 'x-dead-letter-exchange' in {queue}")
    kind = queue_type(arguments, queue)
    for name, argument in ARGUMENTS.items():
        if name not in arguments or kind not in argument.types:
            continue
        problem = argument.check(arguments[name]) or _contradiction(name, arguments)
        if problem is not None:
            raise PreconditionFailed(f"invalid arg '{name}' for {queue}: {problem}")
    for name in arguments:
        if name in ARGUMENTS and kind not in ARGUMENTS[name].types:
            raise PreconditionFailed(f"invalid arg '{name}' for {queue} of queue type rabbit_{kind}_queue")
    if kind != "classic":
        unfit = (("auto-delete", auto_delete), ("exclusive-owner", exclusive), ("non-durable", not durable))
        for flag, given in unfit:
            if given:
                raise PreconditionFailed(f"invalid property '{flag}' for {queue}")
        segment = arguments.get("x-stream-max-segment-size-bytes")
        if isinstance(segment, int) and segment > MAX_SEGMENT_SIZE:
            raise PreconditionFailed("Exceeded max value for x-stream-max-segment-size-bytes")
    return settings_of({name.removeprefix("x-"): arguments[name] for name in ARGUMENTS if name in arguments})


def settings_of(values: Mapping[str, object]) -> QueueSettings:
    """The settings from checked values, by the names that policies use ("message-ttl"); other names are ignored."""
    known = {name.replace("-", "_"): value for name, value in values.items()}
    if isinstance(known.get("fairshare"), list):
        known["fairshare"] = tuple(cast("list[int]", known["fairshare"]))
    if isinstance(known.get("max_age"), str):
        known["max_age"] = age_milliseconds(str(known["max_age"]))
    return QueueSettings(**{name: known[name] for name in _FIELDS if name in known})  # type: ignore[arg-type]


def check_redeclaration(queue: str, received: Table, current: Table) -> None:
    """Raise PreconditionFailed for the first argument in which a second declaration of a queue differs.

    `received` are the arguments of that declaration, `current` those of the queue; `queue` is its name in the text.
    """
    classic = {"x-queue-type": "classic"}
    received, current = as_x_arguments(received, queue), as_x_arguments(current, queue)
    check_arguments(
        queue, classic | {**received}, classic | {**current}, COMPARED_QUEUE_ARGUMENTS[queue_type(current, queue)]
    )


_FIELDS: Final = tuple(field.name for field in fields(QueueSettings))


def _contradiction(name: str, arguments: Table) -> str | None:
    """The problem of an argument that is valid by itself, but not together with the others; or None."""
    if name == "x-dead-letter-routing-key" and "x-dead-letter-exchange" not in arguments:
        return "routing_key_but_no_dlx_defined"
    if name == "x-delayed-retry-type" and arguments[name] != "disabled" and "x-delayed-retry-min" not in arguments:
        return "delayed_retry_but_no_min_defined"
    if name == "x-priority-base" and "x-max-priority" not in arguments:
        return "priority_base_but_no_max_priority_defined"
    if name == "x-message-group" and "x-max-priority" in arguments:
        return "group_and_max_priority_defined"
    if name == "x-last-value-key" and "x-message-group" in arguments:
        return "last_value_key_and_group_defined"
    if name == "x-last-value-key" and "x-fairshare" in arguments:
        return "last_value_key_and_fairshare_defined"
    if name == "x-fairshare" and "x-max-priority" not in arguments:
        return "fairshare_but_no_max_priority_defined"
    if name in ("x-alert-length-clear", "x-alert-length-bytes-clear"):
        limit, clear = arguments.get(name.removesuffix("-clear")), arguments[name]
        if not isinstance(limit, int):
            return "alert_clear_but_no_alert_defined"
        return None if isinstance(clear, int) and clear < limit else "alert_clear_not_below_alert"
    if name == "x-alert-repeat-gap" and not any(f"x-alert-{each}" in arguments for each in ("length", "length-bytes")):
        return "alert_repeat_gap_but_no_alert_defined"
    if name == "x-overflow" and arguments[name] == "drop-lowest-priority" and "x-max-priority" not in arguments:
        return "drop_lowest_priority_but_no_max_priority_defined"
    return None
