"""Policies: settings for queues and exchanges whose names match a pattern, and how they combine with arguments.

Rules (RabbitMQ's; texts probed on 3.10.8):

- A policy belongs to a vhost and applies to the objects in whose name its pattern is found (`pattern_language`), of the
  kind that `apply_to` names. A policy does not apply to a queue when one of its keys means nothing to the queue's type.
- One policy applies to an object: the one of the highest priority, and among equals the one whose name sorts first
  (RabbitMQ leaves that open). One operator policy applies beside it, chosen in the same way.
- Policy and operator policy: the smaller number wins, of target-group-size the larger; for everything else the operator
  policy wins. A delivery limit below 0 is no limit, and then the operator's value wins.
- Argument and policy: the smaller number wins for lengths, times and limits (see LEAST), the smaller age for max-age;
  for everything else the argument wins. A delivery limit below 0 loses against one that is a limit.

Keys are the names of arguments without "x-", but for arguments that only a declaration can set; alternate-exchange is
the one key for exchanges. Keys of federation and those that place a queue in a cluster have no effect.
The module computes settings; a broker applies them, anew after each change of policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from harebell.errors import InvalidArgument
from harebell.routing.pattern_language import BadPattern
from harebell.routing.patterns import Patterns
from harebell.routing.qpid_arguments import as_x_arguments
from harebell.routing.settings import ARGUMENTS, MAX_SEGMENT_SIZE, OVERFLOWS, QueueType, age_milliseconds
from harebell.routing.table_values import Table, erlang_term
from harebell.routing.wire_limits import check_name, check_value

__all__ = [
    "APPLY_TO",
    "FEDERATION_KEYS",
    "LEAST",
    "OPERATOR_KEYS",
    "POLICY_KEYS",
    "ApplyTo",
    "Policy",
    "Setting",
    "Source",
    "check_policy",
    "effective",
    "explained",
    "matching",
    "merged",
    "parse_policy",
]

ApplyTo = Literal["all", "exchanges", "queues", "classic_queues", "quorum_queues", "streams"]

APPLY_TO: Final[Mapping[str, frozenset[str]]] = {
    "all": frozenset({"exchange", "classic", "quorum", "stream"}),
    "exchanges": frozenset({"exchange"}),
    "queues": frozenset({"classic", "quorum", "stream"}),
    "classic_queues": frozenset({"classic"}),
    "quorum_queues": frozenset({"quorum"}),
    "streams": frozenset({"stream"}),
}
"""The values of `apply_to`, and the kinds of object that each covers."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy or operator policy. `pattern` is a regular expression; `definition` maps keys to values."""

    vhost: str
    name: str
    pattern: str
    definition: Table
    apply_to: ApplyTo = "all"
    priority: float = 0

    def applies(self, name: str, kind: QueueType | Literal["exchange"], patterns: Patterns) -> bool:
        """True when the policy is for an object of this name and kind, in the policy's vhost."""
        return (
            kind in APPLY_TO[self.apply_to]
            and patterns.search(self.pattern)(name)
            and (kind == "exchange" or all(kind in _kinds(key) for key in self.definition))
        )


# Keys and their values


class PolicyKey(NamedTuple):
    """A key's allowed values, their name in error texts, and the kinds of object that the key means something to."""

    accepts: Callable[[object], bool]
    called: str
    kinds: frozenset[str]


def _number(least: int, most: float = float("inf")) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _string(value: object) -> bool:
    return isinstance(value, str)


def _age(value: object) -> bool:
    return isinstance(value, str) and age_milliseconds(value) is not None


def _one_of(*choices: object) -> Callable[[object], bool]:
    return lambda value: not isinstance(value, (bool, float)) and value in choices


def _kinds(key: str) -> frozenset[str]:
    if key == TARGET_SIZE:
        return APPLY_TO["quorum_queues"]
    argument = ARGUMENTS.get(f"x-{key}")
    return APPLY_TO["all"] if argument is None else frozenset(argument.types)  # alternate-exchange excludes no queue


TARGET_SIZE: Final = "target-group-size"

FEDERATION_KEYS: Final = ("federation-upstream", "federation-upstream-set", "federation-upstream-pattern")
"""The keys of federation, which this broker does not have: they have no effect. A policy has one of them at most."""

