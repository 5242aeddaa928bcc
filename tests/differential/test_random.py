"""Random scripts, the same ones in every run: topology, publishing, getting, consuming and every kind of answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from tests.differential.driver import Peer, Publish, Send, Step, Together, run
from warren.protocol.v091 import Properties, Table, methods as m

Peers = Callable[..., tuple[Peer, Peer]]

QUEUES, EXCHANGES = ("q1", "q2", "q3"), ("x1", "x2", "amq.fanout", "amq.topic")
KEYS = ("q1", "q2", "a", "a.b", "a.#", "*")
DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q3"}

queues, keys = st.sampled_from(QUEUES), st.sampled_from(KEYS)
exchanges, flags = st.sampled_from(EXCHANGES), st.booleans()
tags = st.integers(1, 6)

methods = st.one_of(
    st.builds(m.QueueDeclare, st.just("q1"), arguments=st.sampled_from(({}, DEAD))),
    st.builds(m.QueueDeclare, queues),
    st.builds(m.QueueDeclare, queues, passive=st.just(True)),
    st.builds(m.QueueBind, queues, exchanges, keys),
    st.builds(m.QueueUnbind, queues, exchanges, keys),
    st.builds(m.ExchangeDeclare, st.just("x1"), st.sampled_from(("direct", "fanout"))),
    st.builds(m.ExchangeDeclare, st.just("x2"), st.just("topic"), auto_delete=st.just(True)),
    st.builds(m.ExchangeBind, exchanges, exchanges, keys),
    st.builds(m.QueueDelete, queues, if_empty=flags),
    st.builds(m.QueuePurge, queues),
    st.builds(m.BasicGet, queues, no_ack=flags),
    st.builds(m.BasicGet, queues),
    st.builds(m.BasicAck, tags, multiple=flags),
    st.builds(m.BasicNack, tags, multiple=flags, requeue=flags),
    st.builds(m.BasicReject, tags, requeue=flags),
    st.builds(m.BasicRecover, requeue=st.just(True)),
)
sends = st.builds(Send, st.just("a"), st.sampled_from((1, 1, 1, 2)), methods)
publications = st.builds(
    Publish,
    st.just("a"),
    st.just(1),
    st.sampled_from(("", "", *EXCHANGES)),
    keys,
    st.binary(min_size=1, max_size=3),
    st.builds(Properties, delivery_mode=st.sampled_from((None, 2)), headers=st.sampled_from((None, {"CC": ["q2"]}))),
    mandatory=flags,
)
# everything that a script needs to be interesting is there at its start
start: tuple[Step, ...] = (
    Send("a", 1, m.QueueDeclare("q1", arguments=DEAD)),  # type: ignore[arg-type]
    Send("a", 1, m.QueueDeclare("q2")),
    Send("a", 1, m.QueueDeclare("q3")),
    Send("a", 1, m.QueueBind("q1", "amq.fanout", "")),
    Send("a", 1, m.ExchangeDeclare("x1", "direct")),
    Send("a", 1, m.ExchangeDeclare("x2", "topic", auto_delete=True)),
    Together(tuple(Publish("a", 1, "", "q1", bytes([48 + n])) for n in range(4))),
)

repeatable = settings(
    max_examples=60,
    derandomize=True,  # the seed is the test: every run plays the same scripts
    database=None,
    deadline=None,
    phases=(Phase.generate,),  # shrinking would replay for minutes; the script is printed whole
    suppress_health_check=(HealthCheck.function_scoped_fixture, HealthCheck.too_slow),
)


@repeatable
@given(st.lists(st.one_of(sends, sends, publications), min_size=8, max_size=25))
def test_getting(peers: Peers, steps: list[Step]) -> None:
    _play(peers, steps)


# One consumer at a time, because two of RabbitMQ's queues may answer one channel in either order.
consumer_methods = st.one_of(
    st.builds(m.BasicConsume, st.just("q1"), st.just("c"), no_ack=flags),
    st.builds(m.BasicCancel, st.just("c")),
    st.builds(m.BasicQos, prefetch_count=st.integers(0, 3)),
    st.builds(m.BasicAck, tags, multiple=flags),
    st.builds(m.BasicNack, tags, multiple=flags, requeue=flags),
    st.builds(m.BasicRecover, requeue=st.just(True)),
    st.builds(m.QueuePurge, st.just("q1")),
    st.builds(m.ChannelClose, st.just(200), st.just("")),
)
to_q1 = st.builds(Publish, st.just("a"), st.just(2), st.just(""), st.just("q1"), st.binary(min_size=1, max_size=2))


@repeatable
@given(st.lists(st.one_of(st.builds(Send, st.just("a"), st.just(1), consumer_methods), to_q1), min_size=8, max_size=25))
def test_consuming(peers: Peers, steps: list[Step]) -> None:
    _play(peers, [*_fit(steps)])


# What settings do to a queue. The consumer has a channel of its own, so does whoever gets.
SETTINGS: tuple[Table, ...] = (
    {"x-max-length": 3, **DEAD},
    {"x-max-length-bytes": 4, **DEAD},
    {"x-max-length": 3, "x-overflow": "reject-publish"},
    {"x-max-length": 2, "x-overflow": "reject-publish-dlx", **DEAD},
    {"x-max-priority": 3},
    {"x-max-priority": 3, "x-max-length": 4, **DEAD},
    {"x-message-ttl": 600_000, **DEAD},
    {"x-message-ttl": 0, **DEAD},
    {"x-single-active-consumer": True},
)


def taken(queue: str) -> m.BasicGet:
    return m.BasicGet(queue, no_ack=True)


limited = st.one_of(
    st.builds(Send, st.just("a"), st.just(1), consumer_methods),
    st.builds(Send, st.just("a"), st.just(2), st.sampled_from((taken("q1"), taken("q3")))),
    st.builds(
        Publish,
        st.just("a"),
        st.just(2),
        st.just(""),
        st.just("q1"),
        st.binary(min_size=1, max_size=3),
        st.builds(Properties, priority=st.sampled_from((None, 0, 1, 2, 3, 9))),
        mandatory=flags,
    ),
)


@repeatable
@given(
    st.sampled_from(SETTINGS),
    st.sampled_from((m.ConfirmSelect(), m.TxSelect(), m.BasicQos())),
    st.lists(st.one_of(limited, st.just(Send("a", 2, m.TxCommit()))), min_size=10, max_size=30),
)
def test_limits(peers: Peers, arguments: Table, mode: m.Method, steps: list[Step]) -> None:
    commits = type(mode) is m.TxSelect
    wanted = [step for step in _fit(steps) if commits or not (isinstance(step, Send) and step.method == m.TxCommit())]
    declarations = (Send("a", 1, m.QueueDeclare("q3")), Send("a", 1, m.QueueDeclare("q1", arguments=arguments)))
    _play(peers, wanted, (*declarations, Send("a", 2, mode)))


def _fit(steps: list[Step]) -> Iterator[Step]:
    """Without a consumer tag that is used twice, which would end the connection, and with one consumer at a time.

    And without basic.qos under a consumer, which Warren applies to it (docs/reference/differences.md).
    """
    consuming = False
    for step in steps:
        method = step.method if isinstance(step, Send) else None
        if consuming and isinstance(method, (m.BasicConsume, m.BasicQos)):
            continue
        if isinstance(method, (m.BasicConsume, m.BasicCancel, m.ChannelClose)):
            consuming = isinstance(method, m.BasicConsume)
        yield step


def _play(peers: Peers, steps: list[Step], begin: tuple[Step, ...] = start) -> None:
    script = [*begin, *steps]
    ours, theirs = peers(script)
    run(script, ours, theirs)
    ours.close()
    theirs.close()
    assert ours.trace == theirs.trace
