from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from harebell.errors import InvalidArgument
from harebell.routing.definitions import (
    BindingDefinition,
    Definitions,
    ExchangeDefinition,
    GlobalParameter,
    Parameter,
    Permission,
    QueueDefinition,
    TopicPermission,
    User,
    VirtualHost,
    emit_definitions,
    parse_definitions,
)
from harebell.routing.policies import Policy

FILE: dict[str, object] = {
    "rabbitmq_version": "4.1.0",
    "product_name": "RabbitMQ",
    "vhosts": [
        {"name": "/"},
        {
            "name": "v",
            "description": "d",
            "tags": ["a"],
            "default_queue_type": "quorum",
            "tracing": False,
            "metadata": {"description": "d", "tags": []},
            "limits": {"max-queues": 5},
            "protected_from_deletion": True,
        },
    ],
    "users": [
        {
            "name": "u",
            "password_hash": "HfvRj4c=",
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["monitoring", "management"],
            "limits": {"max-connections": 100},
        }
    ],
    "permissions": [{"user": "u", "vhost": "/", "configure": "a", "write": "b", "read": "c"}],
    "topic_permissions": [{"user": "u", "vhost": "/", "exchange": "amq.topic", "write": "b", "read": "c"}],
    "parameters": [
        {"value": {"max-queues": 100}, "vhost": "v", "component": "vhost-limits", "name": "limits"},
        {
            "value": {"pattern": "a", "definition": {"max-length": 3}, "priority": 2, "apply-to": "all"},
            "vhost": "v",
            "component": "operator_policy",
            "name": "p",
        },
    ],
    "global_parameters": [{"name": "cluster_name", "value": "x"}, {"name": "none", "value": None}],
    "policies": [
        {
            "vhost": "v",
            "name": "p",
            "pattern": "a",
            "apply-to": "queues",
            "definition": {"max-length": 3, "ha-mode": "all"},
            "priority": 1.5,
        }
    ],
    "queues": [
        {
            "name": "q",
            "vhost": "/",
            "type": "quorum",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-queue-type": "quorum", "n": 1, "f": 1.0, "b": True, "l": [["a", 1]], "t": {"q": None}},
        }
    ],
    "exchanges": [
        {
            "name": "x",
            "vhost": "/",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": True,
            "arguments": {"alternate-exchange": "amq.direct"},
        }
    ],
    "bindings": [
        {
            "source": "amq.topic",
            "vhost": "/",
            "destination": "x",
            "destination_type": "exchange",
            "routing_key": "k",
            "arguments": {"a": 1},
            "properties_key": "k~1",
        }
    ],
}


def unordered(document: dict[str, object]) -> dict[str, object]:
    return {
        key: sorted(value, key=lambda entry: json.dumps(entry, sort_keys=True)) if isinstance(value, list) else value
        for key, value in document.items()
    }


def test_reading() -> None:
    got = parse_definitions(FILE)
    assert got.vhosts == (
        VirtualHost("/"),
        VirtualHost(
            "v",
            "d",
            ("a",),
            "quorum",
            False,
            {"description": "d", "tags": []},
            {"max-queues": 5},
            {"protected_from_deletion": True},
        ),
    )
    assert got.users == (
        User(
            "u",
            "HfvRj4c=",
            "rabbit_password_hashing_sha256",
            ("monitoring", "management"),
            {"max-connections": 100},
        ),
    )
    assert got.permissions == (Permission("/", "u", "a", "b", "c"),)
    assert got.topic_permissions == (TopicPermission("/", "u", "amq.topic", "b", "c"),)
    assert got.parameters == (Parameter("v", "vhost-limits", "limits", {"max-queues": 100}),)
    assert got.operator_policies == (Policy("v", "p", "a", {"max-length": 3}, "all", 2),)
    assert got.policies == (Policy("v", "p", "a", {"max-length": 3, "ha-mode": "all"}, "queues", 1.5),)
    assert got.global_parameters == (GlobalParameter("cluster_name", "x"), GlobalParameter("none", None))
    assert got.queues == (
        QueueDefinition("/", "q", arguments=FILE["queues"][0]["arguments"], type="quorum"),  # type: ignore[index]
    )
    assert type(got.queues[0].arguments["f"]) is float
    assert got.exchanges == (
        ExchangeDefinition("/", "x", "topic", internal=True, arguments={"alternate-exchange": "amq.direct"}),
    )
    assert got.bindings == (
        BindingDefinition("/", "amq.topic", "x", "exchange", "k", {"a": 1}, {"properties_key": "k~1"}),
    )
    assert got.about == {"rabbitmq_version": "4.1.0", "product_name": "RabbitMQ"}
    assert parse_definitions(json.dumps(FILE)) == parse_definitions(json.dumps(FILE).encode()) == got


