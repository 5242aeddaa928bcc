"""Administration of users, virtual hosts, permissions, policies, definitions and sessions, by plain objects.

A request has the command, `do`, and its fields: {"do": "add-user", "name": "orders", "tags": [], ...}. The answer is a
list, an object, or null. `COMMANDS` lists the commands and their fields. Requests are messages to the service
`amq.administer` (`system_services`), or come from `harebell users`, `vhosts`, `permissions`, `definitions`, `sessions`.

Rules:

- A password is never in a request: the sender makes the hashes (`auth.users.make_user`). Only the answer to
  export-definitions has hashes: it is for nobody but the one that asks (`Command.secret`).
- A request is done whole or refused: AmqpError, whose text names the remedy. A request that makes something is refused
  the second time; setting and clearing may be repeated.
- The caller checks the user's identity and permissions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from harebell.broker.auth.users import SCRAM_KEYS
from harebell.broker.node import Node
from harebell.broker.operations.definitions import exporting, importing
from harebell.broker.rules.limits import set_user_limits
from harebell.broker.transactions.branch import Branch, BranchState
from harebell.errors import AmqpError, HarebellError, NotFound, PreconditionFailed, ResourceDeleted
from harebell.routing.definitions import (
    Permission,
    TopicPermission,
    User,
    VirtualHost,
    emitting_definitions,
    parsing_definitions,
)
from harebell.routing.policies import Policy
from harebell.routing.steps import Steps, complete

__all__ = ["COMMANDS", "Command", "administer", "administering"]

LONGEST_NAME: Final = 255  # bytes: the limit of AMQP's short strings

T = TypeVar("T")
Fields = Mapping[str, type]
Listing: TypeAlias = Steps[list[dict[str, object]]]


class Command(NamedTuple):
    """One command: `run` gets the node and the fields, `needs` (required) and `takes`; it may be a work in steps.

    `changes`: it writes. `secret`: the answer has hashes of passwords, so that no queue may hold it.
    """

    run: Callable[..., object]
    needs: Fields
    takes: Fields = MappingProxyType({})
    changes: bool = True
    secret: bool = False


def administer(node: Node, request: object) -> object:
    """As `administering`, at once."""
    return complete(administering(node, request))


def administering(node: Node, request: object) -> Steps[object]:
    """Execute the request. Returns the answer, of JSON's types. AmqpError when it is refused.

    Changes are on disk when the batch has ended (`Node.save`).
    """
    if not isinstance(request, dict) or not isinstance(request.get("do"), str):
        raise PreconditionFailed('a request is an object {"do": "...", ...}')
    fields = dict(request)
    name = fields.pop("do")
    command = COMMANDS.get(name)
    if command is None:
        raise PreconditionFailed(f"there is no '{name}' to do, only {', '.join(COMMANDS)}")
    _check(name, command, fields)
    try:
        answer = command.run(node, **fields)
        return (yield from answer) if isinstance(answer, Generator) else answer
    except AmqpError:
        raise
    except HarebellError as error:
        raise PreconditionFailed(" ".join(str(error).split())) from error


def _check(name: str, command: Command, fields: Mapping[str, object]) -> None:
    known = {**command.needs, **command.takes}
    wrong = [field for field in fields if field not in known]
    wrong += [field for field in command.needs if field not in fields]
    wrong += [field for field, value in fields.items() if field in known and type(value) is not known[field]]
    if wrong:
        wanted = ", ".join(f"{field} ({kind.__name__})" for field, kind in command.needs.items())
        more = ", ".join(f"{field} ({kind.__name__})" for field, kind in command.takes.items())
        raise PreconditionFailed(f"'{name}' needs [{wanted}] and takes [{more}]; wrong here: {', '.join(wrong)}")
    for field in ("name", "user", "vhost"):
        value = fields.get(field)
        if isinstance(value, str) and not _is_name(value):
            raise PreconditionFailed(f"{field} is to have 1 to {LONGEST_NAME} bytes of UTF-8")


def _is_name(value: str) -> bool:
    try:
        return 0 < len(value.encode()) <= LONGEST_NAME
    except UnicodeEncodeError:
        return False


def _listed(records: Iterable[T], shown: Callable[[T], dict[str, object] | None]) -> Listing:
    """What is shown of each record, without those of which nothing is."""
    found = []
    for record in tuple(records):
        if (entry := shown(record)) is not None:
            found.append(entry)
        yield
    return found


# -- users


def _list_users(node: Node) -> Listing:
    return _listed(
        node.users.users.values(),
        lambda user: {
            "name": user.name, "tags": list(user.tags), "password": bool(user.password_hash),
            "hashing_algorithm": user.hashing_algorithm, "limits": user.limits or {},
        },
    )  # fmt: skip


def _add_user(
    node: Node, name: str, password_hash: str, hashing_algorithm: str, tags: list[Any] | None = None,
    scram_sha_256: str | None = None,
) -> None:  # fmt: skip
    if name in node.users.users:
        raise PreconditionFailed(f"user '{name}' is there already: set its password or its tags, or delete it first")
    extra = {SCRAM_KEYS: scram_sha_256} if scram_sha_256 is not None else {}
    node.users.put(User(name, password_hash, hashing_algorithm, _tags(tags or []), extra=cast("Any", extra)))


def _set_password(
    node: Node, name: str, password_hash: str, hashing_algorithm: str, scram_sha_256: str | None = None
) -> None:
    user = _user(node, name)
    extra = {key: value for key, value in user.extra.items() if key != SCRAM_KEYS}
    if scram_sha_256 is not None:
        extra[SCRAM_KEYS] = scram_sha_256
    node.users.put(
        dataclasses.replace(user, password_hash=password_hash, hashing_algorithm=hashing_algorithm, extra=extra)
    )


def _set_tags(node: Node, name: str, tags: list[Any]) -> None:
    node.users.put(dataclasses.replace(_user(node, name), tags=_tags(tags)))


def _set_user_limits(node: Node, name: str, limits: dict[str, Any]) -> None:
    _check_limits(limits)
    set_user_limits(node.users, name, limits)


def _delete_user(node: Node, name: str) -> None:
    node.users.remove(_user(node, name).name)


def _user(node: Node, name: str) -> User:
    user = node.users.users.get(name)
    if user is None:
        raise NotFound(f"no user '{name}'")
    return user


def _check_limits(limits: Mapping[str, object]) -> None:
    """Refuse numbers below -1, as the HTTP API does: nobody means them."""
    for name, value in limits.items():
        if isinstance(value, int) and value < -1:
            raise PreconditionFailed(f"{name} must be a whole number from -1 on")


def _tags(tags: list[Any]) -> tuple[str, ...]:
    if not all(isinstance(tag, str) and tag and _is_name(tag) for tag in tags):
        raise PreconditionFailed("tags are a list of words")
    return tuple(dict.fromkeys(tags))


# -- virtual hosts


def _list_vhosts(node: Node) -> Listing:
    found = list[dict[str, object]]()
    for vhost in tuple(node.vhosts.values()):
        messages = 0
        for queue in tuple(vhost.queues.values()):
            messages += 0 if queue.deleted else queue.message_count
            yield
        found.append(
            {
                "name": vhost.name, "description": vhost.definition.description or "",
                "tags": list(vhost.definition.tags or ()), "default_queue_type": vhost.definition.default_queue_type,
                "limits": node.parameters.limits(vhost.name), "queues": len(vhost.queues), "messages": messages,
            }
        )  # fmt: skip
    return found


def _add_vhost(
    node: Node, name: str, description: str | None = None, tags: list[Any] | None = None,
    default_queue_type: str | None = None,
) -> None:  # fmt: skip
    if name in node.vhosts:
        raise PreconditionFailed(f"vhost '{name}' is there already")
    node.add_vhost(VirtualHost(name, description, _tags(tags or []) or None, default_queue_type))


def _delete_vhost(node: Node, name: str) -> Steps[None]:
    _check_vhost(node, name)
    yield from node.deleting_vhost(name)


def _set_vhost_limits(node: Node, name: str, limits: dict[str, Any]) -> None:
    _check_vhost(node, name)
    _check_limits(limits)
    node.parameters.set_limits(name, {**node.parameters.limits(name), **limits})


def _check_vhost(node: Node, name: str) -> None:
    if name not in node.vhosts:
        raise NotFound(f"no vhost '{name}'")


# -- permissions


def _list_permissions(node: Node, vhost: str | None = None, user: str | None = None) -> Listing:
    return _listed(
        node.users.permissions.values(),
        lambda each: _shown(each) if vhost in (None, each.vhost) and user in (None, each.user) else None,
    )


def _set_permission(node: Node, vhost: str, user: str, configure: str, write: str, read: str) -> None:
    _check_vhost(node, vhost)
    node.users.set_permission(Permission(vhost, user, configure, write, read))


def _clear_permission(node: Node, vhost: str, user: str) -> None:
    _check_vhost(node, vhost)
    node.users.clear_permission(vhost, _user(node, user).name)


def _list_topic_permissions(node: Node, vhost: str | None = None, user: str | None = None) -> Listing:
    return _listed(
        node.users.topic_permissions.values(),
        lambda each: _shown(each) if vhost in (None, each.vhost) and user in (None, each.user) else None,
    )


def _set_topic_permission(node: Node, vhost: str, user: str, exchange: str, write: str, read: str) -> None:
    _check_vhost(node, vhost)
    node.users.set_topic_permission(TopicPermission(vhost, user, exchange, write, read))


def _clear_topic_permission(node: Node, vhost: str, user: str, exchange: str | None = None) -> None:
    _check_vhost(node, vhost)
    node.users.clear_topic_permission(vhost, _user(node, user).name, exchange)


def _shown(record: Permission | TopicPermission | Policy) -> dict[str, object]:
    return {name: value for name, value in dataclasses.asdict(record).items() if name != "extra"}


# -- policies


def _list_policies(node: Node, vhost: str | None = None) -> Listing:
    policies = [
        (policy, operator)
        for each in node.vhosts.values()
        if vhost in (None, each.name)
        for operator, book in ((False, each.policies.policies), (True, each.policies.operator_policies))
        for policy in book.values()
    ]
    return _listed(policies, lambda each: {**_shown(each[0]), "operator": each[1]})


def _set_policy(
    node: Node, vhost: str, name: str, pattern: str, definition: dict[str, Any], priority: int = 0,
    apply_to: str = "all", operator: bool = False,
) -> Steps[None]:  # fmt: skip
    _check_vhost(node, vhost)
    policy = Policy(vhost, name, pattern, definition, cast("Any", apply_to), priority)
    yield from node.vhosts[vhost].policies.setting(policy, operator=operator)


def _clear_policy(node: Node, vhost: str, name: str, operator: bool = False) -> Steps[None]:
    _check_vhost(node, vhost)
    if not (yield from node.vhosts[vhost].policies.clearing(name, operator=operator)):
        raise NotFound(f"no {'operator ' * operator}policy '{name}' in vhost '{vhost}'")


# -- definitions


def _export_definitions(node: Node, vhost: str | None = None) -> Steps[dict[str, object]]:
    definitions = yield from exporting(node, vhost)
    return (yield from emitting_definitions(definitions, vhost=vhost))


def _import_definitions(node: Node, definitions: dict[str, Any], vhost: str | None = None) -> Steps[list[str]]:
    parsed = yield from parsing_definitions(definitions, vhost=vhost)
    return list((yield from importing(node, parsed, vhost)))


# -- sessions of AMQP 0-10


def _list_sessions(node: Node) -> Listing:
    return _listed(
        node.sessions,
        lambda each: {
            "session": _text(each.session_name), "user": each.user, "vhost": each.vhost.name,
            "connection": each.connection.peer if each.attached else "", "timeout": each.timeout,
            "left": None if each.ends_at is None else max(0, each.ends_at - node.timers.now()) // 1000,
            "subscriptions": {name: each.consumers[name].queue.name for name in sorted(each.consumers)},
            "unacked": each.unacked_count, "uncommitted": each.uncommitted, "bytes": each.kept_bytes,
        },
    )  # fmt: skip


def _end_session(node: Node, session: str, user: str, vhost: str) -> Steps[None]:
    for each in tuple(node.sessions):
        if (_text(each.session_name), each.user, each.vhost.name) == (session, user, vhost):
            yield from each.expel(ResourceDeleted("the session was ended by an administrator"))
            node.events.act(vhost, "session", session, "ended", told={"user": user})
            return
    raise NotFound(f"user '{user}' has no session '{session}' in vhost '{vhost}'")


def _list_transactions(node: Node) -> Listing:
    return _listed(
        node.branches,
        lambda each: {
            "transaction": each.name, "vhost": each.vhost, "user": each.user, "state": each.state.value,
            "messages": len(each.publications), "taken": len(each.taken), "timeout": each.timeout,
            "sessions": len(each.associated),
        },
    )  # fmt: skip


def _commit_transaction(node: Node, transaction: str, vhost: str) -> Steps[None]:
    yield from node.branches.deciding(_prepared(node, transaction, vhost), commits=True)
    node.events.act(vhost, "transaction", transaction, "committed")


def _roll_back_transaction(node: Node, transaction: str, vhost: str) -> Steps[None]:
    yield from node.branches.deciding(_prepared(node, transaction, vhost), commits=False)
    node.events.act(vhost, "transaction", transaction, "rolled back")


def _prepared(node: Node, transaction: str, vhost: str) -> Branch:
    found = [each for each in node.branches if (each.name, each.vhost) == (transaction, vhost)]
    if not found:
        raise NotFound(f"no transaction '{transaction}' in vhost '{vhost}'")
    if found[0].state is not BranchState.PREPARED:
        raise PreconditionFailed(f"transaction '{transaction}' is {found[0].state.value}, and not prepared")
    return found[0]


def _text(name: bytes) -> str:
    """A session's name as text; bytes that are not UTF-8 as \\xff."""
    return name.decode("utf-8", "backslashreplace")


