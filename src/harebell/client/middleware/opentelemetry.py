"""Traces and metrics: spans joined across processes by the context in a message's headers; counts and durations.

    middlewares = harebell.middleware.Middlewares().add_shared(tracing := harebell.middleware.OpenTelemetry())
    middlewares.add_shared(harebell.middleware.OpenTelemetryMetrics())
    ...
    async with connection.consume("work", handle):  # each call of `handle` in its span
        ...
    async for delivery in channel.consume("work"):
        with tracing.process(delivery):
            ...

Rules, after the semantic conventions for messaging and RabbitMQ:
1. "publish <exchange>" (PRODUCER) lasts until what the call waits for: a confirm, for `publish` and `publish_many`. Its
   context is written into the headers of the message, which is copied for that. A message that has a context in its
   headers already goes on with that trace where no span is current. A `publish_many` is one span.
2. "receive <queue>" (CONSUMER) is a point in time: a delivery has come, or `get` has brought one. "process <queue>"
   (CONSUMER) is what the program does with it: a call of the handler of `connection.consume` or `serve`, or what is
   inside of `process`. Both are linked to the span that published the message, and are its children; a span made by
   `process` is the child of a current span where there is one. What the client publishes for a message once its handler
   has ended, a retry, a dead letter or a reply, is a child of the span of that call.
3. An error is recorded on the span whose call or block it leaves; `raise Requeue` and `raise Reject` are no errors, but
   events of the span. Bodies are not recorded.
4. Metrics have no attribute whose values are without number: no ids, no delivery tags, no routing keys.

The one module that imports OpenTelemetry, its API alone: `pip install 'harebell[otel]'`. It costs some microseconds per
message where it is registered, nothing where it is not.
"""

from __future__ import annotations

import copy
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from harebell import errors
from harebell.client.messages import Confirmation, Delivery, Message, Publication
from harebell.client.middleware.hooks import (
    GetArgs,
    HandleArgs,
    HookedChannel,
    PublishArgs,
    PublishManyArgs,
    PublishNowaitArgs,
    SendArgs,
)
from harebell.client.middleware.providers import Next, Pass, PlainNext
from harebell.client.settling import Reject, Requeue
from harebell.protocol.v091 import Properties

try:
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.context import Context, attach
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
except ImportError as error:
    raise errors.MissingDependency(
        "tracing needs the package opentelemetry-api: pip install 'harebell[otel]'"
    ) from error

__all__ = ["OpenTelemetry", "OpenTelemetryMetrics"]

DEFAULT_EXCHANGE: Final = "amq.default"  # how "" is called in a span's name
ATTEMPT: Final = "harebell.attempt"  # the conventions have no attribute for these two
DECISION: Final = "harebell.decision"

Attributes = dict[str, str | int]


