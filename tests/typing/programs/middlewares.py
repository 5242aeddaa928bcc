"""Providers and their hooks."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_type

import harebell
from harebell import middleware as mw


class Quorum:
    async def queue_declare(
        self, call_next: mw.Next[mw.QueueDeclareArgs, harebell.QueueInfo], args: mw.QueueDeclareArgs
    ) -> harebell.QueueInfo:
        assert_type(args.channel, harebell.Channel)
        return await call_next(replace(args, arguments={**(args.arguments or {}), "x-queue-type": "quorum"}))

    def publish_nowait(self, call_next: mw.PlainNext[mw.PublishNowaitArgs, int], args: mw.PublishNowaitArgs) -> int:
        return call_next(args)

    def close_event(self, call_next: mw.Pass[mw.CloseEvent], event: mw.CloseEvent) -> None:
        call_next(event)


class Wrong:
    def queue_declare(self, call_next: object, args: mw.QueueDeclareArgs) -> int:
        return 1


declares: mw.ProvidesQueueDeclare = Quorum()
publishes: mw.ProvidesPublishNowait = Quorum()
hears: mw.ProvidesCloseEvent = Quorum()
wrong: mw.ProvidesQueueDeclare = Wrong()  # type: ignore[assignment]
deaf: mw.ProvidesEvent = Quorum()  # type: ignore[assignment]

harebell.connect(middleware=mw.Middlewares().add_provider(Quorum).without("topology"))
harebell.connect(middleware=Quorum())  # type: ignore[arg-type]
