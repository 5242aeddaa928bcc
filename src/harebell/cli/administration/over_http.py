"""Administration requests over the HTTP API: users, virtual hosts, permissions and definitions.

The broker is Harebell or RabbitMQ. The requests and their answers are those of
`harebell.broker.operations.administration`; each becomes one or several requests of the HTTP API. Those of AMQP 0-10's
sessions and transactions have none, and are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from harebell.broker.auth.passwords import RABBITMQ_SHA256, SCRYPT
from harebell.cli.http_api.client import HttpApi
from harebell.cli.http_api.failures import Missing, RequestFailed
from harebell.errors import InvalidArgument

__all__ = ["ask_over_http"]

Fields = Mapping[str, Any]


def ask_over_http(api: HttpApi, request: Mapping[str, object]) -> Any:
    """The answer to a request. RequestFailed when it is refused."""
    fields = dict(request)
    do = str(fields.pop("do"))
    work = REQUESTS.get(do)
    if work is None:
        raise InvalidArgument(f"the HTTP API has no request {do}: give --url amqp://...")
    return work(api, fields)


def _list_users(api: HttpApi, fields: Fields) -> object:
    limits = {each["user"]: each["value"] for each in api.get("user-limits")}
    return [
        {
            "name": each["name"], "tags": _words(each["tags"]), "password": bool(each.get("password_hash")),
            "hashing_algorithm": each.get("hashing_algorithm"), "limits": limits.get(each["name"], {}),
        }
        for each in api.get("users")
    ]  # fmt: skip


def _add_user(api: HttpApi, fields: Fields) -> None:
    name = fields["name"]
    try:
        api.get("users", name)
    except Missing:
        api.put("users", name, body=_user(api, fields, fields.get("tags", [])))
    else:
        raise RequestFailed(f"user '{name}' is there already: set its password or its tags, or delete it first")


def _set_password(api: HttpApi, fields: Fields) -> None:
    tags = _words(_found(api, "user", "users", fields["name"])["tags"])
    api.put("users", fields["name"], body=_user(api, fields, tags))


def _user(api: HttpApi, fields: Fields, tags: list[str]) -> dict[str, object]:
    if "scram_sha_256" in fields:
        raise InvalidArgument("the HTTP API takes no keys for SCRAM-SHA-256 (--scram): give --url amqp://...")
    algorithm = fields["hashing_algorithm"]
    if algorithm == SCRYPT and fields["password_hash"] and api.product() != "Harebell":
        raise InvalidArgument(f"{api.product()} does not know {SCRYPT}: add --hashing-algorithm {RABBITMQ_SHA256}")
    body: dict[str, object] = {"password_hash": fields["password_hash"], "tags": _joined(tags)}
    return {**body, "hashing_algorithm": algorithm} if fields["password_hash"] else body


def _set_tags(api: HttpApi, fields: Fields) -> None:
    name = fields["name"]
    user = _found(api, "user", "users", name)
    body = {"password_hash": user.get("password_hash") or "", "tags": _joined(fields["tags"])}
    if user.get("hashing_algorithm") and body["password_hash"]:
        body["hashing_algorithm"] = user["hashing_algorithm"]
    api.put("users", name, body=body)


def _set_limits(kind: str, plural: str) -> Callable[[HttpApi, Fields], None]:
    def work(api: HttpApi, fields: Fields) -> None:
        name = fields["name"]
        _found(api, kind, plural, name)
        for limit, value in fields["limits"].items():
            api.put(f"{kind}-limits", name, limit, body={"value": value})

    return work


def _delete(kind: str, plural: str) -> Callable[[HttpApi, Fields], None]:
    def work(api: HttpApi, fields: Fields) -> None:
        _found(api, kind, plural, fields["name"])
        api.delete(plural, fields["name"])

    return work


def _delete_user(api: HttpApi, fields: Fields) -> None:
    """As over AMQP, a user does not delete itself. The HTTP API, like RabbitMQ's, would do it."""
    name = fields["name"]
    if name == api.address.user:
        raise RequestFailed(f"user '{name}' is asking for this: log in as another to delete it")
    _delete("user", "users")(api, fields)


