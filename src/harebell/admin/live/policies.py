"""The names of the policies that objects have, found by patterns once and again after a change of policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from harebell.broker.vhost import VirtualHost
from harebell.routing.policies import Policy

__all__ = ["PolicyNames"]

Names = tuple[str | None, str | None]
NONE: Names = (None, None)


class _Known:
    """The names found in one virtual host while it had these policies: those of this look, and of the last one."""

    __slots__ = ("found", "last", "policies")

    def __init__(self, policies: tuple[Policy, ...]) -> None:
        self.policies = policies
        self.found: dict[tuple[str, str], Names] = {}
        self.last: dict[tuple[str, str], Names] = {}


class PolicyNames:
    """The names of policies of the objects of one kind. For each virtual host: `of`, its objects, `keep`."""

    def __init__(self) -> None:
        self._known: dict[VirtualHost, _Known] = {}

    def of(self, vhost: VirtualHost) -> Callable[[str, Any], Names]:
        """A function from an object's name and type to the names of its policy and its operator policy."""
        book = vhost.policies
        policies = (*book.policies.values(), *book.operator_policies.values())
        known = self._known.get(vhost)
        if known is None or known.policies != policies:
            known = self._known[vhost] = _Known(policies)
        if not policies:
            return lambda name, kind: NONE
        found, last = known.found, known.last

        def names(name: str, kind: Any) -> Names:
            key = name, kind
            there = last.get(key)
            if there is None:
                policy, operator = book.in_force(name, kind)
                there = _name(policy), _name(operator)
            found[key] = there
            return there

        return names

    def keep(self, vhost: VirtualHost) -> None:
        """All objects of the virtual host have been asked for: forget the others."""
        known = self._known[vhost]
        known.last, known.found = known.found, {}

    def forget_gone(self, vhosts: Iterable[VirtualHost]) -> None:
        there = set(vhosts)
        for gone in [each for each in self._known if each not in there]:
            del self._known[gone]


def _name(policy: Policy | None) -> str | None:
    return None if policy is None else policy.name
