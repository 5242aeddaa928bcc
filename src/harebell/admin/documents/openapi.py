"""The OpenAPI description of the API, version 3.1: paths, parameters, logins, answers.

Bodies and answers are RabbitMQ's JSON, and are described by the names of their fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from harebell.admin.about import PRODUCT, VERSION
from harebell.admin.http.endpoint import Endpoint, Needs

__all__ = ["openapi"]

NAME: Final = re.compile(r"\{(\w+)\}")
WORDS: Final = re.compile(r"[\w-]+")
KINDS: Final = {
    "page": "integer", "page_size": "integer", "use_regex": "boolean", "sort_reverse": "boolean",
    "disable_stats": "boolean", "enable_queue_totals": "boolean", "if-empty": "boolean", "if-unused": "boolean",
}  # fmt: skip
ERROR: Final = {
    "description": "Refused",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}


def openapi(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """The description of these endpoints."""
    paths: dict[str, dict[str, Any]] = {}
    for each in endpoints:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"{PRODUCT}: HTTP API in the shapes of RabbitMQ's management plug-in",
            "version": VERSION,
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "session": {"type": "apiKey", "in": "cookie", "name": "harebell_session"},
            },
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["error", "reason"],
                    "properties": {"error": {"type": "string"}, "reason": {"type": "string"}},
                }
            },
        },
    }


def _operation(it: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": it.about,
        "description": f"Needs: {it.needs.value}.",
        "operationId": _id(it),
        "tags": [it.path.split("/")[2] if it.path.count("/") > 1 else it.path.strip("/")],
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in _names(it)),
            *(
                {"name": name, "in": "query", "schema": {"type": _kind(name)}}
                for name in WORDS.findall(it.query)
            ),
        ],
        "responses": _responses(it),
        "security": [] if it.needs is Needs.NOTHING else [{"password": []}, {"session": []}],
    }  # fmt: skip
    if it.reads:
        found["requestBody"] = {"content": {"application/json": {"schema": _body(it.reads)}}}
    return found


def _id(it: Endpoint) -> str:
    words = NAME.sub(r"by-\1", it.path).split("/")
    return "-".join([it.method.lower(), *(word for word in words if word and word != "api")])


def _names(it: Endpoint) -> list[str]:
    return NAME.findall(it.path)


def _kind(name: str) -> str:
    return KINDS.get(name, "integer" if name.endswith(("_age", "_incr")) else "string")


def _body(reads: str) -> dict[str, Any]:
    if reads in ("{}", "definitions"):
        return {"type": "object"}
    fields = [name for name in WORDS.findall(reads) if name != "or"]
    return {"type": "object", "properties": {name: {} for name in fields}}


def _responses(it: Endpoint) -> dict[str, Any]:
    done: dict[str, Any]
    match it.method:
        case "PUT":
            done = {"201": {"description": "Created"}, "204": {"description": "Done: it was there already"}}
        case "DELETE":
            done = {"204": {"description": "Done"}}
        case _:
            done = {"200": {"description": "The answer", "content": {"application/json": {}}}}
    errors = {"400": ERROR, "401": ERROR, "404": ERROR}
    return {**done, **({"400": ERROR} if it.needs is Needs.NOTHING else errors)}
