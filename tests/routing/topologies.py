"""Random topologies, for what must hold of any: every kind of exchange, bound to queues and to each other."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

__all__ = ["EXCHANGES", "QUEUES", "definitions", "messages"]

EXCHANGES = ("sim.x1", "sim.x2", "sim.x3", "sim.x4")
QUEUES = ("sim.q1", "sim.q2", "sim.q3")
KINDS: tuple[tuple[str, dict[str, object]], ...] = (
    ("direct", {}),
    ("fanout", {}),
    ("topic", {}),
    ("headers", {}),
    ("x-consistent-hash", {}),
    ("x-consistent-hash", {"hash-header": "h"}),
    ("x-consistent-hash", {"hash-property": "message_id"}),
    ("x-modulus-hash", {}),
    ("x-random", {}),
    ("x-recent-history", {}),
    ("x-delayed-message", {"x-delayed-type": "topic"}),
    ("x-delayed-message", {"x-delayed-type": "x-consistent-hash"}),
    ("x-delayed-message", {"x-delayed-type": "headers"}),
)
PLAIN = 4  # of these a broker without plugins has

KEYS = ("", "a", "b", "a.b", "c.b", "sim.q1", "sim.q2")
PATTERNS = ("", "a", "b", "a.b", "a.*", "#", "#.b", "*.#")
ARGUMENTS: tuple[dict[str, object], ...] = ({}, {"h": 1}, {"h": "1"}, {"x-match": "any", "h": 1, "i": 2}, {"h": None})


@st.composite
def definitions(draw: st.DrawFn, *, plain: bool = False) -> dict[str, Any]:
    """A definitions file's object with one virtual host. `plain`: only what a RabbitMQ without plugins has."""
    kinds = {name: draw(st.sampled_from(KINDS[:PLAIN] if plain else KINDS)) for name in EXCHANGES}
    exchanges = []
    for name, (kind, arguments) in kinds.items():
        alternate = draw(st.sampled_from((None, *EXCHANGES, "nowhere")))
        table = arguments if alternate is None else {**arguments, "alternate-exchange": alternate}
        internal = not plain and draw(st.integers(0, 7)) == 0
        exchanges.append({"vhost": "/", "name": name, "type": kind, "arguments": table, "internal": internal})
    bindings = []
    for _ in range(draw(st.integers(0, 14))):
        source = draw(st.sampled_from(EXCHANGES))
        hashes = "consistent" in kinds[source][0] or "consistent" in str(kinds[source][1].get("x-delayed-type"))
        to = draw(st.sampled_from([("queue", name) for name in QUEUES] + [("exchange", name) for name in EXCHANGES]))
        bindings.append(
            {
                "vhost": "/", "source": source, "destination_type": to[0], "destination": to[1],
                "routing_key": draw(st.sampled_from(("1", "2", "3") if hashes else PATTERNS)),
                "arguments": draw(st.sampled_from(ARGUMENTS)),
            }
        )  # fmt: skip
    return {
        "exchanges": exchanges,
        "queues": [{"vhost": "/", "name": name} for name in QUEUES],
        "bindings": bindings,
    }


def headers(*, plain: bool = False) -> st.SearchStrategy[dict[str, Any]]:
    known: dict[str, st.SearchStrategy[Any]] = {
        "h": st.sampled_from([1, 2, "1"]),
        "i": st.sampled_from([2, "x"]),
        "CC": st.lists(st.sampled_from(KEYS), max_size=2),
        "BCC": st.lists(st.sampled_from(KEYS), max_size=1),
    }
    if not plain:
        known["x-delay"] = st.sampled_from([0, 10])
    return st.fixed_dictionaries({}, optional=known)


def messages(*, plain: bool = False) -> st.SearchStrategy[tuple[str, str, dict[str, Any], str | None]]:
    """(exchange, routing key, headers, message_id)."""
    return st.tuples(
        st.sampled_from((*EXCHANGES, "", "amq.topic") if plain else (*EXCHANGES, "", "amq.topic", "nowhere")),
        st.sampled_from(KEYS),
        headers(plain=plain),
        st.sampled_from((None, "m1", "m2")),
    )
