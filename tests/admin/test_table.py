"""The table of endpoints: each is found, refuses whom it must, and changes nothing then."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from harebell.admin.documents.endpoints import ENDPOINTS as API
from harebell.admin.http.endpoint import Endpoint, Needs
from harebell.admin.http.paths import Tree, split
from tests.admin.kit import Api, ApiThread, part

TAGS = ("none", "management", "policymaker", "monitoring", "administrator")
PLACES = ("in", "out")  # with permissions in the virtual host of the path, and without
TREE = Tree((each.method, each.path, each) for each in API)
TEXTS = {
    Needs.ADMINISTRATOR: "Not administrator user",
    Needs.MONITORING: "Not monitor user",
    Needs.POLICYMAKER: "User not authorised to access object",
    Needs.POLICIES: "User not authorised to access object",
    Needs.VHOST: "User not authorised to access virtual host",
    Needs.SEEN: "User not authorised to access virtual host",
}


def may(needs: Needs, tag: str, place: str) -> bool:
    """The rules once more, as the reference has them."""
    match needs:
        case Needs.NOTHING:
            return True
        case _ if tag == "none":
            return False
        case Needs.MANAGEMENT:
            return True
        case Needs.ADMINISTRATOR:
            return tag == "administrator"
        case Needs.MONITORING:
            return tag in ("monitoring", "administrator")
        case Needs.POLICYMAKER:
            return tag in ("policymaker", "administrator")
        case Needs.POLICIES:
            return tag == "administrator" or (tag == "policymaker" and place == "in")
        case Needs.VHOST:
            return tag == "administrator" or place == "in"
        case Needs.SEEN:
            return tag in ("monitoring", "administrator") or place == "in"
    raise AssertionError(needs)


@pytest.fixture(scope="module")
def people() -> Iterator[tuple[ApiThread, dict[tuple[str, str], Api]]]:
    with ApiThread() as own:
        own.api().put("/api/vhosts/a")
        own.api().put("/api/vhosts/b")
        yield (
            own,
            {
                (tag, place): own.add_user(
                    f"{tag}-{place}", *(() if tag == "none" else (tag,)), vhosts=("a",) if place == "in" else ("b",)
                )
                for tag in TAGS
                for place in PLACES
            },
        )


def path_of(endpoint: Endpoint) -> str:
    """The endpoint's path, about things that do not exist in the virtual host "a"."""
    return re.sub(r"\{(\w+)\}", lambda match: "a" if match[1] == "vhost" else "nope", endpoint.path)


@pytest.mark.parametrize("endpoint", API, ids=lambda each: f"{each.method} {each.path}")
def test_each_endpoint_refuses_whom_it_must(
    people: tuple[ApiThread, dict[tuple[str, str], Api]], endpoint: Endpoint
) -> None:
    own, users = people
    guest = own.api()
    before = own.run(lambda: _state(own))
    for (tag, place), api in users.items():
        if may(endpoint.needs, tag, place):
            continue
        answer = api(endpoint.method, path_of(endpoint), {} if endpoint.reads else None)
        assert answer.status == 401, (tag, place, answer)
        if tag != "none":
            assert answer.json == {"error": "not_authorised", "reason": TEXTS[endpoint.needs]}, (tag, place)
        absent = api(endpoint.method, path_of(endpoint).replace("/a", "/absent", 1), {} if endpoint.reads else None)
        if "{vhost}" in endpoint.path and "/a/" in path_of(endpoint) + "/":
            assert absent.status in (401, 404), "whether a virtual host exists is not told"
    assert own.run(lambda: _state(own)) == before, "something has changed"
    if endpoint.needs is not Needs.NOTHING:
        assert guest(endpoint.method, path_of(endpoint), login=False).status == 401
    allowed = [user for user, api in users.items() if may(endpoint.needs, *user)]
    if endpoint.method == "GET":
        for user in allowed:
            answer = users[user]("HEAD" if endpoint.listens else "GET", path_of(endpoint))
            if answer.status == 401:  # the handler's own check, of AMQP's permissions
                assert endpoint.path.endswith("/aliveness-test/{vhost}"), (user, answer)
            else:
                assert answer.status in (200, 301, 400, 404, 503), (user, answer)
                assert answer.headers.get("content-type", "application/json").startswith(("application/json", "text/"))


def _state(own: ApiThread) -> object:
    broker = own.broker
    found = broker.export_definitions()
    return {name: value for name, value in found.items() if name != "users"}, sorted(broker.node.users.users)


def test_each_line_is_found_by_its_own_path() -> None:
    assert len({(each.method, each.path) for each in API}) == len(API)
    for each in API:
        path = re.sub(r"\{\w+\}", "%2F", each.path)
        found = TREE.find(each.method, split(path.encode()))
        assert isinstance(found, tuple)
        assert found[0] is each


def test_each_line_says_what_it_does() -> None:
    for each in API:
        assert each.about[0].isupper(), each
        assert not each.about.endswith("."), each
        assert each.method in ("GET", "PUT", "POST", "PATCH", "DELETE")
        assert bool(each.reads) == (each.method in ("PUT", "POST", "PATCH")) or each.path == "/api/logout", each
        assert (each.needs in (Needs.VHOST, Needs.SEEN, Needs.POLICIES)) <= ("{vhost}" in each.path), each


THERE = {"vhost": "%2F", "user": "guest", "exchange": "late", "node": ""}  # the node's name is asked for
COLUMNS = [
    each
    for each in API
    if each.method == "GET" and "columns" in each.query and set(re.findall(r"{(\w+)}", each.path)) <= THERE.keys()
]


@pytest.mark.parametrize("endpoint", COLUMNS, ids=lambda it: it.path)
def test_columns_are_honoured_where_the_table_says_so(serving: ApiThread, endpoint: Endpoint) -> None:
    """Of objects that are there without more, no column but those that are asked for is shown."""
    api = serving.api()
    late = {"type": "x-delayed-message", "arguments": {"x-delayed-type": "direct"}}
    api("PUT", "/api/exchanges/%2F/late", late)
    api("PUT", "/api/topic-permissions/%2F/guest", {"exchange": "late", "write": "", "read": ""})
    path = endpoint.path.format(**THERE | {"node": part(api.get("/api/nodes")[0]["name"])})
    reply = api("GET", f"{path}?columns=nothing,name")
    assert reply.status == 200
    found = reply.json if isinstance(reply.json, list) else [reply.json]
    assert all(each.keys() <= {"name"} for each in found), found
