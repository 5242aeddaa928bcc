"""The channel layer of Django Channels and ASGI over AMQP.

    CHANNEL_LAYERS = {"default": {"BACKEND": "harebell.channels.ChannelLayer", "CONFIG": {"url": "amqp://localhost/"}}}

Two faces on one core: `layer` (Channels 4, asynchronous) and `asgi1` (ASGI 1, synchronous); a process on one talks to
a process on the other. As a message goes:

`names` and `settings` say what is called what on the broker, with which arguments; `serializing` makes bytes of a
message. `thread` is the one thread that does all input and output, whatever loops and threads the callers have. There
`core` keeps the connection; `sending` publishes; `groups` joins channels to groups (`members` is the table of this
process's own); `process` reads the queues of process-local channels into `mailbox`es; `shared` reads the queues that
processes compete for; `expiry` listens to what died; `presence` asks who is in a group, `history` keeps what was sent
to it. `layer` and `asgi1` know no AMQP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harebell.lazy import lazy_names

if TYPE_CHECKING:
    from harebell.channels.asgi1 import AsgiChannelLayer
    from harebell.channels.layer import ChannelLayer
else:  # what needs no Django, `names` for one, can be imported without it
    __getattr__ = lazy_names(__name__, {"asgi1": ("AsgiChannelLayer",), "layer": ("ChannelLayer",)})

__all__ = ["AsgiChannelLayer", "ChannelLayer"]
