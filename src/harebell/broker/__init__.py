"""The broker: vhosts, exchanges, queues, consumers, and the store, in one process.

`Broker` is all that most programs need. `QueueDecorator` and `Verdict` are for programs that decorate queues
(`Broker.add_decorator`); `COMMANDS` names the commands of the service `amq.administer`.
"""

from harebell.broker.net import Broker, Tls
from harebell.broker.operations.administration import COMMANDS
from harebell.broker.queues.decorators import QueueDecorator, Verdict

__all__ = ["COMMANDS", "Broker", "QueueDecorator", "Tls", "Verdict"]
