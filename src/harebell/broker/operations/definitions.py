"""Definitions of a running broker: the import of a file, and the export.

Rules (RabbitMQ's, except the first):

- A whole file is checked before anything is changed: after one bad object, nothing of it is applied. Both are works in
  steps. What other clients change meanwhile, so that an object does not fit any more, is a remark: it is left out. A
  broker that is killed meanwhile has a part of the file; it may be imported again.
- Nothing is deleted. Users, permissions, parameters and policies replace those of the same name; a virtual host gets
  the file's description. A queue or an exchange that exists stays as it is, also where the file differs.
- The server's own names ("amq....") are left out, and so are bindings with a missing end: RabbitMQ exports
  bindings of exclusive queues without the queues.
- An export has no exclusive queues, no exchange of the server's, and none of the default exchange's bindings.

Remarks on parts of a file that were not applied go to the caller and to the log. `harebell.routing.definitions` reads
and writes the JSON.
"""

from __future__ import annotations

import base64
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any, Final, TypeVar

import harebell
from harebell.broker.auth import Users
from harebell.broker.node import Node
from harebell.broker.patterns import PATTERNS
from harebell.broker.rules.limits import check_new_queues, check_user_limits, check_vhost_limits
from harebell.broker.rules.parameters import no_vhost
from harebell.broker.slices import Work
from harebell.broker.vhost import VirtualHost, described
from harebell.errors import AmqpError, InternalError, InvalidArgument, PreconditionFailed, ResourceLocked
from harebell.protocol.v091 import Table
from harebell.routing import Destination, to_exchange, to_queue
from harebell.routing.definitions import (
    BindingDefinition,
    Definitions,
    ExchangeDefinition,
    Parameter,
    Permission,
    QueueDefinition,
    TopicPermission,
    VirtualHost as VirtualHostDefinition,
    naming,
)
from harebell.routing.policies import FEDERATION_KEYS, Policy, check_policy
from harebell.routing.router import RESERVED_PREFIX
from harebell.routing.settings import queue_settings, queue_type, without_undefined_type
from harebell.routing.steps import Steps, complete
from harebell.routing.table_values import Table as JsonTable, canonical

__all__ = ["Import", "checking", "export_definitions", "exporting", "import_definitions", "importing", "json_table"]

log = logging.getLogger("harebell.broker.definitions")

NOT_UTF_8: Final = "Not UTF-8, base64 is: "
"""How RabbitMQ begins the text for octets that are none, in a JSON of arguments."""

LONGEST_REFUSAL: Final = 800
"""Characters in the text of a refusal: a value of the file that it quotes may be of any length."""

T = TypeVar("T")
_DESTINATIONS: Final = {"queue": to_queue, "exchange": to_exchange}


def import_definitions(node: Node, definitions: Definitions, vhost: str | None = None) -> tuple[str, ...]:
    """As `importing`, at once."""
    remarks = complete(importing(node, definitions, vhost))
    node.batch.end()
    return remarks


def importing(node: Node, definitions: Definitions, vhost: str | None = None) -> Steps[tuple[str, ...]]:
    """Apply the definitions. Returns remarks on what differs from the file.

    With a `vhost`, only exchanges, queues, bindings, policies and parameters are applied, all of them in that virtual
    host, whatever virtual host the file names. Raises InvalidArgument for an invalid object, NotImplemented for
    settings that this broker does not have, NotFound when `vhost` does not exist; then nothing has changed.
    InternalError when the disk refuses a stream: earlier changes stay.
    """
    work = yield from checking(node, definitions, vhost)
    yield from work.apply()
    node.events.act(vhost or "", "definitions", vhost or "", "imported")
    for remark in work.remarks:
        log.warning("definitions: %s", remark)
    return tuple(work.remarks)


