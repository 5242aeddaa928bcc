"""The channel layer of Django Channels and ASGI over AMQP.

    CHANNEL_LAYERS = {"default": {"BACKEND": "harebell.channels.ChannelLayer", "CONFIG": {"url": "amqp://localhost/"}}}

Two layers share one machinery: `layer` (Channels 4, asynchronous) and `asgi1` (ASGI 1, synchronous); a process on one
talks to a process on the other. Both have the settings and body formats of `base_layer`, and know no AMQP.

`runtime` puts together what one layer has in one process. `io_thread` is the one thread that does all input and output,
whatever loops and threads the callers have. There `connection` opens the connection and declares queues; `publishing`
sends messages; `groups` adds channels to groups and takes them out (`local_members` is the table of this process's own
channels); `local_queues` reads the queues of process-local channels into `mailboxes`; `shared_queues` reads the queues
for which processes compete; `dead_letters` ends memberships that have expired; `presence` asks who is in a group;
`group_history` stores a group's last messages. `names` and `settings` say what is called what on the broker, with which
arguments; `serializers` turn messages into bytes.
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
