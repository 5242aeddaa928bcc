"""Definitions of a running node: applied as a whole or not at all, and written as they were."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Any

import pytest

from harebell.broker import Broker
from harebell.broker.operations.definitions import export_definitions, import_definitions
from harebell.errors import (
    InternalError,
    InvalidArgument,
    LocalProtocolError,
    NotFound,
    NotImplemented as NotImplemented540,
)
from harebell.protocol.v091 import methods as m
from harebell.routing.definitions import Permission, emit_definitions, parse_definitions
from harebell.routing.table_values import canonical
from tests.broker.kit import Client, NodeKit
from tests.routing.test_definitions import unordered

SHA256 = "rabbit_password_hashing_sha256"
RICH: dict[str, Any] = {
    "vhosts": [
        {"name": "/", "description": "Default virtual host"},
        {"name": "v", "description": "d", "tags": ["a"], "default_queue_type": "classic", "tracing": False},
    ],
    "users": [
        {
            "name": "guest", "password_hash": "bQ7h54Pb3tbxagpU+EeDFBomA+DxpqiaqYOvvSSIMdYt1qaN",
            "hashing_algorithm": SHA256, "tags": ["administrator"], "limits": {},
        },
        {
            "name": "app", "password_hash": "", "hashing_algorithm": SHA256,
            "tags": [], "limits": {"max-channels": 9},
        },
    ],
    "permissions": [{"user": "app", "vhost": "v", "configure": "^a", "write": ".*", "read": ""}],
    "topic_permissions": [{"user": "app", "vhost": "v", "exchange": "x", "write": "a", "read": "b"}],
    "parameters": [
        {"vhost": "v", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 50}},
        {"vhost": "/", "component": "shovel", "name": "s", "value": {"src-queue": "q", "dest-uri": ["a", "b"]}},
        {
            "vhost": "/", "component": "operator_policy", "name": "o",
            "value": {"pattern": "", "apply-to": "queues", "definition": {"expires": 500000}, "priority": 1},
        },
    ],
    "global_parameters": [{"name": "cluster_name", "value": "rabbit@h"}, {"name": "n", "value": None}],
    "policies": [
        {
            "vhost": "/", "name": "p", "pattern": "^q", "apply-to": "queues",
            "definition": {"max-length": 2, "overflow": "drop-head"}, "priority": 3,
        },
    ],
    "queues": [
        {
            "vhost": "/", "name": "q", "durable": True, "auto_delete": False, "type": "classic",
            "arguments": {"x-message-ttl": 500000, "x-foo": "s", "x-table": {"a": [1, "b", {"c": False}]}},
        },
        {
            "vhost": "/", "name": "quorum", "durable": True, "auto_delete": False, "type": "quorum",
            "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 3},
        },
        {
            "vhost": "/", "name": "log", "durable": True, "auto_delete": False, "type": "stream",
            "arguments": {"x-queue-type": "stream"},
        },
        {
            "vhost": "v", "name": "q", "durable": False, "auto_delete": True, "type": "classic",
            "arguments": {"x-queue-type": "classic"},
        },
    ],
    "exchanges": [
        {
            "vhost": "/", "name": "x", "type": "topic", "durable": True, "auto_delete": False, "internal": False,
            "arguments": {"alternate-exchange": "amq.fanout"},
        },
        {
            "vhost": "v", "name": "x", "type": "headers", "durable": False, "auto_delete": True, "internal": True,
            "arguments": {},
        },
    ],
    "bindings": [
        {
            "vhost": "/", "source": "amq.topic", "destination": "x", "destination_type": "exchange",
            "routing_key": "k.#", "arguments": {},
        },
        {
            "vhost": "/", "source": "x", "destination": "q", "destination_type": "queue", "routing_key": "*.a",
            "arguments": {},
        },
        {
            "vhost": "v", "source": "x", "destination": "q", "destination_type": "queue", "routing_key": "",
            "arguments": {"x-match": "any", "n": 1},
        },
    ],
}  # fmt: skip


def load(kit: NodeKit, document: dict[str, Any], vhost: str | None = None) -> tuple[str, ...]:
    return import_definitions(kit.node, parse_definitions(document, vhost=vhost), vhost)


def dump(kit: NodeKit, vhost: str | None = None) -> dict[str, Any]:
    """As JSON has it."""
    document = emit_definitions(export_definitions(kit.node, vhost), vhost=vhost)
    written: dict[str, Any] = json.loads(json.dumps(document))
    return written


def queue(name: str, vhost: str = "/", **rest: Any) -> dict[str, Any]:
    return {"vhost": vhost, "name": name, "durable": True, "auto_delete": False, "arguments": {}, **rest}


def exchange(name: str, kind: str = "topic", **rest: Any) -> dict[str, Any]:
    return {"vhost": "/", "name": name, "type": kind, "durable": True, "auto_delete": False, "arguments": {}, **rest}


def binding(source: str, destination: str, kind: str = "queue", **rest: Any) -> dict[str, Any]:
    return {"vhost": "/", "source": source, "destination": destination, "destination_type": kind, **rest}


def policy(definition: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"vhost": "/", "name": "p", "pattern": "", "definition": definition, **rest}


def test_a_file_goes_in_and_comes_out(kit: NodeKit) -> None:
    kit.node.users.permissions.clear()
    remarks = load(kit, RICH)
    assert remarks == ("parameter 's' of component 'shovel' in vhost '/': kept, but nothing here acts on it",)
    written = dump(kit)
    assert written.pop("product_name") == "Harebell"
    written.pop("product_version")
    for vhost in written["vhosts"]:
        vhost.pop("metadata")
        assert vhost.pop("limits") == ({"max-queues": 50} if vhost["name"] == "v" else {})
    assert unordered(written) == unordered(RICH)


def test_what_was_loaded_works(kit: NodeKit, client: Client) -> None:
    load(kit, RICH)
    for key in ("k.a", "k.b"):
        client.publish(key, exchange="amq.topic")
    assert client.count("q") == 1
    for _ in range(3):
        client.publish("q")
    assert client.count("q") == 2, "the policy's max-length"
    assert kit.node.vhosts["v"].limits == {"max-queues": 50}
    kit.node.users.set_permission(Permission("v", "guest", ".*", ".*", ".*"))
    there = kit.client(vhost="v")
    there.call(m.QueueDeclare("other", durable=True), m.QueueDeclareOk)
    assert kit.node.vhosts["v"].queues["other"].arguments == {"x-queue-type": "classic"}


def test_loading_it_again_changes_nothing(kit: NodeKit, client: Client) -> None:
    load(kit, RICH)
    client.publish("k.a", exchange="amq.topic")
    before = dump(kit)
    assert len(load(kit, before)) == 1
    assert dump(kit) == before
    assert client.count("q") == 1


def test_streams_that_are_back_are_found_equal(tmp_path: Path) -> None:
    for _ in range(2):
        kit = NodeKit(tmp_path)
        assert len(load(kit, RICH)) == 1
        kit.stop()


def test_a_disk_that_refuses_a_stream(kit: NodeKit, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kit.node.store.streams, "create", refuse)
    with pytest.raises(InternalError, match="cannot make queue 'log' in vhost '/': No space left on device"):
        load(kit, RICH)


def test_the_file_of_one_virtual_host_in_another(kit: NodeKit) -> None:
    load(kit, RICH)
    written = dump(kit, "/")
    assert not {"vhosts", "users", "permissions", "topic_permissions", "global_parameters"} & written.keys()
    assert all("vhost" not in each for each in (*written["queues"], *written["bindings"], *written["policies"]))
    load(kit, {"vhosts": [{"name": "copy"}]})
    load(kit, written, "copy")
    assert unordered(dump(kit, "copy")) == unordered(written)
    load(kit, {"queues": [queue("also", "elsewhere")], "users": [{"name": "nobody"}]}, "copy")
    assert "also" in kit.node.vhosts["copy"].queues
    assert "nobody" not in kit.node.users.users
    with pytest.raises(NotFound, match="no vhost 'nope'"):
        load(kit, {}, "nope")
    with pytest.raises(NotFound, match="no vhost 'nope'"):
        dump(kit, "nope")


@pytest.mark.parametrize(
    "bad, text",
    [
        ({"queues": [queue("q", "nope")]}, "queue 'q' in vhost 'nope': there is no vhost 'nope', neither in the file"),
        (
            {"queues": [queue("q", arguments={"x-expires": -1})]},
            "invalid arg 'x-expires' for queue 'q' in vhost '/': {value_negative,-1}",
        ),
        ({"queues": [queue("q", arguments={"x-queue-type": "zork"})]}, "invalid arg 'x-queue-type' for queue 'q'"),
        ({"queues": [queue("q", type="zork")]}, "invalid arg 'x-queue-type' for queue 'q'"),
        ({"queues": [queue("q", type="quorum", durable=False)]}, "invalid property 'non-durable' for queue 'q'"),
        ({"exchanges": [exchange("x", "zork")]}, "exchange 'x' in vhost '/': unknown exchange type 'zork'"),
        ({"exchanges": [exchange("x", "system")]}, "exchange type 'system' is the server's own"),
        ({"policies": [policy({"max-length": 1}, pattern="(")]}, "policy 'p' in vhost '/': Validation failed patt"),
        ({"policies": [policy({"ha-mode": "all"})]}, '[{<<"ha-mode">>,<<"all">>}] are not recognised policy settings'),
        (
            {"parameters": [{"vhost": "/", "component": "operator_policy", "name": "o",
                             "value": {"pattern": "", "definition": {"queue-mode": "lazy"}}}]},
            "operator policy 'o' in vhost '/': Validation failed",
        ),
        (
            {"parameters": [{"vhost": "/", "component": "vhost-limits", "name": "limits", "value": {"max-foo": 1}}]},
            'Unrecognised terms [{<<"max-foo">>,1}] in limits',
        ),
        ({"vhosts": [{"name": "v", "limits": {"max-queues": "a"}}]}, "vhost 'v': Validation failed"),
        ({"vhosts": [{"name": "v", "default_queue_type": "zork"}]}, "vhost 'v': default queue type 'zork'"),
        ({"users": [{"name": "u", "limits": {"max-foo": 1}}]}, 'Unrecognised terms [{<<"max-foo">>,1}] in user-limits'),
        ({"users": [{"name": "u", "password_hash": "a"}]}, "user 'u': password hash is not base64"),
        (
            {"permissions": [{"user": "u", "vhost": "/", "configure": "", "write": "", "read": ""}]},
            "permission of user 'u' in vhost '/': no user 'u'",
        ),
        (
            {"permissions": [{"user": "guest", "vhost": "/", "configure": "", "write": "(", "read": ""}]},
            "permission of user 'guest' in vhost '/': '(' is not a regular expression",
        ),
        ({"bindings": [binding("amq.topic", "q", "zork")]}, "destination_type is 'queue' or 'exchange'"),
        (
            {"bindings": [binding("amq.headers", "good", arguments={"x-match": "zork"})]},
            "binding from exchange 'amq.headers' to queue 'good' in vhost '/': Invalid x-match",
        ),
    ],
)  # fmt: skip
def test_a_bad_object_and_nothing_is_applied(kit: NodeKit, bad: dict[str, Any], text: str) -> None:
    before = dump(kit)
    good: dict[str, Any] = {
        "vhosts": [{"name": "new"}],
        "users": [{"name": "new", "tags": []}],
        "policies": [policy({"max-length": 1}, name="new")],
        "exchanges": [exchange("new")],
        "queues": [queue("good")],
        "bindings": [binding("amq.topic", "good")],
        "parameters": [{"vhost": "/", "component": "c", "name": "new", "value": 1}],
        "global_parameters": [{"name": "new", "value": 1}],
    }
    with pytest.raises(InvalidArgument) as refused:
        load(kit, {section: [*good.get(section, ()), *bad.get(section, ())] for section in {**good, **bad}})
    assert text in str(refused.value)
    assert dump(kit) == before


RETRY: dict[str, Any] = {"delayed-retry-type": "all", "delayed-retry-min": 10}


def test_settings_that_are_not_there_yet(kit: NodeKit) -> None:
    before = dump(kit)
    arguments = {f"x-{name}": value for name, value in RETRY.items()}
    for bad in (
        {"queues": [queue("q", arguments={"x-message-group": "who", **arguments})]},
        {"queues": [queue("q", arguments={"x-message-group": "who"})], "policies": [policy(RETRY)]},
    ):
        with pytest.raises(NotImplemented540, match="x-message-group with delayed retry: queue 'q' in vhost '/'"):
            load(kit, {"vhosts": [{"name": "v"}], **bad})
        assert dump(kit) == before


def test_a_policy_that_a_queue_here_cannot_have(kit: NodeKit, client: Client) -> None:
    client.call(m.QueueDeclare("g", durable=True, arguments={"x-message-group": "who"}), m.QueueDeclareOk)
    with pytest.raises(NotImplemented540, match="x-message-group with delayed retry: queue 'g'"):
        load(kit, {"policies": [policy(RETRY)]})
    assert kit.node.vhosts["/"].policies.policies == {}


def test_keys_of_federation_are_kept_and_remarked_on(kit: NodeKit) -> None:
    keys = ("federation-upstream", "federation-upstream-set", "federation-upstream-pattern")
    policies = [policy({key: "all", "max-length": 3}, name=key) for key in keys]
    places = {"queue-master-locator": "min-masters", "target-group-size": 3}
    value = {"pattern": "", "definition": places, "apply-to": "queues", "priority": 0}
    operators = {"vhost": "/", "component": "operator_policy", "name": "places", "value": value}
    remarks = load(kit, {"policies": policies, "parameters": [operators]})
    assert remarks == tuple(f"policy '{key}' in vhost '/': {key} is kept, but nothing here acts on it" for key in keys)
    exported = dump(kit)
    assert {each["name"]: each["definition"] for each in exported["policies"]} == {
        key: {key: "all", "max-length": 3} for key in keys
    }
    assert [each["value"]["definition"] for each in exported["parameters"]] == [places]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_the_queue_type_undefined_is_none(kit: NodeKit, client: Client, kind: str) -> None:
    kit.node.vhosts["/"].definition = replace(kit.node.vhosts["/"].definition, default_queue_type=kind)
    undefined = {"x-queue-type": "undefined"}
    load(kit, {"queues": [queue("of file", arguments=undefined), queue("of type", arguments=undefined, type="quorum")]})
    client.call(m.QueueDeclare("declared", durable=True, arguments=undefined), m.QueueDeclareOk)
    client.call(m.QueueDeclare("of file", durable=True, arguments=undefined), m.QueueDeclareOk)
    queues = kit.node.vhosts["/"].queues
    types = {name: each.settings.queue_type for name, each in queues.items()}
    assert types == {"of file": kind, "of type": "quorum", "declared": kind}
    assert all(each.arguments == {"x-queue-type": types[name]} for name, each in queues.items())


def test_what_is_there_stays_as_it_is(kit: NodeKit, client: Client) -> None:
    """RabbitMQ's import passes over it in silence."""
    client.call(m.QueueDeclare("q", arguments={"x-max-length": 3}), m.QueueDeclareOk)
    client.call(m.QueueDeclare("mine", exclusive=True), m.QueueDeclareOk)
    client.call(m.ExchangeDeclare("x", "topic", durable=True), m.ExchangeDeclareOk)
    remarks = load(
        kit, {"queues": [queue("q"), queue("mine"), queue("new"), queue("new", durable=False), queue("new")],
              "exchanges": [exchange("x", "fanout"), exchange("x"), exchange("amq.topic"), exchange("amq.direct"),
                            exchange("")]},
    )  # fmt: skip
    assert [remark.split(":")[0] for remark in remarks] == [
        "exchange 'x' in vhost '/'",
        "exchange 'amq.direct' in vhost '/'",
        "queue 'q' in vhost '/'",
        "queue 'mine' in vhost '/'",
        "queue 'new' in vhost '/'",
    ]
    assert "inequivalent arg 'type' for exchange 'x' in vhost '/': received 'fanout' but current" in remarks[0]
    assert "inequivalent arg 'durable' for queue 'q' in vhost '/': received 'true' but current is 'false'" in remarks[2]
    assert "cannot obtain exclusive access" in remarks[3]
    assert kit.node.vhosts["/"].queues["q"].arguments == {"x-max-length": 3}