def _one_line(text: str) -> str:
    """The text of a refusal in one line that is not too long, whatever it quotes of the file."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_REFUSAL else f"{line[:LONGEST_REFUSAL]}..."


def checking(node: Node, definitions: Definitions, vhost: str | None = None) -> Steps[Import]:
    """The import that `importing` applies, checked; nothing has changed. Raises what `importing` raises."""
    if vhost is not None:
        if vhost not in node.vhosts:
            raise no_vhost(vhost)
        definitions = yield from _moving(definitions, vhost)
    work = Import(node, definitions)
    try:
        yield from work.check()
    except InvalidArgument as error:
        raise InvalidArgument(_one_line(str(error))) from None
    return work


def _moving(definitions: Definitions, vhost: str) -> Steps[Definitions]:
    """The definitions of one virtual host, as those of another."""
    moved: dict[str, tuple[Any, ...]] = {}
    for section in ("parameters", "policies", "operator_policies", "queues", "exchanges", "bindings"):
        records = []
        for each in getattr(definitions, section):
            records.append(each if each.vhost == vhost else replace(each, vhost=vhost))
            yield
        moved[section] = tuple(records)
    return Definitions(**moved)  # type: ignore[arg-type]  # each section has its own records


class Import:
    """The import of one file. `check` tries everything on copies and lists the objects to make; `apply` makes them.

    The copy of a virtual host has those exchanges and queues that the file names, and no bindings but the file's.
    """

    def __init__(self, node: Node, definitions: Definitions) -> None:
        self.node = node
        self.file = definitions
        self.remarks: list[str] = []
        self._users = Users()
        self._users.users.update(node.users.users)
        self._vhosts = {each.name: each for each in definitions.vhosts}
        self._trials: dict[str, VirtualHost] = {}
        self._current: dict[str, VirtualHost] = {}  # those of the trials that exist
        self._exchanges: list[ExchangeDefinition] = []
        self._queues: dict[tuple[str, str], QueueDefinition] = {}
        self._bindings: list[tuple[BindingDefinition, Destination]] = []
        self._inexact = set[Hashable]()  # bindings that are there and that an export writes as others

    # -- looking -------------------------------------------------------------------------------------------------

    def check(self) -> Work:
        """Raise for the first invalid object; the broker is not changed."""
        for user in self.file.users:
            with naming(f"user '{user.name}'"):
                check_user_limits(user.limits or {})
                self._users.put(user)
            yield
        for vhost in self.file.vhosts:
            self._trial(vhost.name, f"vhost '{vhost.name}'")
            yield
        permissions: tuple[Permission | TopicPermission, ...] = (*self.file.permissions, *self.file.topic_permissions)
        yield from _each(self._check_permission, permissions)
        yield from _each(self._check_parameter, self.file.parameters)
        yield from _each(lambda policy: self._check_policy(policy, operator=False), self.file.policies)
        yield from _each(lambda policy: self._check_policy(policy, operator=True), self.file.operator_policies)
        yield from _each(self._check_exchange, self.file.exchanges)
        yield from _each(self._check_queue, self.file.queues)
        yield from self._check_queues()
        yield from self._find_inexact()
        yield from _each(self._check_binding, self.file.bindings)

    def _find_inexact(self) -> Work:
        """Find the bindings whose arguments JSON has otherwise: an import of their own export must add no others."""
        for name in {binding.vhost for binding in self.file.bindings}:
            vhost = self.node.vhosts.get(name)
            for each in () if vhost is None else tuple(vhost.router.bindings(implicit=False)):
                if each.arguments:
                    exported = _wire(json_table(each.arguments))
                    if canonical(exported) != canonical(each.arguments):
                        self._inexact.add(_key(name, each.source, each.destination, each.binding_key, exported))
                yield

    def _trial(self, name: str, what: str) -> VirtualHost:
        """A copy of the virtual host to try the file on. InvalidArgument when `what` names one that will not exist."""
        trial = self._trials.get(name)
        if trial is None:
            current, definition = self.node.vhosts.get(name), self._vhosts.get(name)
            if current is None and definition is None:
                raise InvalidArgument(f"{what}: there is no vhost '{name}', neither in the file nor here")
            trial = self._trials[name] = VirtualHost(self.node, name)
            if current is not None:
                self._current[name] = current
                trial.definition = current.definition
                trial.queues = dict(current.queues)
                trial.policies.policies = dict(current.policies.policies)
                trial.policies.operator_policies = dict(current.policies.operator_policies)
            if definition is not None:
                with naming(what):
                    trial.definition = described(definition)
                    check_vhost_limits(definition.limits or {})
        return trial

    def _has_exchange(self, trial: VirtualHost, name: str) -> bool:
        """Whether the exchange exists or will; the trial has it then, too."""
        current = self._current.get(trial.name)
        if not trial.router.has_exchange(name) and current is not None and current.router.has_exchange(name):
            trial.router.adopt(current.router.exchange(name))
        return trial.router.has_exchange(name)

    def _has_queue(self, trial: VirtualHost, name: str) -> bool:
        """As `_has_exchange`."""
        if name in trial.queues:
            trial.router.add_queue(name)
        return name in trial.router.queues

    def _check_parameter(self, parameter: Parameter) -> None:
        what = f"parameter '{parameter.name}' of component '{parameter.component}' in vhost '{parameter.vhost}'"
        self._trial(parameter.vhost, what)
        with naming(what):
            self.node.parameters.check(parameter)
        if not self.node.parameters.acts_on(parameter.component):
            self.remarks.append(f"{what}: kept, but nothing here acts on it")

    def _check_permission(self, permission: Permission | TopicPermission) -> None:
        what = f"permission of user '{permission.user}' in vhost '{permission.vhost}'"
        self._trial(permission.vhost, what)
        with naming(what):
            if isinstance(permission, Permission):
                self._users.set_permission(permission)
            else:
                self._users.set_topic_permission(permission)

    def _check_policy(self, policy: Policy, *, operator: bool) -> None:
        what = f"{'operator policy' if operator else 'policy'} '{policy.name}' in vhost '{policy.vhost}'"
        policies = self._trial(policy.vhost, what).policies
        with naming(what):
            check_policy(policy, PATTERNS, operator=operator)
        self.remarks += [
            f"{what}: {key} is kept, but nothing here acts on it" for key in FEDERATION_KEYS if key in policy.definition
        ]
        (policies.operator_policies if operator else policies.policies)[policy.name] = policy

    def _check_exchange(self, exchange: ExchangeDefinition) -> None:
        what = f"exchange '{exchange.name}' in vhost '{exchange.vhost}'"
        trial = self._trial(exchange.vhost, what)
        if not exchange.name:
            return  # the default exchange, which RabbitMQ's HTTP API lists too
        there = self._has_exchange(trial, exchange.name)
        if not there and exchange.name.startswith(RESERVED_PREFIX):
            self.remarks.append(f"{what}: left out, the name is the server's")
            return
        try:
            with naming(what):
                trial.router.declare_exchange(
                    exchange.name,
                    exchange.type,
                    durable=exchange.durable,
                    auto_delete=exchange.auto_delete,
                    internal=exchange.internal,
                    arguments=_wire(exchange.arguments),
                )
        except InvalidArgument as error:
            if not there:
                raise
            self.remarks.append(f"{what}: stays as it is: {error}")
            return
        if not there:
            self._exchanges.append(exchange)

    def _check_queue(self, queue: QueueDefinition) -> None:
        what = f"queue '{queue.name}' in vhost '{queue.vhost}'"
        trial = self._trial(queue.vhost, what)
        queue = replace(queue, arguments=_arguments(trial, queue))
        current, before = trial.queues.get(queue.name), self._queues.get((queue.vhost, queue.name))
        if current is not None:
            try:
                trial.check_equal(current, None, queue.durable, False, queue.auto_delete, _wire(queue.arguments))
            except (PreconditionFailed, ResourceLocked) as error:
                self.remarks.append(f"{what}: stays as it is: {error.detail}")
        elif before is not None:
            if before != queue:
                self.remarks.append(f"{what}: twice in the file, the first one counts")
        elif not queue.name or queue.name.startswith(RESERVED_PREFIX):
            self.remarks.append(f"{what}: left out, the name is the server's")
        else:
            with naming(what):
                queue_settings(queue.arguments, what, durable=queue.durable, auto_delete=queue.auto_delete)
            trial.router.add_queue(queue.name)
            self._queues[queue.vhost, queue.name] = queue

    def _check_queues(self) -> Work:
        """Check policies and arguments together, for old and new queues, and the number of new ones."""
        new = Counter(vhost for vhost, _ in self._queues)
        for trial in self._trials.values():
            check_new_queues(trial, new[trial.name])
            for queue in trial.queues.values():
                if not queue.deleted:
                    trial.policies.settings_for(queue.name, queue.settings.queue_type, queue.arguments)
                yield
        for each in self._queues.values():
            kind = queue_type(each.arguments, each.name)
            self._trials[each.vhost].policies.settings_for(each.name, kind, _wire(each.arguments))
            yield

    def _check_binding(self, binding: BindingDefinition) -> None:
        what = (
            f"binding from exchange '{binding.source}' to {binding.destination_type} '{binding.destination}' "
            f"in vhost '{binding.vhost}'"
        )
        trial = self._trial(binding.vhost, what)
        make = _DESTINATIONS.get(binding.destination_type)
        if make is None:
            raise InvalidArgument(f"{what}: destination_type is 'queue' or 'exchange'")
        if not binding.source:
            return  # the default exchange binds by itself
        destination = make(binding.destination)
        has_end = self._has_queue if make is to_queue else self._has_exchange
        if not self._has_exchange(trial, binding.source) or not has_end(trial, binding.destination):
            self.remarks.append(f"{what}: left out, one end of it is missing")
            return
        arguments = _wire(binding.arguments)
        with naming(what):
            trial.router.bind(binding.source, destination, binding.routing_key, arguments)
        key = _key(binding.vhost, binding.source, destination, binding.routing_key, arguments)
        if key in self._inexact:
            return  # it is there, with values that JSON does not have
        self._bindings.append((binding, destination))

    # -- doing ---------------------------------------------------------------------------------------------------

    def apply(self) -> Work:
        node, file = self.node, self.file
        for user in file.users:
            node.users.put(self._users.users[user.name])  # an imported password is a hash by now
            yield
        yield from self._make_each("vhost '{0.name}'", node.add_vhost, file.vhosts)
        yield from self._make_each("permission in vhost '{0.vhost}'", self._set_permission, file.permissions)
        yield from self._make_each(
            "topic permission in vhost '{0.vhost}'", self._set_topic_permission, file.topic_permissions
        )
        yield from self._make_each("parameter '{0.name}'", node.parameters.set, file.parameters)
        for global_parameter in file.global_parameters:
            node.parameters.set_global(global_parameter)
            yield
        for name in self._trials:
            with self._left_out_if_refused(f"policies of vhost '{name}'"):
                yield from self._vhost(name).policies.updating(
                    [policy for policy in file.policies if policy.vhost == name],
                    [policy for policy in file.operator_policies if policy.vhost == name],
                )
        yield from self._make_each("exchange '{0.name}'", self._make_exchange, self._exchanges)
        yield from self._make_each("queue '{0.name}'", self._make_queue, self._queues.values())
        yield from self._make_each(
            "binding from exchange '{0[0].source}' to {0[0].destination_type} '{0[0].destination}'",
            self._make_binding, self._bindings,
        )  # fmt: skip

    def _make_each(self, what: str, make: Callable[[T], object], records: Iterable[T]) -> Work:
        for record in records:
            with self._left_out_if_refused(what.format(record)):
                make(record)
            yield

    @contextmanager
    def _left_out_if_refused(self, what: str) -> Iterator[None]:
        """Remark on what was fine when it was checked, and is not any more."""
        try:
            yield
        except InternalError:
            raise
        except (InvalidArgument, AmqpError) as error:
            text = error.detail if isinstance(error, AmqpError) else str(error)
            self.remarks.append(f"{what}: left out, another client was faster: {_one_line(text)}")

    def _vhost(self, name: str) -> VirtualHost:
        if name not in self.node.vhosts:
            raise no_vhost(name)
        return self.node.vhosts[name]

    def _set_permission(self, permission: Permission) -> None:
        self._vhost(permission.vhost)
        self.node.users.set_permission(permission)

    def _set_topic_permission(self, permission: TopicPermission) -> None:
        self._vhost(permission.vhost)
        self.node.users.set_topic_permission(permission)

    def _make_exchange(self, exchange: ExchangeDefinition) -> None:
        self._vhost(exchange.vhost).declare_exchange(
            exchange.name,
            exchange.type,
            passive=False,
            durable=exchange.durable,
            auto_delete=exchange.auto_delete,
            internal=exchange.internal,
            arguments=_wire(exchange.arguments),
        )

    def _make_queue(self, queue: QueueDefinition) -> None:
        self._vhost(queue.vhost).declare_queue(
            None,
            queue.name,
            durable=queue.durable,
            exclusive=False,
            auto_delete=queue.auto_delete,
            arguments=_wire(queue.arguments),
        )

    def _make_binding(self, made: tuple[BindingDefinition, Destination]) -> None:
        binding, destination = made
        self._vhost(binding.vhost).bind(binding.source, destination, binding.routing_key, _wire(binding.arguments))


def _key(vhost: str, source: str, destination: Destination, binding_key: str, arguments: JsonTable) -> Hashable:
    return vhost, source, destination, binding_key, canonical(arguments)


def _each(check: Callable[[T], None], records: Iterable[T]) -> Work:
    for record in records:
        check(record)
        yield


def _arguments(vhost: VirtualHost, queue: QueueDefinition) -> Table:
    """The queue's arguments, with the type that the file or the virtual host's default gives it."""
    arguments = without_undefined_type(_wire(queue.arguments))
    by_default = vhost.with_default_type(arguments, queue.durable, False, queue.auto_delete)
    if queue.type is None or "x-queue-type" in arguments or queue.type == by_default.get("x-queue-type", "classic"):
        return by_default
    return {**arguments, "x-queue-type": queue.type}


def _wire(arguments: JsonTable) -> Table:
    """A file's arguments as a field table: every JSON type is a type there, and text may stand for other octets."""
    return {name: _octets(value) for name, value in arguments.items()}


