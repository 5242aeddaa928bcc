"""`harebell users`: the users of a broker, their passwords, tags and limits."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from harebell.broker.auth.passwords import RABBITMQ_SHA256, SCRYPT
from harebell.cli.administration.requests import Password, Target, View, ask, hashes, say, show
from harebell.cli.validators import LIMIT
from harebell.errors import InvalidArgument

__all__ = ["add", "delete", "listed", "set_limits", "set_password", "set_tags"]

Name = Annotated[str, Parameter(help="The user.")]
Hashing = Annotated[
    str, Parameter(help=f"How the password is hashed; {RABBITMQ_SHA256} for users to export to RabbitMQ.")
]
Scram = Annotated[
    bool, Parameter(negative=(), help="Keep keys for logins by SCRAM-SHA-256 too; they take 600,000 rounds of PBKDF2.")
]


def listed(*, view: View | None = None, target: Target | None = None) -> int:
    """List users: tags, limits, and whether they have a password."""
    return show(lambda: ask(target, "list-users"), ("name", "tags", "password", "limits"), view)


def add(
    name: Name,
    *,
    password_file: Password = None,
    no_password: Annotated[bool, Parameter(negative=(), help="A user who logs in only by certificate.")] = False,
    tag: Annotated[
        tuple[str, ...], Parameter(help="administrator, monitoring, policymaker, management, impersonator; repeatable.")
    ] = (),
    hashing_algorithm: Hashing = SCRYPT,
    scram: Scram = False,
    target: Target | None = None,
) -> int:
    """Add a user; prompts for the password. The user needs `harebell permissions set` to open a virtual host."""
    if no_password and password_file is not None:
        raise InvalidArgument("--no-password and --password-file say two things: leave one out")
    kept = {"password_hash": "", "hashing_algorithm": hashing_algorithm} if no_password else hashes(
        name, password_file, hashing_algorithm, scram=scram
    )  # fmt: skip
    ask(target, "add-user", name=name, tags=list(tag), **kept)
    return say(f"user '{name}' is added; what it may do: harebell permissions set {name}")


def delete(name: Name, *, target: Target | None = None) -> int:
    """Delete a user with its permissions, and close its connections."""
    ask(target, "delete-user", name=name)
    return say(f"user '{name}' is deleted")


def set_password(
    name: Name,
    *,
    password_file: Password = None,
    hashing_algorithm: Hashing = SCRYPT,
    scram: Scram = False,
    target: Target | None = None,
) -> int:
    """Change a user's password; prompts for it. Open connections stay open."""
    ask(target, "set-password", name=name, **hashes(name, password_file, hashing_algorithm, scram=scram))
    return say(f"user '{name}' has another password")


def set_tags(
    name: Name,
    *tags: Annotated[str, Parameter(help="All tags of the user from now on.")],
    target: Target | None = None,
) -> int:
    """Replace a user's tags; no tag removes all."""
    ask(target, "set-tags", name=name, tags=list(tags))
    return say(f"user '{name}' has {'the tags ' + ', '.join(tags) if tags else 'no tags'}")


def set_limits(
    name: Name,
    *,
    max_connections: Annotated[
        int | None, Parameter(help="Connections at a time; -1: no limit.", validator=LIMIT)
    ] = None,
    max_channels: Annotated[int | None, Parameter(help="Channels at a time; -1: no limit.", validator=LIMIT)] = None,
    target: Target | None = None,
) -> int:
    """Limit a user over all virtual hosts. A limit that is left out stays as it is."""
    limits = {
        key: value
        for key, value in (("max-connections", max_connections), ("max-channels", max_channels))
        if value is not None
    }
    if not limits:
        raise InvalidArgument("no limit is given: --max-connections, --max-channels or both")
    ask(target, "set-user-limits", name=name, limits=limits)
    return say(f"user '{name}' is limited: {', '.join(f'{key}={value}' for key, value in limits.items())}")