def test_writing_what_was_read() -> None:
    assert unordered(emit_definitions(parse_definitions(FILE))) == unordered(FILE)


def test_secrets_are_not_shown() -> None:
    user = parse_definitions({"users": [{"name": "u", "password_hash": "SECRET", "password": "secret"}]}).users[0]
    assert "secret" not in repr(user).lower()
    assert user.extra == {"password": "secret"}


def test_what_a_file_may_leave_out() -> None:
    assert parse_definitions({}) == Definitions()
    assert parse_definitions({"queues": None}) == Definitions()
    got = parse_definitions(
        {
            "users": [{"name": "u", "tags": "a, b,"}, {"name": "v", "tags": None}],
            "queues": [{"name": "q"}],
            "exchanges": [{"name": "x", "type": "fanout", "arguments": []}],
            "bindings": [{"source": "x", "destination": "q", "destination_type": "queue"}],
            "policies": [{"name": "p", "pattern": "", "definition": [["expires", 1]]}],
            "parameters": [
                {"component": "operator_policy", "name": "o", "value": {"pattern": "", "definition": [["expires", 2]]}}
            ],
        },
        vhost="v",
    )  # fmt: skip
    assert [user.tags for user in got.users] == [("a", "b"), ()]
    assert got.queues == (QueueDefinition("v", "q", True, False, {}),)
    assert got.exchanges == (ExchangeDefinition("v", "x", "fanout", True, False, False, {}),)
    assert got.bindings == (BindingDefinition("v", "x", "q", "queue", "", {}),)
    assert got.policies == (Policy("v", "p", "", {"expires": 1}, "all", 0),)
    assert got.operator_policies == (Policy("v", "o", "", {"expires": 2}, "all", 0),)


def test_lists_of_pairs_are_objects_again() -> None:
    got = parse_definitions({"global_parameters": [{"name": "g", "value": [["a", [["b", 1]]], ["c", [1, 2]]]}]})
    assert got.global_parameters[0].value == {"a": {"b": 1}, "c": [1, 2]}


def test_the_file_of_one_virtual_host() -> None:
    got = emit_definitions(parse_definitions(FILE), vhost="v")
    assert {key for key, value in got.items() if isinstance(value, list)} == {
        "parameters", "policies", "queues", "exchanges", "bindings",
    }  # fmt: skip
    assert got["queues"] == []
    assert got["policies"] == [
        {
            "name": "p",
            "pattern": "a",
            "apply-to": "queues",
            "definition": {"max-length": 3, "ha-mode": "all"},
            "priority": 1.5,
        }
    ]
    again = parse_definitions(got, vhost="v")
    assert again.policies == parse_definitions(FILE).policies
    assert again.operator_policies == parse_definitions(FILE).operator_policies
    assert again.parameters == parse_definitions(FILE).parameters


