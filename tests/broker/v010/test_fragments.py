"""Interrupted transfers: the client learns how much has come and sends the rest, and the message is there once."""

from __future__ import annotations

from typing import Any

import pytest

from harebell.broker.v010 import fragments
from harebell.protocol.v010 import DeliveryProperties, MessageProperties, Struct, commands as c, structs as s
from tests.broker.v010.kit import Client, Kit, Peer, add_user

BODY = bytes(range(256)) * 40


def declare(client: Client) -> Client:
    client.call(c.QueueDeclare("q", durable=True))
    return client


def part(
    client: Client,
    body: bytes,
    *,
    first: bool = False,
    last: bool = False,
    resume_id: str | None = "big",
    exchange: str = "",
    size: int | None = None,
    **delivery: Any,
) -> int:
    structs: list[Struct] = [
        DeliveryProperties(routing_key="q", resume_id=resume_id, **delivery),
        s.FragmentProperties(first, last, size),
        MessageProperties(content_type="text/plain", app_id=b"app" if first else b"other"),
    ]
    number = client.send((c.MessageTransfer(exchange, 1, sync=True), structs, body))
    client.wait(number)
    return number


def offset(client: Client, resume_id: str = "big", destination: str = "") -> int | None:
    return client.ask(c.MessageResume(destination, resume_id), s.MessageResumeResult).offset


def got(client: Client) -> list[tuple[bytes, bytes | None]]:
    client.subscribe("q", f"t{len(client.state.sending.unsafe())}{id(client)}{len(client.complete)}")
    return [(content.body, content.message_properties.app_id) for _, content in client.taken()]


def cut_off(kit: Kit, after: int, *, timeout: int = 0, **delivery: Any) -> tuple[Peer, Client]:
    """A client whose connection breaks after so many bytes of a transfer in frames of 1,000 octets or less."""
    peer = kit.peer(frame=4096)
    client = declare(peer.session(b"cut"))
    structs = [DeliveryProperties(routing_key="q", resume_id="big", **delivery), MessageProperties(app_id=b"app")]
    peer.sends = after
    client.send((c.MessageTransfer("", 1), structs, BODY))
    assert peer.lost
    return peer, client


@pytest.mark.parametrize("after", [100, 4096, 4500, 8300, 10_000])
def test_a_cut_transfer_is_resumed(kit: Kit, after: int) -> None:
    """What has come in whole frames counts; the rest follows in another session, on another connection."""
    cut_off(kit, after)
    client = kit.peer().session(b"new")
    come = offset(client)
    assert come is not None
    assert 0 <= come < after
    assert come % (4096 - 12) in (0, come)
    if come:
        part(client, BODY[come:], last=True)
    else:
        client.publish("q", BODY, message=MessageProperties(app_id=b"app"))
    assert got(client) == [(BODY, b"app")]
    assert offset(client) == 0


def test_the_rest_may_be_cut_off_too(kit: Kit) -> None:
    cut_off(kit, 5000)
    again = kit.peer(frame=4096)
    client = again.session(b"again")
    come = offset(client)
    assert come
    structs: list[Struct] = [DeliveryProperties(routing_key="q", resume_id="big"), s.FragmentProperties(False, True)]
    again.sends = 4500
    client.send((c.MessageTransfer("", 1), structs, BODY[come:]))
    assert again.lost
    last = kit.peer().session(b"last")
    more = offset(last)
    assert more is not None
    assert more > come
    part(last, BODY[more:], last=True)
    assert got(last) == [(BODY, b"app")]


def test_parts_from_the_beginning(client: Client) -> None:
    declare(client)
    part(client, b"one ", first=True, size=4)
    assert offset(client) == 4
    part(client, b"two ")
    part(client, b"three", last=True)
    assert got(client) == [(b"one two three", b"app")]


def test_a_whole_message_may_say_so(client: Client) -> None:
    declare(client)
    part(client, b"whole", first=True, last=True, resume_id=None)
    assert got(client) == [(b"whole", b"app")]


def test_a_first_part_begins_anew(client: Client) -> None:
    declare(client)
    part(client, b"wrong", first=True)
    part(client, b"a", first=True)
    part(client, b"b", last=True)
    assert got(client) == [(b"ab", b"app")]


def test_its_header_is_that_of_its_first_part_without_the_fragment(client: Client) -> None:
    declare(client)
    part(client, b"a", first=True, priority=3)
    part(client, b"b", last=True)
    client.subscribe("q")
    ((_, content),) = client.taken()
    assert content.raw(s.FragmentProperties.CODE) == b""
    assert (content.delivery_properties.priority, content.message_properties.content_type) == (3, "text/plain")