POLICY_KEYS: Final[Mapping[str, PolicyKey]] = {
    key: PolicyKey(accepts, called, _kinds(key))
    for key, accepts, called in (
        ("alternate-exchange", _string, "alternate exchange name"),
        ("dead-letter-exchange", _string, "dead letter exchange name"),
        ("dead-letter-routing-key", _string, "dead letter routing key"),
        ("dead-letter-strategy", _one_of("at-most-once", "at-least-once"), "dead letter strategy"),
        ("message-ttl", _number(0), "message TTL"),
        ("expires", _number(1), "queue expiry"),
        ("max-length", _number(0), "maximum length"),
        ("max-length-bytes", _number(0), "maximum length in bytes"),
        ("max-in-memory-length", _number(0), "maximum memory in bytes"),  # as RabbitMQ calls it
        ("max-in-memory-bytes", _number(0), "maximum memory in bytes"),
        ("queue-mode", _one_of("default", "lazy"), "queue-mode value"),
        ("queue-version", _one_of(1, 2), "queue-version value"),
        ("overflow", _one_of(*OVERFLOWS), "overflow value"),
        ("delivery-limit", _number(-1), "delivery limit"),
        ("max-age", _age, "max age"),
        ("stream-max-segment-size-bytes", _number(0, MAX_SEGMENT_SIZE), "segment size"),
        ("stream-filter-size-bytes", _number(16, 255), "filter size"),
        (
            "queue-leader-locator",
            _one_of("client-local", "balanced", "least-leaders", "random"),
            "queue leader locator value",
        ),
        ("queue-master-locator", _one_of("client-local", "min-masters", "random", "balanced"), "master locator"),
        ("initial-cluster-size", _number(0), "cluster size"),
        (TARGET_SIZE, _number(1), "qq target count value"),  # as RabbitMQ calls it
        ("federation-upstream", _string, "federation upstream name"),
        ("federation-upstream-set", _string, "federation upstream set name"),
        ("federation-upstream-pattern", _string, "federation upstream pattern name"),
        ("consumer-timeout", _number(1), "consumer timeout"),
        ("delayed-retry-type", _one_of("disabled", "all", "failed", "returned"), "delayed retry type"),
        ("delayed-retry-min", _number(1), "delayed retry delay"),
        ("delayed-retry-max", _number(1), "delayed retry delay"),
        ("alert-length", _number(1), "alert"),
        ("alert-length-clear", _number(0), "end of an alert"),
        ("alert-length-bytes", _number(1), "alert"),
        ("alert-length-bytes-clear", _number(0), "end of an alert"),
        ("alert-repeat-gap", _number(1), "alert repeat gap"),
    )
}
"""Every key that a policy may have."""

OPERATOR_KEYS: Final = frozenset(
    {
        "expires", "message-ttl", "max-length", "max-length-bytes", "max-in-memory-length", "max-in-memory-bytes",
        "delivery-limit", "queue-version", "overflow", "queue-master-locator", TARGET_SIZE,
    }
)  # fmt: skip
"""The keys of an operator policy."""

LEAST: Final = frozenset(
    {
        "expires", "message-ttl", "max-length", "max-length-bytes", "max-in-memory-length", "max-in-memory-bytes",
        "delivery-limit", "max-age", "stream-max-segment-size-bytes",
    }
)  # fmt: skip
"""The keys of which a queue gets the smaller value, when its arguments and a policy have one each."""


def check_policy(policy: Policy, patterns: Patterns, *, operator: bool = False) -> None:
    """Raise InvalidArgument unless the policy may be set.

    The text is RabbitMQ's: "Validation failed", an empty line, and one line for each problem. What AMQP could not carry
    is refused before that (`wire_limits`).
    """
    check_name(policy.name, "policy name", empty=True)
    check_value(policy.pattern, "pattern")
    check_value(policy.definition, "definition")
    check_value(policy.priority, "priority")
    _check(policy.pattern, policy.definition, policy.apply_to, policy.priority, operator, patterns)


def parse_policy(vhost: str, name: str, body: Table, patterns: Patterns, *, operator: bool = False) -> Policy:
    """The checked policy from an operator's table (keys pattern, definition, priority and apply-to).

    Raises InvalidArgument: "[{key_missing,pattern}]" as RabbitMQ's HTTP API has it, and as `check_policy` does.
    """
    for key in ("pattern", "definition"):
        if key not in body:
            raise InvalidArgument(f"[{{key_missing,{key}}}]")
    pattern, definition = body["pattern"], body["definition"]
    apply_to, priority = body.get("apply-to", "all"), body.get("priority", 0)
    _check(pattern, definition, apply_to, priority, operator, patterns)
    checked = {"pattern": pattern, "definition": definition, "apply_to": apply_to, "priority": priority}
    return Policy(vhost, name, **checked)  # type: ignore[arg-type]  # checked above


def _check(
    pattern: object, definition: object, apply_to: object, priority: object, operator: bool, patterns: Patterns
) -> None:
    problems: list[str] = []
    if isinstance(priority, bool) or not isinstance(priority, (int, float)):
        problems.append(f"priority should be a number, actually was {_shown(priority)}")
    if not isinstance(pattern, str):
        problems.append(f"pattern should be a binary but was {_shown(pattern)}")
    else:
        try:
            patterns.check(pattern)
        except BadPattern as error:
            problems.append(f'pattern should be regular expression but is invalid: {{"{error.problem}",{error.at}}}')
    if not isinstance(apply_to, str) or apply_to not in APPLY_TO:
        shown = apply_to if isinstance(apply_to, str) else _shown(apply_to)
        problems.append(
            f"apply-to '{shown}' unrecognised; should be one of: 'queues', 'classic_queues', "
            "'quorum_queues', 'streams', 'exchanges', or 'all'"
        )
    problems += _definition_problem(definition, operator)
    if problems:
        raise InvalidArgument("Validation failed\n\n" + "".join(f"{problem}\n" for problem in problems))