def test_what_a_file_of_rabbitmqs_has_and_cannot_be_made(kit: NodeKit) -> None:
    """3.10 exports server-named queues, which it does not import, and bindings of exclusive queues, but not these."""
    remarks = load(
        kit,
        {
            "queues": [queue("amq.gen-x"), queue("q")],
            "exchanges": [exchange("amq.new")],
            "bindings": [
                binding("amq.topic", "amq.gen-x"),
                binding("amq.topic", "exclusive"),
                binding("gone", "q"),
                binding("amq.topic", "gone", "exchange"),
                binding("", "q"),
                binding("amq.topic", "q"),
            ],
        },
    )
    assert [remark.rpartition(": ")[2] for remark in remarks] == [
        "left out, the name is the server's",
        "left out, the name is the server's",
        *["left out, one end of it is missing"] * 4,
    ]
    assert [(each["source"], each["destination"]) for each in dump(kit)["bindings"]] == [("amq.topic", "q")]


def test_what_is_not_exported(kit: NodeKit, client: Client) -> None:
    client.call(m.QueueDeclare("mine", exclusive=True), m.QueueDeclareOk)
    client.call(m.QueueDeclare("q"), m.QueueDeclareOk)
    for name in ("mine", "q"):
        client.call(m.QueueBind(name, "amq.topic", "k"), m.QueueBindOk)
    written = dump(kit)
    assert [each["name"] for each in written["queues"]] == ["q"]
    assert [each["destination"] for each in written["bindings"]] == ["q"]
    assert written["exchanges"] == []