_HASHES: Final[Fields] = {"password_hash": str, "hashing_algorithm": str}
_WHERE: Final[Fields] = {"vhost": str, "user": str}

COMMANDS: Final[Mapping[str, Command]] = {
    "list-users": Command(_list_users, {}, changes=False),
    "add-user": Command(_add_user, {"name": str, **_HASHES}, {"tags": list, "scram_sha_256": str}),
    "set-password": Command(_set_password, {"name": str, **_HASHES}, {"scram_sha_256": str}),
    "set-tags": Command(_set_tags, {"name": str, "tags": list}),
    "set-user-limits": Command(_set_user_limits, {"name": str, "limits": dict}),
    "delete-user": Command(_delete_user, {"name": str}),
    "list-vhosts": Command(_list_vhosts, {}, changes=False),
    "add-vhost": Command(_add_vhost, {"name": str}, {"description": str, "tags": list, "default_queue_type": str}),
    "set-vhost-limits": Command(_set_vhost_limits, {"name": str, "limits": dict}),
    "delete-vhost": Command(_delete_vhost, {"name": str}),
    "list-permissions": Command(_list_permissions, {}, _WHERE, changes=False),
    "set-permission": Command(_set_permission, {**_WHERE, "configure": str, "write": str, "read": str}),
    "clear-permission": Command(_clear_permission, _WHERE),
    "list-topic-permissions": Command(_list_topic_permissions, {}, _WHERE, changes=False),
    "set-topic-permission": Command(_set_topic_permission, {**_WHERE, "exchange": str, "write": str, "read": str}),
    "clear-topic-permission": Command(_clear_topic_permission, _WHERE, {"exchange": str}),
    "list-policies": Command(_list_policies, {}, {"vhost": str}, changes=False),
    "set-policy": Command(
        _set_policy, {"vhost": str, "name": str, "pattern": str, "definition": dict},
        {"priority": int, "apply_to": str, "operator": bool},
    ),
    "clear-policy": Command(_clear_policy, {"vhost": str, "name": str}, {"operator": bool}),
    "export-definitions": Command(_export_definitions, {}, {"vhost": str}, changes=False, secret=True),
    "list-sessions": Command(_list_sessions, {}, changes=False),
    "end-session": Command(_end_session, {"session": str, **_WHERE}, changes=False),
    "list-transactions": Command(_list_transactions, {}, changes=False),
    "commit-transaction": Command(_commit_transaction, {"transaction": str, "vhost": str}, changes=False),
    "roll-back-transaction": Command(_roll_back_transaction, {"transaction": str, "vhost": str}, changes=False),
    "import-definitions": Command(_import_definitions, {"definitions": dict}, {"vhost": str}),
}  # fmt: skip
"""The commands of the service `amq.administer`, by their names, each with the fields that it takes."""
