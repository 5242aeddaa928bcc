"""The policies of one virtual host, and the settings that they give to its queues and exchanges.

A policy gives settings to every queue or exchange whose name its pattern matches; of several, the one with the highest
priority applies. An operator policy is merged into it and can only make limits narrower. How both combine with the
arguments of a declaration: `harebell.routing.policies`. Setting or clearing a policy changes existing objects at once;
messages that are in a queue already keep their deadline (RabbitMQ's rule).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol

from harebell.broker.batch import Batch
from harebell.broker.observers import Listener
from harebell.broker.queues.base import Queue
from harebell.broker.queues.settings import check_implemented
from harebell.broker.store.catalog import Catalog
from harebell.errors import NotImplemented as NotImplemented540
from harebell.protocol.v091 import Table
from harebell.routing import SYSTEM_EXCHANGE, Router
from harebell.routing.policies import Policy, Setting, check_policy, effective, matching
from harebell.routing.settings import QueueSettings, QueueType, settings_of

__all__ = ["Policies"]


class Governed(Protocol):
    """The part of a virtual host that its policies use."""

    name: str
    batch: Batch
    catalog: Catalog
    events: Listener

    @property
    def router(self) -> Router: ...
    @property
    def queues(self) -> Mapping[str, Queue]: ...


class Policies:
    """The policies of one virtual host: `policies` and `operator_policies` by name."""

    def __init__(self, vhost: Governed) -> None:
        self._vhost = vhost
        self.policies: dict[str, Policy] = {}
        self.operator_policies: dict[str, Policy] = {}

    def set(self, policy: Policy, *, operator: bool = False) -> None:
        """Set a policy, in place of the one of that name.

        Raises InvalidArgument, with RabbitMQ's text, for a malformed policy, and 540 for settings that this broker does
        not have; then nothing has changed.
        """
        check_policy(policy, operator=operator)
        book = self.operator_policies if operator else self.policies
        before = book.get(policy.name)
        book[policy.name] = policy
        try:
            self._apply()
        except NotImplemented540:
            self._put_back(book, policy.name, before)
            raise
        self._set(policy, operator)
        self._vhost.batch.end()

    def update(self, policies: Iterable[Policy], operator_policies: Iterable[Policy]) -> None:
        """Set many policies at once. The caller has checked them, each and with the queues that exist."""
        self.restore(new := tuple(policies), new_of_operators := tuple(operator_policies))
        self._apply()
        for policy in new:
            self._set(policy, False)
        for policy in new_of_operators:
            self._set(policy, True)

    def restore(self, policies: Iterable[Policy], operator_policies: Iterable[Policy]) -> None:
        """Take policies from the catalog; existing queues and exchanges do not change."""
        self.policies.update((policy.name, policy) for policy in policies)
        self.operator_policies.update((policy.name, policy) for policy in operator_policies)

    def clear(self, name: str, *, operator: bool = False) -> bool:
        """Remove a policy. Returns whether it existed."""
        book = self.operator_policies if operator else self.policies
        if book.pop(name, None) is None:
            return False
        self._apply()
        self._cleared(name, operator)
        self._vhost.batch.end()
        return True

    def forget(self) -> None:
        """Remove all policies: the virtual host is deleted."""
        for operator, book in ((False, self.policies), (True, self.operator_policies)):
            for name in tuple(book):
                del book[name]
                self._cleared(name, operator)

    def in_force(self, name: str, kind: QueueType | Literal["exchange"]) -> tuple[Policy | None, Policy | None]:
        """The policy and the operator policy that apply to a queue or an exchange."""
        vhost = self._vhost.name
        return (
            matching(self.policies.values(), vhost, name, kind),
            matching(self.operator_policies.values(), vhost, name, kind),
        )

    def effective(self, name: str, kind: QueueType, arguments: Table) -> dict[str, Setting]:
        """The settings of a queue with the source of each, for explanations."""
        return effective(arguments, *self.in_force(name, kind))

    def settings_for(self, name: str, kind: QueueType, arguments: Table) -> QueueSettings:
        """The settings of a queue. Raises 540 for a policy's setting that this broker does not have."""
        values = {key: setting.value for key, setting in self.effective(name, kind, arguments).items()}
        settings = settings_of({**values, "queue-type": kind})
        check_implemented(settings, f"queue '{name}' in vhost '{self._vhost.name}'")
        return settings

    def apply_to_exchange(self, name: str) -> None:
        """Set the exchange's alternate to the one that a policy names, or remove one that no policy names any more.

        The system exchange is left out: only the broker changes it.
        """
        if name == SYSTEM_EXCHANGE:
            return
        policy, _ = self.in_force(name, "exchange")
        alternate = policy.definition.get("alternate-exchange") if policy is not None else None
        self._vhost.router.set_alternate(name, alternate if isinstance(alternate, str) else None)

    def _apply(self) -> None:
        queues = tuple(self._vhost.queues.values())
        settings = [self.settings_for(queue.name, queue.settings.queue_type, queue.arguments) for queue in queues]
        for queue, now in zip(queues, settings, strict=True):  # all settings are valid: apply them now
            if queue.settings != now:
                queue.reconfigure(now)
        for exchange in tuple(self._vhost.router.exchanges):
            if exchange.name:
                self.apply_to_exchange(exchange.name)

    def _set(self, policy: Policy, operator: bool) -> None:
        self._vhost.catalog.put_policy(policy, operator=operator)
        self._vhost.events.policy_set(policy, operator=operator)

    def _cleared(self, name: str, operator: bool) -> None:
        self._vhost.catalog.remove_policy(self._vhost.name, name, operator=operator)
        self._vhost.events.policy_cleared(self._vhost.name, name, operator=operator)

    def _put_back(self, book: dict[str, Policy], name: str, before: Policy | None) -> None:
        if before is None:
            del book[name]
        else:
            book[name] = before
