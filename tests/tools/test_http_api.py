"""The table in docs/reference/http-api.md is the one of the code."""

from __future__ import annotations

from pathlib import Path

from harebell.admin.documents.endpoints import ENDPOINTS
from tools import http_api


def test_the_page_is_up_to_date() -> None:
    page = http_api.PAGE.read_text("utf-8")
    assert http_api.rendered(page) == page, "run make generate"


def test_each_test_that_it_names_is_there() -> None:
    for each in ENDPOINTS:
        path = http_api._test(each).partition("](")[2].rstrip(")")
        assert (http_api.PAGE.parent / Path(path)).resolve().is_file(), each