def test_values_that_json_does_not_have(kit: NodeKit, client: Client) -> None:
    table: dict[str, Any] = {
        "b": b"\xffa", "t": datetime(2013, 1, 1, tzinfo=UTC), "d": Decimal("1.5"), "l": [b"x", {"y": b"z"}], "n": None,
    }  # fmt: skip
    client.call(m.QueueDeclare("q", arguments=table), m.QueueDeclareOk)
    (written,) = dump(kit)["queues"]
    assert written["arguments"] == {
        "b": "Not UTF-8, base64 is: /2E=", "t": 1356998400, "d": 1.5, "l": ["x", {"y": "z"}], "n": None,
    }  # fmt: skip


NOT_IN_JSON: tuple[Any, ...] = (
    b"\xff\xfe", b"\xff", "\udcff", "é", b"abc", "abc", Decimal("1.25"), Decimal("1E+3"), 1.25, None, True, -1,
    datetime(2013, 1, 1, tzinfo=UTC), float("inf"), float("nan"), [b"\xff", {"y": Decimal("0.1")}], {"z": [b"\xfe"]},
    "Not UTF-8, base64 is: //4=x", "Not UTF-8, base64 is: YWJj", "Not UTF-8, base64 is: ", "Not UTF-8, base64 is: é",
)  # fmt: skip


