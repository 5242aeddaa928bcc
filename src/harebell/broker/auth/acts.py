"""Every act that permissions decide over, and the permissions that it needs: the one table of the broker.

The methods of AMQP and the services of the system exchange name an act here, and `Access` reads its needs. Two ways to
do the same thing name the same act, so that neither is the easier one. Needs are checked in the order of the table, and
the first that is missing is the one that the refusal names. Source: RabbitMQ 3.10, probed, where it has the act.

The table is published in docs/reference/permissions.md, with the test of every row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

__all__ = ["ACTS", "Need", "Right"]

Right = Literal["configure", "write", "read"]


class Need(NamedTuple):
    """The permission `right` on the resource that plays the part `of` in the act.

    `keys`: where that resource is a topic exchange for which the user has a topic permission, this permission must
    cover the routing keys of the act too.
    """

    right: Right
    of: str
    keys: bool = False


ACTS: Final[Mapping[str, tuple[Need, ...]]] = {
    "declare-queue": (Need("configure", "queue"),),
    "dead-letter": (Need("read", "queue"), Need("write", "dead_letter_exchange")),
    "delete-queue": (Need("configure", "queue"),),
    "purge": (Need("read", "queue"),),
    "get": (Need("read", "queue"),),
    "consume": (Need("read", "queue"),),
    "declare-exchange": (Need("configure", "exchange"),),
    "use-alternate": (Need("read", "exchange"), Need("write", "alternate")),
    "delete-exchange": (Need("configure", "exchange"),),
    "bind": (Need("write", "destination"), Need("read", "source", keys=True)),
    "unbind": (Need("write", "destination"), Need("read", "source", keys=True)),
    "publish": (Need("write", "exchange", keys=True),),
    "see-queue": (Need("read", "queue"),),
    "see-exchange": (Need("read", "exchange"),),
    "see-binding": (Need("read", "source"), Need("read", "destination")),
}
"""The needs of each act, in the order in which they are checked.

dead-letter    is a part of declaring a new queue with x-dead-letter-exchange, and of giving a queue new arguments
use-alternate  is a part of declaring a new exchange with alternate-exchange
see-...        lists an object with its counts, or describes it, in the answer of a service
"""
