"""The recovery of a node from its catalog, or its first contents when the catalog is new.

The order is virtual hosts, users and permissions, parameters, policies, exchanges, queues, bindings, messages, what
transactions hold of them, limits: each needs those before it. A binding with a missing end is dropped and reported; any
other object that cannot be made again stops the start, so that nothing is lost.

A new catalog gets the virtual host "/" and the user guest (RabbitMQ's rule: when there is neither a virtual host nor a
user), so that a deleted guest stays deleted.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from harebell.broker.auth.users import refused_patterns
from harebell.broker.node import Node
from harebell.broker.patterns import PATTERNS
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.store.catalog.catalog import CatalogError, Contents
from harebell.broker.store.inventory import Missing, missing_files
from harebell.broker.vhost import VirtualHost
from harebell.errors import AmqpError, HarebellError, PreconditionFailed
from harebell.protocol.v091 import Table
from harebell.routing import definitions as kept_as, to_exchange, to_queue
from harebell.routing.definitions import BindingDefinition, Definitions, ExchangeDefinition, QueueDefinition
from harebell.routing.exchanges.storing_exchanges import DelayedMessageExchange
from harebell.routing.settings import queue_type

__all__ = ["recover"]

log = logging.getLogger("harebell.broker.recovery")


def recover(node: Node) -> None:
    """Recover the node. OSError when the store cannot be read or written, CatalogError for an invalid catalog."""
    contents = node.catalog.load()
    _report_missing(node, contents)
    if contents.definitions.vhosts or contents.definitions.users:
        _restore(node, contents)
    else:
        _begin(node)
    _adopt_streams(node)
    node.commits.recover(node.timers)
    node.branches.recover(suspect=node.store.suspect)
    node.catalog.commit()
    node.batch.sweep()
    node.keep_copy()
    known = set[str]()
    for vhost in node.vhosts.values():
        known.update(vhost.delay_folders.values(), (queue.folder for queue in vhost.queues.values()))
    for folder in (*node.store.streams.folders(), *node.store.journal_folders()):
        if folder not in known:
            what = "delayed exchange" if folder.startswith("delays/") else "queue"
            log.warning("%s belongs to no %s (a deletion was interrupted): it may be removed", folder, what)


def _report_refused_patterns(kept: Definitions) -> None:
    """Log each pattern that an older version took and this one does not: it matches nothing from now on."""
    for permission, error in refused_patterns(kept.permissions, kept.topic_permissions):
        log.error(
            "permission of user '%s' in vhost '%s': a pattern cannot be used, and gives no access: %s; set it anew",
            permission.user, permission.vhost, error,
        )  # fmt: skip
    for what, policies in (("policy", kept.policies), ("operator policy", kept.operator_policies)):
        for policy in policies:
            if (problem := PATTERNS.problem(policy.pattern)) is not None:
                log.error(
                    "%s '%s' in vhost '%s': the pattern cannot be used, and the policy applies to nothing: %s; set it "
                    "anew", what, policy.name, policy.vhost, problem,
                )  # fmt: skip


def _report_missing(node: Node, contents: Contents) -> None:
    """Report segments and folders that are gone, and links; then begin an inventory of what is there."""
    inventory = node.inventory
    if inventory is None:
        return
    data = node.catalog.path.parent
    owners = contents.owners()
    perhaps = " (or it was removed just before the machine stopped)" if node.store.suspect else ""
    by_folder: dict[str, list[Missing]] = {}
    for each in missing_files(data):
        if each.folder in owners:  # others are remains of deleted queues and exchanges
            by_folder.setdefault(each.folder, []).append(each)
    for folder, missing in by_folder.items():
        owner = owners[folder]
        if not (data / folder).exists():
            log.error("%s: its folder %s is gone, with all of its messages%s", owner, data / folder, perhaps)
            continue
        for path, how in missing:
            loss = "messages in it are lost" if path.endswith(".log") else "acknowledged messages may come again"
            log.error("%s: %s is %s: %s%s", owner, data / path, how, loss, perhaps)
    inventory.begin()
    for link, target in inventory.links:
        log.warning("%s is a link, to %s", data / link, target)


def _begin(node: Node) -> None:
    node.add_vhost(kept_as.VirtualHost("/", description="Default virtual host"))
    for user in node.users.users.values():
        node.catalog.put_user(user)
    for permission in node.users.permissions.values():
        node.catalog.put_permission(permission)


def _restore(node: Node, contents: Contents) -> None:
    kept = contents.definitions
    for definition in kept.vhosts:
        node.new_vhost(definition.name).definition = definition
    _report_refused_patterns(kept)
    node.users.restore(kept.users, kept.permissions, kept.topic_permissions)
    node.parameters.restore(kept.parameters, kept.global_parameters)
    for vhost in node.vhosts.values():
        vhost.policies.restore(
            (policy for policy in kept.policies if policy.vhost == vhost.name),
            (policy for policy in kept.operator_policies if policy.vhost == vhost.name),
        )
    for exchange in kept.exchanges:
        with _naming(node, f"exchange '{exchange.name}' in vhost '{exchange.vhost}'"):
            _restore_exchange(node, exchange)
        folder = contents.delay_folders.get((exchange.vhost, exchange.name))
        if folder is not None:
            node.vhosts[exchange.vhost].delay_folders[exchange.name] = folder
    for queue in kept.queues:
        _restore_queue(node, queue, contents.folders[queue.vhost, queue.name])
    for binding in kept.bindings:
        what = f"binding from '{binding.source}' to {binding.destination_type} '{binding.destination}'"
        with _naming(node, f"{what} in vhost '{binding.vhost}'"):
            _restore_binding(node, binding, what)
    for vhost in node.vhosts.values():
        _restore_messages(vhost)
    node.branches.take_again()
    for vhost in node.vhosts.values():
        _enforce_limits(vhost)


@contextmanager
def _naming(node: Node, what: str) -> Iterator[None]:
    """Add the name of the object to a refusal inside."""
    try:
        yield
    except (HarebellError, KeyError) as error:
        text = error.detail if isinstance(error, AmqpError) else str(error)
        path = str(node.catalog.path)
        raise CatalogError(errno.EINVAL, f"{what} is kept there and cannot be made again: {text}", path) from error


def _restore_exchange(node: Node, exchange: ExchangeDefinition) -> None:
    vhost = node.vhosts[exchange.vhost]
    for kind in (exchange.type, exchange.arguments.get("x-delayed-type")):
        if isinstance(kind, str) and (missing := node.plugins.missing_type(kind)) is not None:
            raise PreconditionFailed(missing)
    vhost.router.declare_exchange(
        exchange.name,
        exchange.type,
        durable=exchange.durable,
        auto_delete=exchange.auto_delete,
        internal=exchange.internal,
        arguments=exchange.arguments,
    )
    vhost.policies.apply_to_exchange(exchange.name)


def _restore_queue(node: Node, queue: QueueDefinition, folder: str) -> None:
    with _naming(node, f"queue '{queue.name}' in vhost '{queue.vhost}'"):
        vhost = node.vhosts[queue.vhost]
        arguments = cast("Table", dict(queue.arguments))
        settings = vhost.policies.settings_for(queue.name, queue_type(arguments, queue.name), arguments)
        vhost.make_queue(
            queue.name,
            durable=queue.durable,
            exclusive=False,
            auto_delete=queue.auto_delete,
            arguments=arguments,
            owner=None,
            settings=settings,
            folder=folder,
            recovered=True,
        )


def _restore_binding(node: Node, binding: BindingDefinition, what: str) -> None:
    router = node.vhosts[binding.vhost].router
    to_a_queue = binding.destination_type == "queue"
    there = binding.destination in router.queues if to_a_queue else router.has_exchange(binding.destination)
    if not there or not router.has_exchange(binding.source):
        log.warning("%s in vhost '%s': dropped, one end of it is missing", what, binding.vhost)
        node.catalog.remove_binding(binding)
        return
    destination = (to_queue if to_a_queue else to_exchange)(binding.destination)
    router.bind(binding.source, destination, binding.routing_key, binding.arguments)


def _restore_messages(vhost: VirtualHost) -> None:
    for queue in tuple(vhost.queues.values()):
        if isinstance(queue, ClassicQueue):
            vhost.open_journal(queue)
    for exchange in tuple(vhost.router.exchanges):
        if isinstance(exchange, DelayedMessageExchange) and exchange.durable:
            vhost.delays_of(exchange.name)


def _enforce_limits(vhost: VirtualHost) -> None:
    """Drop what is over a limit, once all journals are open: a dead letter is written to that of its queue."""
    for queue in tuple(vhost.queues.values()):
        if isinstance(queue, ClassicQueue):
            queue.enforce_limits()


def _adopt_streams(node: Node) -> None:
    """Put the streams of a version before the catalog into it; and make missing virtual hosts."""
    adopted = tuple(node.store.streams.declared())
    for stream in adopted:
        queue = stream.queue
        vhost = node.vhosts.get(queue.vhost) or node.add_vhost(kept_as.VirtualHost(queue.vhost))
        if queue.name not in vhost.queues:
            _restore_queue(node, queue, stream.folder)
            node.catalog.put_queue(queue, stream.folder)
        elif vhost.queues[queue.name].folder != stream.folder:
            raise CatalogError(
                errno.EEXIST, f"{stream.folder} is another queue '{queue.name}' in vhost '{queue.vhost}': move it away",
                str(node.catalog.path),
            )  # fmt: skip
    node.catalog.commit()
    node.batch.sweep()
    for stream in adopted:
        stream.declaration.unlink()
