"""Every hook: its name, where it stands, how it is called, and the record that it is called with.

Rules:
1. A call hook has the name of the method that it stands around, and its record has that method's parameters, with the
   same names, defaults and kinds (a test compares them). So a middleware can change a call with `dataclasses.replace`.
2. `channel`, `connection` or `source` of a record is where the call was made, or the event happened; `source` where it
   may be either. It is not a parameter of the call.
3. `async`: the method is a coroutine function, and so is the middleware. `plain`: neither is. `event`: something has
   happened; the middleware passes it on, changed or not, or does not.

The table names the hook of rogerRabbit-go that each stands for, where there is one. No behaviour here.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from harebell import errors
from harebell.client import events as e
from harebell.client.core.channel import ChannelCore
from harebell.client.core.slots import Reply
from harebell.client.core.unacked import Deliveries
from harebell.client.core.unconfirmed import Publishes, PublishWaiter
from harebell.client.messages import Confirmation, Delivery, Message, OnNack, OnOrphan, Publication, Returned
from harebell.client.transport.protocol import AsyncCore
from harebell.client.url import ConnectionParameters
from harebell.protocol.v091 import TableLike, methods as m

__all__ = ["HOOKS", "Hook", "HookedChannel", "HookedConnection", "Kind", "Level"]

Kind = Literal["async", "plain", "event"]
Level = Literal["connection", "channel"]


class Requests(Protocol):
    """What a channel asks its broker with.

    confirming  the program has put the channel into confirm mode
    """

    @property
    def confirming(self) -> bool: ...

    async def ask(self, request: m.Method, timeout: float | None) -> Reply: ...


class HookedConnection(Protocol):
    """The connection of a record, as the client's own middlewares know it: the program's `harebell.Connection`."""

    @property
    def parameters(self) -> ConnectionParameters: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def closed_reason(self) -> errors.HarebellError | None: ...


class HookedChannel(Protocol):
    """The channel of a record, as the client's own middlewares know it: the program's `harebell.Channel`.

    core, transport  the present wire channel, and what carries it
    """

    @property
    def number(self) -> int: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def closed_reason(self) -> errors.HarebellError | None: ...
    @property
    def consuming(self) -> set[str]: ...
    @property
    def consumer_tags(self) -> set[str]: ...
    @property
    def core(self) -> ChannelCore: ...
    @property
    def transport(self) -> AsyncCore: ...
    @property
    def requests(self) -> Requests: ...


@dataclass(frozen=True, slots=True)
class OnChannel:
    channel: HookedChannel = field(kw_only=True, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class OnConnection:
    connection: HookedConnection = field(kw_only=True, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class OnEither:
    source: HookedConnection | HookedChannel = field(kw_only=True, repr=False, compare=False)


# -- both a connection's and a channel's -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CloseArgs(OnEither):
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class DialEvent(OnEither):
    """An attempt to connect, or to open a channel again, has ended: well when `error` is None."""

    target: str
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class DisconnectEvent(OnEither):
    """The transport is lost, or the broker has closed the channel; `reconnecting`: it will come back."""

    error: errors.HarebellError
    reconnecting: bool


@dataclass(frozen=True, slots=True)
class CloseEvent(OnEither):
    """It is closed for good."""

    error: errors.HarebellError


@dataclass(frozen=True, slots=True)
class NotifyCloseArgs(OnEither):
    callback: Callable[[CloseEvent], None]


@dataclass(frozen=True, slots=True)
class NotifyDialArgs(OnEither):
    callback: Callable[[DialEvent], None]


@dataclass(frozen=True, slots=True)
class NotifyDisconnectArgs(OnEither):
    callback: Callable[[DisconnectEvent], None]


# -- a connection's ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConnectionReconnectArgs(OnConnection):
    """attempt: 1 and up; error: why the last attempt failed, or why the connection was lost."""

    attempt: int
    error: BaseException


@dataclass(frozen=True, slots=True)
class UpdateSecretArgs(OnConnection):
    secret: str = field(repr=False)
    reason: str = ""
    timeout: float | None = field(default=None, kw_only=True)


# -- a channel's life and modes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChannelReconnectArgs(OnChannel):
    """attempt: 1 and up; alone: the connection under it stands.

    deliveries, publishes  the tables that the new wire channel goes on with; None: it begins new ones, from tag 1
    """

    attempt: int
    error: BaseException | None
    alone: bool
    deliveries: Deliveries | None = field(default=None, repr=False)
    publishes: Publishes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class QosArgs(OnChannel):
    prefetch_count: int = field(default=0, kw_only=True)
    prefetch_size: int = field(default=0, kw_only=True)
    global_: bool = field(default=False, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class FlowArgs(OnChannel):
    active: bool
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class ConfirmSelectArgs(OnChannel):
    on_orphan: OnOrphan = field(default="raise", kw_only=True)
    on_nack: OnNack = field(default="raise", kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class TxArgs(OnChannel):
    timeout: float | None = field(default=None, kw_only=True)


# -- queues and exchanges ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueDeclareArgs(OnChannel):
    name: str = ""
    durable: bool = field(default=False, kw_only=True)
    exclusive: bool = field(default=False, kw_only=True)
    auto_delete: bool = field(default=False, kw_only=True)
    passive: bool = field(default=False, kw_only=True)
    arguments: TableLike | None = field(default=None, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class QueueInspectArgs(OnChannel):
    name: str
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class QueueDeleteArgs(OnChannel):
    name: str
    if_unused: bool = field(default=False, kw_only=True)
    if_empty: bool = field(default=False, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class QueueBindArgs(OnChannel):
    queue: str
    exchange: str
    binding_key: str = ""
    arguments: TableLike | None = field(default=None, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class QueueUnbindArgs(QueueBindArgs):
    pass


@dataclass(frozen=True, slots=True)
class QueuePurgeArgs(OnChannel):
    name: str
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class ExchangeDeclareArgs(OnChannel):
    name: str
    type: str = "direct"
    durable: bool = field(default=False, kw_only=True)
    auto_delete: bool = field(default=False, kw_only=True)
    internal: bool = field(default=False, kw_only=True)
    passive: bool = field(default=False, kw_only=True)
    arguments: TableLike | None = field(default=None, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class ExchangeDeleteArgs(OnChannel):
    name: str
    if_unused: bool = field(default=False, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class ExchangeBindArgs(OnChannel):
    destination: str
    source: str
    binding_key: str = ""
    arguments: TableLike | None = field(default=None, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class ExchangeUnbindArgs(ExchangeBindArgs):
    pass


# -- messages ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PublishArgs(OnChannel):
    message: Message | bytes
    exchange: str = ""
    routing_key: str = ""
    mandatory: bool = field(default=False, kw_only=True)
    immediate: bool = field(default=False, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class SendArgs(PublishArgs):
    pass


@dataclass(frozen=True, slots=True)
class PublishNowaitArgs(OnChannel):
    message: Message | bytes
    exchange: str = ""
    routing_key: str = ""
    mandatory: bool = field(default=False, kw_only=True)
    immediate: bool = field(default=False, kw_only=True)
    raw_properties: bytes | None = field(default=None, kw_only=True)
    waiter: PublishWaiter | None = field(default=None, kw_only=True)
    at_once: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class PublishManyArgs(OnChannel):
    publications: Iterable[Publication] | AsyncIterable[Publication]
    window: int = field(default=5000, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class GetArgs(OnChannel):
    queue: str
    no_ack: bool = field(default=False, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class ConsumeArgs(OnChannel):
    queue: str
    prefetch: int | None = field(default=None, kw_only=True)
    no_ack: bool = field(default=False, kw_only=True)
    exclusive: bool = field(default=False, kw_only=True)
    consumer_tag: str = field(default="", kw_only=True)
    arguments: TableLike | None = field(default=None, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class SubscribeArgs(OnChannel):
    """One basic.consume on the wire: the first of a consumer, or one that puts it back (`again`).

    prefetch, prefetch_size  a basic.qos to send before it; prefetch=None: none
    """

    queue: str
    consumer_tag: str
    no_ack: bool
    exclusive: bool
    arguments: TableLike | None
    prefetch: int | None
    prefetch_size: int
    again: bool


@dataclass(frozen=True, slots=True)
class CancelArgs(OnChannel):
    consumer_tag: str
    requeue: bool = field(default=True, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class AckArgs(OnChannel):
    delivery_tag: int
    multiple: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class NackArgs(OnChannel):
    delivery_tag: int
    multiple: bool = field(default=False, kw_only=True)
    requeue: bool = field(default=True, kw_only=True)


@dataclass(frozen=True, slots=True)
class RejectArgs(OnChannel):
    delivery_tag: int
    requeue: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class RecoverArgs(OnChannel):
    requeue: bool = field(default=True, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class HandleArgs(OnChannel):
    """A delivery for the handler of `connection.consume` or `connection.serve`.

    queue    that it came from
    attempt  which attempt at the message this is, from 1: retries of the client and of the queue are counted
    batch    all deliveries of this call, where the handler gets batches; `delivery` is the first of them, and `attempt`
             the one at that. Else ()
    """

    delivery: Delivery
    queue: str
    attempt: int
    batch: tuple[Delivery, ...] = field(default=(), kw_only=True)


# -- what a channel tells ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CancelEvent(OnChannel):
    """The broker has cancelled a consumer: its queue is gone."""

    consumer_tag: str
    queue: str


@dataclass(frozen=True, slots=True)
class FlowEvent(OnChannel):
    """Publishing is held back (False) or goes on (True): channel.flow of the broker's, a loss, a reconnect."""

    active: bool


