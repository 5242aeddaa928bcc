"""Logins by HTTP: passwords, sessions, from where, and as what."""

from __future__ import annotations

import base64

import pytest

from harebell.admin.answers import Refused
from harebell.admin.login.gate import COOKIE, cookie, names_here
from harebell.broker.auth.throttle import Level
from harebell.broker.auth.users import is_loopback
from harebell.protocol.v091 import Table, methods as m
from harebell.protocol.v091.codec import PROTOCOL_HEADER
from tests.admin.kit import Api, ApiThread, Reply
from tests.wire import Wire

WHOAMI = "/api/whoami"


def refusal(answer: Reply) -> tuple[int, object, object]:
    return answer.status, answer.json["error"], answer.json["reason"]


def test_without_credentials_the_answer_is_bare_and_asks_for_them(serving: ApiThread) -> None:
    answer = serving.api()("GET", WHOAMI, login=False)
    assert (answer.status, answer.body) == (401, b"")
    assert answer.headers["www-authenticate"] == 'Basic realm="RabbitMQ Management"'


@pytest.mark.parametrize("authorization", [
    "Basic", "Basic ", "Basic !!!", "Basic Z3Vlc3Q=", "Basic /w==", "Basic " + "A" * 8000, "Bearer x", "basic Z3Vlc3Q6",
    "Basic " + base64.b64encode(b"nobody:guest").decode(), "Basic " + base64.b64encode(b":").decode(),
    "Basic " + base64.b64encode(b"guest:guest ").decode(), "Basic " + base64.b64encode(b"guest:").decode(),
])  # fmt: skip
def test_what_is_no_login_fails(serving: ApiThread, authorization: str) -> None:
    answer = serving.api()("GET", WHOAMI, headers={"authorization": authorization})
    assert refusal(answer) == (401, "not_authorized", "Login failed")


def test_the_log_has_the_reason_of_a_refusal(serving: ApiThread, caplog: pytest.LogCaptureFixture) -> None:
    serving.api().put("/api/users/passwordless", {"tags": "management"})
    for name, reason in (
        ("guest", "wrong password"), ("passwordless", "the user has no password"), ("nobody", "no such user"),
    ):  # fmt: skip
        assert refusal(serving.api(name, "wrong")("GET", WHOAMI)) == (401, "not_authorized", "Login failed")
        assert f"127.0.0.1: login refused: user '{name}': {reason}" in caplog.text


def test_a_password_may_have_colons_and_any_characters(own: ApiThread) -> None:
    assert own.api().put("/api/users/u", {"password": "a:b:\u00e9 ", "tags": "management"}) == 201
    assert own.api("u", "a:b:\u00e9 ").get(WHOAMI) == {"name": "u", "tags": ["management"], "is_internal_user": True}


def test_a_user_without_a_tag_is_none_of_the_api(serving: ApiThread) -> None:
    api = serving.add_user("tagless", vhosts=("/",))
    assert refusal(api("GET", WHOAMI)) == (401, "not_authorized", "Not management user")
    impersonator = serving.add_user("tagged-otherwise", "impersonator", "administrators")
    assert refusal(impersonator("GET", WHOAMI)) == (401, "not_authorized", "Not management user")


@pytest.mark.parametrize("host, allowed", [
    ("localhost", True), ("LOCALHOST:15672", True), ("127.0.0.1:1", True), ("127.9.9.9", True), ("[::1]:15672", True),
    ("broker.localhost", True), ("evil.example", False), ("evil.example:15672", False), ("10.0.0.1", False),
    ("127.0.0.1.evil.example", False), ("localhost.evil.example", False), ("[", False), ("", True),
])  # fmt: skip
def test_guest_comes_by_a_name_that_no_other_site_can_have(serving: ApiThread, host: str, allowed: bool) -> None:
    """Else a page of another site, whose name leads here, could log in as guest."""
    assert names_here({"host": host}) is allowed
    if host not in ("", "["):
        answer = serving.api()("GET", WHOAMI, headers={"host": host})
        assert answer.status == (200 if allowed else 401)
        if not allowed:
            assert refusal(answer) == (401, "not_authorized", "User can only log in via localhost")
    other = serving.add_user("by-any-name", "management")
    if host != "[":
        assert other("GET", WHOAMI, headers={"host": host} if host else {}).status == 200


async def test_guest_comes_from_this_machine_only(own: ApiThread) -> None:
    gate = own.management.context.gate
    assert not is_loopback("192.0.2.1")
    with pytest.raises(Refused) as refused:
        gate.admit("guest", {"host": "localhost"}, "192.0.2.1")
    assert refused.value.reason == "User can only log in via localhost"


def guess_by_amqp(port: int, password: str) -> None:
    """Log in with a password that is refused."""
    with Wire(port) as wire:
        wire.raw(PROTOCOL_HEADER)
        wire.expect(m.ConnectionStart)
        client: Table = {"capabilities": {"authentication_failure_close": True}}
        wire.send(0, m.ConnectionStartOk(client, "PLAIN", f"\0guest\0{password}".encode(), "en_US"))
        wire.expect(m.ConnectionClose)


