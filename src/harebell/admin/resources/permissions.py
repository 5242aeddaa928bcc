"""Permissions and topic permissions: lists, by virtual host and by user; set and clear."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from harebell.admin.answers import Answer, bad_request, not_found
from harebell.admin.http.requests import Request, field
from harebell.admin.listing import Listing
from harebell.admin.resources.objects import NO_CONTENT, alone, created, exchange_name, listed
from harebell.admin.resources.users import user_of
from harebell.routing.definitions import Permission, TopicPermission
from harebell.routing.steps import Steps

__all__ = [
    "clear", "clear_topic", "list_all", "list_of_user", "list_of_vhost", "put", "put_topic", "show", "show_topic",
    "topic_list_all", "topic_list_of_user", "topic_list_of_vhost",
]  # fmt: skip


def permission(it: Permission) -> dict[str, Any]:
    return {"user": it.user, "vhost": it.vhost, "configure": it.configure, "write": it.write, "read": it.read}


def topic_permission(it: TopicPermission) -> dict[str, Any]:
    return {"user": it.user, "vhost": it.vhost, "exchange": it.exchange, "write": it.write, "read": it.read}


PERMISSIONS: Final[Listing[Permission]] = Listing(
    shape=permission, order=lambda it: (it.vhost, it.user), name=lambda it: it.user
)
TOPIC: Final[Listing[TopicPermission]] = Listing(
    shape=topic_permission, order=lambda it: (it.vhost, it.user, it.exchange), name=lambda it: it.user
)


def _all(request: Request) -> Iterable[Permission]:
    return request.node.users.permissions.values()


def _topic(request: Request) -> Iterable[TopicPermission]:
    return request.node.users.topic_permissions.values()


def list_all(request: Request) -> Steps[Answer]:
    return (yield from PERMISSIONS.answer(request, list(_all(request))))


def list_of_vhost(request: Request) -> Steps[Answer]:
    name = request.vhost().name
    return (yield from PERMISSIONS.answer(request, [each for each in _all(request) if each.vhost == name]))


def list_of_user(request: Request) -> Steps[Answer]:
    name = user_of(request).name
    return (yield from PERMISSIONS.answer(request, [each for each in _all(request) if each.user == name]))


def show(request: Request) -> Answer:
    return alone(request, permission(_named(request)))


def _named(request: Request) -> Permission:
    found = request.node.users.permissions.get((request.names["vhost"], request.names["user"]))
    if found is None:
        raise not_found()
    return found


def _check_ends(request: Request) -> None:
    """Refuse to set a permission of a user or in a virtual host that does not exist."""
    node = request.node
    if request.names["vhost"] not in node.vhosts or request.names["user"] not in node.users.users:
        raise bad_request("vhost_or_user_not_found")


def put(request: Request) -> Answer:
    _check_ends(request)
    body, vhost, user = request.object(), request.names["vhost"], request.names["user"]
    missing = [f"{{key_missing,{name}}}" for name in ("configure", "write", "read") if name not in body]
    if missing:
        raise bad_request(f"[{','.join(missing)}]")
    new = (vhost, user) not in request.node.users.permissions
    patterns = (field(body, name, str) for name in ("configure", "write", "read"))
    request.node.users.set_permission(Permission(vhost, user, *patterns))
    return created(new)


def clear(request: Request) -> Answer:
    found = _named(request)
    request.node.users.clear_permission(found.vhost, found.user)
    return NO_CONTENT


# -- topic permissions


def topic_list_all(request: Request) -> Steps[Answer]:
    return (yield from TOPIC.answer(request, list(_topic(request))))


def topic_list_of_vhost(request: Request) -> Steps[Answer]:
    name = request.vhost().name
    return (yield from TOPIC.answer(request, [each for each in _topic(request) if each.vhost == name]))


def topic_list_of_user(request: Request) -> Steps[Answer]:
    name = user_of(request).name
    return (yield from TOPIC.answer(request, [each for each in _topic(request) if each.user == name]))


def show_topic(request: Request) -> Answer:
    """The topic permissions of a user in a virtual host, a list also where an exchange is named."""
    return listed(request, [topic_permission(each) for each in _named_topic(request)])


def _named_topic(request: Request) -> list[TopicPermission]:
    names = request.names
    exchange = exchange_name(names["exchange"]) if "exchange" in names else None
    found = [
        each
        for each in _topic(request)
        if (each.vhost, each.user) == (names["vhost"], names["user"]) and exchange in (None, each.exchange)
    ]
    if not found:
        raise not_found()
    return found


def put_topic(request: Request) -> Answer:
    _check_ends(request)
    body, vhost, user = request.object(), request.names["vhost"], request.names["user"]
    missing = [f"{{key_missing,{name}}}" for name in ("exchange", "write", "read") if name not in body]
    if missing:
        raise bad_request(f"[{','.join(missing)}]")
    exchange = exchange_name(field(body, "exchange", str))
    new = not any((each.vhost, each.user) == (vhost, user) for each in _topic(request))
    patterns = (field(body, name, str) for name in ("write", "read"))
    request.node.users.set_topic_permission(TopicPermission(vhost, user, exchange, *patterns))
    return created(new)


def clear_topic(request: Request) -> Answer:
    for each in _named_topic(request):
        request.node.users.clear_topic_permission(each.vhost, each.user, each.exchange)
    return NO_CONTENT
