"""Middlewares: functions around the calls and the events of connections and channels. Public as `harebell.middleware`.

    middlewares = harebell.middleware.Middlewares().add("queue_declare", mine)
    async with harebell.connect(url, middleware=middlewares) as connection: ...

`registry` is what a program registers with, `hooks` what there is to stand around, `providers` its types, `chain` how
it is put together. What comes back after a loss is made of the same hooks: `harebell.client.recovery.features`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from harebell.client.middleware.hooks import (
        HOOKS as HOOKS,
        CancelEvent as CancelEvent,
        CloseEvent as CloseEvent,
        DialEvent as DialEvent,
        DisconnectEvent as DisconnectEvent,
        FlowEvent as FlowEvent,
        Hook as Hook,
    )
    from harebell.client.middleware.logging import Logging as Logging
    from harebell.client.middleware.opentelemetry import (
        OpenTelemetry as OpenTelemetry,
        OpenTelemetryMetrics as OpenTelemetryMetrics,
    )
    from harebell.client.middleware.providers import *  # noqa: F403  # as many as there are hooks
    from harebell.client.middleware.records import (
        AckArgs as AckArgs,
        CancelArgs as CancelArgs,
        ChannelReconnectArgs as ChannelReconnectArgs,
        CloseArgs as CloseArgs,
        ConfirmSelectArgs as ConfirmSelectArgs,
        ConnectionReconnectArgs as ConnectionReconnectArgs,
        ConsumeArgs as ConsumeArgs,
        ExchangeBindArgs as ExchangeBindArgs,
        ExchangeDeclareArgs as ExchangeDeclareArgs,
        ExchangeDeleteArgs as ExchangeDeleteArgs,
        ExchangeUnbindArgs as ExchangeUnbindArgs,
        FlowArgs as FlowArgs,
        GetArgs as GetArgs,
        HandleArgs as HandleArgs,
        NackArgs as NackArgs,
        NotifyCancelArgs as NotifyCancelArgs,
        NotifyCloseArgs as NotifyCloseArgs,
        NotifyConfirmArgs as NotifyConfirmArgs,
        NotifyConfirmOrOrphanedArgs as NotifyConfirmOrOrphanedArgs,
        NotifyDialArgs as NotifyDialArgs,
        NotifyDisconnectArgs as NotifyDisconnectArgs,
        NotifyFlowArgs as NotifyFlowArgs,
        NotifyPublishArgs as NotifyPublishArgs,
        NotifyReturnArgs as NotifyReturnArgs,
        PublishArgs as PublishArgs,
        PublishManyArgs as PublishManyArgs,
        PublishNowaitArgs as PublishNowaitArgs,
        QosArgs as QosArgs,
        QueueBindArgs as QueueBindArgs,
        QueueDeclareArgs as QueueDeclareArgs,
        QueueDeleteArgs as QueueDeleteArgs,
        QueueInspectArgs as QueueInspectArgs,
        QueuePurgeArgs as QueuePurgeArgs,
        QueueUnbindArgs as QueueUnbindArgs,
        RecoverArgs as RecoverArgs,
        RejectArgs as RejectArgs,
        SendArgs as SendArgs,
        SubscribeArgs as SubscribeArgs,
        TxArgs as TxArgs,
        UpdateSecretArgs as UpdateSecretArgs,
    )
    from harebell.client.middleware.registry import FEATURES as FEATURES, Middlewares as Middlewares
    from harebell.client.middleware.transports import WireChannel as WireChannel, WireConnection as WireConnection

# A name is loaded with its module at the first use: the types of providers are many, and OpenTelemetry is a package.
_HOMES: Final = {
    "FEATURES": "registry",
    "Logging": "logging",
    "Middlewares": "registry",
    "OpenTelemetry": "opentelemetry",
    "OpenTelemetryMetrics": "opentelemetry",
    "WireChannel": "transports",
    "WireConnection": "transports",
}


def __getattr__(name: str) -> object:
    if name.startswith("_"):
        raise AttributeError(name)
    for home in [_HOMES[name]] if name in _HOMES else ["hooks", "providers"]:
        module = import_module(f"{__name__}.{home}")
        if hasattr(module, name):
            value: object = getattr(module, name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    hooks = import_module(f"{__name__}.hooks")
    return sorted({*globals(), *_HOMES, *hooks.__all__})
