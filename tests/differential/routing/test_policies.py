"""The same policies here and on RabbitMQ: accepted by both, or refused by both with the same text."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from harebell.errors import InvalidArgument
from harebell.routing.policies import FEDERATION_KEYS, Policy, merged, parse_policy
from harebell.testing import RabbitMQ
from tests.routing.test_policies import GOOD, PATTERNS

LATER = {
    "stream-filter-size-bytes", "consumer-timeout", "delayed-retry-type", "delayed-retry-min", "delayed-retry-max",
    "alert-length", "alert-length-clear", "alert-length-bytes", "alert-length-bytes-clear", "alert-repeat-gap",
    "queue-master-locator", "target-group-size", *FEDERATION_KEYS,
}  # fmt: skip
"""Keys that 3.10 does not know, or refuses in other words, or knows with a plugin; the alerts are ours alone. Ages that
are none crash it. tests/differential/http_api/test_policy_keys.py tries all that a RabbitMQ knows."""

VALUES: list[object] = [-2, -1, 0, 1, 2, 3, 10**13, 1.5, "zz", "", "lazy", "drop-head", True, None, [1, "a"], {"a": 1}]

UNLIMITED: tuple[dict[str, object], ...] = ({"delivery-limit": -1}, {"delivery-limit": -2})
"""RabbitMQ 4 takes any negative delivery limit for none; 3.10 knows no -1. Here -1 says so, and -2 is refused."""

OWN: dict[str, list[object]] = {"overflow": ["drop-lowest-priority", "delete-queue"]}
"""Values that RabbitMQ does not know."""

DEFINITIONS: list[dict[str, object]] = [
    {},
    {"max-length": -1, "expires": 0},
    {"expires": 0, "max-length": -1},
    {"zz": 1, "yy": "a"},
    {"max-length": -1, "zz": 1},
    {"message-ttl": -1, "expires": -1, "alternate-exchange": 1},
    *(
        {key: value}
        for key, values in GOOD.items()
        if key not in LATER
        for value in values
        if value not in OWN.get(key, [])
    ),
    *({key: value} for key in GOOD if key not in LATER | {"max-age"} for value in VALUES),
    {"max-age": "0D"},
    {"max-age": "1x"},
    {"max-age": "5m"},
    {"x-foo": 1},
]


def theirs(server: RabbitMQ, definitions: list[dict[str, object]], *, operator: bool) -> list[str]:
    """What RabbitMQ answers to each, "" when it takes it; all in one run of its command, which takes seconds."""
    call = "parse_set_op" if operator else "parse_set"
    items = ",".join(f'<<"{base64.b64encode(json.dumps(each).encode()).decode()}">>' for each in definitions)
    tried = (
        f'rabbit_policy:{call}(<<"/">>, <<"policies">>, <<"^nobody$">>, base64:decode(D), <<"0">>, <<"all">>, <<"u">>)'
    )
    answer = "case R of ok -> <<>>; {_, E} -> unicode:characters_to_binary(E) end"
    printed = server.evaluate(f"base64:encode(rabbit_json:encode([{answer} || D <- [{items}], R <- [{tried}]]))")
    answers: list[str] = json.loads(base64.b64decode(re.sub(r'[<>"\s]', "", printed)))
    server.evaluate(f'rabbit_policy:{"delete_op" if operator else "delete"}(<<"/">>, <<"policies">>, <<"u">>)')
    return answers


def ours(definition: dict[str, object], *, operator: bool) -> str:
    try:
        parse_policy("/", "policies", {"pattern": "^nobody$", "definition": definition}, PATTERNS, operator=operator)
    except InvalidArgument as error:
        return str(error)
    return ""


def test_policies(rabbitmq: RabbitMQ) -> None:
    definitions = [each for each in DEFINITIONS if each not in UNLIMITED]
    told = theirs(rabbitmq, definitions, operator=False)
    assert [ours(each, operator=False) for each in definitions] == told


def test_operator_policies(rabbitmq: RabbitMQ) -> None:
    definitions = [each for each in DEFINITIONS if each not in UNLIMITED and not {"overflow"} & each.keys()]
    definitions = [each for each in definitions if "queue-version" not in each]  # both came later
    told = theirs(rabbitmq, definitions, operator=True)
    assert [ours(each, operator=True) for each in definitions] == told


MERGED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"max-length": 3}),
    ({"max-length": 5}, {}),
    *[
        ({key: ours, "dead-letter-exchange": "x"}, {key: theirs, "max-length-bytes": 9})
        for key in ("expires", "message-ttl", "max-length", "max-in-memory-bytes", "delivery-limit")
        for ours, theirs in ((1, 2), (2, 1), (2, 2))
    ],
]


def test_merging(rabbitmq: RabbitMQ) -> None:
    """RabbitMQ's own function, asked for all pairs at once."""
    pairs = base64.b64encode(json.dumps(MERGED).encode()).decode()
    merge = "maps:from_list(rabbit_policy:merge_operator_definitions([{definition, A}], [{definition, B}]))"
    printed = rabbitmq.evaluate(
        f'base64:encode(rabbit_json:encode([{merge} || [A, B] <- rabbit_json:decode(base64:decode(<<"{pairs}">>))]))'
    )
    told = json.loads(base64.b64decode(re.sub(r'[<>"\s]', "", printed)))
    ours = [merged(Policy("/", "p", "", one), Policy("/", "o", "", other)) for one, other in MERGED]
    assert [{key: setting.value for key, setting in settings.items()} for settings in ours] == told