def test_guesses_by_http_and_by_amqp_are_one_count(own: ApiThread) -> None:
    throttle = own.broker.node.logins.throttle
    assert own.api().get(WHOAMI)["name"] == "guest"
    throttle.user = Level(2, (60_000,))
    guesses = [own.api("guest", f"wrong-{n}")("GET", WHOAMI) for n in range(3)]
    assert [each.status for each in guesses] == [401, 401, 429]
    assert guesses[2].headers["retry-after"] == "10"
    guess_by_amqp(own.port, "a fourth guess has no turn either")
    assert own.api().get(WHOAMI)["name"] == "guest", "a password that is known to be right is no guess"


def test_logins_are_counted_by_protocol(own: ApiThread) -> None:
    api = own.api()
    node = api.get("/api/nodes")[0]["name"]
    own.api("guest", "wrong")("GET", WHOAMI)
    with Wire(own.port) as wire:
        wire.log_in()
    guess_by_amqp(own.port, "wrong")
    found = {each.pop("protocol"): each for each in api.get(f"/api/auth/attempts/{node}")}
    assert found["amqp091"] == {"auth_attempts": 2, "auth_attempts_failed": 1, "auth_attempts_succeeded": 1}
    assert found["http"]["auth_attempts_failed"] == 1
    assert found["http"]["auth_attempts_succeeded"] >= 2
    assert api("DELETE", f"/api/auth/attempts/{node}").status == 204
    assert "amqp091" not in {each["protocol"] for each in api.get(f"/api/auth/attempts/{node}")}
    assert api("GET", "/api/auth/attempts/other").status == api("DELETE", "/api/auth/attempts/other").status == 404


# -- sessions of consoles


def log_in(api: Api, headers: dict[str, str] | None = None) -> str:
    answer = api("POST", "/api/login", {"username": api.user, "password": api.user}, headers, login=False)
    assert answer.status == 200, answer
    assert answer.json["name"] == api.user
    set_cookie = answer.headers["set-cookie"]
    value, *attributes = set_cookie.split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(attributes)
    assert "Secure" not in attributes
    name, _, opaque = value.partition("=")
    assert name == COOKIE
    assert api.user not in opaque
    return value


def test_a_session_stands_for_the_password(own: ApiThread) -> None:
    api = own.api()
    session = {"cookie": f"other=1; {log_in(api)}; more"}
    assert api("GET", WHOAMI, headers=session, login=False).json["name"] == "guest"
    assert api("POST", "/api/logout", headers=session, login=False).status == 204
    assert api("GET", WHOAMI, headers=session, login=False).status == 401


def test_a_form_logs_in_too(own: ApiThread) -> None:
    form = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
    assert own.api()("POST", "/api/login", b"username=guest&password=guest", form, login=False).status == 200
    assert own.api()("POST", "/api/login", b"username=guest&password=wrong", form, login=False).status == 401
    for wrong in (b"username=%ff", b"", b"username=guest", b"password=guest"):
        assert own.api()("POST", "/api/login", wrong, form, login=False).status == 400


@pytest.mark.parametrize("media", ["application/json", "text/plain", "application/x-www-form-urlencoded", ""])
def test_json_logs_in_whatever_its_media_type_is(own: ApiThread, media: str) -> None:
    body = b' {"username": "guest", "password": "guest"}'
    assert own.api()("POST", "/api/login", body, {"content-type": media}, login=False).status == 200


@pytest.mark.parametrize("body", [{}, {"username": "guest"}, {"username": 1, "password": "guest"}, [], "x"])
def test_a_login_without_both_is_refused(serving: ApiThread, body: object) -> None:
    assert serving.api()("POST", "/api/login", body, login=False).status == 400


def test_another_site_cannot_log_in_or_use_the_session(own: ApiThread) -> None:
    api, foreign = own.api(), {"origin": "http://evil.example"}
    credentials = {"username": "guest", "password": "guest"}
    assert api("POST", "/api/login", credentials, foreign, login=False).status == 403
    session = {"cookie": log_in(api), **foreign}
    assert api("PUT", "/api/vhosts/x", {}, session, login=False).status == 403


def test_what_is_taken_from_the_user_is_taken_from_its_sessions(own: ApiThread) -> None:
    api = own.add_user("watcher", "monitoring")
    session = {"cookie": log_in(api)}
    assert api("GET", "/api/nodes", headers=session, login=False).status == 200
    own.add_user("watcher", "management")
    assert api("GET", "/api/nodes", headers=session, login=False).status == 401
    assert own.api()("DELETE", "/api/users/watcher").status == 204
    assert api("GET", WHOAMI, headers=session, login=False).status == 401


def test_a_user_without_a_tag_gets_no_session(own: ApiThread) -> None:
    own.add_user("tagless")
    answer = own.api()("POST", "/api/login", {"username": "tagless", "password": "tagless"}, login=False)
    assert refusal(answer) == (401, "not_authorized", "Not management user")
    assert "set-cookie" not in answer.headers


def test_cookies_are_read_as_they_come() -> None:
    assert cookie(f"a=b;{COOKIE}=x=y; c") == "x=y"
    assert cookie("") == cookie("a; b=c") == ""


def test_the_hash_of_a_password_logs_in(own: ApiThread) -> None:
    api = own.api()
    password_hash = api.get("/api/auth/hash_password/a%2Fb")["ok"]
    assert api.put("/api/users/hashed", {"password_hash": password_hash, "tags": ["management"]}) == 201
    assert own.api("hashed", "a/b").get(WHOAMI)["name"] == "hashed"
