"""The type of a provider's method for each hook, for the type checker: `class Mine(ProvidesQueueDeclare): ...`.

A provider needs none of these at run time: it is any object with a method that is named like a hook. What a method
gets is `call_next`, which goes on to the next middleware or does what the hook stands around, and the record or event.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from harebell.client import events as e
from harebell.client.messages import Confirmation, Delivery, QueueInfo, Returned
from harebell.client.middleware import hooks as h

if TYPE_CHECKING:
    from harebell.client.consumer import Consumer
    from harebell.client.middleware.transports import WireChannel, WireConnection
    from harebell.client.notifications import Stop

__all__ = [
    "Next",
    "Pass",
    "PlainNext",
    "ProvidesClose",
    "ProvidesNotifyClose",
    "ProvidesNotifyDial",
    "ProvidesNotifyDisconnect",
    "ProvidesDialEvent",
    "ProvidesDisconnectEvent",
    "ProvidesCloseEvent",
    "ProvidesConnectionReconnect",
    "ProvidesUpdateSecret",
    "ProvidesEvent",
    "ProvidesChannelReconnect",
    "ProvidesQos",
    "ProvidesFlow",
    "ProvidesConfirmSelect",
    "ProvidesQueueDeclare",
    "ProvidesQueueDeclarePassive",
    "ProvidesQueueInspect",
    "ProvidesQueueDelete",
    "ProvidesQueueBind",
    "ProvidesQueueUnbind",
    "ProvidesQueuePurge",
    "ProvidesExchangeDeclare",
    "ProvidesExchangeDeclarePassive",
    "ProvidesExchangeDelete",
    "ProvidesExchangeBind",
    "ProvidesExchangeUnbind",
    "ProvidesPublish",
    "ProvidesSend",
    "ProvidesPublishNowait",
    "ProvidesPublishMany",
    "ProvidesGet",
    "ProvidesConsume",
    "ProvidesSubscribe",
    "ProvidesCancel",
    "ProvidesAck",
    "ProvidesNack",
    "ProvidesReject",
    "ProvidesRecover",
    "ProvidesTxSelect",
    "ProvidesTxCommit",
    "ProvidesTxRollback",
    "ProvidesNotifyPublish",
    "ProvidesNotifyConfirm",
    "ProvidesNotifyConfirmOrOrphaned",
    "ProvidesNotifyReturn",
    "ProvidesNotifyCancel",
    "ProvidesNotifyFlow",
    "ProvidesPublishEvent",
    "ProvidesDeliveryEvent",
    "ProvidesConfirmEvent",
    "ProvidesConfirmOrOrphanedEvent",
    "ProvidesReturnEvent",
    "ProvidesCancelEvent",
    "ProvidesFlowEvent",
]

_A = TypeVar("_A")
_R = TypeVar("_R")

Next: TypeAlias = Callable[[_A], Awaitable[_R]]  # of a coroutine function's hook
PlainNext: TypeAlias = Callable[[_A], _R]  # of a plain function's
Pass: TypeAlias = Callable[[_A], None]  # of an event's


class ProvidesClose(Protocol):
    async def close(self, call_next: Next[h.CloseArgs, None], args: h.CloseArgs) -> None: ...


class ProvidesNotifyClose(Protocol):
    def notify_close(self, call_next: PlainNext[h.NotifyCloseArgs, Stop], args: h.NotifyCloseArgs) -> Stop: ...


class ProvidesNotifyDial(Protocol):
    def notify_dial(self, call_next: PlainNext[h.NotifyDialArgs, Stop], args: h.NotifyDialArgs) -> Stop: ...


class ProvidesNotifyDisconnect(Protocol):
    def notify_disconnect(
        self, call_next: PlainNext[h.NotifyDisconnectArgs, Stop], args: h.NotifyDisconnectArgs
    ) -> Stop: ...


class ProvidesDialEvent(Protocol):
    def dial_event(self, call_next: Pass[h.DialEvent], event: h.DialEvent) -> None: ...


class ProvidesDisconnectEvent(Protocol):
    def disconnect_event(self, call_next: Pass[h.DisconnectEvent], event: h.DisconnectEvent) -> None: ...


class ProvidesCloseEvent(Protocol):
    def close_event(self, call_next: Pass[h.CloseEvent], event: h.CloseEvent) -> None: ...


class ProvidesConnectionReconnect(Protocol):
    async def connection_reconnect(
        self, call_next: Next[h.ConnectionReconnectArgs, WireConnection], args: h.ConnectionReconnectArgs
    ) -> WireConnection: ...


class ProvidesUpdateSecret(Protocol):
    async def update_secret(self, call_next: Next[h.UpdateSecretArgs, None], args: h.UpdateSecretArgs) -> None: ...


class ProvidesEvent(Protocol):
    def event(self, call_next: Pass[e.Event], event: e.Event) -> None: ...


class ProvidesChannelReconnect(Protocol):
    async def channel_reconnect(
        self, call_next: Next[h.ChannelReconnectArgs, WireChannel], args: h.ChannelReconnectArgs
    ) -> WireChannel: ...


class ProvidesQos(Protocol):
    async def qos(self, call_next: Next[h.QosArgs, None], args: h.QosArgs) -> None: ...


class ProvidesFlow(Protocol):
    async def flow(self, call_next: Next[h.FlowArgs, None], args: h.FlowArgs) -> None: ...


class ProvidesConfirmSelect(Protocol):
    async def confirm_select(self, call_next: Next[h.ConfirmSelectArgs, None], args: h.ConfirmSelectArgs) -> None: ...


class ProvidesQueueDeclare(Protocol):
    async def queue_declare(
        self, call_next: Next[h.QueueDeclareArgs, QueueInfo], args: h.QueueDeclareArgs
    ) -> QueueInfo: ...


class ProvidesQueueDeclarePassive(Protocol):
    async def queue_declare_passive(
        self, call_next: Next[h.QueueDeclareArgs, QueueInfo], args: h.QueueDeclareArgs
    ) -> QueueInfo: ...


class ProvidesQueueInspect(Protocol):
    async def queue_inspect(
        self, call_next: Next[h.QueueInspectArgs, QueueInfo], args: h.QueueInspectArgs
    ) -> QueueInfo: ...


class ProvidesQueueDelete(Protocol):
    async def queue_delete(self, call_next: Next[h.QueueDeleteArgs, int], args: h.QueueDeleteArgs) -> int: ...


class ProvidesQueueBind(Protocol):
    async def queue_bind(self, call_next: Next[h.QueueBindArgs, None], args: h.QueueBindArgs) -> None: ...


class ProvidesQueueUnbind(Protocol):
    async def queue_unbind(self, call_next: Next[h.QueueUnbindArgs, None], args: h.QueueUnbindArgs) -> None: ...


class ProvidesQueuePurge(Protocol):
    async def queue_purge(self, call_next: Next[h.QueuePurgeArgs, int], args: h.QueuePurgeArgs) -> int: ...


class ProvidesExchangeDeclare(Protocol):
    async def exchange_declare(
        self, call_next: Next[h.ExchangeDeclareArgs, None], args: h.ExchangeDeclareArgs
    ) -> None: ...


class ProvidesExchangeDeclarePassive(Protocol):
    async def exchange_declare_passive(
        self, call_next: Next[h.ExchangeDeclareArgs, None], args: h.ExchangeDeclareArgs
    ) -> None: ...


class ProvidesExchangeDelete(Protocol):
    async def exchange_delete(
        self, call_next: Next[h.ExchangeDeleteArgs, None], args: h.ExchangeDeleteArgs
    ) -> None: ...


class ProvidesExchangeBind(Protocol):
    async def exchange_bind(self, call_next: Next[h.ExchangeBindArgs, None], args: h.ExchangeBindArgs) -> None: ...


class ProvidesExchangeUnbind(Protocol):
    async def exchange_unbind(
        self, call_next: Next[h.ExchangeUnbindArgs, None], args: h.ExchangeUnbindArgs
    ) -> None: ...


class ProvidesPublish(Protocol):
    async def publish(
        self, call_next: Next[h.PublishArgs, Confirmation | None], args: h.PublishArgs
    ) -> Confirmation | None: ...


class ProvidesSend(Protocol):
    async def send(self, call_next: Next[h.SendArgs, int], args: h.SendArgs) -> int: ...


class ProvidesPublishNowait(Protocol):
    def publish_nowait(self, call_next: PlainNext[h.PublishNowaitArgs, int], args: h.PublishNowaitArgs) -> int: ...


class ProvidesPublishMany(Protocol):
    async def publish_many(self, call_next: Next[h.PublishManyArgs, int], args: h.PublishManyArgs) -> int: ...


class ProvidesGet(Protocol):
    async def get(self, call_next: Next[h.GetArgs, Delivery | None], args: h.GetArgs) -> Delivery | None: ...


class ProvidesConsume(Protocol):
    def consume(self, call_next: PlainNext[h.ConsumeArgs, Consumer], args: h.ConsumeArgs) -> Consumer: ...


class ProvidesSubscribe(Protocol):
    async def subscribe(self, call_next: Next[h.SubscribeArgs, None], args: h.SubscribeArgs) -> None: ...


class ProvidesCancel(Protocol):
    async def cancel(self, call_next: Next[h.CancelArgs, None], args: h.CancelArgs) -> None: ...


class ProvidesAck(Protocol):
    def ack(self, call_next: PlainNext[h.AckArgs, None], args: h.AckArgs) -> None: ...


class ProvidesNack(Protocol):
    def nack(self, call_next: PlainNext[h.NackArgs, None], args: h.NackArgs) -> None: ...


class ProvidesReject(Protocol):
    def reject(self, call_next: PlainNext[h.RejectArgs, None], args: h.RejectArgs) -> None: ...


class ProvidesRecover(Protocol):
    async def recover(self, call_next: Next[h.RecoverArgs, None], args: h.RecoverArgs) -> None: ...


class ProvidesTxSelect(Protocol):
    async def tx_select(self, call_next: Next[h.TxArgs, None], args: h.TxArgs) -> None: ...


class ProvidesTxCommit(Protocol):
    async def tx_commit(self, call_next: Next[h.TxArgs, None], args: h.TxArgs) -> None: ...


class ProvidesTxRollback(Protocol):
    async def tx_rollback(self, call_next: Next[h.TxArgs, None], args: h.TxArgs) -> None: ...


class ProvidesNotifyPublish(Protocol):
    def notify_publish(self, call_next: PlainNext[h.NotifyPublishArgs, Stop], args: h.NotifyPublishArgs) -> Stop: ...


class ProvidesNotifyConfirm(Protocol):
    def notify_confirm(self, call_next: PlainNext[h.NotifyConfirmArgs, Stop], args: h.NotifyConfirmArgs) -> Stop: ...


class ProvidesNotifyConfirmOrOrphaned(Protocol):
    def notify_confirm_or_orphaned(
        self, call_next: PlainNext[h.NotifyConfirmOrOrphanedArgs, Stop], args: h.NotifyConfirmOrOrphanedArgs
    ) -> Stop: ...


class ProvidesNotifyReturn(Protocol):
    def notify_return(self, call_next: PlainNext[h.NotifyReturnArgs, Stop], args: h.NotifyReturnArgs) -> Stop: ...


class ProvidesNotifyCancel(Protocol):
    def notify_cancel(self, call_next: PlainNext[h.NotifyCancelArgs, Stop], args: h.NotifyCancelArgs) -> Stop: ...


class ProvidesNotifyFlow(Protocol):
    def notify_flow(self, call_next: PlainNext[h.NotifyFlowArgs, Stop], args: h.NotifyFlowArgs) -> Stop: ...


class ProvidesPublishEvent(Protocol):
    def publish_event(self, call_next: Pass[Confirmation], event: Confirmation) -> None: ...


class ProvidesDeliveryEvent(Protocol):
    def delivery_event(self, call_next: Pass[Delivery], event: Delivery) -> None: ...


class ProvidesConfirmEvent(Protocol):
    def confirm_event(self, call_next: Pass[Confirmation], event: Confirmation) -> None: ...


class ProvidesConfirmOrOrphanedEvent(Protocol):
    def confirm_or_orphaned_event(self, call_next: Pass[Confirmation], event: Confirmation) -> None: ...


class ProvidesReturnEvent(Protocol):
    def return_event(self, call_next: Pass[Returned], event: Returned) -> None: ...


class ProvidesCancelEvent(Protocol):
    def cancel_event(self, call_next: Pass[h.CancelEvent], event: h.CancelEvent) -> None: ...


class ProvidesFlowEvent(Protocol):
    def flow_event(self, call_next: Pass[h.FlowEvent], event: h.FlowEvent) -> None: ...
