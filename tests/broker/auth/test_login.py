"""Logins, over the wire of one node: every mechanism, the worker thread, throttling, and what logs say."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

from harebell.broker.auth import verifier
from harebell.broker.auth.passwords import RABBITMQ_SHA256
from harebell.broker.auth.scram import ITERATIONS, make_keys
from harebell.broker.auth.throttle import USER, Level
from harebell.broker.auth.users import SCRAM_KEYS, make_user
from harebell.broker.connections.phase import Phase
from harebell.broker.v091.handshake import SILENT_CLOSE_DELAY
from harebell.config import DEFAULT_MECHANISMS
from harebell.errors import InvalidArgument
from harebell.protocol.v091 import methods as m
from harebell.protocol.v091.codec import encode_method
from harebell.protocol.v091.fields import write_table
from harebell.routing.definitions import Permission, User
from tests.broker.auth.knock import Knock, admitted
from tests.broker.auth.test_scram import last_message
from tests.broker.kit import NodeKit
from tests.fixtures.profiles import scaled

SECRET = "s3cret-w0rd"
SLOW = make_user("slow", SECRET, scram=True)


@pytest.fixture
def people(kit: NodeKit) -> NodeKit:
    """Users with the password SECRET: "quick" has RabbitMQ's hash and no more, "slow" has ours; "mute" has none."""
    quick = make_user("quick", SECRET, (), RABBITMQ_SHA256)
    imported = User("quick", quick.password_hash, RABBITMQ_SHA256)
    for user in (imported, SLOW, make_user("mute", None)):
        kit.node.users.put(user)
        kit.node.users.set_permission(Permission("/", user.name, ".*", ".*", ".*"))
    return kit


def heard(kit: NodeKit, knock: Knock, answers: list[m.Method]) -> list[m.Method]:
    """The answers, which may come from a thread."""
    while not answers:
        kit.run_sync()
        answers = knock.listen()
    return answers


def scram(knock: Knock, user: str, password: str) -> list[m.Method]:
    """A whole login; the last answer."""
    first = f"n={user},r=abcdef"
    answers = knock.login("SCRAM-SHA-256", f"n,,{first}".encode())
    if not isinstance(answers[0], m.ConnectionSecure):
        return answers
    answers = knock.say(m.ConnectionSecureOk(last_message(password, first, answers[0].challenge)))
    if isinstance(answers[0], m.ConnectionSecure):
        assert answers[0].challenge.startswith(b"v=")
        answers = knock.say(m.ConnectionSecureOk(b""))
    return answers


# -- mechanisms --------------------------------------------------------------------------------------------------


def test_what_is_offered(kit: NodeKit) -> None:
    assert Knock(kit).mechanisms == ["PLAIN", "AMQPLAIN"], "nobody has keys for SCRAM"
    kit.node.logins.enable(("SCRAM-SHA-256",))
    assert Knock(kit).mechanisms == ["SCRAM-SHA-256"], "it is all there is"
    kit.node.logins.enable(DEFAULT_MECHANISMS)
    kit.node.users.put(SLOW)
    assert Knock(kit).mechanisms == ["PLAIN", "AMQPLAIN", "SCRAM-SHA-256"]
    assert Knock(kit, certificate_user="CN=a").mechanisms == ["PLAIN", "AMQPLAIN", "SCRAM-SHA-256", "EXTERNAL"]
    kit.node.logins.enable(("ANONYMOUS", "SCRAM-SHA-256"))
    assert Knock(kit).mechanisms == ["ANONYMOUS", "SCRAM-SHA-256"]
    assert not admitted(Knock(kit).plain("guest", "guest")), "not offered"
    for wrong in ((), ("PLAIN", "MAGIC")):
        with pytest.raises(InvalidArgument, match="no SASL mechanism"):
            kit.node.logins.enable(wrong)


