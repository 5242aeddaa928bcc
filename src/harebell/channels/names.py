"""Converts Django's names of channels and groups to AMQP names and back. Pure functions.

Every AMQP name begins with the layer's prefix and a word for its kind, and a colon ends both: neither is allowed in the
names of channels and groups, so no two things share a name (a group "both" and a channel "both"; the memberships
("a.b", "c") and ("a", "b.c")), and none begins with "amq.".
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["MAX_PREFIX", "Names", "check_channel", "check_group", "is_local", "local_part", "non_local", "owner_of"]

MAX_LENGTH: Final = 100  # of a channel's or group's name, exclusive: Channels' and ASGI's rule
CHANNEL: Final = re.compile(r"[\w\-.]+([?!][\w\-.]*)?", re.ASCII)
GROUP: Final = re.compile(r"[\w\-.]+", re.ASCII)
# A process-local channel of a `ChannelLayer`: before the "!" stands the id of the layer that made it.
OWNED: Final = re.compile(r"[\w\-.]+\.([0-9a-f]{12})![\w\-.]*", re.ASCII)
# The longest AMQP name of a layer is that of a marker queue, and AMQP's longest name has 255 bytes.
MAX_PREFIX: Final = 255 - len(":marker:") - 2 * (MAX_LENGTH - 1) - len(":")


def check_channel(name: object) -> str:
    """The name, if it is a valid channel name. Raises TypeError otherwise, as Channels and ASGI do."""
    if isinstance(name, str) and len(name) < MAX_LENGTH and CHANNEL.fullmatch(name) and not name.endswith("?"):
        return name
    raise TypeError(
        f"{name!r} is no channel name: a str of fewer than {MAX_LENGTH} ASCII letters, digits, hyphens, underscores or "
        "periods is needed, with at most one ! or ? in it, which is not its first character"
    )


def check_group(name: object) -> str:
    """The name, if it is a valid group name. Raises TypeError otherwise."""
    if isinstance(name, str) and len(name) < MAX_LENGTH and GROUP.fullmatch(name):
        return name
    raise TypeError(
        f"{name!r} is no group name: a str of fewer than {MAX_LENGTH} ASCII letters, digits, hyphens, underscores or "
        "periods is needed"
    )


def non_local(channel: str) -> str:
    """The common part of all channels of one process: the name up to and with its "!"; any other name as it is."""
    return channel[: channel.find("!") + 1] or channel


def local_part(channel: str) -> str:
    """The part after the "!" of a process-local channel; "" for any other name."""
    return channel.partition("!")[2]


def is_local(channel: str) -> bool:
    """Whether the channel is process-local."""
    return "!" in channel


def owner_of(channel: str) -> str | None:
    """The id of the layer that made a process-local channel; None for channels that a layer did not make."""
    found = OWNED.fullmatch(channel)
    return found[1] if found else None


class Names:
    """The AMQP names of one layer."""

    __slots__ = ("dead_letters", "dropped", "groups", "prefix", "registry")

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.groups = f"{prefix}:groups"  # the exchange that knows the groups
        self.dead_letters = f"{prefix}:dead-letters"
        self.dropped = f"{prefix}:dropped"
        self.registry = f"{prefix}:registry"

    def queue(self, channel: str) -> str:
        """The queue of the messages to a channel; all process-local channels of one process share one."""
        return f"{self.prefix}:queue:{non_local(channel)}"

    def group(self, group: str) -> str:
        """The exchange of a group."""
        return f"{self.prefix}:group:{group}"

    def channel(self, channel: str) -> str:
        """The exchange between the groups of a channel and its queue."""
        return f"{self.prefix}:channel:{channel}"

    def member(self, channel: str) -> str:
        """The queue of length zero that dead-letters group messages to a process-local channel of another process."""
        return f"{self.prefix}:member:{channel}"

    def marker(self, group: str, channel: str) -> str:
        """The marker queue, whose only message expires with a membership."""
        return f"{self.prefix}:marker:{group}:{channel}"

    def joined(self, channel: str) -> str:
        """The queue with one record: when the channel was last added to a group, where the broker keeps that."""
        return f"{self.prefix}:joined:{channel}"

    def control(self, client_id: str) -> str:
        """The queue of control messages to one layer."""
        return f"{self.prefix}:control:{client_id}"

    def history(self, group: str) -> str:
        """The stream queue of a group's messages."""
        return f"{self.prefix}:history:{group}"

    def channel_of(self, kind: str, name: str) -> str | None:
        """The Django name in an AMQP name of that kind ("queue", "member"); None when it is of another kind."""
        start = f"{self.prefix}:{kind}:"
        return name[len(start) :] if name.startswith(start) else None

    def marked(self, name: str) -> tuple[str, str] | None:
        """The group and the channel of a marker queue's name; None for any other name."""
        rest = self.channel_of("marker", name)
        if rest is None:
            return None
        group, _, channel = rest.partition(":")
        return group, channel