@dataclass(frozen=True, slots=True)
class NotifyPublishArgs(OnChannel):
    callback: Callable[[Confirmation], None]


@dataclass(frozen=True, slots=True)
class NotifyConfirmArgs(OnChannel):
    on_ack: Callable[[int], None]
    on_nack: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class NotifyConfirmOrOrphanedArgs(OnChannel):
    on_ack: Callable[[int], None]
    on_nack: Callable[[int], None]
    on_orphaned: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class NotifyReturnArgs(OnChannel):
    callback: Callable[[Returned], None]


@dataclass(frozen=True, slots=True)
class NotifyCancelArgs(OnChannel):
    callback: Callable[[CancelEvent], None]


@dataclass(frozen=True, slots=True)
class NotifyFlowArgs(OnChannel):
    callback: Callable[[FlowEvent], None]


# -- the table ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hook:
    """One hook.

    name, kind  what a middleware is registered under, and how it is called
    levels      where it stands
    record      what it is called with
    original    its name in rogerRabbit-go; "" where that has none
    """

    name: str
    kind: Kind
    levels: tuple[Level, ...]
    record: object
    original: str = ""


_BOTH: Final[tuple[Level, ...]] = ("connection", "channel")
_CONNECTION: Final[tuple[Level, ...]] = ("connection",)
_CHANNEL: Final[tuple[Level, ...]] = ("channel",)

