"""The core on hostile input: whatever a broker sends ends in a reason, never in another exception."""

from __future__ import annotations

from hypothesis import given, strategies as st

from harebell import errors
from harebell.client.core.channel import ChannelCore
from harebell.client.core.connection import ConnectionCore
from harebell.client.core.consumer import ConsumerCore
from harebell.client.core.slots import Slot
from harebell.client.core.unconfirmed import Batch
from harebell.client.messages import Delivery
from harebell.client.url import ConnectionParameters
from harebell.protocol.v091 import Engine, Method, Properties, Role, encode_content, methods as m
from harebell.protocol.v091.codec import encode_method
from tests.protocol.v091.strategies import cuts, methods

CARRIERS = sorted(m.CARRIES_CONTENT & m.SERVER_SENDS, key=lambda cls: cls.NAME)


def opened() -> tuple[ConnectionCore, ChannelCore, list[Slot], list[Delivery]]:
    """A core with an open channel on which something of every kind is under way."""
    core, server = ConnectionCore(ConnectionParameters()), Engine(Role.SERVER)

    def answer(*replies: tuple[int, Method]) -> None:
        server.receive_data(core.engine.data_to_send())
        for number, reply in replies:
            server.send_method(number, reply)
        core.receive(server.data_to_send())

    core.start()
    answer((0, m.ConnectionStart(0, 9, {}, b"PLAIN", b"en_US")))
    answer((0, m.ConnectionTune(2047, 131072, 0)))
    answer((0, m.ConnectionOpenOk()))
    channel = core.new_channel(Slot(m.ChannelOpen()), ChannelCore)
    answer((1, m.ChannelOpenOk()))
    channel.request(Slot(m.ConfirmSelect()))
    answer((1, m.ConfirmSelectOk()))
    deliveries: list[Delivery] = []
    slots = [Slot(m.BasicConsume("q", "c")), Slot(m.BasicGet("q")), Slot(m.QueueDeclare("q")), Slot(m.BasicCancel("c"))]
    consumer = ConsumerCore("c", "q", False, deliveries.append, lambda reason: None, list)
    channel.consume(slots[0], consumer)
    channel.request(slots[1])
    channel.request(slots[2])
    for _ in range(3):
        channel.publish(b"\0\0", b"m", "", "q", True, Batch())
    slots[1].abandoned = True
    core.engine.data_to_send()
    return core, channel, slots, deliveries


def frames(method: Method, channel: int, body: bytes) -> bytes:
    data = encode_method(channel, method)
    if type(method) in m.CARRIES_CONTENT:
        data += encode_content(channel, Properties(), body, 131072)
    return data


hostile = st.lists(
    st.one_of(
        st.builds(frames, methods, st.integers(0, 2), st.binary(max_size=10)),
        st.builds(
            frames,
            st.sampled_from(
                [
                    m.BasicDeliver("c", 1, False, "x", "k"),
                    m.BasicReturn(312, "NO_ROUTE", "", "q"),
                    m.BasicConsumeOk("c"),
                    m.BasicGetOk(9, False, "x", "k", 0),
                    m.BasicGetEmpty(),
                    m.QueueDeclareOk("q", 0, 0),
                    m.BasicCancel("c"),
                    m.BasicCancelOk("c"),
                    m.BasicAck(2, True),
                    m.BasicNack(0, True),
                    m.ChannelClose(404, "NOT_FOUND - x", 50, 10),
                    m.ChannelClose(999, "what", 1, 2),
                    m.ChannelCloseOk(),
                    m.ChannelFlow(False),
                    m.ConnectionClose(320, "CONNECTION_FORCED - x", 0, 0),
                    m.ConnectionCloseOk(),
                    m.ConnectionBlocked("memory"),
                ]
            ),
            st.just(1) | st.integers(0, 2),
            st.sampled_from([b"m", b""]),
        ),
        st.binary(max_size=20),
    ),
    max_size=8,
)


