"""The default features: what comes back with a connection or a channel, one file a feature, made of the public hooks.

`Middlewares.without` takes one out. A later one stands nearer to the wire, so that after a reconnect it has its turn
earlier.
"""

from __future__ import annotations

from typing import Final

from harebell.client.middleware.logging import Logging
from harebell.client.middleware.registry import Factory
from harebell.client.recovery.confirms import Confirms
from harebell.client.recovery.delivery_tags import DeliveryTags
from harebell.client.recovery.flow import Flow
from harebell.client.recovery.publish_tags import PublishTags
from harebell.client.recovery.qos import Qos
from harebell.client.recovery.topology import TopologyReplay
from harebell.client.recovery.transactions import Transactions

__all__ = ["DEFAULT_FEATURES"]

DEFAULT_FEATURES: Final = (
    Factory(Logging, "logging", "transport"),
    Factory(Qos, "qos", "channel"),
    Factory(Flow, "flow", "channel"),
    Factory(Transactions, "transactions", "channel"),
    Factory(Confirms, "confirms", "channel"),
    Factory(PublishTags, "publish_tags", "channel"),
    Factory(DeliveryTags, "delivery_tags", "channel"),
    Factory(TopologyReplay, "topology", "connection"),
)
