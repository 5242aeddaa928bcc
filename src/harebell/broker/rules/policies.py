"""The policies of one virtual host, and what they make of its queues and exchanges.

A policy gives settings to every queue or exchange whose name its pattern finds; of several, the one of the highest
priority. An operator policy is merged into it and can only make limits narrower. What a declaration itself says stands
against both as `harebell.routing.policies` tells. Setting or clearing one changes what exists at once; messages that
are in a queue already keep the deadline that they came with (RabbitMQ's rule).
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
    """A virtual host, as far as its policies need it."""

    name: str
    batch: Batch
    catalog: Catalog
    events: Listener

    @property
    def router(self) -> Router: ...
    @property
    def queues(self) -> Mapping[str, Queue]: ...


class Policies:
    """`policies` and `operator_policies` by name."""

    def __init__(self, vhost: Governed) -> None:
        self._vhost = vhost
        self.policies: dict[str, Policy] = {}
        self.operator_policies: dict[str, Policy] = {}

    def set(self, policy: Policy, *, operator: bool = False) -> None:
        """Put a policy in force, in place of one of that name.

        InvalidArgument when it is not one, in RabbitMQ's words; 540 for what this broker does not do, and then nothing
        has changed.
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
        """Put many in force at once. They have been checked, each and with the queues that are there."""
        self.restore(new := tuple(policies), new_of_operators := tuple(operator_policies))
        self._apply()
        for policy in new:
            self._set(policy, False)
        for policy in new_of_operators:
            self._set(policy, True)

    def restore(self, policies: Iterable[Policy], operator_policies: Iterable[Policy]) -> None:
        """Have these too, as they were kept; what is there already does not change."""
        self.policies.update((policy.name, policy) for policy in policies)
        self.operator_policies.update((policy.name, policy) for policy in operator_policies)

    def clear(self, name: str, *, operator: bool = False) -> bool:
        """Take a policy out of force; whether there was one."""
        book = self.operator_policies if operator else self.policies
        if book.pop(name, None) is None:
            return False
        self._apply()
        self._cleared(name, operator)
        self._vhost.batch.end()
        return True

    def forget(self) -> None:
        """The virtual host is gone, and all of them with it."""
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
        """The settings of a queue with the source of each; for explanations."""
        return effective(arguments, *self.in_force(name, kind))

    def settings_for(self, name: str, kind: QueueType, arguments: Table) -> QueueSettings:
        """The settings of a queue. 540 when a policy asks for what this broker does not do."""
        values = {key: setting.value for key, setting in self.effective(name, kind, arguments).items()}
        settings = settings_of({**values, "queue-type": kind})
        check_implemented(settings, f"queue '{name}' in vhost '{self._vhost.name}'")
        return settings

    def apply_to_exchange(self, name: str) -> None:
        """Give the exchange the alternate that a policy names, or take away one that none names any more.

        Not the system exchange: what is asked of it is for the broker alone.
        """
        if name == SYSTEM_EXCHANGE:
            return
        policy, _ = self.in_force(name, "exchange")
        alternate = policy.definition.get("alternate-exchange") if policy is not None else None
        self._vhost.router.set_alternate(name, alternate if isinstance(alternate, str) else None)

    def _apply(self) -> None:
        queues = tuple(self._vhost.queues.values())
        settings = [self.settings_for(queue.name, queue.settings.queue_type, queue.arguments) for queue in queues]
        for queue, now in zip(queues, settings, strict=True):  # all of them can be done: only now change any
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