def _octets(value: Any) -> Any:
    """A value of a file with the octets that `_json` has written as text."""
    match value:
        case str() if value.startswith(NOT_UTF_8):
            try:
                octets = base64.b64decode(value.removeprefix(NOT_UTF_8), validate=True)
            except ValueError:
                return value
            return octets if _text(octets) == value else value
        case dict():
            return {name: _octets(item) for name, item in value.items()}
        case list():
            return [_octets(item) for item in value]
    return value


def export_definitions(node: Node, vhost: str | None = None) -> Definitions:
    """As `exporting`, at once."""
    return complete(exporting(node, vhost))


def exporting(node: Node, vhost: str | None = None) -> Steps[Definitions]:
    """The broker's definitions; with a `vhost`, only that one's. NotFound for an unknown one."""
    if vhost is not None and vhost not in node.vhosts:
        raise no_vhost(vhost)
    vhosts = [each for each in node.vhosts.values() if vhost in (None, each.name)]
    queues, exchanges, bindings = list[QueueDefinition](), list[ExchangeDefinition](), list[BindingDefinition]()
    for each in vhosts:
        yield from _gather(_queues(each), queues)
        yield from _gather(_exchanges(each), exchanges)
        yield from _gather(_bindings(each), bindings)
    definitions = Definitions(
        parameters=tuple(each for each in node.parameters.parameters.values() if vhost in (None, each.vhost)),
        policies=tuple(policy for each in vhosts for policy in each.policies.policies.values()),
        operator_policies=tuple(policy for each in vhosts for policy in each.policies.operator_policies.values()),
        queues=tuple(queues),
        exchanges=tuple(exchanges),
        bindings=tuple(bindings),
        about={"product_name": "Harebell", "product_version": harebell.__version__},
    )
    if vhost is not None:
        return definitions
    return replace(
        definitions,
        vhosts=tuple(_vhost(each) for each in vhosts),
        users=tuple(node.users.users.values()),
        permissions=tuple(node.users.permissions.values()),
        topic_permissions=tuple(node.users.topic_permissions.values()),
        global_parameters=tuple(node.parameters.global_parameters.values()),
    )


