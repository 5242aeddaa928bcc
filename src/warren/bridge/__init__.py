"""The shovel: moves messages from one broker to another, Warren or RabbitMQ, so that none is lost.

`Shovel` moves from one queue or exchange to one queue or exchange, over any number of lost connections. `Shovels` runs
those that a broker's parameters ask for. `declare_topology` prepares a destination. This is the only package that joins
the broker and the client.
"""

from warren.bridge.dynamic import Shovels
from warren.bridge.options import Destination, ShovelOptions, Source, parse_shovel
from warren.bridge.shovel import Shovel
from warren.bridge.topology import declare_topology

__all__ = ["Destination", "Shovel", "ShovelOptions", "Shovels", "Source", "declare_topology", "parse_shovel"]
