"""Changes on the node as streams tell them: the broker's events, without secrets, for those who may know of them.

Who is told of what:

    administrator   everything
    monitoring      everything but users and permissions
    others          what happens in their virtual hosts, and to their own connections and channels

The value of a parameter is not told: a shovel's has addresses with passwords.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

from harebell.admin.answers import encode
from harebell.admin.login.users import User
from harebell.broker.node import Node
from harebell.broker.operations.definitions import json_table
from harebell.protocol.v091 import FieldValue

__all__ = ["Change", "Changes"]

MOST: Final = 1000  # changes that wait for streams; one that is later than that is told that it missed some
OF_USERS: Final = ("user", "permission", "topic")
OF_CLIENTS: Final = ("connection", "channel")


class Change(NamedTuple):
    """An event: its number, its name, whom and what it is about, and itself as JSON."""

    number: int
    name: str
    vhost: str | None
    user: str | None
    text: bytes

    def is_for(self, user: User) -> bool:
        """Whether the user may be told."""
        if user.administers:
            return True
        kind = self.name.partition(".")[0]
        if kind in OF_USERS:
            return False
        if user.monitors:
            return True
        if kind in OF_CLIENTS:
            return self.user == user.name
        return self.vhost is not None and user.enters(self.vhost)


class Changes:
    """The latest changes of a node. They are noted while anybody listens; `wake` is called at each."""

    def __init__(self, node: Node, wake: Callable[[], None], clock: Callable[[], float]) -> None:
        self._node, self._wake, self._clock = node, wake, clock
        self._latest: deque[Change] = deque(maxlen=MOST)
        self._listeners = 0
        self._watcher = self._note  # one object: it is taken away by its identity
        self.number = 0

    def listen(self) -> None:
        self._listeners += 1
        if self._listeners == 1:
            self._node.events.watch(self._watcher)

    def leave(self) -> None:
        self._listeners -= 1
        if not self._listeners:
            self._node.events.unwatch(self._watcher)
            self._latest.clear()

    def after(self, number: int) -> tuple[list[Change], bool]:
        """The changes after that one, and whether some of them are forgotten."""
        missing = self.number - number
        if missing > len(self._latest):
            return list(self._latest), True
        return [self._latest[at] for at in range(len(self._latest) - missing, len(self._latest))], False

    def _note(self, name: str, headers: Mapping[str, FieldValue], /) -> None:
        told: dict[str, Any] = dict(json_table(headers))
        if name.startswith("parameter."):
            told.pop("value", None)
        vhost = told.get("name") if name.startswith("vhost.") else told.get("vhost")
        user = told.get("user", told.get("user_who_performed_action"))
        self.number += 1
        text = encode({"event": name, "at": int(self._clock() * 1000), **told})
        self._latest.append(
            Change(self.number, name, cast("str | None", vhost), cast("str | None", user), text)
        )  # fmt: skip
        self._wake()
