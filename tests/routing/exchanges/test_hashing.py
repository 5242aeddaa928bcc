from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from functools import partial

import pytest
from hypothesis import given, strategies as st

from harebell.errors import PreconditionFailed
from harebell.routing import Router, to_exchange, to_queue
from harebell.routing.exchanges.exchange import Dependence, Destination, Exchange
from harebell.routing.exchanges.exchange_types import EXCHANGE_TYPES
from harebell.routing.exchanges.hashing import ConsistentHashExchange, ModulusHashExchange, RandomExchange, draw
from harebell.routing.table_values import Table

KEYS = [f"key.{number}" for number in range(4_000)]


def weighted(*weights: int, arguments: Table | None = None) -> ConsistentHashExchange:
    exchange = ConsistentHashExchange("x", arguments=arguments)
    for number, weight in enumerate(weights):
        exchange.bind(to_queue(f"q{number}"), str(weight))
    return exchange


def shares(exchange: Exchange) -> Counter[str]:
    return Counter(exchange.match([key], {})[0].name for key in KEYS)


def where(exchange: Exchange) -> dict[str, Destination]:
    return {key: exchange.match([key], {})[0] for key in KEYS}


def test_shares_follow_the_weights() -> None:
    got = shares(weighted(1, 3, 6))
    for name, share in (("q0", 0.1), ("q1", 0.3), ("q2", 0.6)):
        assert got[name] / len(KEYS) == pytest.approx(share, abs=0.03)


def test_only_what_a_new_binding_wins_moves_and_all_of_it_returns() -> None:
    exchange = weighted(2, 2, 2)
    before = where(exchange)
    exchange.bind(to_queue("new"), "2")
    after = where(exchange)
    moved = [key for key in KEYS if before[key] != after[key]]
    assert {after[key] for key in moved} == {to_queue("new")}
    assert len(moved) / len(KEYS) == pytest.approx(0.25, abs=0.03)
    exchange.unbind(to_queue("new"), "2")
    assert where(exchange) == before


@given(weights=st.lists(st.integers(1, 20), min_size=2, max_size=8), gone=st.integers(0, 7))
def test_a_removal_moves_only_the_keys_of_the_removed(weights: list[int], gone: int) -> None:
    gone %= len(weights)
    exchange = weighted(*weights)
    before = {key: exchange.match([key], {}) for key in KEYS[:50]}
    exchange.unbind(to_queue(f"q{gone}"), str(weights[gone]))
    for key, destination in before.items():
        assert destination == (to_queue(f"q{gone}"),) or exchange.match([key], {}) == destination


def test_bindings_to_one_destination_add_up() -> None:
    twice = weighted(1, 3)
    twice.bind(to_queue("q0"), "2")
    assert where(twice) == where(weighted(3, 3))
    twice.unbind(to_queue("q0"), "1")
    assert where(twice) == where(weighted(2, 3))
    twice.unbind(to_queue("q0"), "2")
    assert shares(twice) == {"q1": len(KEYS)}


def test_no_bindings_no_destination() -> None:
    assert weighted().match(["k"], {}) == ()


def test_the_order_of_bindings_and_the_process_do_not_matter() -> None:
    exchange = ConsistentHashExchange("other name")
    exchange.bind(to_queue("q1"), "2")
    exchange.bind(to_queue("q0"), "1")
    assert where(exchange) == where(weighted(1, 2))
    assert where(pickle.loads(pickle.dumps(exchange))) == where(exchange)
    script = (
        "from harebell.routing import to_queue\n"
        "from harebell.routing.exchanges.hashing import ConsistentHashExchange as C\n"
        "x = C('x'); [x.bind(to_queue(f'q{n}'), str(n + 1)) for n in range(2)]\n"
        "print(''.join(x.match([f'key.{n}'], {})[0].name[1] for n in range(200)))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "77"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert printed.strip() == "".join(weighted(1, 2).match([key], {})[0].name[1] for key in KEYS[:200])


def test_a_queue_and_an_exchange_of_one_name_are_two() -> None:
    exchange = weighted(1)
    exchange.bind(to_exchange("q0"), "1")
    assert {exchange.match([key], {})[0].kind for key in KEYS[:50]} == {"queue", "exchange"}


def test_hashing_a_header() -> None:
    exchange = weighted(1, 1, 1, arguments={"hash-header": "h"})
    assert exchange.depends_on is Dependence.HEADERS
    picked = {number: exchange.match(["k"], {"h": number}) for number in range(50)}
    assert len(set(picked.values())) == 3
    assert all(exchange.match(["other"], {"h": number, "x": 1}) == to for number, to in picked.items())
    assert exchange.match(["k"], {}) == exchange.match(["other"], {"x": 1})  # those without it stay together


@pytest.mark.parametrize("name", ["message_id", "correlation_id", "timestamp"])
def test_hashing_a_property(name: str) -> None:
    exchange = weighted(1, 1, 1, arguments={"hash-property": name})
    assert exchange.depends_on is Dependence.PROPERTIES
    values = [datetime.fromtimestamp(n, UTC) for n in range(50)] if name == "timestamp" else KEYS[:50]
    assert len({exchange.match(["k"], {name: value}) for value in values}) == 3


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"hash-property": "zz"}, "Unsupported property: zz"),
        ({"hash-property": "zz", "hash-header": "h"}, "hash-header and hash-property are mutually exclusive"),
        ({"hash-header": 1}, "invalid type 'signedint' for arg 'hash-header': expected longstr"),
        ({"hash-property": None}, "invalid type 'void' for arg 'hash-property': expected longstr"),
    ],
)
def test_refused_declarations(arguments: Table, text: str) -> None:
    with pytest.raises(PreconditionFailed) as caught:
        ConsistentHashExchange("x", arguments=arguments)
    assert caught.value.detail == text
    router = Router()
    with pytest.raises(PreconditionFailed):
        router.declare_exchange("x", "x-consistent-hash", arguments=arguments)
    assert not router.has_exchange("x")