@pytest.mark.parametrize("value", NOT_IN_JSON, ids=repr)
def test_an_import_of_an_export_adds_no_binding(kit: NodeKit, client: Client, value: object) -> None:
    client.call(m.QueueDeclare("q"), m.QueueDeclareOk)
    client.call(m.QueueBind("q", "amq.headers", "k", arguments={"a": value}), m.QueueBindOk)
    before = dump(kit)
    (there,) = kit.node.vhosts["/"].router.bindings(implicit=False)
    assert load(kit, before) == ()
    assert list(kit.node.vhosts["/"].router.bindings(implicit=False)) == [there]
    assert dump(kit) == before


@pytest.mark.parametrize("value", NOT_IN_JSON, ids=repr)
def test_what_json_can_say_is_the_same_in_another_broker(
    kit: NodeKit, client: Client, value: object, tmp_path: Path
) -> None:
    client.call(m.QueueDeclare("q"), m.QueueDeclareOk)
    client.call(m.QueueBind("q", "amq.headers", "k", arguments={"a": value}), m.QueueBindOk)
    before = dump(kit)
    other = NodeKit(tmp_path / "other")
    load(other, before)
    (made,) = other.node.vhosts["/"].router.bindings(implicit=False)
    assert dump(other)["bindings"] == before["bindings"]
    other.stop()
    if "Decimal" not in repr(value) and not (isinstance(value, float) and not isfinite(value)):
        assert canonical(made.arguments) == canonical({"a": value})