def _list_vhosts(api: HttpApi, fields: Fields) -> object:
    limits = {each["vhost"]: each["value"] for each in api.get("vhost-limits")}
    queues = api.get("queues", columns="vhost,name")
    return [
        {
            "name": each["name"], "description": each.get("description", ""), "tags": _words(each.get("tags") or []),
            "default_queue_type": each.get("default_queue_type"), "limits": limits.get(each["name"], {}),
            "queues": sum(queue["vhost"] == each["name"] for queue in queues),
            "messages": each.get("messages_ready") or 0,
        }
        for each in api.get("vhosts")
    ]  # fmt: skip


def _add_vhost(api: HttpApi, fields: Fields) -> None:
    name = fields["name"]
    try:
        api.get("vhosts", name)
    except Missing:
        body = {key: value for key, value in fields.items() if key != "name" and value not in (None, [])}
        if "tags" in body:
            body["tags"] = _joined(body["tags"])
        api.put("vhosts", name, body=body)
    else:
        raise RequestFailed(f"vhost '{name}' is there already")


def _list_permissions(path: str) -> Callable[[HttpApi, Fields], object]:
    def work(api: HttpApi, fields: Fields) -> object:
        vhost, user = fields.get("vhost"), fields.get("user")
        return [each for each in api.get(path) if vhost in (None, each["vhost"]) and user in (None, each["user"])]

    return work


def _set_permission(path: str) -> Callable[[HttpApi, Fields], None]:
    def work(api: HttpApi, fields: Fields) -> None:
        _both(api, fields)
        body = {key: value for key, value in fields.items() if key not in ("vhost", "user")}
        api.put(path, fields["vhost"], fields["user"], body=body)

    return work


def _clear_permission(path: str) -> Callable[[HttpApi, Fields], None]:
    def work(api: HttpApi, fields: Fields) -> None:
        _both(api, fields)
        exchange = (fields["exchange"],) if "exchange" in fields else ()
        try:
            api.delete(path, fields["vhost"], fields["user"], *exchange)
        except Missing:  # clearing may be repeated
            pass

    return work


def _export_definitions(api: HttpApi, fields: Fields) -> object:
    whole, vhost = api.get("definitions"), fields.get("vhost")
    if vhost is None:
        return whole
    _found(api, "vhost", "vhosts", vhost)
    parts = ("parameters", "policies", "queues", "exchanges", "bindings")
    own = {part: [each for each in whole.get(part, []) if each["vhost"] == vhost] for part in parts}
    return {**own, "vhosts": [each for each in whole["vhosts"] if each["name"] == vhost]}


def _import_definitions(api: HttpApi, fields: Fields) -> list[str]:
    api.post("definitions", *filter(None, (fields.get("vhost"),)), body=fields["definitions"])
    return []  # the broker logs its remarks, and the HTTP API has none in its answer


def _both(api: HttpApi, fields: Fields) -> None:
    _found(api, "vhost", "vhosts", fields["vhost"])
    _found(api, "user", "users", fields["user"])


def _found(api: HttpApi, kind: str, plural: str, name: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = api.get(plural, name)
    except Missing:
        raise Missing(f"no {kind} '{name}': `harebell {plural} list` has them all") from None
    return found


def _joined(tags: list[str]) -> str:
    """The tags as one text, which every version of RabbitMQ takes. InvalidArgument for what would be others there."""
    for tag in tags:
        if "," in tag or tag != tag.strip():
            raise InvalidArgument(f"tag '{tag}': over the HTTP API a tag has no comma, and no spaces around it")
    return ",".join(tags)


def _words(tags: str | list[str]) -> list[str]:
    """Tags, which RabbitMQ before 3.9 writes as one text."""
    return [tag for tag in tags.split(",") if tag] if isinstance(tags, str) else tags


REQUESTS: Final[Mapping[str, Callable[[HttpApi, Fields], object]]] = {
    "list-users": _list_users,
    "add-user": _add_user,
    "set-password": _set_password,
    "set-tags": _set_tags,
    "set-user-limits": _set_limits("user", "users"),
    "delete-user": _delete_user,
    "list-vhosts": _list_vhosts,
    "add-vhost": _add_vhost,
    "set-vhost-limits": _set_limits("vhost", "vhosts"),
    "delete-vhost": _delete("vhost", "vhosts"),
    "list-permissions": _list_permissions("permissions"),
    "set-permission": _set_permission("permissions"),
    "clear-permission": _clear_permission("permissions"),
    "list-topic-permissions": _list_permissions("topic-permissions"),
    "set-topic-permission": _set_permission("topic-permissions"),
    "clear-topic-permission": _clear_permission("topic-permissions"),
    "export-definitions": _export_definitions,
    "import-definitions": _import_definitions,
}
