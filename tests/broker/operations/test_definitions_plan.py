"""What an import would do: the fate of each entry, and that it is what the import then does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harebell.broker.operations.definitions import export_definitions, import_definitions
from harebell.broker.operations.definitions_plan import Planned, planning
from harebell.errors import InvalidArgument, NotFound
from harebell.routing.definitions import Definitions, emit_definitions, parse_definitions
from harebell.routing.steps import complete
from tests.broker.kit import NodeKit

FILE: dict[str, Any] = {
    "vhosts": [{"name": "/"}, {"name": "shop", "description": "a shop"}],
    "users": [
        {"name": "ann", "password_hash": "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR",
         "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ["monitoring"]},
    ],
    "permissions": [{"user": "ann", "vhost": "shop", "configure": "", "write": "", "read": ".*"}],
    "topic_permissions": [{"user": "ann", "vhost": "shop", "exchange": "amq.topic", "write": "", "read": "^a"}],
    "parameters": [
        {"vhost": "shop", "component": "operator_policy", "name": "cap",
         "value": {"pattern": ".*", "apply-to": "queues", "definition": {"max-length": 9}, "priority": 0}},
    ],
    "global_parameters": [{"name": "cluster_name", "value": "here"}],
    "policies": [{"vhost": "shop", "name": "p", "pattern": "^q", "definition": {"max-length": 5}}],
    "exchanges": [{"vhost": "shop", "name": "x", "type": "topic", "durable": True, "arguments": {}}],
    "queues": [{"vhost": "shop", "name": "q", "durable": True, "arguments": {"x-max-length": 7}}],
    "bindings": [
        {"vhost": "shop", "source": "x", "destination": "q", "destination_type": "queue", "routing_key": key,
         "arguments": arguments}
        for key, arguments in (("a", {}), ("a", {"n": 1}), ("b", {}))
    ],
}  # fmt: skip


@pytest.fixture
def kit(tmp_path: Path) -> Any:
    kit = NodeKit(tmp_path / "data")
    yield kit
    kit.stop()


def plan(kit: NodeKit, file: Any, vhost: str | None = None) -> list[Planned]:
    return complete(planning(kit.node, parse_definitions(file, vhost=vhost), vhost))


def fates(planned: list[Planned]) -> dict[tuple[str, str], str]:
    return {(each.section, str(each.identity.get("name", each.identity.get("user")))): each.fate for each in planned}


def test_what_is_new_is_the_same_once_it_is_imported(kit: NodeKit) -> None:
    before = export_definitions(kit.node)
    planned = plan(kit, FILE)
    entries = sum(len(section) for section in FILE.values())
    assert len(planned) == entries
    assert {each.fate for each in planned if each.identity.get("name") != "/"} == {"new"}
    assert export_definitions(kit.node) == before, "nothing was done"
    import_definitions(kit.node, parse_definitions(FILE))
    assert {each.fate for each in plan(kit, FILE)} == {"same"}
    whole = emit_definitions(export_definitions(kit.node))
    assert {each.fate for each in plan(kit, whole)} == {"same"}


def test_what_differs_is_set_or_stays(kit: NodeKit) -> None:
    import_definitions(kit.node, parse_definitions(FILE))
    other = {
        **FILE,
        "users": [{**FILE["users"][0], "tags": ["administrator"], "password_hash": ""}],
        "permissions": [{**FILE["permissions"][0], "write": "^x"}],
        "policies": [{**FILE["policies"][0], "definition": {"max-length": 6}}],
        "exchanges": [{**FILE["exchanges"][0], "type": "fanout"}],
        "queues": [{**FILE["queues"][0], "arguments": {}}],
        "bindings": FILE["bindings"][:1],
    }
    planned = plan(kit, other)
    assert fates(planned) | {("bindings", "None"): ""} == {
        ("vhosts", "/"): "same", ("vhosts", "shop"): "same", ("users", "ann"): "changed",
        ("permissions", "ann"): "changed", ("topic_permissions", "ann"): "same", ("parameters", "cap"): "same",
        ("global_parameters", "cluster_name"): "same", ("policies", "p"): "changed", ("exchanges", "x"): "kept",
        ("queues", "q"): "kept", ("bindings", "None"): "",
    }  # fmt: skip
    differs = {each.section: each.differs for each in planned if each.differs}
    assert differs["permissions"] == {"write": ("", "^x")}
    assert differs["policies"] == {"definition": ({"max-length": 5}, {"max-length": 6})}
    assert differs["exchanges"] == {"type": ("topic", "fanout")}
    assert differs["queues"] == {"arguments": ({"x-max-length": 7}, {})}
    assert differs["users"] == {"tags": None, "password_hash": None}, "no secret"
    kept = [each for each in planned if each.fate == "kept"]
    import_definitions(kit.node, parse_definitions(other))
    assert [each for each in plan(kit, other) if each.fate != "same"] == kept


def test_into_one_virtual_host(kit: NodeKit) -> None:
    file = {"queues": [{"name": "q", "durable": True}]}
    (one,) = plan(kit, file, "/")
    assert (one.fate, one.identity) == ("new", {"vhost": "/", "name": "q"})
    import_definitions(kit.node, parse_definitions(file, vhost="/"), "/")
    assert plan(kit, file, "/")[0].fate == "same"
    with pytest.raises(NotFound):
        plan(kit, file, "none")


def test_what_an_import_refuses_has_no_plan(kit: NodeKit) -> None:
    with pytest.raises(InvalidArgument, match="x-max-length"):
        plan(kit, {"queues": [{"vhost": "/", "name": "q", "arguments": {"x-max-length": "many"}}]})
    assert complete(planning(kit.node, Definitions())) == []
