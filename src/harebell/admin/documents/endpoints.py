"""All endpoints: those of the table, and those that describe it."""

from __future__ import annotations

from typing import Final

from harebell.admin.answers import Answer, to_json
from harebell.admin.documents.index import index
from harebell.admin.documents.openapi import openapi
from harebell.admin.http.endpoint import Endpoint, Needs
from harebell.admin.http.requests import Request
from harebell.admin.table import API

__all__ = ["ENDPOINTS"]

HTML: Final = "text/html; charset=utf-8"


def _redirect(request: Request) -> Answer:
    return Answer(301, headers={"location": "/api/index.html"})


def _index(request: Request) -> Answer:
    return Answer(200, (index(ENDPOINTS).encode(),), media=HTML)


def _openapi(request: Request) -> Answer:
    return to_json(openapi(ENDPOINTS))


ENDPOINTS: Final = (
    *API,
    Endpoint("GET", "/api", Needs.NOTHING, _redirect, "Leads to the index"),
    Endpoint("GET", "/api/index.html", Needs.NOTHING, _index, "This index"),
    Endpoint("GET", "/api/openapi.json", Needs.NOTHING, _openapi, "The same as an OpenAPI description", rabbitmq=False),
)
