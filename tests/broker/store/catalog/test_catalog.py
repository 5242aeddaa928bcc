"""The catalog: what is committed comes back exactly; what cannot be read is never taken for empty."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harebell.broker.store.catalog.catalog import FEW, SCHEMA, Catalog, CatalogError
from harebell.broker.store.catalog.check import inspect_catalog
from harebell.broker.store.catalog.json_values import decode_value, encode_value
from harebell.protocol.v091.fields import Table, read_table, write_table
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
)  # fmt: skip
from harebell.routing.policies import Policy

ARGUMENTS: Table = {
    "int": 1 << 62, "negative": -(1 << 63), "float": 0.1, "bool": True, "none": None, "text": "ü\udc80",
    "bytes": b"\xff\0", "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "decimal": Decimal("1.50"),
    "list": [1, "2", [b"3"], {"!": 4}],
    "table": {"!": {"nested": [Decimal("-0.001")]}},
}  # fmt: skip

ALL = Definitions(
    vhosts=(
        VirtualHost("/"),
        VirtualHost("v", "text", ("a", "b"), "quorum", True, {"k": [1]}, {"max-queues": 3}, {"x": 1}),
    ),
    users=(User("u", "aGFzaA==", "rabbit_password_hashing_sha256", ("administrator",), {}, {}),),
    permissions=(Permission("/", "u", ".*", "^a", ""), Permission("v", "u", "", "", "")),
    topic_permissions=(TopicPermission("/", "u", "amq.topic", "a", "b"),),
    parameters=(Parameter("/", "shovel", "s", {"src-uri": ["amqp://"]}), Parameter("/", "shovel", "null", None)),
    global_parameters=(GlobalParameter("cluster_name", "rabbit"), GlobalParameter("big", 10**30)),
    policies=(Policy("/", "p", ".*", {"max-length": 3}, "queues", 1.5),),
    operator_policies=(Policy("/", "p", "^q", {"expires": 5}, "all", 0),),
    queues=(QueueDefinition("/", "q\udcff", arguments=ARGUMENTS, type="classic"), QueueDefinition("v", "q")),
    exchanges=(ExchangeDefinition("/", "e", "topic", arguments=ARGUMENTS, internal=True),),
    bindings=(
        BindingDefinition("/", "e", "q\udcff", "queue", "k", ARGUMENTS),
        BindingDefinition("/", "e", "q\udcff", "queue", "k", {}),
        BindingDefinition("/", "e", "amq.fanout", "exchange", "k", {}),
        BindingDefinition("v", "e", "q", "queue"),
    ),
)  # fmt: skip


def fill(catalog: Catalog, definitions: Definitions) -> None:
    for policy in definitions.operator_policies:
        catalog.put_policy(policy, operator=True)
    for section in (
        "vhost",
        "user",
        "permission",
        "topic_permission",
        "parameter",
        "global_parameter",
        "exchange",
        "binding",
    ):
        for record in getattr(definitions, section + "s"):
            getattr(catalog, f"put_{section}")(record)
    for policy in definitions.policies:
        catalog.put_policy(policy)
    for number, queue in enumerate(definitions.queues):
        catalog.put_queue(queue, f"queues/{number}" if number else None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


def test_everything_comes_back_exactly(path: Path) -> None:
    catalog = Catalog.open(path)
    fill(catalog, ALL)
    catalog.close()
    catalog = Catalog.open(path)
    contents = catalog.load()
    assert contents.definitions == ALL
    assert repr(contents.definitions) == repr(ALL)  # 1 is not 1.0, nor True
    assert contents.folders == {("v", "q"): "queues/1"}
    catalog.close()


def test_what_is_not_committed_is_not_there(path: Path) -> None:
    catalog = Catalog.open(path)
    assert not catalog.changed
    catalog.put_user(User("kept"))
    assert catalog.changed
    catalog.commit()
    assert not catalog.changed
    catalog.put_user(User("lost"))
    other = Catalog.open(path)
    assert [user.name for user in other.load().definitions.users] == ["kept"]
    other.close()
    catalog.rollback()
    catalog.close()
    assert [user.name for user in Catalog.open(path).load().definitions.users] == ["kept"]


def test_put_replaces_and_keeps_the_order(path: Path) -> None:
    catalog = Catalog.open(path)
    for name in ("b", "a", "c"):
        catalog.put_user(User(name))
    catalog.put_user(User("a", tags=("monitoring",)))
    assert catalog.load().definitions.users == (User("b"), User("a", tags=("monitoring",)), User("c"))


def test_what_goes_takes_what_hangs_on_it(path: Path) -> None:
    catalog = Catalog.open(path)
    fill(catalog, ALL)
    catalog.remove_queue("/", "q\udcff")
    assert [b.destination for b in catalog.load().definitions.bindings] == ["amq.fanout", "q"]
    catalog.remove_exchange("/", "e")
    assert [b.destination for b in catalog.load().definitions.bindings] == ["q"]
    catalog.remove_user("u")
    catalog.remove_vhost("v")
    left = catalog.load()
    assert left.folders == {}
    left_of = left.definitions
    assert (left_of.queues, left_of.bindings, left_of.permissions, left_of.topic_permissions) == ((), (), (), ())
    assert [vhost.name for vhost in left_of.vhosts] == ["/"]
    for policy in ALL.policies:
        catalog.remove_policy("/", policy.name)
        assert len(catalog.load().definitions.operator_policies) == 1
        catalog.remove_policy("/", policy.name, operator=True)
    catalog.remove_parameter("/", "shovel", "s")
    catalog.remove_parameter("/", "shovel", "null")
    catalog.remove_global_parameter("cluster_name")
    catalog.remove_global_parameter("big")
    assert catalog.load().definitions == Definitions(vhosts=(VirtualHost("/"),))


def test_bindings_that_differ_in_one_thing(path: Path) -> None:
    catalog = Catalog.open(path)
    fill(catalog, ALL)
    first = ALL.bindings[0]
    reordered = dict(reversed(ARGUMENTS.items()))
    catalog.remove_binding(BindingDefinition("/", "e", "q\udcff", "queue", "k", reordered))
    assert catalog.load().definitions.bindings == ALL.bindings[1:]
    catalog.put_binding(first)
    catalog.put_binding(first)
    assert catalog.load().definitions.bindings == (*ALL.bindings[1:], first)
    catalog.remove_permission("v", "u")
    catalog.remove_topic_permission("/", "u", "amq.topic")
    left = catalog.load().definitions
    assert (left.permissions, left.topic_permissions) == (ALL.permissions[:1], ())


def test_a_thousand_changes_are_one_transaction(path: Path) -> None:
    catalog = Catalog.open(path)
    begun = []
    catalog._connection.set_trace_callback(lambda statement: begun.append(statement.split()[0]))
    for number in range(1000):
        catalog.put_queue(QueueDefinition("/", f"q{number}"), f"queues/{number}")
    catalog.commit()
    catalog.commit()
    assert (begun.count("BEGIN"), begun.count("COMMIT")) == (1, 1)


@pytest.mark.parametrize("spoiled", ["empty", "text", "another", "page", "record", "newer", "journal"])
def test_a_catalog_that_cannot_be_read_is_an_error(path: Path, spoiled: str) -> None:
    catalog = Catalog.open(path)
    fill(catalog, ALL)
    for number in range(300):
        catalog.put_queue(QueueDefinition("/", f"q{number}"))
    catalog.close()
    match spoiled:
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_bytes(b"not a database" * 500)
        case "page":
            data = bytearray(path.read_bytes())
            data[8192:12288] = bytes(4096)
            path.write_bytes(data)
        case "journal":
            path.unlink()
            path.with_name("catalog.db-wal").write_bytes(b"x")
        case _:
            connection = sqlite3.connect(path)
            statement = {
                "another": "PRAGMA application_id = 0",
                "record": "UPDATE records SET record = '{\"a\": 1}' WHERE section = 'users'",
                "newer": f"PRAGMA user_version = {SCHEMA + 1}",
            }[spoiled]
            connection.execute(statement)
            connection.commit()
            connection.close()
    with pytest.raises(CatalogError) as caught:
        Catalog.open(path).load()
    assert str(path) in str(caught.value)
    if spoiled == "newer":
        assert f"store format {SCHEMA + 1}, this version reads {SCHEMA}" in str(caught.value)


def test_a_full_disk_undoes_the_transaction(path: Path) -> None:
    catalog = Catalog.open(path)
    catalog.put_user(User("kept"))
    catalog.commit()
    pages = catalog._connection.execute("PRAGMA page_count").fetchone()[0]
    catalog._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(CatalogError, match="full") as caught:
        for number in range(500):
            catalog.put_queue(QueueDefinition("/", f"q{number}"))
    assert caught.value.errno == 28
    with pytest.raises(CatalogError, match="full"):
        catalog.put_user(User("too late"))
    with pytest.raises(CatalogError, match="full"):
        catalog.commit()
    assert not catalog.changed
    catalog._connection.execute(f"PRAGMA max_page_count = {pages + 500}")
    catalog.put_user(User("after"))
    catalog.commit()
    assert catalog.load().definitions == Definitions(users=(User("kept"), User("after")))


def test_an_older_schema_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog.open(path)
    fill(catalog, ALL)
    catalog.close()
    monkeypatch.setattr("harebell.broker.store.catalog.catalog.SCHEMA", SCHEMA + 1)
    monkeypatch.setattr("harebell.broker.store.catalog.catalog._MIGRATIONS", {SCHEMA: "CREATE TABLE more (a)"})
    catalog = Catalog.open(path)
    assert catalog.load().definitions == ALL
    assert catalog._connection.execute("PRAGMA user_version").fetchone() == (SCHEMA + 1,)
    assert catalog._connection.execute("SELECT count(*) FROM more").fetchone() == (0,)


def test_in_memory() -> None:
    catalog = Catalog.in_memory()
    fill(catalog, ALL)
    catalog.commit()
    assert catalog.load().definitions == ALL
    catalog.close()
    assert Catalog.in_memory().load().definitions == Definitions()


def test_without_sync(path: Path) -> None:
    catalog = Catalog.open(path, sync=False)
    assert catalog._connection.execute("PRAGMA synchronous").fetchone() == (0,)
    catalog.close()
    assert Catalog.open(path)._connection.execute("PRAGMA synchronous").fetchone() == (2,)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()) | st.binary()
    | st.decimals(allow_nan=False) | st.datetimes(timezones=st.just(UTC)).map(lambda time: time.replace(fold=0)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("!"), inner) | st.tuples(inner, inner),
    max_leaves=10,
)  # fmt: skip


@given(VALUES)
def test_any_value_comes_back_as_it_was(value: object) -> None:
    assert repr(decode_value(encode_value(value))) == repr(value)


def test_a_table_from_the_wire_goes_back_to_the_same_bytes() -> None:
    wire = write_table({key: value for key, value in ARGUMENTS.items() if key != "text"})
    table, _ = read_table(wire, 0)
    assert write_table(decode_value(encode_value(table))) == wire  # type: ignore[arg-type]


def test_what_has_no_place_in_a_table() -> None:
    with pytest.raises(TypeError, match="a set cannot be kept"):
        encode_value({"a": {1}})
    with pytest.raises(ValueError, match="unknown kind of value: later"):
        decode_value('{"!": ["later", 1]}')


MANY = 3 * FEW + 10


def bound(number: int, source: str = "amq.topic", kind: str = "queue", name: str = "q") -> BindingDefinition:
    return BindingDefinition("/", source, name, kind, f"key {number}", {})


def many(catalog: Catalog) -> None:
    catalog.put_vhost(VirtualHost("/"))
    for name in ("q", "other"):
        catalog.put_queue(QueueDefinition("/", name))
    catalog.put_exchange(ExchangeDefinition("/", "e", "topic"))
    for number in range(MANY):
        catalog.put_binding(bound(number))
        catalog.put_binding(bound(number, source="e", name="other"))
        catalog.put_binding(bound(number, kind="exchange", name="e"))
    catalog.put_binding(bound(0, name="other"))
    catalog.commit()


KEPT = [bound(0, name="other")]  # of those, by what is deleted below
OF_QUEUE = [bound(number) for number in range(MANY)]


@pytest.mark.repeats
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 100])
def test_many_bindings_go_with_their_queue_and_exchange_at_once_and_are_removed_in_steps(
    path: Path, steps: int
) -> None:
    """Whenever the process ends, they are gone; what is bound anew meanwhile stays."""
    catalog = Catalog.open(path)
    many(catalog)
    catalog.remove_queue("/", "q")
    catalog.remove_exchange("/", "e")
    catalog.commit()
    assert list(catalog.load().definitions.bindings) == KEPT
    catalog.put_queue(QueueDefinition("/", "q"))
    again = [bound(5), bound(MANY - 1), bound(MANY)]
    for binding in again[:2]:
        catalog.put_binding(binding)
    catalog.commit()
    sweep = catalog.sweep()
    for _ in range(steps):
        next(sweep, None)
        catalog.commit()
    catalog.put_binding(again[2])
    catalog.commit()
    assert list(catalog.load().definitions.bindings) == KEPT + again
    catalog._connection.close()  # as a kill leaves it
    catalog = Catalog.open(path)
    assert list(catalog.load().definitions.bindings) == KEPT + again
    assert catalog.unswept == (steps < 100)
    for _ in catalog.sweep():
        catalog.commit()
    assert list(catalog.load().definitions.bindings) == KEPT + again
    assert not catalog.unswept
    catalog.close()
    assert inspect_catalog(path).problem is None
    assert inspect_catalog(path).records == 1 + 2 + 1 + 3  # the virtual host, its queues, bindings


def test_a_deletion_that_is_not_committed_takes_no_binding(path: Path) -> None:
    catalog = Catalog.open(path)
    many(catalog)
    before = catalog.load()
    catalog.remove_queue("/", "q")
    catalog.rollback()
    assert catalog.load() == before
    assert list(catalog.sweep()) == []
    assert catalog.load() == before
    catalog.close()


def test_a_queue_that_is_deleted_twice_with_many_bindings(path: Path) -> None:
    catalog = Catalog.open(path)
    many(catalog)
    for _ in range(2):
        catalog.remove_queue("/", "q")
        catalog.put_queue(QueueDefinition("/", "q"))
        for binding in OF_QUEUE:
            catalog.put_binding(binding)
        catalog.commit()
        assert [each for each in catalog.load().definitions.bindings if each.destination == "q"] == OF_QUEUE
    catalog.remove_vhost("/")
    catalog.commit()
    assert catalog.load().definitions == Definitions()
    for _ in catalog.sweep():
        catalog.commit()
    catalog.close()
    assert inspect_catalog(path).records == 0
