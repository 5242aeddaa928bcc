"""The acts of the audit log as streams tell them, and who may see which.

An administrator sees all acts; others see those of the virtual hosts that they have permissions in, without users,
permissions and logins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from harebell.admin.answers import encode
from harebell.admin.login.users import User
from harebell.broker.audit import Act, AuditLog

__all__ = ["Acts", "Told", "record", "sees"]

OF_USERS: Final = frozenset({"user", "user.limits", "user.tags", "permission", "topic.permission", "login"})


def record(it: Act) -> dict[str, Any]:
    """An act as JSON has it."""
    return {
        "number": it.number, "at": it.at, "user": it.user, "peer": it.peer, "protocol": it.protocol, "vhost": it.vhost,
        "kind": it.kind, "name": it.name, "act": it.act, "outcome": it.outcome, "reason": it.reason,
        "details": msgspec.Raw(it.details.encode()),
    }  # fmt: skip


def sees(user: User, it: Act) -> bool:
    return user.administers or (it.kind not in OF_USERS and it.vhost != "" and user.enters(it.vhost))


class Told(NamedTuple):
    """An act for streams."""

    act: Act

    def is_for(self, user: User) -> bool:
        """Whether the user may be told."""
        return sees(user, self.act)

    @property
    def text(self) -> bytes:
        """The act as JSON."""
        return encode(record(self.act))


class Acts:
    """The acts of a node's audit log; `wake` is called at each while anybody listens."""

    def __init__(self, log: AuditLog, wake: Callable[[], None]) -> None:
        self._log, self._wake = log, wake
        self._listeners = 0

    @property
    def number(self) -> int:
        """That of the last act."""
        return self._log.number

    def listen(self) -> None:
        self._listeners += 1
        self._log.wake = self._wake

    def leave(self) -> None:
        self._listeners -= 1
        if not self._listeners:
            self._log.wake = None

    def after(self, number: int) -> tuple[list[Told], bool]:
        """The acts after that one, and whether some of them are forgotten."""
        found = list(self._newer(number))[::-1]
        return found, self.number - number > len(found)

    def _newer(self, number: int) -> Iterator[Told]:
        for act in reversed(self._log.acts):
            if act.number <= number:
                return
            yield Told(act)