def test_in_a_transaction_with_its_last_part(client: Client) -> None:
    declare(client)
    part(client, b"a", first=True)
    client.call(c.TxSelect())
    part(client, b"b", last=True)
    assert client.ask(c.QueueQuery("q"), s.QueueQueryResult).message_count == 0
    client.call(c.TxCommit())
    assert client.ask(c.QueueQuery("q"), s.QueueQueryResult).message_count == 1


def test_unknown_resume_id(client: Client) -> None:
    """Nothing is known of it: the offset is 0, and so it is for a transfer that went elsewhere."""
    declare(client)
    part(client, b"a", first=True, resume_id="other")
    assert offset(client) == 0
    assert offset(client, "other", "amq.direct") == 0


def test_destination_not_found(client: Client) -> None:
    client.call(c.MessageResume("nowhere", "big"))
    assert client.exception is not None
    assert client.exception.error_code == 404


def test_each_user_has_ids_of_his_own(kit: Kit, client: Client) -> None:
    declare(client)
    part(client, b"a", first=True)
    add_user(kit, "other")
    other = kit.peer(user="other").session(b"other")
    assert offset(other) == 0
    assert offset(kit.peer().session(b"same")) == 1


@pytest.mark.parametrize("ttl, kept", [(None, fragments.DEFAULT_TTL), (5000, 5000), (10**12, 3_600_000)])
def test_how_long_it_is_kept(kit: Kit, client: Client, ttl: int | None, kept: int) -> None:
    declare(client)
    part(client, b"a", first=True, resume_ttl=ttl)
    kit.pass_time(kept - 1)
    assert offset(client) == 1
    kit.pass_time(1)
    assert offset(client) == 0


@pytest.mark.parametrize(
    "rest, code",
    [
        ({"body": b"b", "last": True, "resume_id": "unknown"}, 409),
        ({"body": b"b", "last": True, "exchange": "amq.direct"}, 542),
        ({"body": b"b", "last": True, "size": 5}, 542),
        ({"body": b"b", "resume_id": None}, 540),
        ({"body": b"b", "resume_id": None, "first": True}, 540),
    ],
)
def test_what_is_refused(client: Client, rest: dict[str, Any], code: int) -> None:
    declare(client)
    part(client, b"a", first=True)
    part(client, **rest)
    assert client.exception is not None
    assert client.exception.error_code == code