def _vhost(vhost: VirtualHost) -> VirtualHostDefinition:
    """The definition of a virtual host; its description and tags are also in the metadata, as RabbitMQ has them."""
    it = vhost.definition
    said = {
        "description": it.description,
        "tags": None if it.tags is None else list(it.tags),
        "default_queue_type": it.default_queue_type,
    }
    metadata = {**(it.metadata or {}), **{name: value for name, value in said.items() if value is not None}}
    return replace(it, metadata=metadata, limits=vhost.limits)


def _gather(records: Iterable[T], found: list[T]) -> Work:
    for record in records:
        found.append(record)
        yield


def _queues(vhost: VirtualHost) -> Iterable[QueueDefinition]:
    for queue in tuple(vhost.queues.values()):
        if not queue.exclusive and not queue.deleted:
            yield QueueDefinition(
                vhost.name, queue.name, queue.durable, queue.auto_delete, json_table(queue.arguments), queue.type
            )


def _exchanges(vhost: VirtualHost) -> Iterable[ExchangeDefinition]:
    for each in tuple(vhost.router.exchanges):
        if each.name and not each.name.startswith(RESERVED_PREFIX):
            yield ExchangeDefinition(
                vhost.name, each.name, each.type, each.durable, each.auto_delete, each.internal,
                json_table(each.arguments),
            )  # fmt: skip


