"""The check of a second declaration of an object: an equal one is accepted, a different one is refused.

Rules, probed on RabbitMQ (the texts are its own):

- A property (type, durable, auto_delete, internal, ...) must be equal.
- Arguments are compared one by one, and only those that the caller names; integers of every width are one type.

Declarations of exchanges and of queues use it. The caller names the arguments to compare.
"""

from __future__ import annotations

from collections.abc import Iterable

from harebell.errors import PreconditionFailed
from harebell.routing.table_values import Table, canonical, display, type_class, type_name

__all__ = ["check_arguments", "check_property"]


def check_property(what: str, field: str, received: object, current: object) -> None:
    """Raise PreconditionFailed unless `received` equals `current`.

    `what` is the object in the error text, e.g. "exchange 'x' in vhost '/'"; `field` is the property's AMQP name.
    """
    if received != current:
        raise PreconditionFailed(
            f"inequivalent arg '{field}' for {what}: received '{display(received)}' but current is '{display(current)}'"
        )


def check_arguments(what: str, received: Table, current: Table, names: Iterable[str]) -> None:
    """Raise PreconditionFailed for the first argument in `names` that differs.

    An argument that is absent from both tables, or equal in both, does not differ.
    """
    for name in names:
        if name in received and name in current:
            new, old = received[name], current[name]
            if type_class(new) != type_class(old) or canonical(new) != canonical(old):
                raise PreconditionFailed(
                    f"inequivalent arg '{name}' for {what}: received '{display(new)}' but current is '{display(old)}'"
                )
        elif name in received or name in current:
            raise PreconditionFailed(
                f"inequivalent arg '{name}' for {what}: "
                f"received {_described(received, name)} but current is {_described(current, name)}"
            )


def _described(table: Table, name: str) -> str:
    if name not in table:
        return "none"
    return f"the value '{display(table[name])}' of type '{type_name(table[name])}'"
