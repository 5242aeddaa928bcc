"""Every key that a RabbitMQ takes in policies and operator policies, with values that fit and values that do not.

Each is put by HTTP, and imported in a file of definitions: here as there. RabbitMQ has the plugin of federation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from harebell.routing.policies import OPERATOR_KEYS, POLICY_KEYS
from harebell.testing.rabbitmq import RabbitMQ, free_ports
from tests.admin.kit import Api, ApiThread
from tests.fixtures.rabbitmq import OLDER, Nodes
from tests.routing.test_policies import GOOD

UNFIT: tuple[object, ...] = (-2, 0, "zz", None, [1])

NOT_HERE = re.compile("ha-.*")
"""Keys of mirrored queues, which RabbitMQ 4 refuses too."""

OTHERS: dict[str, tuple[tuple[str, object], ...]] = {
    OLDER: (("delivery-limit", -1), ("queue-master-locator", "balanced")),
    "4.0": (("delivery-limit", -2), ("consumer-timeout", 0)),
}
"""RabbitMQ 4 takes any negative delivery limit, and a timeout of 0; 3.10 no such limit, and not that locator."""

OWN = (("overflow", "drop-lowest-priority"), ("overflow", "delete-queue"))


@pytest.fixture
def theirs(rabbitmq_nodes: Nodes, version: str) -> Iterator[tuple[Api, RabbitMQ]]:
    (port,) = free_ports(1)
    config = {"management.tcp.port": str(port), "management.tcp.ip": "127.0.0.1"}
    with rabbitmq_nodes.fresh(version, config, ("rabbitmq_management", "rabbitmq_federation")) as server:
        yield Api(port), server


def put(api: Api, kind: str, definition: dict[str, object]) -> bool:
    body = {"pattern": "^nobody$", "definition": definition}
    return api("PUT", f"/api/{kind.replace('_', '-')}/%2F/p", body).status < 300


def imported(api: Api, kind: str, definition: dict[str, object]) -> bool:
    named = {"vhost": "/", "name": "p"}
    policy = {"pattern": "^nobody$", "definition": definition, "apply-to": "queues", "priority": 0}
    file: dict[str, Any] = {"policies": [named | policy]}
    if kind == "operator_policies":
        file = {"parameters": [named | {"component": "operator_policy", "value": policy}]}
    return api("POST", "/api/definitions", file).status < 300


@pytest.mark.parametrize(
    "kind, validators, known",
    [
        ("policies", "policy_validator", POLICY_KEYS.keys()),
        ("operator_policies", "operator_policy_validator", OPERATOR_KEYS),
    ],
)
def test_each_key(
    theirs: tuple[Api, RabbitMQ], version: str, kind: str, validators: str, known: frozenset[str]
) -> None:
    api, server = theirs
    printed = server.evaluate(
        f'iolist_to_binary(lists:join(" ", [atom_to_list(K) || {{K, _}} <- {listed(validators)}]))'
    )
    keys = [key for key in printed.strip('<>"\n').split() if not NOT_HERE.fullmatch(key)]
    assert "federation-upstream" in keys or kind == "operator_policies"
    assert set(keys) <= set(known)
    differ = []
    with ApiThread() as own:
        for key in keys:
            for value in (*GOOD[key], *UNFIT):
                if (key, value) in (*OWN, *OTHERS[version]):
                    continue
                for way in (put, imported) if value in (GOOD[key][0], None) else (put,):
                    here, there = way(own.api(), kind, {key: value}), way(api, kind, {key: value})
                    if here is not there:
                        differ.append((key, value, way.__name__, here, there))
    assert not differ


def listed(validators: str) -> str:
    return f"rabbit_registry:lookup_all({validators})"
