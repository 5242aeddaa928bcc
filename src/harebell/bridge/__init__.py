"""The shovel: moves messages from one broker to another, Harebell or RabbitMQ, so that none is lost.

`Shovel` moves from one queue or exchange to one queue or exchange, over any number of lost connections. `Shovels` runs
the shovels among a broker's parameters. `declare_topology` prepares a destination. This package joins the broker and
the client, which do not import each other.
"""

import harebell.logs  # noqa: F401  log records are one line each
from harebell.bridge.dynamic import Shovels
from harebell.bridge.options import Destination, ShovelOptions, Source, parse_shovel
from harebell.bridge.shovel import Shovel
from harebell.bridge.topology import declare_topology

__all__ = ["Destination", "Shovel", "ShovelOptions", "Shovels", "Source", "declare_topology", "parse_shovel"]
