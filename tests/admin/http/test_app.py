"""From a request to its answer: headers, statuses of what is refused, bodies, and what a browser may ask."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import threading
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest

from harebell.admin import resources
from harebell.admin.answers import Answer
from harebell.admin.documents.endpoints import ENDPOINTS
from harebell.admin.http import app, bodies, server
from harebell.routing.definitions import GlobalParameter
from tests.admin.kit import Api, ApiThread, part
from tests.wire import PATIENCE

RESOURCES = Path(*resources.__path__)

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
}


def test_every_answer_has_the_headers_that_browsers_obey(serving: ApiThread) -> None:
    api = serving.api()
    answers = [
        api("GET", "/api/whoami"), api("GET", "/api/whoami", login=False), api("GET", "/api/nothing"),
        api("GET", "/nothing"), api("PATCH", "/api/whoami"), api("OPTIONS", "/api/whoami"),
        api("HEAD", "/api/whoami"), api("PUT", "/api/vhosts/x", "{"), api("GET", "/api/queues/%FF"),
        api("GET", "/api/queues?page=0"),
    ]  # fmt: skip
    assert [each.status for each in answers] == [200, 401, 404, 404, 405, 200, 200, 400, 404, 400]
    for answer in answers:
        assert HEADERS.items() <= answer.headers.items(), answer
        assert "date" in answer.headers
        assert "server" not in answer.headers


def test_what_is_no_http_has_them_too(serving: ApiThread) -> None:
    with socket.create_connection(("127.0.0.1", serving.api_port), timeout=PATIENCE) as sock:
        sock.sendall(b"AMQP\0\0\x09\x01\r\n\r\n")
        answer = _all(sock)
    assert answer.startswith(b"HTTP/1.1 400 ")
    for name, value in HEADERS.items():
        assert f"{name}: {value}".encode() in answer


@pytest.mark.parametrize("target", [
    "/api/../../etc/passwd", "/api/%2e%2e/%2e%2e/etc/passwd", "/%2e%2e%2f%2e%2e%2fetc/passwd", "/api/queues/../users",
    "//etc/passwd", "/api/queues/%2F/..%2f..%2fetc%2fpasswd", "/api/queues/%2F/%5c%5chost%5cshare",
])  # fmt: skip
def test_a_path_that_climbs_is_a_name_that_nothing_has(serving: ApiThread, target: str) -> None:
    assert serving.api()("GET", target).status == 404


def test_head_has_the_length_and_no_body(serving: ApiThread) -> None:
    api = serving.api()
    whole, head = api("GET", "/api/whoami"), api("HEAD", "/api/whoami")
    assert head.body == b""
    assert head.headers["content-length"] == whole.headers["content-length"] == str(len(whole.body))


def test_options_and_wrong_methods_name_the_right_ones(serving: ApiThread) -> None:
    api = serving.api()
    assert api("OPTIONS", "/api/cluster-name", login=False).headers["allow"] == "GET, PUT, HEAD, OPTIONS"
    wrong = api("DELETE", "/api/cluster-name")
    assert wrong.status == 405
    assert wrong.headers["allow"] == "GET, PUT, HEAD, OPTIONS"
    assert wrong.json == {"error": "method_not_allowed", "reason": "DELETE is not for this path"}


def test_a_whole_url_is_the_path_behind_its_host(serving: ApiThread) -> None:
    api = serving.api()
    whole = f"http://localhost:{api.port}/api/whoami?columns=name"
    assert api("GET", whole).json == {"name": "guest"}
    assert api("GET", f"http://LOCALHOST:{api.port}/", login=False).headers["content-type"].startswith("text/html")
    foreign = api("GET", "http://evil.example/api/whoami", headers={"host": "localhost"})
    assert (foreign.status, foreign.reason) == (401, "User can only log in via localhost"), "the URL's host counts"
    assert api("GET", "http://localhost/api/nothing").status == 404


def test_options_of_the_server_itself(serving: ApiThread) -> None:
    answer = serving.api()("OPTIONS", "*", login=False)
    assert (answer.status, answer.headers["allow"]) == (200, "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT")
    assert serving.api()("GET", "*").status == 404


def test_slashes_in_names_are_encoded_and_one_at_the_end_does_not_count(api: Api) -> None:
    name = "a/b c%2F?\u00e9"
    assert api.put(f"/api/vhosts/{part(name)}") == 201
    assert api.put(f"/api/queues/{part(name)}/{part(name)}") == 201
    assert api.get(f"/api/queues/{part(name)}/{part(name)}/")["name"] == name
    assert api.get(f"/api/queues/{part(name)}/")[0]["vhost"] == name
    assert api("GET", "/api/queues/a/b%20c").status == 404


@pytest.mark.parametrize("body, reason", [
    (b"{", "not_json"), (b"[]", "not_json"), (b'"x"', "not_json"), (b"\xff{}", "not_json"), (b"{" * 20_000, "not_json"),
    (b'{"arguments": {"a": 99999999999999999999}}', "64 bits"), (b'{"arguments": "x"}', "arguments must be an object"),
    (b'{"durable": "yes"}', "not_boolean"), (b'{"arguments": {"x-message-ttl": -1}}', "x-message-ttl"),
])  # fmt: skip
def test_wrong_bodies_are_refused_and_change_nothing(serving: ApiThread, body: bytes, reason: str) -> None:
    answer = serving.api()("PUT", "/api/queues/%2F/wrong-body", body)
    assert answer.status == 400
    assert answer.json["error"] == "bad_request"
    assert reason in answer.reason
    assert serving.api()("GET", "/api/queues/%2F/wrong-body").status == 404


BOOLEANS = (
    ("PUT", "/api/queues/{vhost}/{queue}", "durable"), ("PUT", "/api/queues/{vhost}/{queue}", "auto_delete"),
    ("PUT", "/api/exchanges/{vhost}/{exchange}", "durable"), ("PUT", "/api/exchanges/{vhost}/{exchange}", "internal"),
    ("PUT", "/api/exchanges/{vhost}/{exchange}", "auto_delete"), ("PUT", "/api/vhosts/{vhost}", "tracing"),
    ("POST", "/api/queues/{vhost}/{queue}/redrive", "dry_run"),
)  # fmt: skip
"""The fields of bodies that are true or false."""


@pytest.mark.parametrize("method, path, name", BOOLEANS)
@pytest.mark.parametrize("wrong", [None, "x", "True", "", 1, 0, 1.5, [], {}])
def test_what_is_neither_true_nor_false_is_refused(
    serving: ApiThread, method: str, path: str, name: str, wrong: object
) -> None:
    answer = serving.api()(method, re.sub(r"{(?!vhost)\w+}", "wrong", path).replace("{vhost}", "%2F"), {name: wrong})
    assert (answer.status, answer.json) == (400, {"error": "bad_request", "reason": ["not_boolean", wrong]})


def test_each_field_that_is_true_or_false_is_in_the_table() -> None:
    names = {name for _, _, name in BOOLEANS}
    read = [(each.method, each.path, name) for each in ENDPOINTS for name in each.reads.split(", ")]
    assert {each for each in read if each[2] in names} == set(BOOLEANS)
    called = re.findall(r'boolean\(body, "(\w+)"', "".join(file.read_text("utf-8") for file in RESOURCES.glob("*.py")))
    assert set(called) == names


def test_a_refusal_with_a_list_is_text_in_the_audit_log(own: ApiThread) -> None:
    own.api()("PUT", "/api/queues/%2F/q", {"durable": "x"})
    assert own.api().get("/api/audit")[0]["reason"] == '["not_boolean","x"]'


def test_null_is_an_empty_body(api: Api) -> None:
    assert api("PUT", "/api/queues/%2F/q", b"null").status == 201
    assert api("PUT", "/api/users/u", b"null").reason == "tags_not_present"


def test_of_a_parameter_that_is_there_twice_the_first_counts(api: Api) -> None:
    api.put("/api/queues/%2F/q")
    found = api.get("/api/queues?page=1&page=2&columns=name&columns=vhost")
    assert (found["page"], found["items"]) == (1, [{"name": "q"}])
    assert api("GET", "/api/queues?page=2&page=1").json["error"] == "page_out_of_range"


def test_a_body_that_is_too_long_is_refused_by_its_length(serving: ApiThread) -> None:
    with socket.create_connection(("127.0.0.1", serving.api_port), timeout=PATIENCE) as sock:
        sock.sendall(_head(serving.api(), "PUT", "/api/queues/%2F/long", f"content-length: {1 << 40}"))
        answer = _all(sock)  # nothing of the body was sent
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"longer than 1048576 bytes" in answer


def test_a_body_in_chunks_is_refused_when_it_becomes_too_long(serving: ApiThread) -> None:
    with socket.create_connection(("127.0.0.1", serving.api_port), timeout=PATIENCE) as sock:
        sock.sendall(_head(serving.api(), "PUT", "/api/queues/%2F/long", "transfer-encoding: chunked"))
        try:
            for _ in range(40):
                sock.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        except OSError:
            pass  # the answer is there, and the connection closed
        answer = _all(sock)
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_stranger_cannot_have_a_body_read(serving: ApiThread) -> None:
    with socket.create_connection(("127.0.0.1", serving.api_port), timeout=PATIENCE) as sock:
        sock.sendall(b"POST /api/definitions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10000000\r\n\r\n")
        answer = _all(sock)
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"connection: close" in answer


def test_all_bodies_together_have_a_limit(serving: ApiThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MOST_BYTES", 10)
    answer = serving.api()("PUT", "/api/queues/%2F/long", {"arguments": {"x-many": "letters"}})
    assert (answer.status, answer.json["error"]) == (503, "overloaded")


def test_a_body_that_does_not_arrive_ends_the_request(serving: ApiThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SECONDS", 0.05)
    with socket.create_connection(("127.0.0.1", serving.api_port), timeout=PATIENCE) as sock:
        sock.sendall(_head(serving.api(), "PUT", "/api/queues/%2F/slow", "content-length: 100") + b"{")
        answer = _all(sock)
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_client_that_leaves_in_the_middle_of_its_body_changes_nothing(serving: ApiThread) -> None:
    with socket.create_connection(("127.0.0.1", serving.api_port), timeout=PATIENCE) as sock:
        sock.sendall(_head(serving.api(), "PUT", "/api/queues/%2F/left", "content-length: 100") + b"{")
    assert serving.api()("GET", "/api/queues/%2F/left").status == 404


def test_a_head_that_does_not_arrive_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.05)
    with ApiThread() as own:
        for begun in (b"", b"GET /api/whoami HTTP/1.1\r\n", b"GET /api/whoami HTTP/1.1\r\nhost: x\r\n\r\nGET /"):
            with socket.create_connection(("127.0.0.1", own.api_port), timeout=PATIENCE) as sock:
                sock.sendall(begun)
                _all(sock)  # it ends


def test_connections_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 1)
    with ApiThread() as own, socket.create_connection(("127.0.0.1", own.api_port), timeout=PATIENCE) as first:
        first.sendall(_head(own.api(), "GET", "/api/whoami"))
        assert first.recv(1000).startswith(b"HTTP/1.1 200 ")
        with socket.create_connection(("127.0.0.1", own.api_port), timeout=PATIENCE) as second:
            assert _all(second) == b""


def test_several_requests_on_one_connection_and_ahead_of_their_answers(serving: ApiThread) -> None:
    with socket.create_connection(("127.0.0.1", serving.api_port), timeout=PATIENCE) as sock:
        sock.sendall(
            _head(serving.api(), "GET", "/api/whoami") * 3 + _head(serving.api(), "GET", "/x", "connection: close")
        )
        answer = _all(sock)
    assert answer.count(b"HTTP/1.1 200 ") == 3
    assert answer.count(b"HTTP/1.1 404 ") == 1


def test_a_client_that_does_not_take_its_answer_is_cut_off(
    own: ApiThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(app, "PIECE_SECONDS", 0.1)
    api = own.api()
    long = "x" * 200_000
    for number in range(60):
        own.run(lambda: own.broker.node.parameters.set_global(GlobalParameter(str(number), long)))  # noqa: B023
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(PATIENCE)
        sock.connect(("127.0.0.1", own.api_port))
        sock.sendall(_head(api, "GET", "/api/global-parameters"))
        _until(lambda: "does not take the answer" in caplog.text)
    assert own.run(lambda: len(own.management.context.node.parameters.global_parameters)) == 60
    assert api.get("/api/whoami")["name"] == "guest"


def test_a_handler_that_fails_is_500_and_tells_the_log_alone(
    own: ApiThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(own.management.context.sampler, "forget", lambda: 1 / 0)
    answer = own.api()("DELETE", "/api/reset")
    assert answer.status == 500
    assert answer.json == {"error": "internal_server_error", "reason": "the broker's log says what failed"}
    assert "ZeroDivisionError" in caplog.text
    act = own.api().get("/api/audit")[0]
    assert (act["act"], act["user"], act["reason"]) == ("forgotten", "guest", "the broker's log says what failed")


def test_nothing_that_was_sent_as_a_password_is_logged(serving: ApiThread, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    api = serving.api("guest", "planted-secret")
    assert api("GET", "/api/whoami").status == 401
    assert serving.api()("PUT", "/api/users/planted", {"password": "planted-secret", "tags": [1]}).status == 400
    assert api("GET", "/api/whoami", headers={"authorization": "Bearer planted-secret"}).status == 401
    assert serving.api()("POST", "/api/login", {"username": "guest", "password": "planted-secret"}).status == 401
    assert "login refused" in caplog.text
    assert "planted-secret" not in caplog.text
    assert api.authorization.split()[1] not in caplog.text


@pytest.mark.parametrize("headers, allowed", [
    ({}, True),
    ({"origin": "http://{host}"}, True),
    ({"origin": "http://evil.example"}, False),
    ({"origin": "null"}, False),
    ({"sec-fetch-site": "same-origin"}, True),
    ({"sec-fetch-site": "none"}, True),
    ({"sec-fetch-site": "cross-site"}, False),
    ({"sec-fetch-site": "same-site"}, False),
    ({"sec-fetch-site": "same-origin", "origin": "http://evil.example"}, False),
])  # fmt: skip
def test_another_site_can_change_nothing(serving: ApiThread, headers: dict[str, str], allowed: bool) -> None:
    api, host = serving.api(), f"127.0.0.1:{serving.api_port}"
    sent = {name: value.format(host=host) for name, value in headers.items()}
    answer = api("PUT", "/api/global-parameters/site", {"value": 1}, sent)
    assert answer.status == (201 if allowed else 403)
    assert api("DELETE", "/api/global-parameters/site").status == (204 if allowed else 404)
    reading = api("GET", "/api/whoami", headers=sent)
    assert reading.status == 200
    assert "access-control-allow-origin" not in reading.headers, "so the other site's script does not get it"


def test_work_in_slices_is_done_when_the_client_has_left(own: ApiThread) -> None:
    """A vhost with many queues is deleted though nobody waits for the answer."""
    api = own.api()
    api.put("/api/vhosts/gone")
    file = {"queues": [{"name": f"q{n}", "durable": True, "auto_delete": False, "arguments": {}} for n in range(300)]}
    assert api("POST", "/api/definitions/gone", file).status == 204
    with socket.create_connection(("127.0.0.1", own.api_port), timeout=PATIENCE) as sock:
        sock.sendall(_head(api, "DELETE", "/api/vhosts/gone"))
    _until(lambda: own.run(lambda: "gone" not in own.broker.node.vhosts and own.broker.node.batch.slices.idle))


def test_many_clients_at_once(serving: ApiThread) -> None:
    found = list[int]()
    threads = [
        threading.Thread(target=lambda: found.append(serving.api()("GET", "/api/overview").status)) for _ in range(30)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert found == [200] * 30


async def test_other_tasks_have_turns_between_the_pieces_of_an_answer() -> None:
    """Also when the client takes all of them at once."""
    turns, sent, pieces = 0, list[bytes](), [b"x"] * 50

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message.get("body", b""))

    other = asyncio.create_task(count())
    await app._send_answer(Answer(200, pieces), send, head=False)
    other.cancel()
    assert b"".join(sent) == b"".join(pieces)
    assert turns >= len(pieces)


def test_a_stop_does_not_wait_for_idle_connections() -> None:
    with ApiThread() as own:
        idle = http.client.HTTPConnection("127.0.0.1", own.api_port, timeout=PATIENCE)
        idle.request("GET", "/api/whoami", headers={"authorization": own.api().authorization})
        assert json.loads(idle.getresponse().read())["name"] == "guest"
    idle.close()


def _head(api: Api, method: str, path: str, *more: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", f"authorization: {api.authorization}", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _all(sock: socket.socket) -> bytes:
    """What comes until the connection ends."""
    found = b""
    while True:
        try:
            data = sock.recv(65536)
        except ConnectionError:
            return found
        if not data:
            return found
        found += data


def _until(condition: Callable[[], bool]) -> None:
    done = threading.Event()
    for _ in range(2000):
        if condition():
            return
        done.wait(0.01)
    raise AssertionError("it did not come")