def test_memory_is_bounded(kit: Kit, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """By bytes of a user and of all, by number, and by the size of a message; what is refused leaves nothing behind."""
    declare(client)
    kept: Any = kit.sessions.fragments
    monkeypatch.setattr(fragments, "MOST", 2)
    for name in ("1", "2", "3"):
        part(client, b"a", first=True, resume_id=name)
    assert client.exception is not None
    assert client.exception.error_code == 506
    other = kit.peer().session(b"more")
    other.peer.connection.engine.max_message_size = 10
    part(other, b"0123456789", resume_id="2")
    assert other.exception is not None
    assert other.exception.error_code == 506
    last = kit.peer().session(b"last")
    assert [offset(last, name) for name in ("1", "2", "3")] == [1, 0, 0]
    part(last, b"", last=True, resume_id="1")
    assert (kept._partials, kept._bytes, kept._counts) == ({}, {}, {})
    object.__setattr__(kit.node.limits, "session_memory", 4000)
    part(last, b"x" * 2000, first=True)
    assert last.exception is not None
    assert last.exception.error_code == 506
    assert (kept._partials, kept._bytes, kept._counts) == ({}, {}, {})


@pytest.mark.parametrize("asked", [{"resume_id": "x"}, {"resume_ttl": 1}])
def test_deliveries_are_not_resumed(client: Client, asked: dict[str, Any]) -> None:
    declare(client)
    client.call(c.MessageSubscribe("q", "t", **asked))
    assert client.exception is not None
    assert client.exception.error_code == 540


def test_many_parts_that_come_together(client: Client) -> None:
    """Parts that differ in their bodies alone are no run of messages."""
    declare(client)
    part(client, b"", first=True)
    structs = [DeliveryProperties(routing_key="q", resume_id="big"), s.FragmentProperties(False, False)]
    for number in range(5):
        client.peer.engine.send_content(
            client.channel, c.MessageTransfer("", 1), structs, b"%d" % client.state.sending.send(number, 1)
        )
    client.peer.pump()
    first = 1 + 1  # the declaration, and the first part
    part(client, b".", last=True)
    assert got(client) == [("".join(map(str, range(first, first + 5))).encode() + b".", b"app")]


PARTS = {
    "without fragment-properties": [(b"x" * 9000, None)],
    "one that is all": [(b"x" * 9000, (True, True))],
    "the first of two": [(b"x" * 9000, (True, False)), (b"y" * 10, (False, True))],
    "the last of two": [(b"x" * 10, (True, False)), (b"y" * 9000, (False, True))],
    "one in the middle": [(b"x" * 10, (True, False)), (b"y" * 9000, (False, False)), (b"z" * 10, (False, True))],
}


@pytest.mark.parametrize("cuts", [[100], [4500], [8300], [8300, 4500], [4500, 8300, 100]], ids=str)
@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_a_cut_part_that_its_session_sends_again_counts_once(
    kit: Kit, parts: list[tuple[bytes, tuple[bool, bool] | None]], cuts: list[int]
) -> None:
    """However often it is cut, and wherever: the message is whole, and nothing of the cuts is kept."""
    peer = kit.peer(frame=4096)
    client = declare(peer.session(b"lasts", timeout=60))
    for body, fragment in parts:
        structs: list[Struct] = [DeliveryProperties(routing_key="q", resume_id="big"), MessageProperties(app_id=b"app")]
        if fragment is not None:
            structs.insert(1, s.FragmentProperties(*fragment))
        if len(body) > 4096:
            peer.sends = cuts[0]
        number = client.send((c.MessageTransfer("", 1, sync=True), structs, body))
        for after in [*cuts[1:], None] if peer.lost else ():
            assert peer.lost
            peer = kit.peer(frame=4096)
            peer.sends = after
            client = peer.session(b"lasts", state=client.state)
        client.wait(number)
    assert got(client) == [(b"".join(body for body, _ in parts), b"app")]
    assert (kit.sessions.fragments._partials, kit.sessions.fragments._bytes) == ({}, {})


@pytest.mark.parametrize("same", [True, False], ids=["in its session", "in another one"])
def test_a_cut_part_that_is_not_sent_again_is_resumed(kit: Kit, same: bool) -> None:
    """The session lasts; its client gives the transfer up, and sends the rest."""
    peer = kit.peer(frame=4096)
    client = declare(peer.session(b"lasts", timeout=60))
    structs = [DeliveryProperties(routing_key="q", resume_id="big"), MessageProperties(app_id=b"app")]
    peer.sends = 8300
    number = client.send((c.MessageTransfer("", 1), structs, BODY))
    if same:
        client.state.abandon(number, number)
        client = kit.peer().session(b"lasts", state=client.state)
        kit.settle()
    else:
        client = kit.peer().session(b"other")
    come = offset(client)
    assert come
    part(client, BODY[come:], last=True)
    assert got(client) == [(BODY, b"app")]


def test_a_client_without_its_state_resumes(kit: Kit) -> None:
    """Its numbers begin anew: one of them is that of the transfer which was cut off."""
    peer = kit.peer(frame=4096)
    client = declare(peer.session(b"lasts", timeout=60))
    structs = [DeliveryProperties(routing_key="q", resume_id="big"), MessageProperties(app_id=b"app")]
    peer.sends = 8300
    number = client.send((c.MessageTransfer("", 1), structs, BODY))
    come = offset(kit.peer().session(b"other"))
    assert come
    client = kit.peer().session(b"lasts")
    assert part(client, BODY[come:], last=True) == number
    assert got(client) == [(BODY, b"app")]


def test_nothing_is_kept_of_a_cut_part_behind_others_that_are_lost(kit: Kit) -> None:
    """They waited for the end of an alarm, and were not executed: the octets of the cut would follow others."""
    peer = kit.peer(frame=4096)
    client = declare(peer.session(b"lasts", timeout=60))
    part(client, b"a" * 10, first=True)
    kit.node.raise_alarm("disk")
    structs = [DeliveryProperties(routing_key="q", resume_id="big"), s.FragmentProperties(False, False)]
    client.send((c.MessageTransfer("", 1), structs, b"b" * 10))
    peer.sends = 8300
    client.send((c.MessageTransfer("", 1), structs, b"c" * 9000))
    assert peer.lost
    kit.node.clear_alarm("disk")
    assert offset(kit.peer().session(b"other")) == 10
