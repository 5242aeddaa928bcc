"""The channel layer of Django Channels and ASGI over AMQP.

    CHANNEL_LAYERS = {"default": {"BACKEND": "harebell.channels.ChannelLayer", "CONFIG": {"url": "amqp://localhost/"}}}

Two layers share one implementation: `layer` (Channels 4, asynchronous) and `asgi1` (ASGI 1, synchronous); a process
with one can send to a process with the other. Both have the settings and body formats of `base_layer`, and know no
AMQP.

`runtime` combines the parts of one layer in one process. `links` is its way to the broker: the thread that does all
input and output, whatever loops and threads the callers have, and one connection after another. `messages` publishes
messages to channels and groups, reads them into mailboxes, and has those that layers send each other. `memberships`
adds channels to groups and removes them, ends memberships that have expired, lists the channels in a group, and stores
a group's last messages. `local_members` is the table of this process's own channels in groups. `names` and `settings`
have the names and arguments of AMQP objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import harebell.logs  # noqa: F401  log records are one line each
from harebell.lazy import lazy_names

if TYPE_CHECKING:
    from harebell.channels.asgi1 import AsgiChannelLayer
    from harebell.channels.layer import ChannelLayer
else:  # modules that need no Django, such as `names`, can be imported without it
    __getattr__ = lazy_names(__name__, {"asgi1": ("AsgiChannelLayer",), "layer": ("ChannelLayer",)})

__all__ = ["AsgiChannelLayer", "ChannelLayer"]
