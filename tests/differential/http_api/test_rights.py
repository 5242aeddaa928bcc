"""Who may do what: each endpoint that both have, by users of each tag, with and without permissions in its host."""

from __future__ import annotations

import re
from collections.abc import Iterator

from harebell.admin.documents.endpoints import ENDPOINTS
from harebell.admin.http.endpoint import Endpoint
from tests.admin.kit import Api
from tests.differential.http_api.conftest import Broker
from tests.differential.http_api.wanted import RIGHTS

TAGS = ("", "management", "policymaker", "monitoring", "administrator")
USERS = tuple((tag, place) for tag in TAGS for place in ("in", "out"))
UNUSED = frozenset({404, 405, 501})


def _path(endpoint: Endpoint) -> str:
    """The endpoint's path, about things that do not exist in the virtual host "h"."""
    itself = endpoint.path == "/api/vhosts/{vhost}" and endpoint.method != "GET"
    return re.sub(r"\{(\w+)\}", lambda match: "h" if match[1] == "vhost" and not itself else "nope", endpoint.path)


def _peopled(api: Api) -> Iterator[tuple[tuple[str, str], Api]]:
    api.put("/api/vhosts/h")
    for tag, place in USERS:
        name = f"{tag}-{place}"
        api.put(f"/api/users/{name}", {"password": name, "tags": tag})
        if place == "in":
            api.put(f"/api/permissions/h/{name}", {"configure": ".*", "write": ".*", "read": ".*"})
        yield (tag, place), Api(api.port, name)


def _statuses(api: Api, endpoints: list[Endpoint]) -> dict[str, dict[tuple[str, str], int]]:
    users = dict(_peopled(api))
    found = {}
    for each in endpoints:
        body: dict[str, str] | None = {} if each.reads else None
        found[f"{each.method} {each.path}"] = {
            user: own(each.method, _path(each), body).status for user, own in users.items()
        }
    for path in ("/api/vhosts/nope", "/api/users/nope"):
        api("DELETE", path)
    api("DELETE", "/api/vhosts/h")
    for tag, place in USERS:
        api("DELETE", f"/api/users/{tag}-{place}")
    return found


def test_rights(ours: Broker, theirs: Broker, version: str) -> None:
    endpoints = [each for each in ENDPOINTS if each.rabbitmq]
    mine, others = _statuses(ours.api, endpoints), _statuses(theirs.api, endpoints)
    unwanted, met, compared = list[str](), set[str](), 0
    for name, users in others.items():
        if users["administrator", "in"] in UNUSED and set(users.values()) <= UNUSED:
            continue  # this version does not have it
        compared += 1
        for user, status in users.items():
            if (status == 401) is not (mine[name][user] == 401):
                wanted = [each for each in RIGHTS if each.allows(version, name, f"{user[0]} {user[1]}")]
                met.update(each.difference + each.steps for each in wanted)
                if not wanted:
                    unwanted.append(f"{name} as {user}: {status}, ours {mine[name][user]}")
    assert not unwanted, "\n".join(unwanted)
    assert compared > 90
    stale = [each for each in RIGHTS if version in each.versions and each.difference + each.steps not in met]
    assert not stale, stale
