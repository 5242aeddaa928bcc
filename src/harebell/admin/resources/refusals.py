"""What permissions did not allow lately, and the smallest grant that would: "why denied?"."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from harebell.admin.answers import Answer
from harebell.admin.http.requests import Request
from harebell.admin.listing import Listing
from harebell.broker.auth.refusals import Refusal, Times, widened
from harebell.broker.auth.users import Users, found, topic_pattern
from harebell.routing.steps import Steps

__all__ = ["listed"]


class Row(NamedTuple):
    """A refusal, and its place among them: the latest has the highest number."""

    refusal: Refusal
    times: Times
    users: Users
    number: int


def _shape(row: Row) -> dict[str, Any]:
    it, times, users, _ = row
    pattern, allowed, grant = _topic_grant(it, users) if it.kind == "topic" else _grant(it, users)
    return {
        "user": it.user, "vhost": it.vhost, "act": it.act, "right": it.right, "kind": it.kind, "name": it.name,
        "exchange": it.exchange, "pattern": pattern, "count": times.count, "first_at": times.first_at,
        "last_at": times.last_at, "allowed": allowed, "grant": grant,
    }  # fmt: skip


def _grant(it: Refusal, users: Users) -> tuple[str | None, bool, dict[str, str]]:
    """The pattern as it is now, whether it allows the act by now, and the permission that does, with little more."""
    there = users.permissions.get((it.vhost, it.user))
    rights = {right: "" if there is None else getattr(there, right) for right in ("configure", "write", "read")}
    pattern = None if there is None else rights[it.right]
    allowed = pattern is not None and found(pattern, it.name)
    return pattern, allowed, rights if allowed else {**rights, it.right: widened(pattern, it.name)}


def _topic_grant(it: Refusal, users: Users) -> tuple[str | None, bool, dict[str, str]]:
    exchange = it.exchange or ""
    there = users.topic_permissions.get((it.vhost, it.user, exchange))
    if there is None:  # none any more: keys are not checked
        return None, True, {}
    rights = {"exchange": exchange, "write": there.write, "read": there.read}
    pattern = rights["write" if it.right == "write" else "read"]
    allowed = found(topic_pattern(there, pattern), it.name)
    return pattern, allowed, rights if allowed else {**rights, it.right: widened(pattern, it.name)}


LISTING: Final[Listing[Row]] = Listing(shape=_shape, order=lambda row: -row.number, name=lambda row: row.refusal.name)


def listed(request: Request) -> Steps[Answer]:
    """The refusals that the user may see: an administrator all, others their own."""
    users, user = request.node.users, request.user
    rows = [
        Row(it, times, users, number)
        for number, (it, times) in enumerate(users.refusals)
        if user.administers or it.user == user.name
    ]
    return (yield from LISTING.answer(request, rows))