def test_the_type_that_a_file_says_beside_the_arguments(kit: NodeKit) -> None:
    load(kit, {
        "vhosts": [{"name": "v", "default_queue_type": "quorum"}],
        "queues": [queue("a", "v", type="classic"), queue("b", "v"), queue("c", "v", durable=False, type="classic"),
                   queue("d", type="quorum"), queue("e", type="classic")],
    })  # fmt: skip
    types = {each.name: (each.type, each.arguments.get("x-queue-type"))
             for vhost in kit.node.vhosts.values() for each in vhost.queues.values()}  # fmt: skip
    assert types == {
        "a": ("classic", "classic"), "b": ("quorum", "quorum"), "c": ("classic", None), "d": ("quorum", "quorum"),
        "e": ("classic", None),
    }  # fmt: skip


def test_limits_of_a_virtual_host(kit: NodeKit) -> None:
    """Those in force before, as RabbitMQ has it: an export of a host that has more queues than it may comes back."""
    limits = {"vhost": "/", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 1}}
    load(kit, {"parameters": [limits], "queues": [queue("a"), queue("b")]})
    load(kit, {"queues": [queue("a")]})
    with pytest.raises(InvalidArgument) as refused:
        load(kit, {"queues": [queue("a"), queue("c")]})
    assert str(refused.value) == (
        'Adding 1 queue(s) to virtual host "/" would exceed the limit of 1 queue(s). '
        "This virtual host currently has 2 queue(s) defined. Import aborted!"
    )
    load(kit, {"vhosts": [{"name": "/", "limits": {"max-queues": 3}}]})
    load(kit, {"queues": [queue("c")]})


