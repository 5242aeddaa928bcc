"""The index of the API as a page: each endpoint in a line, without scripts and styles, so that any browser shows it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from itertools import groupby

from harebell.admin.about import PRODUCT, VERSION
from harebell.admin.http.endpoint import Endpoint

__all__ = ["index"]


def index(endpoints: Iterable[Endpoint]) -> str:
    """The page, in HTML."""
    rows = "\n".join(_row(path, tuple(each)) for path, each in groupby(endpoints, key=lambda it: it.path))
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{PRODUCT} {escape(VERSION)}: HTTP API</title></head>
<body>
<h1>{PRODUCT} {escape(VERSION)}: HTTP API</h1>
<p>The API has the paths, bodies and answers of RabbitMQ's management plug-in. Names in paths are percent-encoded: the
virtual host / is %2F. Log in with HTTP's basic authentication. <a href="openapi.json">The same as OpenAPI</a>.</p>
<table>
<thead><tr><th scope="col">Methods</th><th scope="col">Path</th><th scope="col">What it does</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</body>
</html>
"""


def _row(path: str, endpoints: tuple[Endpoint, ...]) -> str:
    methods = ", ".join(each.method for each in endpoints)
    about = "<br>".join(f"{each.method}: {escape(each.about)}. Needs: {escape(each.needs.value)}" for each in endpoints)
    return f"<tr><td>{methods}</td><td><code>{escape(path)}</code></td><td>{about}</td></tr>"
