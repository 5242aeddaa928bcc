"""The effects of changed users and permissions on the node: on the catalog, events, publishers and connections."""

from __future__ import annotations

from harebell.broker.auth.users import UserWatcher
from harebell.broker.node import Node
from harebell.errors import ConnectionForced, ResourceDeleted
from harebell.routing.definitions import Permission, TopicPermission, User

__all__ = ["UserChanges"]


class UserChanges(UserWatcher):
    def __init__(self, node: Node) -> None:
        self._node, self._catalog, self._events = node, node.catalog, node.events

    def put(self, user: User, before: User | None) -> None:
        self._catalog.put_user(user)
        tags = before.tags if before is not None else ()
        if before is None:
            self._events.user("created", user.name)
        elif (before.password_hash, before.extra) != (user.password_hash, user.extra):
            self._events.user("password.changed", user.name)
        if user.tags != tags:
            self._events.user("tags.set", user.name, tags=list(user.tags))
            for vhost in self._node.vhosts:  # tags count in all of them
                self._ask_again(vhost)
        if (user.limits or {}) != ((before.limits if before is not None else None) or {}):
            self._events.user_limits(user.name, user.limits or {})

    def removed(self, name: str) -> None:
        self._catalog.remove_user(name)
        self._events.user("deleted", name)
        for connection in tuple(self._node.connections):
            if connection.user == name:
                connection.close(ConnectionForced(f"user '{name}' is deleted"))
        # The next user of that name is somebody else.
        gone = self._node.expelling(ResourceDeleted(f"user '{name}' is deleted"), user=name)
        self._node.batch.slices.run(gone)
        self._node.batch.end()

    def permission_set(self, permission: Permission) -> None:
        self._catalog.put_permission(permission)
        vhost, user = permission.vhost, permission.user
        patterns = {"configure": permission.configure, "write": permission.write, "read": permission.read}
        self._events.permission("permission.created", vhost, user, **patterns)
        self._ask_again(vhost)

    def permission_cleared(self, vhost: str, user: str) -> None:
        self._catalog.remove_permission(vhost, user)
        self._events.permission("permission.deleted", vhost, user)
        self._ask_again(vhost)

    def topic_permission_set(self, permission: TopicPermission) -> None:
        self._catalog.put_topic_permission(permission)
        vhost, user = permission.vhost, permission.user
        patterns = {"exchange": permission.exchange, "write": permission.write, "read": permission.read}
        self._events.permission("topic.permission.created", vhost, user, **patterns)
        self._ask_again(vhost)

    def topic_permission_cleared(self, vhost: str, user: str, exchange: str) -> None:
        self._catalog.remove_topic_permission(vhost, user, exchange)
        self._events.permission("topic.permission.deleted", vhost, user)
        self._ask_again(vhost)

    def _ask_again(self, vhost: str) -> None:
        """Make the publishers of a virtual host check their permissions again."""
        if vhost in self._node.vhosts:
            self._node.vhosts[vhost].router.version += 1