def test_a_password_in_a_file_written_by_hand(kit: NodeKit) -> None:
    user = {"name": "app", "password": "app", "hashing_algorithm": SHA256, "tags": "monitoring, management"}
    everything = {"user": "app", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    load(kit, {"users": [user], "permissions": [everything]})
    kept = kit.node.users.users["app"]
    assert (kept.tags, "password" in kept.extra) == (("monitoring", "management"), False)
    assert '"password"' not in json.dumps(dump(kit))
    assert kit.client(user="app").connection.user == "app"


def test_the_hash_of_a_user_of_rabbitmqs(kit: NodeKit) -> None:
    """Made by RabbitMQ 3.10.8 for guest."""
    load(kit, {"users": [RICH["users"][0], {**RICH["users"][0], "name": "app"}]})
    assert kit.client().connection.user == "guest"
    with pytest.raises(LocalProtocolError):  # the password is not "app", so the connection has ended
        kit.client(user="app")


async def test_the_brokers_own_calls(tmp_path: Path) -> None:
    path = tmp_path / "definitions.json"
    path.write_text(json.dumps(RICH))
    async with Broker(port=None, definitions=path) as broker:
        written = broker.export_definitions()
        assert len(broker.import_definitions(str(path))) == 1
        assert broker.export_definitions() == written
        assert broker.export_definitions(vhost="v").keys() == {
            "product_name", "product_version", "parameters", "policies", "queues", "exchanges", "bindings",
        }  # fmt: skip
        broker.import_definitions(broker.export_definitions(vhost="v"), vhost="/")
        path.write_text("{")
        with pytest.raises(InvalidArgument, match="definitions: not JSON"):
            broker.import_definitions(path)
        with pytest.raises(FileNotFoundError):
            broker.import_definitions(tmp_path / "nope.json")


@pytest.mark.parametrize("bad", [{"queues": [queue("q", "nope")]}, {"queues": 1}])
async def test_a_broker_with_bad_definitions_does_not_start(bad: dict[str, object]) -> None:
    broker = Broker(definitions=bad)
    with pytest.raises(InvalidArgument):
        await broker.start()
    assert broker.port == 0, "it did not listen"
    with pytest.raises(RuntimeError, match="not started"):
        broker.node  # noqa: B018
