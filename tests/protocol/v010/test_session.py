"""Sessions: two peers that lose their connection at any octet execute every command once and in order."""

from __future__ import annotations

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from harebell import errors
from harebell.protocol.v010 import Role, controls as k, session as module
from harebell.protocol.v010.receiving import ReceivingHalf
from harebell.protocol.v010.session import Again, Session
from tests.protocol.v010.peers import Pair, Peer

WRAP = 1 << 32


class CutAnywhere(RuleBasedStateMachine):
    """Commands both ways, completions in any order, and cuts between any two octets."""

    @initialize(first=st.sampled_from([0, WRAP - 3, WRAP // 2 - 2]), eager=st.booleans())
    def begin(self, first: int, eager: bool) -> None:
        self.pair = Pair(first)
        self.pair.client.eager = self.pair.server.eager = eager

    def peer(self, client: bool) -> Peer:
        return self.pair.client if client else self.pair.server

    @rule(client=st.booleans(), sync=st.booleans(), count=st.integers(1, 4))
    def send(self, client: bool, sync: bool, count: int) -> None:
        for _ in range(count):
            self.peer(client).send(sync)

    @rule(client=st.booleans(), index=st.integers(0, 9))
    def finish(self, client: bool, index: int) -> None:
        self.peer(client).finish(index)

    @rule(client=st.booleans(), idle=st.booleans())
    def report(self, client: bool, idle: bool) -> None:
        peer = self.peer(client)
        if peer.session.ready:
            peer.say(peer.session.due(idle))

    @rule(client=st.booleans())
    def ask(self, client: bool) -> None:
        peer = self.peer(client)
        if peer.session.ready:
            peer.say([k.SessionFlush(confirmed=True, completed=True)])

    @rule(to_server=st.booleans(), octets=st.integers(0, 120))
    def move(self, to_server: bool, octets: int) -> None:
        self.pair.move(octets, to_server)

    @rule()
    def move_all(self) -> None:
        for _ in range(3):
            self.pair.move(1 << 20, True)
            self.pair.move(1 << 20, False)

    @rule()
    def cut(self) -> None:
        self.pair.cut()

    @invariant()
    def exactly_once(self) -> None:
        if hasattr(self, "pair"):
            self.pair.check()

    def teardown(self) -> None:
        if hasattr(self, "pair"):
            self.pair.settle()
            self.pair.check_settled()


TestCutAnywhere = CutAnywhere.TestCase
TestCutAnywhere.settings = settings(stateful_step_count=40)


def dialogue(pair: Pair) -> None:
    """A fixed conversation: commands both ways, some with sync, completions out of order."""
    for turn in range(4):
        pair.move(1 << 20, True)
        pair.move(1 << 20, False)
        for peer in (pair.client, pair.server):
            for number in range(3):
                peer.send(sync=number == turn)
            peer.finish(1)
            peer.finish(0)
            if peer.session.ready:
                peer.say(peer.session.due(idle=turn == 2))
    pair.settle()


@pytest.mark.parametrize("first", [0, WRAP - 4])
@pytest.mark.parametrize("to_server", [True, False])
def test_a_cut_after_every_octet(first: int, to_server: bool) -> None:
    whole = Pair(first)
    dialogue(whole)
    whole.check_settled()
    length = whole.heard[0 if to_server else 1]
    assert length > 300
    for octets in range(0, length, 1 if first else 7):
        pair = Pair(first)
        pair.client.eager = octets % 2 == 0
        pair.server.eager = octets % 3 == 0
        left = octets

        def move(count: int, direction: bool, pair: Pair = pair) -> int:
            nonlocal left
            if direction != to_server or left < 0:
                return Pair.move(pair, count, direction)
            moved = Pair.move(pair, min(count, left), direction)
            left -= moved
            if left <= 0:
                left = -1
                pair.cut()
                moved += 1
            return moved

        pair.move = move  # type: ignore[method-assign, assignment]
        dialogue(pair)
        pair.check_settled()
        assert pair.attachments == 2


def test_a_restarted_server_knows_what_it_executed() -> None:
    pair = Pair(WRAP - 2)
    pair.settle()
    for _ in range(4):
        pair.client.send(sync=False)
    pair.move(1 << 20, True)
    pair.server.finish(0)
    pair.server.finish(1)
    saved = pair.server.session.receiving.save()
    executed = pair.server.executed
    pair.server.session = Session(b"pair", receiving=ReceivingHalf.load(saved))
    pair.server.running.clear()
    pair.cut()
    pair.settle()
    assert executed == [0, 1, 2, 3, 1, 3]  # 1 and 3 were not complete
    assert pair.client.complete == 4
    assert not pair.client.lost


def test_a_restarted_server_goes_on_with_its_numbers() -> None:
    pair = Pair()
    pair.settle()
    for _ in range(3):
        pair.server.send(sync=False)
    pair.settle()
    pair.client.send(sync=True)
    pair.settle()
    pair.server.session = Session(b"pair", receiving=ReceivingHalf.load(pair.server.session.receiving.save()))
    pair.cut()
    pair.settle()
    pair.server.send(sync=True)
    pair.settle()
    assert pair.client.executed == [0, 1, 2, 3]
    assert pair.server.session.sending.next == 4


def test_lost_state_is_told_and_can_be_left() -> None:
    pair = Pair()
    pair.settle()
    for _ in range(3):
        pair.client.send(sync=False)
    pair.server.send(sync=False)
    pair.settle()
    pair.client.send(sync=False)
    pair.server.session = Session(b"pair")
    pair.cut()
    pair.settle()
    assert pair.client.lost == 1
    assert not pair.client.session.ready
    controls, unsafe = pair.client.session.start_over()
    assert len(unsafe) == 1
    pair.client.say(controls)
    for command in unsafe:
        pair.client.session.sending.send(command, 20)
        pair.client.engine.send_command(pair.client.channel, command)
    pair.settle()
    assert pair.server.executed == [0, 1, 2, 3]
    pair.server.send(sync=False)
    pair.settle()
    assert pair.client.executed == [0, 1]


def test_a_new_client_goes_on_behind_the_commands_of_the_old_one() -> None:
    pair = Pair()
    pair.settle()
    for _ in range(3):
        pair.client.send(sync=False)
    pair.settle()
    pair.client.session = Session(b"pair")
    pair.cut()
    pair.settle()
    assert pair.server.lost == 1  # of what the server sent the old one
    controls, unsafe = pair.server.session.start_over()
    assert unsafe == []
    pair.server.say(controls)
    pair.client.send(sync=False)
    pair.settle()
    assert pair.server.executed == [0, 1, 2, 3]


def test_a_session_that_cannot_be_known_begins_at_once() -> None:
    session: Session[str] = Session(b"new")
    assert not session.has_state
    assert session.attached(new=True) == [k.SessionCommandPoint(0, 0)]
    assert session.ready
    session.detached()
    assert session.attached() == [k.SessionFlush(expected=True)]
    assert not session.ready
    assert session.receive_control(k.SessionExpected(())).to_send == [k.SessionCommandPoint(0, 0)]
    assert session.ready


def ready(count: int = 0) -> Session[str]:
    session: Session[str] = Session(b"s")
    session.attached(new=True)
    session.receive_control(k.SessionCommandPoint(0, 0))
    for number in range(count):
        session.sending.send(str(number), 10)
    return session


def test_answers_to_flush() -> None:
    session = ready()
    for _ in range(4):
        session.receiving.receive()
    session.receiving.complete(0, 1)
    session.receiving.complete(3)
    reaction = session.receive_control(k.SessionFlush(expected=True, confirmed=True, completed=True))
    done = ((0, 1), (3, 3))
    assert reaction.to_send == [k.SessionExpected(((4, 4),)), k.SessionConfirmed(done), k.SessionCompleted(done, True)]
    session.receive_control(k.SessionKnownCompleted(done))
    assert session.receive_control(k.SessionFlush(completed=True)).to_send == [k.SessionCompleted()]
    assert session.receive_control(k.SessionFlush(confirmed=True)).to_send == [k.SessionConfirmed()]
    assert session.receive_control(k.SessionFlush()).to_send == []


def test_parts_of_commands_are_not_named() -> None:
    """A command is sent again whole: its parts have no numbers of their own on the wire."""
    session = ready(2)
    session.receiving.receive()
    (expected, confirmed) = session.receive_control(k.SessionFlush(expected=True, confirmed=True)).to_send
    assert isinstance(expected, k.SessionExpected)
    assert isinstance(confirmed, k.SessionConfirmed)
    assert expected.fragments is confirmed.fragments is None
    session.detached()
    session.attached()
    with pytest.raises(errors.RemoteProtocolError, match="names parts of commands") as caught:
        session.receive_control(k.SessionExpected(((1, 1),), [b"a part of command 0"]))
    assert (caught.value.reply_code, caught.value.scope) == (540, "channel")
    session.receive_control(k.SessionConfirmed((), [b"a part of command 0"]))
    assert session.sending.incomplete == 2


def test_completions_are_answered() -> None:
    session = ready(20)
    reaction = session.receive_control(k.SessionCompleted(((0, 4),)))
    assert (reaction.complete, reaction.to_send) == ([(0, 4)], [])
    assert session.due() == session.due(idle=True) == []
    reaction = session.receive_control(k.SessionCompleted(((6, 6),), timely_reply=True))
    assert reaction.to_send == [k.SessionKnownCompleted(((0, 4), (6, 6)))]
    session.receive_control(k.SessionCompleted(((0, 19),)))
    assert session.due(idle=True) == []
    assert session.receive_control(k.SessionCompleted(None, True)).complete == []
    session.receive_control(k.SessionConfirmed())
    assert session.receive_control(k.SessionTimeout(3)).to_send == []


def test_what_is_due() -> None:
    session = ready()
    assert session.due() == []
    for number in range(module.TIMELY):
        session.receiving.receive(sync=number == 0)
    session.receiving.complete(0)
    assert session.due() == [k.SessionCompleted(((0, 0),))]
    session.receiving.complete(1, module.REPORT - 1)
    assert session.due() == []
    assert session.due(idle=True) == [k.SessionCompleted(((0, module.REPORT - 1),))]
    session.receiving.complete(module.REPORT, module.TIMELY - 1)
    assert session.due() == [k.SessionCompleted(((0, module.TIMELY - 1),), timely_reply=True)]
    for number in range(1030):
        session.sending.send(str(number), 10)
    assert session.due() == [k.SessionFlush(completed=True)]
    assert session.due() == []


@pytest.mark.parametrize("flushed", [False, True])
def test_completions_wait_for_the_results_before_them(flushed: bool) -> None:
    """A query is pipelined with the attachment: its result waits for session.expected, its completion with it."""
    session: Session[str] = Session(b"s")
    session.attached()
    session.receive_control(k.SessionCommandPoint(0, 0))
    session.receiving.receive(sync=True)
    session.sending.send("result", 10)
    session.receiving.complete(0)
    if flushed:
        assert session.receive_control(k.SessionFlush(completed=True)).to_send == []
    assert session.due() == []
    point, again = session.receive_control(k.SessionExpected(((0, 0),))).to_send
    assert isinstance(again, Again)
    assert (point, again.item) == (k.SessionCommandPoint(0, 0), "result")
    assert session.due() == [k.SessionCompleted(((0, 0),))]


def test_commands_given_up() -> None:
    session = ready(4)
    assert session.abandon(1, 2) == [k.SessionGap(((1, 2),)), k.SessionCommandPoint(4, 0)]
    assert session.abandon(1, 2) == []
    session.detached()
    session.attached()
    reaction = session.receive_control(k.SessionExpected(((0, 0),)))
    said = [(each.number, each.item) if isinstance(each, Again) else each for each in reaction.to_send]
    assert said == [
        k.SessionGap(((1, 2),)),
        k.SessionCommandPoint(0, 0),
        (0, "0"),
        k.SessionCommandPoint(3, 0),
        (3, "3"),
    ]
    other = ready()
    other.receiving.receive()
    other.receive_control(k.SessionGap(((1, 2),)))
    other.receive_control(k.SessionCommandPoint(3, 0))
    assert other.receiving.receive() == 3
    other.receive_control(k.SessionGap())


def test_start_over_before_a_command_point() -> None:
    session = ready(1)
    session.detached()
    assert session.start_over() == ([k.SessionCommandPoint(1, 0)], ["0"])
    assert session.receiving.received is None


@pytest.mark.parametrize(
    "control",
    [
        k.SessionCompleted(((5, 5),)),
        k.SessionConfirmed(((5, 5),)),
        k.SessionExpected(((5, 5),)),
        k.SessionKnownCompleted(((3, 1),)),
        k.SessionCommandPoint(2, 0),
        k.SessionGap(((3, 1),)),
    ],
)
def test_what_cannot_be_ends_the_session(control: k.SessionGap) -> None:
    session = ready(1)
    session.receiving.receive()
    with pytest.raises(errors.RemoteProtocolError) as caught:
        session.receive_control(control)
    assert caught.value.scope == "channel"
    assert Role.CLIENT.peer is Role.SERVER
