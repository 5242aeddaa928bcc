"""The base class of both layers: settings, message bodies, and the runtime of the process."""

from __future__ import annotations

import inspect
import random
import re
import string
import weakref
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from harebell.channels.exceptions import MessageTooLarge
from harebell.channels.links.io_thread import this_process
from harebell.channels.messages.mailbox import MailboxEntry
from harebell.channels.messages.serializers import ChannelMessage, Serializer, Unreadable, serializer_of
from harebell.channels.names import check_channel
from harebell.channels.runtime import LayerRuntime
from harebell.channels.settings import LOCALHOST, Capacities, Settings, size_of, urls_of
from harebell.client.callbacks import check_plain
from harebell.errors import InvalidArgument

__all__ = ["BaseLayer", "random_letters"]

RESERVED: Final = "__asgi_channel__"  # Channels reserves this key


class BaseLayer:
    """The settings of a layer, and helpers of its methods. Attributes without a line here are for the two layers only.

    url, hosts        of the broker; several are tried in turn. "embedded://" starts one in this process. None, of a
                      missing setting, is no url; with hosts it is left out
    prefix            the beginning of all names on the broker
    expiry            seconds that a message waits for its reader
    group_expiry      seconds that a membership lasts unless it is added again
    capacity          messages that may wait in a channel; one more is ChannelFull
    channel_capacity  another capacity for channels, by the first pattern (glob or compiled) that matches
    symmetric_encryption_keys  the first one encrypts sent messages, all of them are tried on received ones
    serializer        "msgpack", "json", or an object with dumps and loads
    timeout           seconds after which a call fails when the broker is unavailable
    max_message_size  bytes of a serialized message; a larger one is MessageTooLarge
    group_history     how many of a group's last messages are stored, by pattern of its name; none where nothing matches
    on_missed         called, in a thread of the layer, with the name of a channel whose message was dropped

    Raises InvalidArgument for a setting that cannot be understood.
    """

    def __init__(
        self,
        url: str | None = LOCALHOST,
        *,
        hosts: Sequence[str] | None = None,
        prefix: str = "asgi",
        expiry: float = 60,
        group_expiry: float = 86400,
        capacity: int = 100,
        channel_capacity: Mapping[str | re.Pattern[str], int] | None = None,
        symmetric_encryption_keys: Sequence[str | bytes] | None = None,
        serializer: str | Serializer = "msgpack",
        timeout: float = 30,
        max_message_size: int = 16 * 1024 * 1024,
        on_missed: Callable[[str], None] | None = None,
        group_history: Mapping[str | re.Pattern[str], int] | None = None,
        **unknown: object,
    ) -> None:
        for name in unknown:
            near = get_close_matches(name, list(inspect.signature(BaseLayer).parameters), 1)
            hint = f"did you mean {near[0]!r}?" if near else "see BaseLayer"
            raise InvalidArgument(f"a channel layer has no setting {name!r}: {hint}")
        self.prefix = prefix
        self.expiry = expiry
        self.capacity = capacity
        self.group_expiry = group_expiry
        self.max_message_size = size_of("max_message_size", max_message_size)
        self._serializer = serializer_of(serializer, symmetric_encryption_keys)
        capacities = Capacities(capacity, channel_capacity)
        self.channel_capacity = capacities.patterns  # Channels' `get_capacity` reads this
        self._settings = Settings(
            urls=urls_of(url, hosts),
            prefix=prefix,
            expiry=expiry,
            group_expiry=group_expiry,
            capacities=capacities,
            timeout=timeout,
            history=Capacities(0, group_history, "group_history"),
        )
        if on_missed is not None:
            check_plain("on_missed", on_missed, "channel")
        self._on_missed = on_missed
        self._made: LayerRuntime | None = None
        self._made_in: object = None
        self._dropped: weakref.finalize[Any, Any]  # closes what was made, when the layer is dropped without `close`

    @property
    def runtime(self) -> LayerRuntime:
        """The layer's runtime in this process; a new one after a fork."""
        process = this_process()
        if self._made is None or self._made_in is not process:
            self._made, self._made_in = LayerRuntime(self._settings, self._on_missed), process
            self._dropped = weakref.finalize(self, _close, self._made, process)
            self._dropped.atexit = False
        return self._made

    def detach_runtime(self) -> LayerRuntime | None:
        """The runtime, for the caller to close; the next call makes a new one. None when this process has none."""
        runtime, self._made = self._made, None
        if runtime is not None:
            self._dropped.detach()
        return runtime if self._made_in is this_process() else None

    def statistics(self) -> dict[str, int]:
        """The counts of this process: see `LayerRuntime.statistics`."""
        return self.runtime.statistics()

    def missed(self, channel: str) -> int:
        """How many messages to a channel of this process were dropped since the last call."""
        box = self.runtime.mailboxes.get(check_channel(channel))
        return 0 if box is None else box.take_missed()

    def encode(self, message: ChannelMessage) -> bytes:
        """The message as bytes. Raises TypeError, AssertionError for a reserved key, MessageTooLarge."""
        if not isinstance(message, dict):
            raise TypeError(f"a message is a dict, not a {type(message).__name__}")
        if RESERVED in message:
            raise AssertionError(f"{RESERVED!r} in a message: Channels reserves that key")
        body = self._serializer.dumps(message)
        if len(body) > self.max_message_size:
            raise MessageTooLarge(f"the message has {len(body)} bytes; max_message_size is {self.max_message_size}")
        return body

    def decode(self, runtime: LayerRuntime, entry: MailboxEntry) -> ChannelMessage | None:
        """The message of an entry; None, which is logged, when the body does not have this layer's format."""
        return self.decode_body(runtime, entry.channel, entry.body)

    def decode_body(self, runtime: LayerRuntime, where: str, body: bytes) -> ChannelMessage | None:
        """The message of a body that was read from `where`; None as for `decode`."""
        try:
            return self._serializer.loads(body)
        except Unreadable as error:
            runtime.unreadable(where, error)
            return None

    def full(self, runtime: LayerRuntime, channel: str) -> str:
        """Count a ChannelFull, and return its text."""
        runtime.counts.refused(channel)
        return f"channel {channel!r} holds {self._settings.capacities.of(channel)} messages, its capacity"


def _close(runtime: LayerRuntime, made_in: object) -> None:
    if made_in is this_process():
        runtime.thread.post(lambda: runtime.thread.start(runtime.close()))


def random_letters(count: int) -> str:
    """Random letters for unique names, from a separate generator, because programs seed the common one."""
    return "".join(_random.choices(string.ascii_letters, k=count))


_random: Final[Any] = random.SystemRandom()