@pytest.mark.parametrize("user, password, comes_in", [
    ("quick", SECRET, True), ("quick", "wrong", False), ("quick", "", False), ("mute", "", False),
    ("mute", SECRET, False),
])  # fmt: skip
def test_passwords(people: NodeKit, user: str, password: str, comes_in: bool) -> None:
    knock = Knock(people)
    assert admitted(heard(people, knock, knock.plain(user, password))) is comes_in
    response = write_table({"LOGIN": user, "PASSWORD": password})[4:]
    knock = Knock(people)
    assert admitted(heard(people, knock, knock.login("AMQPLAIN", response))) is comes_in


@pytest.mark.parametrize("user, password, comes_in", [
    ("slow", SECRET, True), ("slow", "wrong", False), ("nobody", SECRET, False), ("mute", SECRET, False),
    ("quick", SECRET, False),
])  # fmt: skip
def test_scram(people: NodeKit, user: str, password: str, comes_in: bool, caplog: pytest.LogCaptureFixture) -> None:
    assert admitted(scram(Knock(people), user, password)) is comes_in
    assert ("set its password anew" in caplog.text) is (user == "quick")


REASONS = [
    ("slow", "wrong", "wrong password"), ("quick", "wrong", "wrong password"), ("quick", "", "wrong password"),
    ("nobody", SECRET, "no such user"), ("mute", SECRET, "the user has no password"),
]  # fmt: skip


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("user, password, reason", REASONS)
def test_the_log_has_the_reason_of_a_refusal(
    people: NodeKit, mechanism: str, user: str, password: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    knock = Knock(people)
    if mechanism == "SCRAM-SHA-256":
        people.node.users.put(dataclasses.replace(SLOW, name="quick"))
        answers = scram(knock, user, password)
    elif mechanism == "AMQPLAIN":
        answers = knock.login(mechanism, write_table({"LOGIN": user, "PASSWORD": password})[4:])
    else:
        answers = knock.plain(user, password)
    assert not admitted(heard(people, knock, answers))
    assert f"login refused, mechanism {mechanism}: user '{user}': {reason}" in caplog.text


def test_the_log_has_the_reason_of_a_refusal_after_the_proof(people: NodeKit, caplog: pytest.LogCaptureFixture) -> None:
    assert not admitted(Knock(people, certificate_user="gone").login("EXTERNAL", b""))
    assert "mechanism EXTERNAL: user 'gone': no such user" in caplog.text
    assert not admitted(Knock(people, "192.0.2.1").plain("guest", "guest"))
    assert "user 'guest': can only connect via localhost" in caplog.text


def test_scram_for_guest(kit: NodeKit) -> None:
    """With keys of the 4,096 rounds that older versions made."""
    guest, keys = kit.node.users.users["guest"], make_keys("guest", 4096)
    kit.node.users.put(dataclasses.replace(guest, extra={SCRAM_KEYS: str(keys)}))
    assert admitted(scram(Knock(kit), "guest", "guest"))
    assert not admitted(scram(Knock(kit, "10.0.0.1"), "guest", "guest"))


def test_no_keys_are_kept_unless_they_are_asked_for(kit: NodeKit) -> None:
    kit.node.users.put(User("defined", None, None, extra={"password": SECRET}))
    kit.node.users.put(make_user("added", SECRET))
    assert [name for name, user in kit.node.users.users.items() if SCRAM_KEYS in user.extra] == []
    kept = [list(kit.node.users.scram_iterations)]
    kit.node.users.put(SLOW)
    kept.append(list(kit.node.users.scram_iterations))
    kit.node.users.remove("slow")
    kept.append(list(kit.node.users.scram_iterations))
    assert kept == [[], [ITERATIONS], []]


def test_the_rounds_of_a_challenge_do_not_tell_who_exists(people: NodeKit) -> None:
    """A user with keys of an older version is one of many names that get as many rounds."""
    people.node.users.put(dataclasses.replace(SLOW, name="old", extra={SCRAM_KEYS: str(make_keys(SECRET, 4096))}))

    def rounds(name: str) -> bytes:
        (secure,) = Knock(people).login("SCRAM-SHA-256", f"n,,n={name},r=abc".encode())
        assert isinstance(secure, m.ConnectionSecure)
        return secure.challenge.rpartition(b",i=")[2]

    assert (rounds("old"), rounds("slow")) == (b"4096", b"600000")
    assert {rounds(f"nobody {number}") for number in range(40)} == {b"4096", b"600000"}


def test_scram_out_of_turn(people: NodeKit) -> None:
    knock = Knock(people)
    assert isinstance(knock.login("SCRAM-SHA-256", b"n,,n=slow,r=abc")[0], m.ConnectionSecure)
    assert not admitted(knock.say(m.ConnectionSecureOk(b"")))


@pytest.mark.parametrize("certificate, response, comes_in", [
    ("slow", b"", True), ("slow", b"slow", True), ("slow", b"quick", False), ("nobody", b"", False), (None, b"", False),
])  # fmt: skip
def test_external(people: NodeKit, certificate: str | None, response: bytes, comes_in: bool) -> None:
    assert admitted(Knock(people, certificate_user=certificate).login("EXTERNAL", response)) is comes_in


def test_anonymous_only_when_asked_for(people: NodeKit) -> None:
    assert not admitted(Knock(people).login("ANONYMOUS", b"me"))
    people.node.logins.enable(("ANONYMOUS",))
    assert admitted(Knock(people).login("ANONYMOUS", b"me"))
    assert not admitted(Knock(people, "10.0.0.1").login("ANONYMOUS", b"me")), "it is guest"
    people.node.logins.anonymous_user = "quick"
    knock = Knock(people, "10.0.0.1")
    assert admitted(knock.login("ANONYMOUS", b"me"))
    assert knock.connection.user == "quick"
    people.node.logins.anonymous_user = "gone"
    assert not admitted(Knock(people).login("ANONYMOUS", b""))


# -- the worker thread -------------------------------------------------------------------------------------------


def test_a_slow_hash_is_verified_beside_the_loop_and_remembered(people: NodeKit) -> None:
    first = Knock(people)
    assert first.plain("slow", SECRET) == [], "the answer comes later"
    assert admitted(Knock(people).plain("quick", SECRET)), "nobody else waits"
    people.run_sync()
    assert admitted(first.listen())
    assert admitted(Knock(people).plain("slow", SECRET)), "at once"
    wrong = Knock(people)
    assert wrong.plain("slow", "wrong") == []
    people.run_sync()
    assert not admitted(wrong.listen())
    people.node.users.put(make_user("slow", "another"))
    changed = Knock(people)
    assert changed.plain("slow", SECRET) == [], "a changed password is not remembered"
    people.run_sync()
    assert not admitted(changed.listen())


def test_a_user_who_is_not_there_takes_as_long(people: NodeKit) -> None:
    knock = Knock(people)
    assert knock.plain("nobody", SECRET) == []
    people.run_sync()
    assert not admitted(knock.listen())


@pytest.mark.parametrize(
    "end", [lambda knock: knock.connection.lost(), lambda knock: knock.connection.receive_data(bytes(2 << 20))]
)
def test_who_is_gone_when_the_answer_comes(people: NodeKit, end: Callable[[Knock], None]) -> None:
    knock = Knock(people)
    knock.plain("slow", SECRET)
    end(knock)
    before = bytes(knock.transport.written)
    people.run_sync()
    assert bytes(knock.transport.written) == before
    assert not knock.waits


def test_a_user_who_is_removed_meanwhile_does_not_come_in(people: NodeKit) -> None:
    knock = Knock(people)
    knock.plain("slow", SECRET)
    people.node.users.remove("slow")
    people.run_sync()
    assert not admitted(knock.listen())


def test_too_many_slow_logins_are_refused(people: NodeKit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifier, "MOST_WAITING", 2)
    waiting = [Knock(people, f"10.0.0.{number}") for number in range(verifier.THREADS + 3)]
    answers = [knock.plain("slow", SECRET) for knock in waiting]
    assert answers[:-1] == [[]] * (verifier.THREADS + 2)
    assert not admitted(answers[-1])
    assert all(admitted(heard(people, knock, [])) for knock in waiting[:-1])


def test_new_secret(people: NodeKit) -> None:
    knock = Knock(people)
    knock.plain("quick", SECRET)
    knock.say(m.ConnectionTuneOk(2047, 131_072, 0))
    knock.say(m.ConnectionOpen("/"))
    (answer,) = knock.say(m.ConnectionUpdateSecret(SECRET.encode(), "why"))
    assert isinstance(answer, m.ConnectionUpdateSecretOk)
    (answer,) = knock.say(m.ConnectionUpdateSecret(b"it is not looked at", "why"))
    assert isinstance(answer, m.ConnectionUpdateSecretOk)
    stranger = Knock(people, "10.0.0.9")
    assert not admitted(heard(people, stranger, stranger.plain("quick", "it is not looked at")))


# -- throttling --------------------------------------------------------------------------------------------------


def guess(people: NodeKit, host: str, user: str, count: int) -> None:
    """As many wrong passwords, each another one."""
    for number in range(count):
        knock = Knock(people, host)
        assert not admitted(heard(people, knock, knock.plain(user, f"wrong {number}")))


@pytest.mark.parametrize("user, host, waits", [
    ("quick", "10.0.0.1", True), ("slow", "10.0.0.1", False), ("quick", "10.0.0.2", False),
])  # fmt: skip
def test_guesses_make_the_next_ones_wait(people: NodeKit, user: str, host: str, waits: bool) -> None:
    guess(people, "10.0.0.1", "quick", USER.free)
    good = Knock(people, host)
    answers = good.plain(user, SECRET)
    if waits:
        assert answers == []
        people.pass_time(249)
        assert good.listen() == []
        people.pass_time(1)
        answers = good.listen()
    assert admitted(heard(people, good, answers))


def test_a_known_password_never_waits(people: NodeKit) -> None:
    assert admitted(Knock(people, "10.0.0.1").plain("quick", SECRET))
    guess(people, "10.0.0.1", "quick", USER.free)
    assert admitted(Knock(people, "10.0.0.1").plain("quick", SECRET))


def test_the_same_wrong_password_is_one_guess(people: NodeKit) -> None:
    guess(people, "10.0.0.1", "quick", 1)
    for _ in range(5 * USER.free):
        assert not admitted(Knock(people, "10.0.0.1").plain("quick", "wrong 0"))
    assert admitted(Knock(people, "10.0.0.1").plain("quick", SECRET))


def test_proofs_are_guesses_too(people: NodeKit) -> None:
    for _ in range(USER.free):
        assert not admitted(scram(Knock(people, "10.0.0.1"), "slow", "wrong"))
    knock = Knock(people, "10.0.0.1")
    first = "n=slow,r=abcdef"
    (secure,) = knock.login("SCRAM-SHA-256", f"n,,{first}".encode())
    assert isinstance(secure, m.ConnectionSecure)
    proof = m.ConnectionSecureOk(last_message(SECRET, first, secure.challenge))
    assert knock.say(proof) == [], "it waits"
    people.pass_time(250)
    assert isinstance(knock.listen()[0], m.ConnectionSecure)
    assert admitted(knock.say(m.ConnectionSecureOk(b"")))


def test_guesses_side_by_side_are_refused(people: NodeKit, caplog: pytest.LogCaptureFixture) -> None:
    knocks = [Knock(people, "10.0.0.1") for _ in range(60)]
    answers = [knock.plain("slow", f"wrong {number}") for number, knock in enumerate(knocks)]
    assert answers[: USER.free] == [[]] * USER.free
    assert not any(admitted(each) for each in answers[30:])
    assert "user 'slow': too many logins wait already" in caplog.text
    knock = Knock(people, "10.0.0.1")
    (secure,) = knock.login("SCRAM-SHA-256", b"n,,n=slow,r=abc")
    assert isinstance(secure, m.ConnectionSecure)
    proof = last_message(SECRET, "n=slow,r=abc", secure.challenge)
    assert not admitted(knock.say(m.ConnectionSecureOk(proof))), "a proof has no turn either"


# -- secrets -----------------------------------------------------------------------------------------------------


def test_no_secret_in_logs_and_reprs(people: NodeKit, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for user in ("quick", "slow", "nobody", "mute"):
        for password in (SECRET, f"{SECRET}x"):
            knock = Knock(people)
            knock.plain(user, password)
            if not people.calls.empty():
                people.run_sync()
            knock = Knock(people)
            knock.login("AMQPLAIN", write_table({"LOGIN": user, "PASSWORD": password})[4:])
            knock = Knock(people)
            knock.login("PLAIN", f"x\0{user}\0{password}".encode())
            frame = encode_method(0, m.ConnectionStartOk({}, "PLAIN", f"\0{user}\0{password}".encode(), "en_US"))
            Knock(people).connection.receive_data(frame[:-1] + b"\0")  # the frame's end is wrong
    people.run_syncs()
    assert "login refused" in caplog.text
    assert "all octets = <<...>>" in caplog.text
    assert SECRET not in caplog.text
    assert SECRET not in repr(m.ConnectionStartOk({}, "PLAIN", SECRET.encode()))
    assert SECRET not in repr(m.ConnectionSecureOk(SECRET.encode()))
    assert SECRET not in repr(m.ConnectionUpdateSecret(SECRET.encode(), ""))
    assert SECRET.encode().hex() not in caplog.text


def test_a_refused_client_that_knows_no_better_hears_nothing(people: NodeKit) -> None:
    knock = Knock(people)
    knock.say(m.ConnectionStartOk({}, "PLAIN", b"\0slow\0wrong", "en_US"))
    people.run_sync()
    assert (knock.listen(), knock.transport.closed, knock.connection.phase) == ([], SILENT_CLOSE_DELAY, Phase.CLOSED)


# -- anything at all ---------------------------------------------------------------------------------------------

RESPONSES = st.one_of(
    st.binary(max_size=60),
    st.lists(st.sampled_from([
        b"", b"guest", b"\0", b"n,,", b"n=guest", b",", b"r=abc", b"c=biws", b"p=AAAA", b"\xff", b"LOGIN",
        b"\x05LOGINS\0\0\0\5guest", b"\x08PASSWORDS\0\0\0\5guest",
    ]), max_size=8).map(b"".join),
)  # fmt: skip
NAMES = st.sampled_from(["PLAIN", "AMQPLAIN", "SCRAM-SHA-256", "EXTERNAL", "ANONYMOUS"])


@settings(max_examples=scaled(100))
@given(
    mechanism=st.one_of(NAMES, NAMES, st.text(max_size=40)),
    responses=st.lists(RESPONSES, min_size=1, max_size=4),
    certificate=st.sampled_from([None, "guest", "nobody"]),
)
def test_any_response_ends_in_a_refusal_or_in_guest(
    kit: NodeKit, mechanism: str, responses: list[bytes], certificate: str | None
) -> None:
    kit.node.users.put(SLOW)  # with keys: SCRAM is offered
    kit.node.logins.throttle.user = kit.node.logins.throttle.address = Level(1 << 30, (1,))
    knock = Knock(kit, certificate_user=certificate)
    answers = knock.login(mechanism, responses[0])
    for response in responses[1:]:
        if not answers or not isinstance(answers[-1], m.ConnectionSecure):
            break
        answers = knock.say(m.ConnectionSecureOk(response))
    while not answers:
        kit.run_sync()  # a user who is not there
        answers = knock.listen()
    assert isinstance(answers[-1], m.ConnectionSecure) or not admitted(answers[-1:]) or knock.connection.user == "guest"
    knock.connection.lost()
    kit.clients.clear()


def test_a_secure_ok_that_nobody_asked_for(kit: NodeKit) -> None:
    knock = Knock(kit)
    knock.connection.receive_data(encode_method(0, m.ConnectionSecureOk(b"")))
    (close,) = knock.listen()
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == 504
