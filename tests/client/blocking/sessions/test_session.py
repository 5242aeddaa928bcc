"""Sessions of the blocking API: publishing, transactions, topology, the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harebell import errors, events as e
from harebell.client.blocking.sessions import Connection, Session, Xid, connect
from harebell.client.messages import Message, Publication
from tests.client.sessions.kit import FAST


def numbered(queue: str, count: int) -> Iterator[Publication]:
    return (Publication(b"%d" % number, "", queue) for number in range(count))


def drained(session: Session, queue: str) -> list[bytes]:
    found = []
    while (delivery := session.get(queue)) is not None:
        found.append(delivery.body)
        delivery.accept()
    session.sync()
    return found


def test_publishing(session: Session, queue: str) -> None:
    session.publish(Message(b"first", message_id="1"), "", queue)
    assert session.publish_many(numbered(queue, 700), window=100) == 700
    assert session.message_count(queue) == 701
    with pytest.raises(errors.Unroutable):
        session.publish(b"", "", f"{queue}.none", mandatory=True)
    refused = [Publication(b"", "", f"{queue}.none", mandatory=True), *numbered(queue, 2)]
    with pytest.raises(errors.PublishesFailed) as caught:
        session.publish_many(refused)
    assert list(caught.value.failures) == [0]
    with pytest.raises(errors.InvalidArgument):
        session.publish_many([], window=0)
    assert session.publish_many([]) == 0
    assert drained(session, queue) == [b"first", *(b"%d" % n for n in range(700)), b"0", b"1"]
    assert session.incomplete == 0
    assert session.is_attached


def test_a_program_that_fails_in_the_middle_of_its_publications(session: Session, queue: str) -> None:
    def source() -> Iterator[Publication]:
        yield from numbered(queue, 300)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        session.publish_many(source())
    session.sync()
    assert session.message_count(queue) == 300


def test_consume_transform_publish(session: Session, queue: str) -> None:
    target = f"{queue}.invoices"
    session.queue_declare(target)
    session.publish_many(numbered(queue, 5))
    with session.consume(queue, window=10) as orders:
        for _ in range(5):
            with session.transaction():
                order = next(orders)
                session.publish(b"for " + order.body, "", target)
                order.accept()
        with pytest.raises(errors.LocalProtocolError, match="transactional"):
            session.publish(b"", "", target)
    with session.transaction():
        found = []
        while (invoice := session.get(target)) is not None:
            found.append(invoice.body)
            invoice.accept()
    assert found == [b"for %d" % number for number in range(5)]
    session.queue_delete(target)


@pytest.mark.parametrize("kind", ["transaction", "branch"])
def test_a_block_that_is_abandoned(session: Session, queue: str, kind: str) -> None:
    for number in range(2):
        block = session.transaction() if kind == "transaction" else session.branch(Xid(b"%d" % number, queue.encode()))
        with block:
            session.publish(b"never", "", queue)
            block.abandon()
            block.abandon()
    assert session.message_count(queue) == 0


class Interrupted(BaseException):
    """As KeyboardInterrupt: a program that gets it does not wait for the network."""


@pytest.mark.parametrize("error", [ValueError, Interrupted])
def test_an_error_rolls_back(session: Session, connection: Connection, queue: str, error: type[BaseException]) -> None:
    session.publish(b"m", "", queue)
    with pytest.raises(error), session.transaction():
        delivery = session.get(queue)
        assert delivery is not None
        delivery.accept()
        session.publish(b"never", "", queue)
        raise error
    assert delivery is not None
    delivery.release()
    session.sync()
    with connection.session() as other:
        assert drained(other, queue) == [b"m"]


def test_a_branch(session: Session, queue: str) -> None:
    xid = Xid(queue.encode())
    block = session.branch(xid)
    assert block.xid == xid
    with block:
        session.publish(b"m", "", queue)
    session.set_branch_timeout(xid, 100)
    session.prepare(xid)
    assert xid in session.in_doubt()
    assert session.message_count(queue) == 0
    session.commit(xid)
    assert session.message_count(queue) == 1
    with pytest.raises(Interrupted), session.branch(xid):
        session.publish(b"never", "", queue)
        raise Interrupted
    with pytest.raises(errors.TransactionRolledBack):
        session.prepare(xid)
    session.rollback(xid)
    assert session.message_count(queue) == 1


def test_topology(session: Session, queue: str) -> None:
    exchange = f"{queue}.exchange"
    session.exchange_declare(exchange, "topic")
    session.queue_bind(queue, exchange, "a.#")
    assert session.bound(exchange, queue, "a.#")
    found = session.exchange_query(exchange)
    assert found is not None
    assert found.type == "topic"
    session.publish(b"m", exchange, "a.b")
    described = session.queue_query(queue)
    assert described is not None
    assert described.message_count == 1
    session.queue_purge(queue)
    session.queue_unbind(queue, exchange, "a.#")
    assert not session.bound(exchange, queue)
    session.exchange_delete(exchange)
    assert session.queue_query(f"{queue}.none") is None
    with pytest.raises(errors.NotFound):
        session.message_count(f"{queue}.none")


def test_an_error_ends_the_session_and_no_other(connection: Connection, session: Session, name: str) -> None:
    with connection.session() as other:
        with pytest.raises(errors.NotFound):
            other.publish(b"", f"{name}.none")
        assert other.is_closed
        assert isinstance(other.closed_reason, errors.NotFound)
    session.sync()


def test_it_goes_on_over_lost_connections(connection: Connection, session: Session, queue: str) -> None:
    events, harness = connection.events(), connection.test()
    for number in range(5):
        signal = harness.signal_on_reconnect()
        harness.disconnect_transport()
        session.publish(b"%d" % number, "", queue)
        signal.wait()
    assert drained(session, queue) == [b"%d" % number for number in range(5)]
    assert harness.reconnection_count == 6
    assert session.statistics().reattached == connection.statistics().reconnects == 5
    assert connection.is_open
    events.close()
    assert sum(isinstance(event, e.Recovered) for event in events) == 5


def test_a_call_waits_for_the_end_of_an_outage(connection: Connection, session: Session) -> None:
    harness = connection.test()
    with harness.reconnect_blocked():
        assert connection.state == "reconnecting"
        with pytest.raises(errors.DeadlineExceeded):
            session.sync(timeout=0.05)
    session.sync()
    harness.force_reconnect()


def test_a_lost_state(session: Session, queue: str) -> None:
    session.publish(b"before", "", queue)
    session.test().lose_state()
    assert session.state_lost is not None
    for call in (session.sync, lambda: session.publish(b"", "", queue), lambda: next(session.consume(queue))):
        with pytest.raises(errors.SessionStateLost):
            call()
    session.start_over()
    assert drained(session, queue) == [b"before"]


def test_a_session_is_kept_for_the_next(connection: Connection, name: str) -> None:
    with connection.session(name, keep=True) as first:
        assert not first.resumed
        first.queue_declare(name)
    with connection.session(name) as second:
        assert second.resumed
        assert second.timeout == 300
        second.queue_delete(name)
    with connection.session(name) as third:
        assert not third.resumed
        assert third.name == name


@pytest.mark.parametrize("keep", [False, True])
def test_an_interrupted_block_waits_for_nothing(connection: Connection, name: str, keep: bool) -> None:
    harness = connection.test()
    with pytest.raises(Interrupted), connection.session(name, keep=keep) as session:
        session.queue_declare(name)
        harness.block_reconnect()
        harness.disconnect_transport()
        raise Interrupted
    harness.unblock_reconnect()
    with connection.session(name, force=True) as session:
        session.queue_delete(name)


def test_a_takeover(connection: Connection, session: Session, harebell_url: str) -> None:
    with connect(harebell_url, timeout=60) as other:
        with pytest.raises(errors.SessionDetached):
            other.session(session.name)
        with other.session(session.name, force=True) as taken:
            taken.sync()
            with pytest.raises(errors.ChannelClosed):
                session.sync()


def test_an_interrupted_connection_waits_for_nothing(harebell_url: str) -> None:
    with pytest.raises(Interrupted), connect(harebell_url, backoff=FAST) as connection:
        raise Interrupted
    assert "closed by this client" in str(connection.wait_closed())


def test_what_a_connection_is(connection: Connection) -> None:
    assert "harebell" in connection.server_properties
    assert not connection.is_closed
    assert connection.closed_reason is None
    with pytest.raises(errors.InvalidArgument):
        connection.session(timeout=-1)