def _definition_problem(definition: object, operator: bool) -> list[str]:
    """The first problem of a definition, keys in their order: a wrong value before unknown keys."""
    if not isinstance(definition, Mapping):
        return [f"definition must be a dictionary: {_shown(definition)}"]
    if not definition:
        return ["no policy provided"]
    unknown: list[str] = []
    for key in sorted(definition):
        value = definition[key]
        rule = POLICY_KEYS.get(key)
        if rule is None or (operator and key not in OPERATOR_KEYS):
            unknown.append(f"{{{_shown(key)},{_shown(value)}}}")
        elif not rule.accepts(value):
            return [f"{_shown(value)} is not a valid {rule.called}"]
    if not operator and len(definition.keys() & {*FEDERATION_KEYS}) > 1:
        first, second, last = FEDERATION_KEYS
        return [f"cannot specify {first}, {second} or {last} together"]
    return [f"[{','.join(unknown)}] are not recognised policy settings"] if unknown else []


def _shown(value: object) -> str:
    """A JSON value as RabbitMQ shows it: as an Erlang term, objects as maps."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return f"#{{{','.join(f'{_shown(key)} => {_shown(item)}' for key, item in value.items())}}}"
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return f"[{','.join(_shown(item) for item in value)}]"
    return erlang_term(value)


# Policies in force


def matching(
    policies: Iterable[Policy], vhost: str, name: str, kind: QueueType | Literal["exchange"], patterns: Patterns
) -> Policy | None:
    """The one policy of these that applies to the object, or None. Policies and operator policies take a call each."""
    fit = (policy for policy in policies if policy.vhost == vhost and policy.applies(name, kind, patterns))
    return min(fit, key=lambda policy: (-policy.priority, policy.name), default=None)


Source = Literal["argument", "policy", "operator"]


class Setting(NamedTuple):
    """A value in force, and where it comes from: an argument, the policy, or the operator policy."""

    value: object
    source: Source


def merged(policy: Policy | None, operator_policy: Policy | None) -> dict[str, Setting]:
    """The settings from policies alone: RabbitMQ's effective policy definition, with the source of each value."""
    ours = policy.definition if policy is not None else {}
    theirs = operator_policy.definition if operator_policy is not None else {}
    settings: dict[str, Setting] = {}
    for key in sorted({*ours, *theirs}):
        if key not in theirs or (key in ours and _policy_wins(key, ours[key], theirs[key])):
            settings[key] = Setting(ours[key], "policy")
        else:
            settings[key] = Setting(theirs[key], "operator")
    return settings


def effective(arguments: Table, policy: Policy | None, operator_policy: Policy | None) -> dict[str, Setting]:
    """The settings in force for a queue, by key, sorted; `settings_of` makes QueueSettings of their values.

    `arguments` are those of its declaration, checked; the policies those that apply to it.
    """
    settings = merged(policy, operator_policy)
    for name, argument in as_x_arguments(arguments).items():
        if name not in ARGUMENTS:
            continue
        key = name.removeprefix("x-")
        if key not in settings or key not in LEAST or _argument_wins(key, settings[key].value, argument):
            settings[key] = Setting(argument, "argument")
    return dict(sorted(settings.items()))


def explained(settings: Mapping[str, Setting], policy: Policy | None, operator_policy: Policy | None) -> str:
    """The settings as text, one a line: key, value, and the argument or the policy that it comes from."""
    names = {
        "argument": "argument",
        "policy": f"policy '{policy.name}'" if policy is not None else "policy",
        "operator": f"operator policy '{operator_policy.name}'" if operator_policy is not None else "operator policy",
    }
    return "\n".join(f"{key} = {setting.value} ({names[setting.source]})" for key, setting in settings.items())


def _policy_wins(key: str, ours: object, theirs: object) -> bool:
    """True when a policy's value wins over the operator's: a smaller number that is not "no limit", a larger group."""
    if not isinstance(ours, int) or not isinstance(theirs, int):
        return False
    return ours >= theirs if key == TARGET_SIZE else 0 <= ours <= theirs


def _argument_wins(key: str, policy: object, argument: object) -> bool:
    """True when the argument's value wins over a policy's, for a key whose smaller value is in force."""
    return _size(key, argument) <= _size(key, policy)


def _size(key: str, value: object) -> float:
    if key == "max-age":
        return age_milliseconds(str(value)) or 0
    if isinstance(value, int) and value >= 0:
        return value
    return float("inf")  # a delivery limit below 0 is no limit
