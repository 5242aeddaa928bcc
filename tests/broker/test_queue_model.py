"""A classic queue against a model: order, redelivered, counts; nothing is lost or doubled, whatever is done to it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harebell.protocol.v091 import Content, methods as m
from tests.broker.kit import Client, NodeKit
from tests.fixtures.profiles import scaled

CHANNELS = (1, 2)


class ClassicQueueMachine(RuleBasedStateMachine):
    """The model: messages are numbers in the order of publishing; ready ones are sorted, and that is the order."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.kit = NodeKit(Path(self.folder.name), sync=False)
        self.client: Client = self.kit.client()
        self.client.open(2)
        self.client.events.clear()
        self.client.call(m.QueueDeclare("q"), m.QueueDeclareOk)
        self.published = 0
        self.ready: list[int] = []
        self.seen: set[int] = set()  # delivered at least once: redelivered from then on
        self.unacked: dict[int, dict[int, int]] = {channel: {} for channel in CHANNELS}  # channel: tag: message
        self.last_tag = dict.fromkeys(CHANNELS, 0)
        self.consumer: tuple[int, int] | None = None  # channel, prefetch
        self.out: set[int] = set()  # tags in the consumer's window
        self.gone: set[int] = set()

    def teardown(self) -> None:
        self.kit.stop()
        self.folder.cleanup()

    # -- what the queue must do by itself ------------------------------------------------------------------------

    def expect_deliveries(self) -> None:
        """The consumer gets what its window takes, in order, at once."""
        self.client.receive()
        came = [
            (channel, event.decode_method(), int(event.body))
            for channel, event in self.client.events
            if isinstance(event, Content)
        ]
        self.client.events.clear()
        expected = []
        if self.consumer is not None:
            channel, prefetch = self.consumer
            while self.ready and len(self.out) < prefetch:
                message = self.ready.pop(0)
                tag = self._hand_out(channel, message)
                self.out.add(tag)
                expected.append((channel, m.BasicDeliver("c", tag, message in self.seen, "", "q"), message))
                self.seen.add(message)
        assert came == expected

    def _hand_out(self, channel: int, message: int) -> int:
        self.last_tag[channel] += 1
        tag = self.last_tag[channel]
        self.unacked[channel][tag] = message
        return tag

    def _settled(self, channel: int, tags: list[int], requeue: bool) -> None:
        for tag in tags:
            message = self.unacked[channel].pop(tag)
            if self.consumer and self.consumer[0] == channel:
                self.out.discard(tag)
            if requeue:
                self.ready.append(message)
            else:
                self.gone.add(message)
        self.ready.sort()

    # -- what is done to it --------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 4))
    def publish(self, count: int) -> None:
        for _ in range(count):
            self.client.engine.send_content(1, m.BasicPublish("", "q"), b"\0\0", b"%d" % self.published)
            self.ready.append(self.published)
            self.published += 1
        self.client.pump()
        self.expect_deliveries()

    @rule(channel=st.sampled_from(CHANNELS), no_ack=st.booleans())
    def get(self, channel: int, no_ack: bool) -> None:
        self.client.send(channel, m.BasicGet("q", no_ack=no_ack))
        _, event = self.client.events.pop()
        if not self.ready:
            assert isinstance(event, m.BasicGetEmpty)
            return
        assert isinstance(event, Content)
        message = self.ready.pop(0)
        tag = self._hand_out(channel, message)
        assert event.decode_method() == m.BasicGetOk(tag, message in self.seen, "", "q", len(self.ready))
        assert event.body == b"%d" % message
        self.seen.add(message)
        if no_ack:
            self.gone.add(self.unacked[channel].pop(tag))

    @precondition(lambda self: any(self.unacked.values()))
    @rule(data=st.data(), multiple=st.booleans(), how=st.sampled_from(["ack", "nack", "drop"]))
    def settle(self, data: st.DataObject, multiple: bool, how: str) -> None:
        channel = data.draw(st.sampled_from([channel for channel in CHANNELS if self.unacked[channel]]))
        tag = data.draw(st.sampled_from(sorted(self.unacked[channel])))
        tags = [each for each in self.unacked[channel] if each <= tag] if multiple else [tag]
        method: m.Method = m.BasicNack(tag, multiple=multiple, requeue=how == "nack")
        if how == "ack":
            method = m.BasicAck(tag, multiple=multiple)
        elif not multiple:
            method = m.BasicReject(tag, requeue=how == "nack")
        self.client.send(channel, method)
        self._settled(channel, tags, how == "nack")
        self.expect_deliveries()

    @rule(channel=st.sampled_from(CHANNELS))
    def recover(self, channel: int) -> None:
        self.client.send(channel, m.BasicRecover(requeue=True))
        self._pop(m.BasicRecoverOk)
        self._settled(channel, list(self.unacked[channel]), True)
        self.expect_deliveries()

    def _pop(self, kind: type[m.Method]) -> None:
        """The answer, which must be there; deliveries may be around it."""
        at = next(n for n, (_, event) in enumerate(self.client.events) if isinstance(event, kind))
        del self.client.events[at]

    @precondition(lambda self: self.consumer is None)
    @rule(channel=st.sampled_from(CHANNELS), prefetch=st.integers(1, 4))
    def consume(self, channel: int, prefetch: int) -> None:
        self.client.call(m.BasicQos(0, prefetch), m.BasicQosOk, channel)
        self.client.send(channel, m.BasicConsume("q", "c"))
        self._pop(m.BasicConsumeOk)
        self.consumer = (channel, prefetch)
        self.out = set()
        self.expect_deliveries()

    @precondition(lambda self: self.consumer is not None)
    @rule()
    def cancel(self) -> None:
        assert self.consumer is not None
        self.client.call(m.BasicCancel("c"), m.BasicCancelOk, self.consumer[0])
        self.consumer, self.out = None, set()

    @rule()
    def purge(self) -> None:
        assert self.client.call(m.QueuePurge("q"), m.QueuePurgeOk).message_count == len(self.ready)
        self.gone.update(self.ready)
        self.ready.clear()

    @rule(channel=st.sampled_from(CHANNELS))
    def close_channel(self, channel: int) -> None:
        self.client.send(channel, m.ChannelClose(200, ""))
        self._pop(m.ChannelCloseOk)
        if self.consumer and self.consumer[0] == channel:
            self.consumer, self.out = None, set()
        self._settled(channel, list(self.unacked[channel]), True)
        self.last_tag[channel] = 0
        self.client.open(channel)
        self._pop(m.ChannelOpenOk)
        self.expect_deliveries()

    # -- what always holds ---------------------------------------------------------------------------------------

    @invariant()
    def counts_agree(self) -> None:
        declared = self.client.call(m.QueueDeclare("q", passive=True), m.QueueDeclareOk)
        assert declared.message_count == len(self.ready)
        assert declared.consumer_count == (self.consumer is not None)
        out = [message for table in self.unacked.values() for message in table.values()]
        assert sorted([*self.ready, *out, *self.gone]) == list(range(self.published))


ClassicQueueMachine.TestCase.settings = settings(max_examples=scaled(60), stateful_step_count=40)
TestClassicQueue = ClassicQueueMachine.TestCase
