"""Random scripts over everything that a queue can be told, as strategies of hypothesis.

A script has a scene and steps. The scene says what q1 is (limits, TTLs, priorities, dead letters, single active
consumer, quorum), which mode channel 2 is in (plain, confirms, tx), and how time passes. Channels have their parts, so
that one's error does not end everything: connection a gets and publishes on channels 1 and 2, consumes on 3, and
changes the topology on 5; connection b consumes on 1 and touches what is a's on 2.

What docs/reference/differences.md lists is left out here: basic.qos under a consumer, basic.recover(requeue=false),
messages that expire behind one that does not, those without time in a queue that drops its head, global prefetch with
basic.get or with quorum queues, quorum queues without a limit, basic.get from quorum queues, their exclusive and their
cancelled consumers, queue.delete of them with conditions, and several priorities in one write or one commit. So is
what is chance in RabbitMQ: the order in a queue of dead letters and what is published to it meanwhile.

Time: a message or lease lasts for LIFE, and a `Wait` is longer. What comes between two waits must be quicker, or the
script says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import strategies as st

from harebell.protocol.v091 import Properties, Table, methods as m
from tests.differential.driver import Publish, Send, Step, Together, Wait

__all__ = ["LIFE", "QUEUES", "Script", "scripts"]

LIFE = 1500
"""Milliseconds that a message or a lease lasts in scripts with waits."""
WAIT = 1.8

QUEUES = ("q1", "q2", "q3")
EXCHANGES = ("x1", "x2", "amq.direct", "amq.fanout", "amq.topic", "amq.headers")
KEYS = ("q1", "q1", "q2", "a", "a.b", "a.#", "*")
TO_Q3: Table = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q3"}
DEAD: tuple[Table, ...] = (
    {}, TO_Q3, TO_Q3, {"x-dead-letter-exchange": "nope"}
)  # fmt: skip
QUORUM: Table = {"x-queue-type": "quorum"}


@dataclass(frozen=True)
class Script:
    """`steps` begin with what makes the scene; `timed` ones have waits."""

    steps: tuple[Step, ...]
    timed: bool

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.steps))


flags = st.booleans()
seldom = st.sampled_from((False, False, False, True))
tags = st.sampled_from((1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 8))
bodies = st.binary(min_size=1, max_size=3)

limits: st.SearchStrategy[Table] = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {"x-overflow": st.sampled_from(("drop-head", "reject-publish", "reject-publish-dlx"))},
        optional={"x-max-length": st.integers(0, 4), "x-max-length-bytes": st.integers(0, 6)},
    ),
)
extras: st.SearchStrategy[Table] = st.fixed_dictionaries(
    {}, optional={"x-max-priority": st.integers(0, 4), "x-single-active-consumer": flags, "x-expires": st.just(600_000)}
)
times: st.SearchStrategy[Table] = st.sampled_from(({}, {}, {}, {"x-message-ttl": 600_000}, {"x-message-ttl": 0}))


@st.composite
def classic(draw: st.DrawFn, timed: bool) -> Table:
    table: Table = {**draw(limits), **draw(extras), **draw(st.sampled_from(DEAD))}
    if not timed:
        time = draw(times)
        return {**table, **time} if time.get("x-message-ttl") or table.get("x-overflow") != "drop-head" else table
    lasting: tuple[Table, ...] = ({"x-message-ttl": LIFE, **TO_Q3}, {"x-message-ttl": LIFE}, {"x-expires": LIFE}, TO_Q3)
    dead = ("x-dead-letter-exchange", "x-dead-letter-routing-key")
    return {**{name: value for name, value in table.items() if name not in dead}, **draw(st.sampled_from(lasting))}


@st.composite
def quorum(draw: st.DrawFn) -> Table:
    table: Table = {**QUORUM, "x-delivery-limit": draw(st.integers(1, 3)), **draw(st.sampled_from(({}, TO_Q3)))}
    if draw(flags):
        table["x-max-length"] = draw(st.integers(1, 4))
    return table


def on(connection: str, channel: int, method: st.SearchStrategy[m.Method]) -> st.SearchStrategy[Step]:
    return st.builds(Send, st.just(connection), st.just(channel), method)


queues = st.sampled_from(QUEUES)
exchanges, keys = st.sampled_from(EXCHANGES), st.sampled_from(KEYS)
binding_arguments: st.SearchStrategy[Table] = st.sampled_from(
    ({}, {"k": 1}, {"x-match": "any", "k": 1, "l": True}, {"x-match": "zz"})
)
bound = st.sampled_from(("q1", "q2"))

topology = st.one_of(
    st.builds(m.QueueDeclare, st.just("q2"), durable=seldom, auto_delete=flags, exclusive=seldom),
    st.builds(m.QueueDeclare, queues, passive=st.just(True)),
    st.builds(m.QueueDeclare, st.just("q4"), exclusive=st.just(True)),
    st.builds(m.QueueBind, bound, exchanges, keys, arguments=binding_arguments),
    st.builds(m.QueueBind, bound, exchanges, keys),
    st.builds(m.QueueUnbind, bound, exchanges, keys),
    st.builds(
        m.ExchangeDeclare,
        st.sampled_from(("x1", "x1", "x2", "amq.x")),
        st.sampled_from(("direct", "fanout", "topic", "headers")),
        auto_delete=seldom,
        internal=seldom,
        arguments=st.sampled_from(({}, {"alternate-exchange": "amq.fanout"}, {"alternate-exchange": "x2"})),
    ),
    st.builds(m.ExchangeDeclare, st.sampled_from(("x1", "x2", "nope")), st.just("direct"), passive=st.just(True)),
    st.builds(m.ExchangeDelete, st.sampled_from(("x1", "x2", "amq.direct")), if_unused=flags),
    st.builds(m.ExchangeBind, exchanges, exchanges, keys),
    st.builds(m.ExchangeUnbind, exchanges, exchanges, keys),
    st.builds(m.QueueDelete, queues, if_empty=flags, if_unused=flags),
    st.builds(m.QueuePurge, queues),
)
getting = st.one_of(
    st.builds(m.BasicGet, queues, no_ack=flags),
    st.builds(m.BasicGet, st.just("q1")),
    st.builds(m.BasicGet, st.just("q3"), no_ack=st.just(True)),
)
settling = st.one_of(
    st.builds(m.BasicAck, tags, multiple=flags),
    st.builds(m.BasicNack, tags, multiple=flags, requeue=flags),
    st.builds(m.BasicReject, tags, requeue=flags),
    st.builds(m.BasicAck, st.just(0), multiple=st.just(True)),
    st.builds(m.BasicNack, st.just(0), multiple=st.just(True), requeue=flags),
    st.builds(m.BasicRecover, requeue=st.just(True)),
)
priority = st.sampled_from(({}, {}, {"x-priority": 5}, {"x-priority": -1}))


def consuming(tag: str, queue: st.SearchStrategy[str]) -> st.SearchStrategy[m.Method]:
    return st.one_of(
        st.builds(m.BasicConsume, queue, st.just(tag), no_ack=flags, exclusive=seldom, arguments=priority),
        st.builds(m.BasicConsume, queue, st.just(tag)),
        st.builds(m.BasicCancel, st.just(tag)),
        st.builds(m.BasicQos, prefetch_count=st.integers(0, 3), global_=seldom),
        st.just(m.ChannelClose(200, "")),
    )


steps = st.one_of(
    on("a", 5, topology),
    on("a", 1, getting),
    on("a", 2, getting),
    on("a", 1, settling),
    on("a", 2, settling),
    on("a", 2, st.sampled_from((m.TxCommit(), m.TxCommit(), m.TxRollback()))),
    on("a", 3, consuming("c", st.just("q1"))),
    on("a", 3, settling),
    on("a", 3, settling),
    on("b", 1, consuming("d", st.sampled_from(("q1", "q2", "q3")))),
    on("b", 1, settling),
    on("b", 2, st.sampled_from((m.QueueDeclare("q4", passive=True), m.QueueDelete("q4"), m.BasicGet("q2")))),
    on("b", 0, st.just(m.ConnectionClose(200, ""))),
    on("a", 1, st.just(m.ChannelClose(200, ""))),
)


def publications(
    expiration: str | None,
    channels: tuple[int, ...] = (1, 2),
    priorities: tuple[int | None, ...] = (None, 0, 1, 2, 3, 9),
) -> st.SearchStrategy[Publish]:
    headers = (None, None, None, {"CC": ["q2"]}, {"BCC": ["q2", "a"], "k": 1}, {"k": 1}, {"l": True, "k": "1"})
    return st.builds(
        Publish,
        st.just("a"),
        st.sampled_from(channels),
        st.sampled_from(("", "", "", *EXCHANGES)),
        keys,
        bodies,
        st.builds(
            Properties,
            delivery_mode=st.sampled_from((None, 2)),
            headers=st.sampled_from(headers),
            priority=st.sampled_from(priorities),
            expiration=st.just(expiration),
        ),
        mandatory=flags,
    )


@st.composite
def scripts(draw: st.DrawFn, *, timed: st.SearchStrategy[bool] = flags, most: int = 30) -> Script:
    """A scene and 8 to `most` steps; `timed` ones take some seconds to play."""
    waits = draw(timed)
    is_quorum = not waits and draw(st.sampled_from((False,) * 7 + (True,)))
    arguments = draw(quorum() if is_quorum else classic(waits))
    # an expiration is every message's or nobody's: one behind another that lives is a difference
    expirations = (None, str(LIFE)) if waits else (None, None, "600000")
    expiration = draw(st.sampled_from(expirations)) if not is_quorum else None
    several = st.lists(publications(expiration, (2,), (None, 0)), min_size=2, max_size=5)
    batch = several.map(lambda each: Together(tuple(each)))
    mode = draw(st.sampled_from((m.TxSelect(), m.ConfirmSelect(), m.ConfirmSelect(), m.BasicQos())))
    publication = publications(expiration)
    if isinstance(mode, m.TxSelect):
        publication = publications(expiration, (1,)) | publications(expiration, (2,), (None, 0))
    choices: list[st.SearchStrategy[Step]] = [steps, steps, publication, publication, batch]
    drawn = draw(st.lists(st.one_of(*choices), min_size=8, max_size=14 if waits else most))
    if waits:
        drawn.insert(draw(st.integers(4, len(drawn))), Wait(WAIT))
    begin: tuple[Step, ...] = (
        Send("a", 5, m.QueueDeclare("q3")),
        Send("a", 5, m.QueueDeclare("q1", durable=is_quorum, arguments=arguments)),
        Send("a", 5, m.QueueDeclare("q2", auto_delete=draw(flags))),
        Send("a", 5, m.ExchangeDeclare("x1", draw(st.sampled_from(("direct", "fanout", "topic", "headers"))))),
        Send("a", 5, m.ExchangeDeclare("x2", "topic", auto_delete=True)),
        Send("a", 5, m.QueueBind("q1", "amq.fanout", "")),
        Send("a", 5, m.QueueBind("q2", "x1", draw(keys))),
        Send("a", 2, mode),
    )
    again = m.QueueDeclare("q1", durable=is_quorum, arguments=arguments)
    fitting = _fit(drawn, commits=type(mode) is m.TxSelect, again=again)
    if is_quorum:
        return Script((*begin, *(step for step in fitting if not _is_odd(step))), waits)
    return Script((*begin, *fitting), waits)


def _is_odd(step: Step) -> bool:
    """What RabbitMQ's quorum queues do otherwise."""
    method = step.method if isinstance(step, Send) else None
    if isinstance(method, m.BasicConsume):
        return method.exclusive
    if isinstance(method, m.QueueDelete):
        return method.queue == "q1" and (method.if_unused or method.if_empty)
    if isinstance(method, m.BasicQos):
        return method.global_
    if isinstance(method, m.BasicCancel):
        return True
    return isinstance(method, m.BasicGet) and method.queue == "q1"


def _fit(drawn: list[Step], *, commits: bool, again: m.QueueDeclare) -> Iterator[Step]:
    """Without what ends connections (a consumer tag used twice) and without basic.qos under a consumer."""
    consuming: set[str] = set()
    for step in drawn:
        if isinstance(step, Send):
            method, tag = step.method, {("a", 3): "c", ("b", 1): "d"}.get((step.connection, step.channel), "")
            if isinstance(method, (m.TxCommit, m.TxRollback)) and not commits:
                continue
            if isinstance(method, (m.BasicConsume, m.BasicQos)) and tag in consuming:
                continue
            if isinstance(method, m.BasicConsume):
                consuming.add(tag)
            elif isinstance(method, (m.BasicCancel, m.ChannelClose)):
                consuming.discard(tag)
            elif isinstance(method, m.ConnectionClose):
                consuming.discard("d")
            elif isinstance(method, m.QueueDelete) and method.queue == "q1":
                yield step
                yield Send(step.connection, step.channel, again)
                continue
        yield step