_ALL: Final = (
    Hook("close", "async", _BOTH, CloseArgs, "Close"),
    Hook("notify_close", "plain", _BOTH, NotifyCloseArgs, "NotifyClose"),
    Hook("notify_dial", "plain", _BOTH, NotifyDialArgs, "NotifyDial"),
    Hook("notify_disconnect", "plain", _BOTH, NotifyDisconnectArgs, "NotifyDisconnect"),
    Hook("dial_event", "event", _BOTH, DialEvent, "NotifyDialEvents"),
    Hook("disconnect_event", "event", _BOTH, DisconnectEvent, "NotifyDisconnectEvents"),
    Hook("close_event", "event", _BOTH, CloseEvent, "NotifyCloseEvents"),
    Hook("connection_reconnect", "async", _CONNECTION, ConnectionReconnectArgs, "ConnectionReconnect"),
    Hook("update_secret", "async", _CONNECTION, UpdateSecretArgs),
    Hook("event", "event", _CONNECTION, e.Event),
    Hook("channel_reconnect", "async", _CHANNEL, ChannelReconnectArgs, "ChannelReconnect"),
    Hook("qos", "async", _CHANNEL, QosArgs, "QoS"),
    Hook("flow", "async", _CHANNEL, FlowArgs, "Flow"),
    Hook("confirm_select", "async", _CHANNEL, ConfirmSelectArgs, "Confirm"),
    Hook("queue_declare", "async", _CHANNEL, QueueDeclareArgs, "QueueDeclare"),
    Hook("queue_declare_passive", "async", _CHANNEL, QueueDeclareArgs, "QueueDeclarePassive"),
    Hook("queue_inspect", "async", _CHANNEL, QueueInspectArgs, "QueueInspect"),
    Hook("queue_delete", "async", _CHANNEL, QueueDeleteArgs, "QueueDelete"),
    Hook("queue_bind", "async", _CHANNEL, QueueBindArgs, "QueueBind"),
    Hook("queue_unbind", "async", _CHANNEL, QueueUnbindArgs, "QueueUnbind"),
    Hook("queue_purge", "async", _CHANNEL, QueuePurgeArgs, "QueuePurge"),
    Hook("exchange_declare", "async", _CHANNEL, ExchangeDeclareArgs, "ExchangeDeclare"),
    Hook("exchange_declare_passive", "async", _CHANNEL, ExchangeDeclareArgs, "ExchangeDeclarePassive"),
    Hook("exchange_delete", "async", _CHANNEL, ExchangeDeleteArgs, "ExchangeDelete"),
    Hook("exchange_bind", "async", _CHANNEL, ExchangeBindArgs, "ExchangeBind"),
    Hook("exchange_unbind", "async", _CHANNEL, ExchangeUnbindArgs, "ExchangeUnbind"),
    Hook("publish", "async", _CHANNEL, PublishArgs, "Publish"),
    Hook("send", "async", _CHANNEL, SendArgs),
    Hook("publish_nowait", "plain", _CHANNEL, PublishNowaitArgs),
    Hook("publish_many", "async", _CHANNEL, PublishManyArgs),
    Hook("get", "async", _CHANNEL, GetArgs, "Get"),
    Hook("consume", "plain", _CHANNEL, ConsumeArgs, "Consume"),
    Hook("subscribe", "async", _CHANNEL, SubscribeArgs),
    Hook("cancel", "async", _CHANNEL, CancelArgs),
    Hook("handle", "async", _CHANNEL, HandleArgs),
    Hook("ack", "plain", _CHANNEL, AckArgs, "Ack"),
    Hook("nack", "plain", _CHANNEL, NackArgs, "Nack"),
    Hook("reject", "plain", _CHANNEL, RejectArgs, "Reject"),
    Hook("recover", "async", _CHANNEL, RecoverArgs),
    Hook("tx_select", "async", _CHANNEL, TxArgs),
    Hook("tx_commit", "async", _CHANNEL, TxArgs),
    Hook("tx_rollback", "async", _CHANNEL, TxArgs),
    Hook("notify_publish", "plain", _CHANNEL, NotifyPublishArgs, "NotifyPublish"),
    Hook("notify_confirm", "plain", _CHANNEL, NotifyConfirmArgs, "NotifyConfirm"),
    Hook("notify_confirm_or_orphaned", "plain", _CHANNEL, NotifyConfirmOrOrphanedArgs, "NotifyConfirmOrOrphaned"),
    Hook("notify_return", "plain", _CHANNEL, NotifyReturnArgs, "NotifyReturn"),
    Hook("notify_cancel", "plain", _CHANNEL, NotifyCancelArgs, "NotifyCancel"),
    Hook("notify_flow", "plain", _CHANNEL, NotifyFlowArgs, "NotifyFlow"),
    Hook("publish_event", "event", _CHANNEL, Confirmation, "NotifyPublishEvents"),
    Hook("delivery_event", "event", _CHANNEL, Delivery, "ConsumeEvents"),
    Hook("confirm_event", "event", _CHANNEL, Confirmation, "NotifyConfirmEvents"),
    Hook("confirm_or_orphaned_event", "event", _CHANNEL, Confirmation, "NotifyConfirmOrOrphanedEvents"),
    Hook("return_event", "event", _CHANNEL, Returned, "NotifyReturnEvents"),
    Hook("cancel_event", "event", _CHANNEL, CancelEvent, "NotifyCancelEvents"),
    Hook("flow_event", "event", _CHANNEL, FlowEvent, "NotifyFlowEvents"),
)

HOOKS: Final[dict[str, Hook]] = {hook.name: hook for hook in _ALL}
"""All hooks, by their names."""


def where_of(record: type) -> str:
    """The field of a call's record that is none of the call's parameters."""
    for base, name in ((OnChannel, "channel"), (OnConnection, "connection"), (OnEither, "source")):
        if issubclass(record, base):
            return name
    raise TypeError(f"{record.__name__} is not the record of a call")
