"""The policies of one virtual host, and the settings that they give to its queues and exchanges.

A policy gives settings to every queue or exchange whose name its pattern matches; of several, the one with the highest
priority applies. An operator policy is merged into it and can only make limits narrower. How both combine with the
arguments of a declaration: `harebell.routing.policies`. Setting or clearing a policy changes existing objects, one
after the other; messages that are in a queue already keep their deadline (RabbitMQ's rule).

A change is a work in steps. First it tries the new policies on every queue, and a refusal leaves nothing changed. Then
they are in force and in the catalog, all at once, also for later declarations; then the existing objects follow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple, Protocol

from harebell.broker.batch import Batch
from harebell.broker.observers import Listener
from harebell.broker.patterns import PATTERNS
from harebell.broker.queues.base import Queue
from harebell.broker.queues.settings import check_implemented
from harebell.broker.rules.parameters import no_vhost
from harebell.broker.slices import Work
from harebell.broker.store.catalog.catalog import Catalog
from harebell.errors import NotImplemented as NotImplemented540
from harebell.protocol.v091 import Table
from harebell.routing import SYSTEM_EXCHANGE, Router
from harebell.routing.naming import kept_from
from harebell.routing.policies import Policy, Setting, check_policy, effective, matching
from harebell.routing.settings import QueueSettings, QueueType, settings_of
from harebell.routing.steps import Steps, complete

__all__ = ["Policies"]


class Governed(Protocol):
    """The part of a virtual host that its policies use."""

    name: str
    deleted: bool
    batch: Batch
    catalog: Catalog
    events: Listener

    @property
    def router(self) -> Router: ...
    @property
    def queues(self) -> Mapping[str, Queue]: ...


class Books(NamedTuple):
    """Policies and operator policies, by name."""

    policies: dict[str, Policy]
    operator_policies: dict[str, Policy]


class Trial(NamedTuple):
    """Policies that are not in force yet, and the names of later queues that could not have them."""

    books: Books
    doubtful: set[str]


class Policies:
    """The policies of one virtual host: `policies` and `operator_policies` by name."""

    def __init__(self, vhost: Governed) -> None:
        self._vhost = vhost
        self.policies: dict[str, Policy] = {}
        self.operator_policies: dict[str, Policy] = {}
        self._changes = 0  # so far
        self._trials: list[Trial] = []

    def book(self, *, operator: bool) -> dict[str, Policy]:
        """The policies, or the operator policies, by name."""
        return self.operator_policies if operator else self.policies

    def set(self, policy: Policy, *, operator: bool = False) -> None:
        """As `setting`, at once."""
        complete(self.setting(policy, operator=operator))
        self._vhost.batch.end()

    def setting(self, policy: Policy, *, operator: bool = False) -> Steps[None]:
        """Set a policy, in place of the one of that name.

        Raises InvalidArgument, with RabbitMQ's text, for a malformed policy, 540 for settings that this broker does not
        have, and NotFound when the virtual host is deleted meanwhile; then nothing has changed.
        """
        check_policy(policy, PATTERNS, operator=operator)
        yield from self._change(((policy, operator),))

    def updating(self, policies: Iterable[Policy], operator_policies: Iterable[Policy]) -> Steps[None]:
        """Set many policies at once. The caller has checked each; 540 as `setting`."""
        new = [(policy, False) for policy in policies]
        new += [(policy, True) for policy in operator_policies]
        if new:
            yield from self._change(new)

    def restore(self, policies: Iterable[Policy], operator_policies: Iterable[Policy]) -> None:
        """Take policies from the catalog; existing queues and exchanges do not change."""
        self.policies.update((policy.name, policy) for policy in policies)
        self.operator_policies.update((policy.name, policy) for policy in operator_policies)

    def clear(self, name: str, *, operator: bool = False) -> bool:
        """As `clearing`, at once."""
        there = complete(self.clearing(name, operator=operator))
        self._vhost.batch.end()
        return there

    def clearing(self, name: str, *, operator: bool = False) -> Steps[bool]:
        """Remove a policy. Returns whether it existed.

        Raises 540 when another policy comes in force with settings that this broker does not have.
        """
        if name not in (self.operator_policies if operator else self.policies):
            return False
        return (yield from self._change((), (name, operator)))

    def forget(self) -> None:
        """Remove all policies: the virtual host is deleted."""
        for operator, book in ((False, self.policies), (True, self.operator_policies)):
            for name in tuple(book):
                del book[name]
                self._cleared(name, operator)

    def in_force(self, name: str, kind: QueueType | Literal["exchange"]) -> tuple[Policy | None, Policy | None]:
        """The policy and the operator policy that apply to a queue or an exchange."""
        return self._in_force(Books(self.policies, self.operator_policies), name, kind)

    def _in_force(
        self, books: Books, name: str, kind: QueueType | Literal["exchange"]
    ) -> tuple[Policy | None, Policy | None]:
        vhost = self._vhost.name
        if kept_from(name) is not None:
            return None, None
        return (
            matching(books.policies.values(), vhost, name, kind, PATTERNS),
            matching(books.operator_policies.values(), vhost, name, kind, PATTERNS),
        )

    def effective(self, name: str, kind: QueueType, arguments: Table) -> dict[str, Setting]:
        """The settings of a queue with the source of each, for explanations."""
        return effective(arguments, *self.in_force(name, kind))

    def settings_for(self, name: str, kind: QueueType, arguments: Table) -> QueueSettings:
        """The settings of a queue. Raises 540 for a policy's setting that this broker does not have."""
        for trial in self._trials:
            try:
                self._settings_under(trial.books, name, kind, arguments)
            except NotImplemented540:
                trial.doubtful.add(name)
        return self._settings_under(Books(self.policies, self.operator_policies), name, kind, arguments)

    def _settings_under(self, books: Books, name: str, kind: QueueType, arguments: Table) -> QueueSettings:
        in_force = effective(arguments, *self._in_force(books, name, kind))
        values = {key: setting.value for key, setting in in_force.items()}
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

    def _change(self, new: Collection[tuple[Policy, bool]], gone: tuple[str, bool] | None = None) -> Steps[bool]:
        """Set the policies in `new`, and remove the one in `gone`, each with whether it is an operator's.

        Returns whether the one to remove was there.
        """
        while True:
            changes, books = self._changes, Books(dict(self.policies), dict(self.operator_policies))
            for policy, operator in new:
                books[operator][policy.name] = policy
            removed = None if gone is None else books[gone[1]].pop(gone[0], None)
            yield from self._check(books)
            if self._vhost.deleted:
                raise no_vhost(self._vhost.name)
            if changes == self._changes:  # else another change came between
                break
        self._changes += 1
        self.policies, self.operator_policies = books
        for policy, operator in new:
            self._set(policy, operator)
        if gone is not None and removed is not None:
            self._cleared(*gone)
        yield from self._apply()
        return removed is not None

    def _check(self, books: Books) -> Work:
        """Try the policies on every queue, also on those that are declared or changed meanwhile."""
        queues, trial = self._vhost.queues, Trial(books, set())
        self._trials.append(trial)
        try:
            for queue in tuple(queues.values()):
                if not queue.deleted:
                    self._settings_under(books, queue.name, queue.settings.queue_type, queue.arguments)
                    yield
        finally:
            self._trials.remove(trial)
        for name in trial.doubtful & queues.keys():
            queue = queues[name]
            self._settings_under(books, name, queue.settings.queue_type, queue.arguments)

    def _apply(self) -> Work:
        for queue in tuple(self._vhost.queues.values()):
            if not queue.deleted:
                settings = self.settings_for(queue.name, queue.settings.queue_type, queue.arguments)
                if queue.settings != settings:
                    queue.reconfigure(settings)
                yield
        for exchange in tuple(self._vhost.router.exchanges):
            if exchange.name and self._vhost.router.has_exchange(exchange.name):
                self.apply_to_exchange(exchange.name)
                yield

    def _set(self, policy: Policy, operator: bool) -> None:
        self._vhost.catalog.put_policy(policy, operator=operator)
        self._vhost.events.policy_set(policy, operator=operator)

    def _cleared(self, name: str, operator: bool) -> None:
        self._vhost.catalog.remove_policy(self._vhost.name, name, operator=operator)
        self._vhost.events.policy_cleared(self._vhost.name, name, operator=operator)
