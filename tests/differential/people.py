"""The users of the scripts about permissions, as RabbitMQ's definitions: both brokers get the same text.

A connection of a script that is named after one of them is theirs; the password is the name. The hashes are RabbitMQ's.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from harebell.broker.auth.throttle import Level
from harebell.broker.node import Node
from harebell.routing.definitions import parse_definitions
from harebell.testing.rabbitmq import RabbitMQ

__all__ = ["PERMISSIONS", "PEOPLE", "TAGS", "give_harebell", "give_rabbitmq"]

ALL, NONE = ".*", ""

# Who may configure, write and read what in the virtual host "/".
PERMISSIONS: dict[str, tuple[str, str, str]] = {
    "everything": (ALL, ALL, ALL),
    "configurer": (ALL, NONE, NONE),
    "writer": (NONE, ALL, NONE),
    "reader": (NONE, NONE, ALL),
    "not-configurer": (NONE, ALL, ALL),
    "not-writer": (ALL, NONE, ALL),
    "not-reader": (ALL, ALL, NONE),
    "powerless": (NONE, NONE, NONE),
    "anchored": ("^mine$", "^mine$|^amq\\.default$", "^mine$"),
    "substring": ("mine", "mine", "mine"),
    "topical": (ALL, ALL, ALL),
    "impersonator": (ALL, ALL, ALL),
}
OUTSIDERS = ("stranger", "hashless")  # without permissions in "/"; without a password
PEOPLE = (*PERMISSIONS, *OUTSIDERS)
TAGS = {"impersonator": ["impersonator"]}
TOPIC_PERMISSIONS = [
    {"user": "topical", "vhost": "/", "exchange": "t", "write": "^w\\.|^{username}$", "read": "^r\\.|^{vhost}$"},
    {"user": "topical", "vhost": "/", "exchange": "mute", "write": "", "read": ""},
]


def definitions(people: Sequence[str] = PEOPLE) -> dict[str, object]:
    return {
        "users": [
            {
                "name": name,
                "password_hash": "" if name == "hashless" else password_hash(name),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": TAGS.get(name, []),
            }
            for name in people
        ],
        "permissions": [
            {"user": name, "vhost": "/", "configure": configure, "write": write, "read": read}
            for name, (configure, write, read) in PERMISSIONS.items()
        ] + [{"user": "hashless", "vhost": "/", "configure": ALL, "write": ALL, "read": ALL}],
        "topic_permissions": TOPIC_PERMISSIONS,
    }  # fmt: skip


def password_hash(password: str, salt: bytes = b"salt") -> str:
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def give_harebell(node: Node) -> None:
    """Call it in the broker's thread. Failed logins, of which the scripts have many, make nobody wait."""
    node.logins.throttle.user = node.logins.throttle.address = Level(1_000_000, (1,))
    found = parse_definitions(json.dumps(definitions()))
    for user in found.users:
        node.users.put(user)
    for permission in found.permissions:
        node.users.set_permission(permission)
    for topic_permission in found.topic_permissions:
        node.users.set_topic_permission(topic_permission)


def give_rabbitmq(server: RabbitMQ, folder: Path) -> None:
    file = folder / "people.json"
    file.write_text(json.dumps(definitions()))
    server.ctl("import_definitions", str(file))