@given(hostile, st.data())
def test_only_reasons_come_of_hostile_bytes(pieces: list[bytes], data: st.DataObject) -> None:
    core, channel, slots, deliveries = opened()
    for piece in data.draw(cuts(b"".join(pieces))):
        core.receive(piece)
    if data.draw(st.booleans()) and channel.reason is None:
        channel.close()
        core.receive(b"".join(pieces))
    core.lost("the test is over")
    assert isinstance(core.reason, errors.HarebellError)
    assert isinstance(channel.reason, errors.HarebellError)
    assert str(core.reason)
    for slot in slots[:3]:
        assert slot.done or slot.abandoned
    for delivery in deliveries:
        assert delivery.consumer_tag == "c"


@given(hostile, st.data())
def test_before_it_is_open_too(pieces: list[bytes], data: st.DataObject) -> None:
    core = ConnectionCore(ConnectionParameters())
    core.start()
    if data.draw(st.booleans()):
        core.receive(encode_method(0, m.ConnectionStart(0, 9, {}, b"PLAIN", b"en_US")))
    if data.draw(st.booleans()):
        core.receive(encode_method(0, m.ConnectionTune(*data.draw(st.tuples(*[st.integers(0, 65535)] * 3)))))
    for piece in data.draw(cuts(b"".join(pieces))):
        core.receive(piece)
    core.lost("the test is over")
    assert isinstance(core.reason, errors.HarebellError)
    assert str(core.reason)


def test_every_waiter_gets_an_error_of_its_own() -> None:
    core, channel, slots, _ = opened()
    core.receive(encode_method(1, m.ChannelClose(404, "NOT_FOUND - no queue 'q'", 50, 10)))
    raised = [slot.error for slot in slots if slot.error is not None]
    assert len(raised) == 2
    assert len({id(error) for error in [*raised, channel.reason]}) == 3
    assert all(isinstance(error, errors.NotFound) and str(error) == str(channel.reason) for error in raised)
    assert core.reason is None


def test_what_a_broker_says_on_its_way_out_is_all_heard() -> None:
    """A broker that stops closes the channel and then the connection, and both may come in one read."""
    core, channel, _, _ = opened()
    core.receive(
        encode_method(1, m.ChannelFlow(False))
        + encode_method(1, m.ChannelClose(404, "NOT_FOUND - x", 50, 10))
        + encode_method(0, m.ConnectionClose(320, "CONNECTION_FORCED - bye", 0, 0))
    )
    assert isinstance(channel.reason, errors.NotFound)
    assert isinstance(core.reason, errors.ConnectionForced)
    assert core.engine.data_to_send() == encode_method(0, m.ConnectionCloseOk())


def test_a_callback_that_fails_does_not_take_the_connection_along() -> None:
    core, channel, _, _ = opened()
    channel.publishes.settle(0, True, True)

    def fail(returned: object) -> None:
        raise ValueError("the program's own")

    channel.on_return = fail
    core.receive(frames(m.BasicReturn(312, "NO_ROUTE", "", "q"), 1, b"m"))
    assert core.reason is None


def test_a_message_that_is_too_large_closes_the_connection() -> None:
    core, _, _, _ = opened()
    core.engine.max_message_size = 10
    core.engine._limit_payload(core.engine.frame_max)
    core.receive(frames(m.BasicDeliver("c", 1, False, "x", "k"), 1, b"x" * 11))
    assert isinstance(core.reason, errors.RemoteProtocolError)
    assert core.reason.reply_code == 311


def test_other_replies_may_overtake_those_of_consume_and_cancel() -> None:
    # RabbitMQ's queue processes answer these two themselves (seen: queue.declare-ok before the cancel-ok).
    core, channel, slots, _ = opened()
    core.receive(encode_method(1, m.BasicGetEmpty()) + encode_method(1, m.QueueDeclareOk("q", 3, 0)))
    assert channel.reason is None
    assert slots[2].reply == m.QueueDeclareOk("q", 3, 0)
    assert not slots[0].done
    core.receive(encode_method(1, m.BasicConsumeOk("c")))
    assert slots[0].done


def test_a_consume_ok_for_somebody_else_is_refused() -> None:
    core, channel, _, _ = opened()
    core.receive(encode_method(1, m.BasicConsumeOk("other")))
    assert isinstance(channel.reason, errors.RemoteProtocolError)