def _bindings(vhost: VirtualHost) -> Iterable[BindingDefinition]:
    for each in vhost.router.bindings(implicit=False):
        kind, name = each.destination
        queue = vhost.queues.get(name) if kind == "queue" else None
        if queue is None or not queue.exclusive:
            yield BindingDefinition(vhost.name, each.source, name, kind, each.binding_key, json_table(each.arguments))


def json_table(table: JsonTable) -> JsonTable:
    """A table as JSON has it: octets become text and timestamps seconds, as in RabbitMQ's exports."""
    return {name: _json(value) for name, value in table.items()}


def _text(octets: bytes) -> str:
    """The text in these octets; of others RabbitMQ's text, from which `_octets` reads them again."""
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return NOT_UTF_8 + base64.b64encode(octets).decode()


def _json(value: object) -> object:
    """As `json_table`, for a value."""
    match value:
        case bytes() | bytearray():
            return _text(bytes(value))
        case str() if not value.isascii():
            return _text(value.encode("utf-8", "surrogateescape"))
        case float() if not isfinite(value):
            return None
        case datetime():
            return int(value.timestamp())
        case Decimal():
            return float(value)
        case dict():
            return {name: _json(item) for name, item in value.items()}
        case list():
            return [_json(item) for item in value]
    return value
