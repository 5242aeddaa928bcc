"""What the API tells of itself."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from harebell.admin.documents.endpoints import ENDPOINTS
from harebell.admin.documents.openapi import openapi
from harebell.admin.http.endpoint import Needs
from tests.admin.kit import ApiThread


def test_the_description_has_each_endpoint_once() -> None:
    found = openapi(ENDPOINTS)
    operations = [(method, path) for path, each in found["paths"].items() for method in each]
    assert sorted(operations) == sorted((each.method.lower(), each.path) for each in ENDPOINTS)
    ids = [each["operationId"] for path in found["paths"].values() for each in path.values()]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[\w.-]+", each) for each in ids)
    queue = found["paths"]["/api/queues/{vhost}/{queue}"]
    assert [each["name"] for each in queue["put"]["parameters"]] == ["vhost", "queue"]
    fields = queue["put"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert set(fields) == {"durable", "auto_delete", "arguments"}
    listed = found["paths"]["/api/queues"]["get"]["parameters"]
    assert {each["name"]: each["schema"]["type"] for each in listed}["page_size"] == "integer"
    for each in ENDPOINTS:
        security = found["paths"][each.path][each.method.lower()]["security"]
        assert (security == []) is (each.needs is Needs.NOTHING)


class Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.codes: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "code":
            self.codes.append(data)


def test_the_index_has_each_path_and_no_script(serving: ApiThread) -> None:
    api = serving.api()
    for path in ("/api", "/api/"):
        answer = api("GET", path, login=False)
        assert (answer.status, answer.headers["location"]) == (301, "/api/index.html")
    page = api("GET", "/api/index.html", login=False)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    cells = Cells()
    cells.feed(page.body.decode())
    assert {each.path for each in ENDPOINTS} <= set(cells.codes)
    assert "script" not in cells.tags


def test_the_description_is_served(serving: ApiThread) -> None:
    found = serving.api()("GET", "/api/openapi.json", login=False).json
    assert found["openapi"].startswith("3.")