@pytest.mark.parametrize(
    "key, text",
    [
        ("0", "The binding key must be greater than 0"),
        ("-1", "The binding key must be greater than 0"),
        ("a", 'The binding key must be an integer: <<"a">>'),
        ("", "The binding key must be an integer: <<>>"),
        ("1.5", 'The binding key must be an integer: <<"1.5">>'),
        (" 1", 'The binding key must be an integer: <<" 1">>'),
        ("1_0", 'The binding key must be an integer: <<"1_0">>'),
        ("１", "The binding key must be an integer: <<239,188,145>>"),
        ("9" * 101, f'The binding key must be an integer: <<"{"9" * 101}">>'),
    ],
)
def test_refused_weights(key: str, text: str) -> None:
    exchange = weighted(1)
    before = where(exchange)
    with pytest.raises(PreconditionFailed) as caught:
        exchange.bind(to_queue("bad"), key)
    assert caught.value.detail == text
    assert where(exchange) == before
    assert len(list(exchange.bindings())) == 1


def test_weights_as_erlang_reads_them() -> None:
    exchange = weighted()
    exchange.bind(to_queue("q0"), "+1")
    exchange.bind(to_queue("q1"), "02")
    assert where(exchange) == where(weighted(1, 2))


def test_modulus() -> None:
    exchange = ModulusHashExchange("x")
    assert exchange.match(["k"], {}) == ()
    for number in range(3):
        exchange.bind(to_queue(f"q{number}"), "whatever")
    got = shares(exchange)
    assert all(got[f"q{number}"] / len(KEYS) == pytest.approx(1 / 3, abs=0.03) for number in range(3))
    assert exchange.match(["k", "other"], {}) == exchange.match(["k"], {})
    assert exchange.depends_on is Dependence.KEY


def test_random_takes_every_binding_by_the_draw() -> None:
    drawn: list[int] = []

    def next_one(count: int) -> int:
        drawn.append(count)
        return len(drawn) % count

    exchange = RandomExchange("x", draw=next_one)
    assert exchange.match(["k"], {}) == ()
    assert drawn == []
    exchange.bind(to_queue("q0"), "a")
    exchange.bind(to_queue("q1"), "b")
    exchange.bind(to_queue("q1"), "c")
    assert [exchange.match(["k"], {})[0].name for _ in range(6)] == ["q1", "q1", "q0", "q1", "q1", "q0"]
    assert drawn == [3] * 6
    exchange.unbind(to_queue("q1"), "b")
    assert Counter(exchange.match(["k"], {})[0].name for _ in range(4)) == {"q0": 2, "q1": 2}


def test_the_usual_draw() -> None:
    assert {draw(3) for _ in range(200)} == {0, 1, 2}


def test_what_chance_or_the_message_decides_is_not_cacheable() -> None:
    router = Router(types=EXCHANGE_TYPES | {"x-random": partial(RandomExchange, draw=lambda count: count - 1)})
    for name, kind, arguments in [
        ("random", "x-random", {}),
        ("by key", "x-consistent-hash", {}),
        ("by header", "x-consistent-hash", {"hash-header": "h"}),
        ("by property", "x-consistent-hash", {"hash-property": "message_id"}),
        ("modulus", "x-modulus-hash", {}),
    ]:
        router.declare_exchange(name, kind, arguments=arguments)
        for queue in ("a", "b"):
            router.add_queue(queue)
            router.bind(name, to_queue(queue), "1")
    assert repr(router.route("random", "k")) == "Route(queues=('b',), cacheable=False)"
    assert router.route("by key", "k").cacheable
    assert router.route("modulus", "k").cacheable
    asked: list[str] = []

    def headers() -> Table:
        asked.append("headers")
        return {"h": "1"}

    def properties() -> Table:
        asked.append("properties")
        return {"message_id": "1"}

    assert not router.route("by header", "k", headers, properties).cacheable
    assert asked == ["headers"]
    by_property = router.route("by property", "k", headers, properties)
    assert asked == ["headers", "properties"]
    assert not by_property.cacheable
    assert by_property.queues == router.route("by header", "k", headers).queues  # one value, one place
    assert len(router.route("by property", "k").queues) == 1
    twin = pickle.loads(pickle.dumps(Router()))
    twin.declare_exchange("x", "x-random")
