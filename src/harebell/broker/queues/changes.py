"""Changing a queue's optional arguments in place, with its messages, bindings and consumers where they are.

Afterwards the queue is as if declared with the new arguments: the next declaration is compared with them, and policies
are merged with them. All of the change is made or nothing. No other broker has this; RabbitMQ's users delete the queue,
or use policies.

- Messages keep their deadline and delivery count (as with policies); a limit applies at once.
- `x-max-priority`: every message moves to the level that its priority means now, in its order within the level.
- `x-single-active-consumer`: the first consumer of the highest priority becomes the active one; the others keep their
  unacknowledged deliveries.
- The kind of a queue (`x-queue-type`, `x-message-group`) cannot be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from harebell.broker.queues.base import Queue
from harebell.errors import AccessRefused, InvalidArgument, PreconditionFailed
from harebell.protocol.v091 import FieldValue, Table
from harebell.routing.qpid_arguments import as_x_arguments, is_qpid
from harebell.routing.settings import ARGUMENTS, QueueSettings, queue_settings
from harebell.routing.wire_limits import check_table

__all__ = ["change_queue", "changed_arguments"]


def changed_arguments(queue: Queue, changes: Mapping[str, FieldValue]) -> Table:
    """The arguments that the queue has after the change."""
    return {name: value for name, value in {**queue.arguments, **changes}.items() if value is not None}


def change_queue(
    queue: Queue, changes: Mapping[str, FieldValue], settings_for: Callable[[Table], QueueSettings]
) -> None:
    """Set the arguments in `changes`; those with the value None are removed.

    `settings_for` gives the settings of arguments under the policies in force.

    PreconditionFailed for arguments that cannot be changed, that no queue knows, or that a declaration would refuse;
    AccessRefused for a single active consumer where one consumes exclusively; 540 for what this broker does not have.
    """
    try:
        check_table(changes, "arguments")
    except InvalidArgument as error:
        raise PreconditionFailed(f"invalid arguments for {queue}: {error}") from None
    for name, value in changes.items():
        if name == "x-queue-type" and (value or "classic") != queue.type:
            raise PreconditionFailed(f"invalid arg '{name}' for {queue}: the type of a queue cannot be changed")
        if name not in ARGUMENTS and not is_qpid(name) and value is not None:
            raise PreconditionFailed(f"invalid arg '{name}' for {queue}: unknown argument")
    arguments = changed_arguments(queue, changes)
    before, after = as_x_arguments(queue.arguments), as_x_arguments(arguments, str(queue))
    for name in ("x-message-group", "x-last-value-key", "x-fairshare"):
        if before.get(name) != after.get(name):
            raise PreconditionFailed(f"invalid arg '{name}' for {queue}: it is set when the queue is declared")
    queue_settings(
        arguments, str(queue), durable=queue.durable, exclusive=queue.exclusive, auto_delete=queue.auto_delete
    )
    settings = settings_for(arguments)
    if settings.single_active_consumer and queue.consumers.exclusive:
        raise AccessRefused(f"{queue} in exclusive use")
    queue.arguments = arguments
    queue.reconfigure(settings)
