"""`harebell audit`: who changed what in a broker, from where, and what was refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final

from cyclopts import Parameter

from harebell.cli.http_api.client import HttpApi
from harebell.cli.http_api.target import HttpTarget, connect_to
from harebell.cli.listing import View, show_rows
from harebell.cli.objects.lookup import InVhost, known_from
from harebell.errors import InvalidArgument

__all__ = ["listed"]

COLUMNS: Final = ("time", "user", "protocol", "peer", "vhost", "kind", "name", "act", "outcome", "reason", "details")
MOST: Final = 500  # of one page of the API


def listed(
    *,
    user: Annotated[str | None, Parameter(help="Only what this user did.")] = None,
    kind: Annotated[str | None, Parameter(help="Only this kind: queue, binding, policy, permission, login ...")] = None,
    name: Annotated[str | None, Parameter(help="Only objects with this in their names.")] = None,
    act: Annotated[str | None, Parameter(help="Only this act: created, deleted, set, purged ...")] = None,
    refused: Annotated[bool, Parameter(negative=(), help="Only what was refused.")] = False,
    vhost: InVhost = None,
    last: Annotated[int, Parameter(help=f"So many at most, of the latest; up to {MOST}.")] = 50,
    view: View | None = None,
    target: HttpTarget | None = None,
) -> int:
    """List the latest changes, the newest first. An administrator sees all."""
    if not 0 < last <= MOST:
        raise InvalidArgument(f"--last {last}: 1 to {MOST}")
    asked = {"user": user, "kind": kind, "name": name, "act": act, "vhost": vhost}
    if refused:
        asked["outcome"] = "refused"
    with connect_to(target) as api:
        api.need_harebell("list what was changed", "it has no audit log")
        return show_rows(lambda: _rows(api, asked, last), COLUMNS, view, without=known_from(vhost))


def _rows(api: HttpApi, asked: dict[str, str | None], last: int) -> list[dict[str, Any]]:
    found = api.get("audit", page=1, page_size=last, **asked)["items"]
    return [{"time": _text(each["at"]), **each} for each in found]


def _text(at: int) -> str:
    """The time in UTC, so that lines of several machines can be compared."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
