"""Users: lists, one of them, create, change, delete; and their limits."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from harebell.admin.answers import Answer, bad_request, not_found
from harebell.admin.http.requests import Request, field
from harebell.admin.listing import Listing
from harebell.admin.resources.objects import NO_CONTENT, alone, created, listed, number, wait_for
from harebell.broker.auth.passwords import RABBITMQ_SHA256, SCRYPT
from harebell.broker.auth.users import make_user
from harebell.broker.rules.limits import check_user_limits, set_user_limits
from harebell.routing.definitions import User
from harebell.routing.steps import Steps

__all__ = [
    "bulk_delete", "clear_limit", "delete", "limits", "limits_of", "list_all", "list_without_permissions", "put",
    "set_limit", "show", "tags_of", "user_of",
]  # fmt: skip

MOST_TAGS: Final = 100


def user(it: User) -> dict[str, Any]:
    """A user in RabbitMQ's form, with the hash of its password: only administrators get it."""
    return {
        "name": it.name,
        "password_hash": it.password_hash or "",
        "hashing_algorithm": it.hashing_algorithm or RABBITMQ_SHA256,
        "tags": list(it.tags),
        "limits": it.limits or {},
    }


LISTING: Final[Listing[User]] = Listing(shape=user, order=lambda it: it.name, name=lambda it: it.name)


def list_all(request: Request) -> Steps[Answer]:
    return (yield from LISTING.answer(request, list(request.node.users.users.values())))


def list_without_permissions(request: Request) -> Steps[Answer]:
    users = request.node.users
    having = {name for _, name in users.permissions}
    return (yield from LISTING.answer(request, [each for each in users.users.values() if each.name not in having]))


def user_of(request: Request) -> User:
    """The user in the path. Raises Refused."""
    found = request.node.users.users.get(request.names["user"])
    if found is None:
        raise not_found()
    return found


def show(request: Request) -> Answer:
    return alone(request, user(user_of(request)))


def put(request: Request) -> Steps[Answer]:
    """Create a user, or give one other tags and another password.

    Without a password and a hash, the user cannot log in with one. A password is hashed by scrypt, unless the body has
    a `hashing_algorithm`.
    """
    node, name, body = request.node, request.names["user"], request.object()
    if "tags" not in body:
        raise bad_request("tags_not_present")
    tags = tags_of(body["tags"])
    if "password" in body and "password_hash" in body:
        raise bad_request("both_password_and_password_hash_are_provided")
    password = field(body, "password", str) if "password" in body else ""
    given = field(body, "password_hash", str) if "password_hash" in body else ""
    algorithm = field(body, "hashing_algorithm", str, None)
    if password:
        hashing = asyncio.get_running_loop().run_in_executor(None, make_user, name, password, tags, algorithm or SCRYPT)
        made = yield from wait_for(node, hashing)
    else:
        made = User(name, given, algorithm or RABBITMQ_SHA256, tags)
    before = node.users.users.get(name)
    if before is not None:
        same = (made.password_hash, made.hashing_algorithm) == (before.password_hash, before.hashing_algorithm)
        made = dataclasses.replace(made, limits=before.limits, extra=before.extra if same else made.extra)
    node.users.put(made)
    return created(before is None)


def tags_of(given: object) -> tuple[str, ...]:
    """Tags, as a list or as a text with commas. Raises Refused."""
    if isinstance(given, str):
        given = [each.strip() for each in given.split(",")]
    if not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given) or len(given) > MOST_TAGS:
        raise bad_request(f"tags must be a list of at most {MOST_TAGS} strings, or a string with commas")
    return tuple(dict.fromkeys(each for each in given if each))


def delete(request: Request) -> Answer:
    request.node.users.remove(user_of(request).name)
    return NO_CONTENT


def bulk_delete(request: Request) -> Steps[Answer]:
    """Delete several users; those that do not exist are passed over."""
    names = field(request.object(), "users", list)
    if not all(isinstance(each, str) for each in names):
        raise bad_request("users must be a list of strings")
    for name in names:
        request.node.users.remove(name)
        yield
    return NO_CONTENT


# -- limits


def limits(request: Request) -> Answer:
    return listed(request, [_limits(each) for each in request.node.users.users.values() if each.limits])


def limits_of(request: Request) -> Answer:
    found = user_of(request)
    return listed(request, [_limits(found)] if found.limits else [])


def _limits(it: User) -> dict[str, Any]:
    return {"user": it.name, "value": it.limits or {}}


def set_limit(request: Request) -> Answer:
    value = number(request.object(), "value", least=-1)
    set_user_limits(request.node.users, user_of(request).name, {request.names["name"]: value})
    return NO_CONTENT


def clear_limit(request: Request) -> Answer:
    it = user_of(request)
    left = {name: value for name, value in (it.limits or {}).items() if name != request.names["name"]}
    check_user_limits(left)
    request.node.users.put(dataclasses.replace(it, limits=left or None))
    return NO_CONTENT