class OpenTelemetry:
    """A provider for `Middlewares.add_shared`: spans of every channel.

    tracer_provider  in place of the global one
    """

    id = "opentelemetry"

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("harebell", tracer_provider=tracer_provider)

    # -- publishing --------------------------------------------------------------------------------------------------

    async def publish(
        self, call_next: Next[PublishArgs, Confirmation | None], args: PublishArgs
    ) -> Confirmation | None:
        with self._publishing(args):
            return await call_next(replace(args, message=_with_context(args.message)))

    async def send(self, call_next: Next[SendArgs, int], args: SendArgs) -> int:
        with self._publishing(args):
            return await call_next(replace(args, message=_with_context(args.message)))

    def publish_nowait(self, call_next: PlainNext[PublishNowaitArgs, int], args: PublishNowaitArgs) -> int:
        with self._publishing(args):
            if args.raw_properties is None:  # else they are sent as they are
                args = replace(args, message=_with_context(args.message))
            return call_next(args)

    async def publish_many(self, call_next: Next[PublishManyArgs, int], args: PublishManyArgs) -> int:
        with self._span("publish", SpanKind.PRODUCER, _common(args.channel, "publish", "send")) as span:
            given = args.publications
            traced = _each_later(given) if isinstance(given, AsyncIterable) else _each(given)
            count = await call_next(replace(args, publications=traced))
            span.set_attribute("messaging.batch.message_count", count)
            return count

    @contextmanager
    def _publishing(self, args: PublishArgs | PublishNowaitArgs) -> Iterator[None]:
        attributes = _common(args.channel, "publish", "send")
        _destination(attributes, args.exchange, args.routing_key)
        message = args.message
        if isinstance(message, Message):
            _message(attributes, len(message.body), message.properties)
        elif isinstance(message, bytes):
            attributes["messaging.message.body.size"] = len(message)
        parent = _carried(message)
        with self._span(f"publish {args.exchange or DEFAULT_EXCHANGE}", SpanKind.PRODUCER, attributes, parent):
            yield

    # -- consuming ---------------------------------------------------------------------------------------------------

    def delivery_event(self, call_next: Pass[Delivery], event: Delivery) -> None:
        self._received(event, _queue_of(event))
        call_next(event)

    async def get(self, call_next: Next[GetArgs, Delivery | None], args: GetArgs) -> Delivery | None:
        delivery = await call_next(args)
        if delivery is not None:
            self._received(delivery, args.queue)
        return delivery

    def _received(self, delivery: Delivery, queue: str) -> None:
        producer, links = _origin(delivery)
        self._tracer.start_span(
            f"receive {queue}",
            context=producer,  # and not what is current: that is whatever was when the connection was made
            kind=SpanKind.CONSUMER,
            attributes=_delivered(delivery, queue, "receive"),
            links=links,
        ).end()

    async def handle(self, call_next: Next[HandleArgs, object], args: HandleArgs) -> object:
        if len(args.batch) > 1:
            # The conventions for batches: a span of its own, with a link to the span of each message.
            links = [link for delivery in args.batch for link in _origin(delivery)[1]]
            batch = _processed(args.queue, args.batch)
            with self._span(f"process {args.queue}", SpanKind.CONSUMER, batch, Context(), links):
                return await call_next(args)
        producer, links = _origin(args.delivery)
        attributes = _delivered(args.delivery, args.queue, "process")
        attributes[ATTEMPT] = args.attempt
        processing = trace.INVALID_SPAN_CONTEXT
        try:
            # `producer`: the current span is what was current when the consumer was made
            with self._span(f"process {args.queue}", SpanKind.CONSUMER, attributes, producer, links) as span:
                processing = span.get_span_context()
                return await call_next(args)
        finally:
            # For what the client publishes after this call: it runs in the same context, which ends with the message.
            attach(trace.set_span_in_context(trace.NonRecordingSpan(processing)))

    @contextmanager
    def process(self, delivery: Delivery, queue: str = "") -> Iterator[Span]:
        """The span of what the program does with a delivery, current inside the block. Handlers have theirs without it.

        queue  where it came from; a consumer's delivery knows that, the answer to `get` does not
        """
        name = queue or _queue_of(delivery)
        producer, links = _origin(delivery)
        parent = None if trace.get_current_span().get_span_context().is_valid else producer
        attributes = _delivered(delivery, name, "process")
        with self._span(f"process {name}", SpanKind.CONSUMER, attributes, parent, links) as span:
            yield span

    @contextmanager
    def _span(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        parent: Context | None = None,
        links: Iterable[Link] = (),
    ) -> Iterator[Span]:
        with self._tracer.start_as_current_span(
            name,
            context=parent,
            kind=kind,
            attributes=attributes,
            links=list(links),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except (Requeue, Reject) as decision:
                span.add_event(type(decision).__name__.lower())
                raise
            except BaseException as error:
                span.record_exception(error)
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(Status(StatusCode.ERROR, str(error)))
                raise


class OpenTelemetryMetrics:
    """A provider for `Middlewares.add_shared`: what every channel publishes, gets and processes, counted and timed.

    meter_provider  in place of the global one

    The instruments have the names of the semantic conventions for messaging:

        messaging.client.sent.messages       publications; `error.type` on those that were not confirmed
        messaging.client.consumed.messages   deliveries, and answers to `get`
        messaging.client.operation.duration  seconds of a call of `publish`, `send`, `publish_many` or `get`
        messaging.process.duration           seconds of one call of a handler; `error.type` where it failed,
                                             `harebell.decision` where it has raised Requeue or Reject
        harebell.consumer.handlers           handlers at work
    """

    id = "opentelemetry-metrics"

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        meter = metrics.get_meter("harebell", meter_provider=meter_provider)
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Messages published")
        self._consumed = meter.create_counter("messaging.client.consumed.messages", "{message}", "Messages delivered")
        self._operations = meter.create_histogram("messaging.client.operation.duration", "s", "Calls to the broker")
        self._processed = meter.create_histogram("messaging.process.duration", "s", "Calls of handlers")
        self._handlers = meter.create_up_down_counter("harebell.consumer.handlers", "{handler}", "Handlers at work")

    async def publish(
        self, call_next: Next[PublishArgs, Confirmation | None], args: PublishArgs
    ) -> Confirmation | None:
        with self._calling(args, args.exchange, 1):
            return await call_next(args)

    async def send(self, call_next: Next[SendArgs, int], args: SendArgs) -> int:
        with self._calling(args, args.exchange, 1):
            return await call_next(args)

    def publish_nowait(self, call_next: PlainNext[PublishNowaitArgs, int], args: PublishNowaitArgs) -> int:
        tag = call_next(args)
        self._sent.add(1, _counted(args.channel, "publish", "send", args.exchange))
        return tag

    async def publish_many(self, call_next: Next[PublishManyArgs, int], args: PublishManyArgs) -> int:
        with self._calling(args, None, 0):
            count = await call_next(args)
        self._sent.add(count, _counted(args.channel, "publish", "send", None))
        return count

    @contextmanager
    def _calling(self, args: PublishArgs | PublishManyArgs, exchange: str | None, count: int) -> Iterator[None]:
        """Time a call, and count what it has published, or failed to."""
        attributes = _counted(args.channel, "publish", "send", exchange)
        try:
            with _timed(self._operations.record, attributes):
                yield
        finally:
            if count:
                self._sent.add(count, attributes)

    def delivery_event(self, call_next: Pass[Delivery], event: Delivery) -> None:
        self._consumed.add(1, _counted_delivery(event, _queue_of(event), "receive"))
        call_next(event)

    async def get(self, call_next: Next[GetArgs, Delivery | None], args: GetArgs) -> Delivery | None:
        attributes = _counted(args.channel, "get", "receive", None)
        attributes["messaging.destination.subscription.name"] = args.queue
        with _timed(self._operations.record, attributes):
            delivery = await call_next(args)
        if delivery is not None:
            self._consumed.add(1, _counted_delivery(delivery, args.queue, "get"))
        return delivery

    async def handle(self, call_next: Next[HandleArgs, object], args: HandleArgs) -> object:
        attributes = _counted_delivery(args.delivery, args.queue, "process")
        working: Attributes = {"messaging.destination.subscription.name": args.queue}
        self._handlers.add(1, working)
        try:
            with _timed(self._processed.record, attributes):
                return await call_next(args)
        finally:
            self._handlers.add(-1, working)


@contextmanager
def _timed(record: Callable[[float, Attributes], None], attributes: Attributes) -> Iterator[None]:
    """Record how long the block takes. An error that leaves it is named in the attributes."""
    began = time.perf_counter()
    try:
        yield
    except (Requeue, Reject) as decision:
        attributes[DECISION] = type(decision).__name__.lower()
        raise
    except BaseException as error:
        attributes["error.type"] = type(error).__name__
        raise
    finally:
        record(time.perf_counter() - began, attributes)


# -- the context in the headers ----------------------------------------------------------------------------------------


def _with_context(message: Message | bytes) -> Message | bytes:
    """The message with the current context in its headers; what is no message is left for the call to refuse."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    if not carrier or not isinstance(message, Message | bytes):
        return message
    if isinstance(message, bytes):
        return Message(message, headers=dict(carrier))
    properties = copy.copy(message.properties)
    properties.headers = {**message.headers, **carrier}
    return Message(message.body, properties=properties)


def _carried(message: object) -> Context | None:
    """The context in the headers of a message that is published where no span is current; None: the current one."""
    if not isinstance(message, Message) or trace.get_current_span().get_span_context().is_valid:
        return None
    return _extracted(message.headers, None)


def _traced(publication: Publication) -> Publication:
    return Publication(
        _with_context(publication.message), publication.exchange, publication.routing_key, publication.mandatory,
        publication.immediate,
    )  # fmt: skip


def _each(publications: Iterable[Publication]) -> Iterator[Publication]:
    return map(_traced, publications)


async def _each_later(publications: AsyncIterable[Publication]) -> AsyncIterator[Publication]:
    async for publication in publications:
        yield _traced(publication)


def _origin(delivery: Delivery) -> tuple[Context, list[Link]]:
    """(the context of the span that published it, a link to it); of one that says nothing: an empty one, no link."""
    try:
        headers = delivery.headers
    except errors.HarebellError:
        headers = {}  # malformed: the program will see that, where it looks
    context = _extracted(headers, Context())
    origin = trace.get_current_span(context).get_span_context()
    return context, [Link(origin)] if origin.is_valid else []


def _extracted(headers: Mapping[str, object], context: Context | None) -> Context:
    """This context, or the current one, with what the headers carry."""
    carrier = {key: _text(value) for key, value in headers.items() if isinstance(value, str | bytes)}
    return propagate.extract(carrier, context)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


# -- attributes --------------------------------------------------------------------------------------------------------


def _common(channel: HookedChannel, name: str, kind: str) -> Attributes:
    parameters = channel.transport.parameters
    return {
        "messaging.system": "rabbitmq",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "server.address": parameters.host,
        "server.port": parameters.port,
    }


def _destination(attributes: Attributes, exchange: str, routing_key: str) -> None:
    attributes["messaging.destination.name"] = exchange
    if routing_key:
        attributes["messaging.rabbitmq.destination.routing_key"] = routing_key


def _message(attributes: Attributes, size: int, properties: Properties) -> None:
    attributes["messaging.message.body.size"] = size
    if properties.message_id:
        attributes["messaging.message.id"] = properties.message_id
    if properties.correlation_id:
        attributes["messaging.message.conversation_id"] = properties.correlation_id


def _delivered(delivery: Delivery, queue: str, operation: str) -> Attributes:
    attributes: Attributes = {
        "messaging.system": "rabbitmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.subscription.name": queue,
        "messaging.rabbitmq.message.delivery_tag": delivery.delivery_tag,
    }
    _destination(attributes, delivery.exchange, delivery.routing_key)
    try:
        _message(attributes, delivery.body_size, delivery.properties)
    except errors.HarebellError:
        attributes["messaging.message.body.size"] = delivery.body_size
    return attributes


def _processed(queue: str, batch: Sequence[Delivery]) -> Attributes:
    """Of the call of a handler with a batch."""
    attributes: Attributes = {
        "messaging.system": "rabbitmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.subscription.name": queue,
        "messaging.batch.message_count": len(batch),
    }
    if len({delivery.exchange for delivery in batch}) == 1:
        attributes["messaging.destination.name"] = batch[0].exchange
    return attributes


def _counted(channel: HookedChannel, name: str, kind: str, exchange: str | None) -> Attributes:
    attributes = _common(channel, name, kind)
    if exchange is not None:
        attributes["messaging.destination.name"] = exchange or DEFAULT_EXCHANGE
    return attributes


def _counted_delivery(delivery: Delivery, queue: str, operation: str) -> Attributes:
    return {
        "messaging.system": "rabbitmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": "receive" if operation == "get" else operation,
        "messaging.destination.name": delivery.exchange or DEFAULT_EXCHANGE,
        "messaging.destination.subscription.name": queue,
    }


def _queue_of(delivery: Delivery) -> str:
    """The queue that it was consumed from. One that is not known: the routing key, which names it at the default
    exchange."""
    find: Callable[[str], str | None] | None = getattr(delivery.acknowledger, "queue_of", None)
    return (find(delivery.consumer_tag) if find is not None else None) or delivery.routing_key
