"""The channel layer of Django Channels and ASGI over AMQP.

    CHANNEL_LAYERS = {"default": {"BACKEND": "warren.channels.ChannelLayer", "CONFIG": {"url": "amqp://localhost/"}}}

Two faces on one core: `layer` (Channels 4, asynchronous) and `asgi1` (ASGI 1, synchronous); a process on one talks to
a process on the other. As a message goes:

`names` and `settings` say what is called what on the broker, with which arguments; `serializing` makes bytes of a
message. `thread` is the one thread that does all input and output, whatever loops and threads the callers have. There
`core` keeps the connection; `sending` publishes; `groups` joins channels to groups (`members` is the table of this
process's own); `process` reads the queues of process-local channels into `mailbox`es; `shared` reads the queues that
processes compete for; `expiry` listens to what died. `layer` and `asgi1` know no AMQP.
"""

from __future__ import annotations

from warren.channels.asgi1 import AsgiChannelLayer
from warren.channels.layer import ChannelLayer

__all__ = ["AsgiChannelLayer", "ChannelLayer"]
