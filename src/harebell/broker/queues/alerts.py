"""Threshold alerts: an observer is notified when a queue becomes long, and when it is short again.

The arguments, which policies set too (Qpid's names: `routing.qpid_arguments`):

    x-alert-length, x-alert-length-bytes              ready messages, and the bytes of their bodies, that are too many
    x-alert-length-clear, x-alert-length-bytes-clear  so many, or fewer, are few again; else half as many
    x-alert-repeat-gap                                milliseconds after which an alert that lasts may be told again

A crossing is told once: between the two numbers nothing changes. The queue is looked at once a batch in which something
happened to it, after consumers got what they take, not with each message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, Protocol

from harebell.broker.message import Message
from harebell.broker.queues.base import DecoratorFactory, Queue
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.queues.decorators import QueueDecorator
from harebell.routing.settings import QueueSettings

__all__ = ["AlertObserver", "Alerts", "Measure", "alerts_of"]

Measure = Literal["length", "length-bytes"]
_NEVER: Final = 1 << 62


class AlertObserver(Protocol):
    """What is notified of an alert."""

    def queue_alert(
        self, what: Literal["set", "cleared"], queue: Queue, measure: Measure, value: int, limit: int, *, repeated: bool
    ) -> None:
        """The queue has `value` messages or bytes, at or above its limit (set), or at or below it (cleared)."""


class _Threshold:
    """One of the two: whether its alert is on, and when it may be told again."""

    __slots__ = ("again_at", "clear", "is_on", "limit", "measure", "value")

    def __init__(self, measure: Measure, value: Callable[[], int]) -> None:
        self.measure = measure
        self.value = value
        self.limit: int | None = None
        self.clear = 0
        self.is_on = False
        self.again_at = _NEVER

    def set(self, limit: int | None, clear: int | None) -> None:
        self.limit = limit
        most = limit or 0
        self.clear = clear if clear is not None and clear < most else most // 2  # a policy may have only one of them


class Alerts(QueueDecorator):
    """The alerts of a queue that has any."""

    def __init__(self, queue: ClassicQueue, observer: AlertObserver) -> None:
        self._queue, self._observer = queue, observer
        self._thresholds = (
            _Threshold("length", lambda: queue.message_count),
            _Threshold("length-bytes", lambda: 0 if queue.backlog is None else queue.backlog.bytes),
        )
        self._gap: int | None = None
        self._set()

    def _set(self) -> None:
        settings = self._queue.settings
        self._gap = settings.alert_repeat_gap
        length, size = self._thresholds
        length.set(settings.alert_length, settings.alert_length_clear)
        size.set(settings.alert_length_bytes, settings.alert_length_bytes_clear)

    def settings_changed(self) -> None:
        self._set()

    def dropped(self, message: Message, reason: str) -> None:
        if not self._queue.scheduled:  # expiry, for one, is no work for consumers
            self._queue.schedule()

    def consumer_state_changed(self) -> None:
        for threshold in self._thresholds:
            if threshold.is_on or threshold.limit is not None:
                self._look(threshold)

    def _look(self, threshold: _Threshold) -> None:
        limit, value = threshold.limit, threshold.value()
        if not threshold.is_on:
            if limit is not None and value >= limit:
                threshold.is_on = True
                self._tell("set", threshold, value, limit)
        elif limit is None or value <= threshold.clear:
            threshold.is_on = False
            self._tell("cleared", threshold, value, threshold.clear)
        elif value >= limit and self._queue.timers.now() >= threshold.again_at:
            self._tell("set", threshold, value, limit, repeated=True)

    def _tell(
        self, what: Literal["set", "cleared"], threshold: _Threshold, value: int, limit: int, *, repeated: bool = False
    ) -> None:
        threshold.again_at = _NEVER if self._gap is None else self._queue.timers.now() + self._gap
        self._observer.queue_alert(what, self._queue, threshold.measure, value, limit, repeated=repeated)


def has_alerts(settings: QueueSettings) -> bool:
    """Whether the settings ask for alerts."""
    return settings.alert_length is not None or settings.alert_length_bytes is not None


def alerts_of(observer: AlertObserver) -> DecoratorFactory:
    """A factory of the alerts of queues."""
    return lambda queue: (
        Alerts(queue, observer) if isinstance(queue, ClassicQueue) and has_alerts(queue.settings) else None
    )