@pytest.mark.parametrize(
    "document, text",
    [
        ("{", "definitions: not JSON: Expecting property name"),
        ("[1]", "definitions: expected an object, got a list"),
        ({"queues": {}}, "queues: expected a list, got an object"),
        ({"queues": [1]}, r"queues\[0\]: expected an object, got a number"),
        ({"queues": [{"vhost": "/"}]}, r"queues\[0\].name: missing"),
        ({"queues": [{"name": "q"}]}, r"queues\[0\].vhost: missing"),
        (
            {"queues": [{"name": "q", "vhost": "/"}, {"name": "q", "vhost": "/", "arguments": "x"}]},
            r"queues\[1\].arguments: expected an object, got a string",
        ),
        ({"queues": [{"name": 1, "vhost": "/"}]}, r"queues\[0\].name: expected a string, got a number"),
        (
            {"queues": [{"name": "q", "vhost": "/", "durable": 1}]},
            r"queues\[0\].durable: expected true or false, got a number",
        ),
        ({"users": [{"name": "u", "tags": [1]}]}, r"users\[0\].tags\[0\]: expected a string, got a number"),
        ({"users": [{"name": "u", "tags": 1}]}, r"users\[0\].tags: expected a list, got a number"),
        ({"global_parameters": [{"name": "g"}]}, r"global_parameters\[0\].value: missing"),
        ({"policies": [{"name": "p", "vhost": "/", "pattern": ""}]}, r"policies\[0\].definition: missing"),
        ({"policies": [{"name": "p", "pattern": "", "definition": {}}]}, r"policies\[0\].vhost: missing"),
        (
            {"policies": [{"name": "p", "vhost": "/", "pattern": "", "definition": {}, "apply-to": "zz"}]},
            r'policies\[0\].apply-to: expected one of all, exchanges, .*, got "zz"',
        ),
        (
            {"policies": [{"name": "p", "vhost": "/", "pattern": "", "definition": {}, "priority": True}]},
            r"policies\[0\].priority: expected a number, got true or false",
        ),
        (
            {"parameters": [{"component": "operator_policy", "name": "p", "vhost": "/", "value": 1}]},
            r"parameters\[0\].value: expected an object, got a number",
        ),
        (
            {"policies": [{"name": None, "vhost": "/", "pattern": "", "definition": {}}]},
            r"policies\[0\].name: missing",
        ),
        ({"vhosts": [None]}, r"vhosts\[0\]: expected an object, got null"),
        ("[]", "definitions: expected an object, got a list"),
        ({"vhosts": [[]]}, r"vhosts\[0\]: expected an object, got a list"),
        ('{"a": NaN}', "definitions: not JSON: NaN is no number of JSON"),
        ("[" * 200_000, "definitions: nested too deep"),
        ({"queues": [{"name": "x" * 256, "vhost": "v"}]}, r"queues\[0\].name: 'x+...' has 256 bytes, and may have 255"),
    ],
)
def test_what_is_refused(document: str | dict[str, object], text: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{text}"):
        parse_definitions(document)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
tables = st.dictionaries(st.text(max_size=5), json_values, max_size=4)
names = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1, max_size=5)


@given(
    queues=st.lists(
        st.builds(
            QueueDefinition,
            vhost=names,
            name=names,
            durable=st.booleans(),
            auto_delete=st.booleans(),
            arguments=tables,
            type=st.none() | names,
        )
    ),
    bindings=st.lists(
        st.builds(
            BindingDefinition,
            vhost=names,
            source=names,
            destination=names,
            destination_type=st.sampled_from(["queue", "exchange"]),
            routing_key=names,
            arguments=tables,
        )
    ),
    policies=st.lists(
        st.builds(Policy, names, names, names, tables, st.just("all"), st.integers(-(1 << 63), (1 << 63) - 1))
    ),
    users=st.lists(st.builds(User, names, st.none() | names, names, st.lists(names).map(tuple), st.none() | tables)),
)
def test_definitions_survive_the_file(
    queues: list[QueueDefinition], bindings: list[BindingDefinition], policies: list[Policy], users: list[User]
) -> None:
    made = Definitions(
        queues=tuple(queues),
        bindings=tuple(bindings),
        policies=tuple(policies),
        operator_policies=tuple(policies),
        users=tuple(users),
    )
    assert parse_definitions(json.dumps(emit_definitions(made))) == made


@given(document=st.dictionaries(st.sampled_from([*FILE]), json_values, max_size=4) | json_values.map(json.dumps))
def test_anything_else_is_refused_in_order(document: dict[str, object] | str) -> None:
    """It is parsed, and comes out as it went in; or it is an InvalidArgument, never another exception."""
    try:
        got = parse_definitions(document)
    except InvalidArgument:
        return
    assert parse_definitions(emit_definitions(got)) == got
