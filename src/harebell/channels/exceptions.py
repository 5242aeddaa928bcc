"""The exceptions of both contracts: those of Django Channels where it is installed, so that programs catch these."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["ChannelFull", "MessageTooLarge"]

if TYPE_CHECKING:

    class ChannelFull(Exception):
        """The channel holds as many messages as its capacity says."""

    class MessageTooLarge(Exception):
        """The message is larger than the layer takes."""

else:
    try:
        from channels.exceptions import ChannelFull, MessageTooLarge
    except ImportError:  # a process of ASGI 1 has another version of asgiref, with which Channels cannot be installed

        class ChannelFull(Exception):
            """The channel holds as many messages as its capacity says."""

        class MessageTooLarge(Exception):
            """The message is larger than the layer takes."""
