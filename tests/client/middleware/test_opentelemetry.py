"""Spans of publishing and consuming, how the context travels, and metrics; against both brokers."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import harebell
from harebell import errors
from harebell.client.channel import Channel
from harebell.client.middleware.opentelemetry import OpenTelemetry, OpenTelemetryMetrics
from harebell.client.middleware.registry import Middlewares


class Tracing:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.middleware = OpenTelemetry(provider)
        self.tracer = provider.get_tracer("test")

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        found = [span for span in self.spans if span.name == name]
        assert len(found) == 1, f"{name}: {[span.name for span in self.spans]}"
        return found[0]


@pytest.fixture
def tracing() -> Tracing:
    return Tracing()


@pytest.fixture
async def traced(broker_url: str, tracing: Tracing) -> AsyncIterator[Channel]:
    middlewares = Middlewares().add_shared(tracing.middleware)
    async with harebell.connect(broker_url, timeout=60, middleware=middlewares) as connection:
        yield await connection.channel()


async def test_publish_and_process(traced: Channel, tracing: Tracing, name: str) -> None:
    await traced.queue_declare(name, exclusive=True)
    await traced.exchange_declare(f"{name}.x", "topic", auto_delete=True)
    await traced.queue_bind(name, f"{name}.x", "#")
    await traced.confirm_select()
    message = harebell.Message(b"12345", message_id="m1", correlation_id="c1", headers={"mine": 1})
    with tracing.tracer.start_as_current_span("caller") as caller:
        await traced.publish(message, f"{name}.x", "a.b")
    assert message.headers == {"mine": 1}  # the program's own is left as it was
    async with traced.consume(name) as consumer:
        delivery = await anext(consumer)
        with tracing.middleware.process(delivery) as span:
            assert span.is_recording()
            delivery.ack()
    published = tracing.named(f"publish {name}.x")
    assert published.kind is SpanKind.PRODUCER
    assert published.parent == caller.get_span_context()
    parameters = traced.transport.parameters
    about = {
        "messaging.system": "rabbitmq",
        "messaging.destination.name": f"{name}.x",
        "messaging.rabbitmq.destination.routing_key": "a.b",
        "messaging.message.body.size": 5,
        "messaging.message.id": "m1",
        "messaging.message.conversation_id": "c1",
    }
    assert published.attributes == {
        **about,
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "server.address": parameters.host,
        "server.port": parameters.port,
    }
    assert delivery.headers["mine"] == 1
    assert format(published.context.trace_id, "032x") in str(delivery.headers["traceparent"])
    for operation in ("receive", "process"):
        consumed = tracing.named(f"{operation} {name}")
        assert consumed.kind is SpanKind.CONSUMER
        assert [link.context.span_id for link in consumed.links] == [published.context.span_id]
        assert consumed.context.trace_id == published.context.trace_id
        assert consumed.parent is not None
        assert consumed.parent.span_id == published.context.span_id
        assert consumed.attributes == {
            **about,
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.destination.subscription.name": name,
            "messaging.rabbitmq.message.delivery_tag": 1,
        }


async def test_every_way_of_publishing(traced: Channel, tracing: Tracing, name: str) -> None:
    await traced.queue_declare(name, exclusive=True)
    await traced.confirm_select()
    traced.confirmations()

    async def later() -> AsyncIterator[harebell.Publication]:
        yield harebell.Publication(b"4", "", name)

    await traced.publish(b"1", "", name)
    await traced.send(b"2", "", name)
    traced.publish_nowait(b"3", "", name)
    await traced.publish_many(later())
    await traced.publish_many([harebell.Publication(harebell.Message(b"5", priority=3), "", name)])
    traced.publish_nowait(b"6", "", name, raw_properties=b"\x00\x00")  # what is said to be sent as it is, is
    sent = [span for span in tracing.spans if span.kind is SpanKind.PRODUCER]
    assert [span.name for span in sent] == [
        "publish amq.default", "publish amq.default", "publish amq.default", "publish", "publish", "publish amq.default"
    ]  # fmt: skip
    assert [span.attributes["messaging.batch.message_count"] for span in sent if span.name == "publish"] == [1, 1]  # type: ignore[index]
    parents = []
    for number in range(1, 7):
        delivery = await traced.get(name, no_ack=True)
        assert delivery is not None
        assert delivery.body == b"%d" % number
        parents.append(str(delivery.headers.get("traceparent")))
        assert delivery.properties.priority == (3 if number == 5 else None)
    assert [format(span.context.span_id, "016x") in parent for span, parent in zip(sent, parents, strict=True)] == [
        True, True, True, True, True, False,
    ]  # fmt: skip
    received = [span for span in tracing.spans if span.name == f"receive {name}"]
    assert [len(span.links) for span in received] == [1, 1, 1, 1, 1, 0]


async def test_errors_are_recorded(traced: Channel, tracing: Tracing, name: str) -> None:
    await traced.queue_declare(name, exclusive=True)
    await traced.confirm_select()
    with pytest.raises(errors.Unroutable):
        await traced.publish(b"m", "", "nowhere", mandatory=True)
    span = tracing.named("publish amq.default")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "Unroutable"
    assert [event.name for event in span.events] == ["exception"]
    await traced.publish(b"m", "", name)
    delivery = await traced.get(name)
    assert delivery is not None
    with pytest.raises(LookupError), tracing.middleware.process(delivery, name):
        raise LookupError("in the handler")
    assert tracing.named(f"process {name}").status.status_code is StatusCode.ERROR
    with pytest.raises(errors.InvalidArgument, match="not str"):
        await traced.publish("text", "", name)  # type: ignore[arg-type]


async def test_a_current_span_is_the_parent_of_process(traced: Channel, tracing: Tracing, name: str) -> None:
    await traced.queue_declare(name, exclusive=True)
    await traced.publish(b"m", "", name)
    delivery = await traced.get(name, no_ack=True)
    assert delivery is not None
    with tracing.tracer.start_as_current_span("worker") as worker, tracing.middleware.process(delivery):
        pass
    span = tracing.named(f"process {name}")
    assert span.parent == worker.get_span_context()
    assert [link.context.span_id for link in span.links] == [tracing.named("publish amq.default").context.span_id]


async def test_a_message_that_nobody_traced(traced: Channel, other: Channel, tracing: Tracing, name: str) -> None:
    await traced.queue_declare(name)
    await other.publish(harebell.Message(b"m", headers={"traceparent": b"\xff", "tracestate": 7}), "", name)
    async with traced.consume(name, no_ack=True) as consumer:
        with tracing.middleware.process(await anext(consumer)):
            pass
    for operation in ("receive", "process"):
        span = tracing.named(f"{operation} {name}")
        assert span.parent is None
        assert not span.links
    await traced.queue_delete(name)


async def test_a_handler_runs_in_its_span(broker_url: str, tracing: Tracing, name: str) -> None:
    seen: dict[bytes, int] = {}  # the id of the span in which the handler ran, by the body
    done = asyncio.Event()

    async def handle(delivery: harebell.Delivery) -> None:
        seen[delivery.body] = trace.get_current_span().get_span_context().span_id
        if len(seen) == 4:
            done.set()
        if delivery.body == b"fails":
            raise LookupError("in the handler")
        if delivery.body == b"refuses":
            raise harebell.Reject
        if delivery.body == b"publishes":
            await delivery_channel.publish(b"next", "", f"{name}.next")

    middlewares = Middlewares().add_shared(tracing.middleware)
    async with harebell.connect(broker_url, timeout=60, middleware=middlewares) as connection:
        delivery_channel = await connection.channel()
        await delivery_channel.queue_declare(name, exclusive=True)
        await delivery_channel.queue_declare(f"{name}.next", exclusive=True)
        with tracing.tracer.start_as_current_span("start of the program"):
            workers = connection.consume(name, handle, max_failures=None)
            await workers.start()
        for body in (b"fails", b"refuses", b"publishes", b"returns"):
            await delivery_channel.publish(body, "", name)
        await asyncio.wait_for(done.wait(), 60)
        await workers.stop()
    published = {span.context.span_id: span for span in tracing.spans if span.kind is SpanKind.PRODUCER}
    processed = {span.context.span_id: span for span in tracing.spans if span.name == f"process {name}"}
    assert len(published) == 5
    assert set(processed) == set(seen.values())  # each handler was called with its own span as the current one
    for span in processed.values():
        assert span.parent is not None
        assert span.parent.span_id in published  # and not "start of the program"
        assert span.attributes is not None
        assert span.attributes["harebell.attempt"] == 1
    told = {
        body: (processed[span_id].status.status_code, [event.name for event in processed[span_id].events])
        for body, span_id in seen.items()
    }
    assert told == {
        b"fails": (StatusCode.ERROR, ["exception"]),
        b"refuses": (StatusCode.UNSET, ["reject"]),
        b"publishes": (StatusCode.UNSET, []),
        b"returns": (StatusCode.UNSET, []),
    }
    parents = [span.parent.span_id for span in published.values() if span.parent is not None]
    assert parents == [seen[b"publishes"]]


@pytest.mark.parametrize("batch", [None, 1, 2])
async def test_attempts_at_a_message_and_its_dead_letter_are_one_trace(
    broker_url: str, tracing: Tracing, name: str, batch: int | None
) -> None:
    """And those of another message are another one: each goes on where its own last attempt ended."""
    dead = f"{name}.dead"

    def handle(given: object) -> None:
        raise LookupError

    middlewares = Middlewares().add_shared(tracing.middleware)
    async with (
        harebell.connect(broker_url, timeout=60, middleware=middlewares) as connection,
        connection.channel() as channel,
    ):
        await channel.queue_declare(name, exclusive=True)
        for body in (b"0", b"1"):
            await channel.publish(body, "", name)
        with tracing.tracer.start_as_current_span("start of the program"):
            options: dict[str, Any] = {"batch": batch, "within": batch}
            workers = connection.consume(name, handle, retry=harebell.Retry((0.01, 0.02)), **options)
            await workers.start()
        letters = channel.consume(dead)
        dead_spans = [trace_of(await anext(letters)) for _ in (0, 1)]
        await letters.cancel()
        await workers.stop()
        for queue in (dead, f"{name}.retry.10", f"{name}.retry.20"):
            await channel.queue_delete(queue)
    ids = {span.context.span_id: span for span in tracing.spans}
    for trace_id, span_id in dead_spans:
        steps, span = [], ids.get(span_id)
        while span is not None:
            assert span.context.trace_id == trace_id
            steps.append(span.name)
            span = ids.get(span.parent.span_id) if span.parent is not None else None
        assert steps == ["publish amq.default", f"process {name}"] * 3 + ["publish amq.default"]
    assert len({trace_id for trace_id, _ in dead_spans}) == 2


async def test_the_dead_letters_of_a_refused_batch_stay_in_their_traces(
    broker_url: str, tracing: Tracing, name: str
) -> None:
    def handle(given: object) -> None:
        raise harebell.Reject

    middlewares = Middlewares().add_shared(tracing.middleware)
    async with (
        harebell.connect(broker_url, timeout=60, middleware=middlewares) as connection,
        connection.channel() as channel,
    ):
        await channel.queue_declare(name, exclusive=True)
        for body in (b"0", b"1"):
            await channel.publish(body, "", name)
        first = [span.context.trace_id for span in tracing.spans]
        async with connection.consume(name, handle, dead_letter=f"{name}.dead", batch=2, within=600):
            letters = channel.consume(f"{name}.dead")
            assert [trace_of(await anext(letters))[0] for _ in (0, 1)] == first
            await letters.cancel()
        await channel.queue_delete(f"{name}.dead")


@pytest.mark.parametrize("fails", [False, True])
async def test_a_reply_is_part_of_the_trace_of_its_call(
    broker_url: str, tracing: Tracing, name: str, fails: bool
) -> None:
    async def handle(delivery: harebell.Delivery) -> bytes:
        if fails:
            raise LookupError
        return b"reply"

    middlewares = Middlewares().add_shared(tracing.middleware)
    async with (
        harebell.connect(broker_url, timeout=60, middleware=middlewares) as connection,
        connection.channel() as channel,
    ):
        await channel.queue_declare(name, exclusive=True)
        async with connection.serve(name, handle), connection.rpc(timeout=60) as rpc:
            for _ in (0, 1):
                with tracing.tracer.start_as_current_span("caller"), contextlib.suppress(errors.RemoteError):
                    await rpc.call(b"", name)
    traces: dict[int, list[str]] = {}
    for span in sorted(tracing.spans, key=lambda span: span.start_time or 0):
        traces.setdefault(span.context.trace_id, []).append(span.name)
    assert len(traces) == 2
    for steps in traces.values():
        assert steps.count("publish amq.default") == 2  # the call and the reply
    for span in tracing.spans:
        assert (span.parent is None) == (span.name == "caller")


def trace_of(delivery: harebell.Delivery) -> tuple[int, int]:
    """The ids of the trace and of the span that published it."""
    _, trace_id, span_id, _ = str(delivery.headers["traceparent"]).split("-")
    return int(trace_id, 16), int(span_id, 16)


async def test_a_message_published_outside_of_spans_goes_on_with_its_own_trace(
    traced: Channel, tracing: Tracing, name: str
) -> None:
    await traced.queue_declare(name, exclusive=True)
    message = harebell.Message(b"", headers={"traceparent": f"00-{5:032x}-{7:016x}-01"})
    await traced.publish(message, "", name)
    with tracing.tracer.start_as_current_span("caller") as caller:
        await traced.publish(message, "", name)
    own, called = (span for span in tracing.spans if span.name == "publish amq.default")
    assert (own.context.trace_id, own.parent and own.parent.span_id) == (5, 7)
    assert called.parent == caller.get_span_context()


async def test_a_handler_of_a_batch_has_a_span_with_links(broker_url: str, tracing: Tracing, name: str) -> None:
    done = asyncio.Event()

    async def handle(deliveries: list[harebell.Delivery]) -> None:
        if len(deliveries) > 1:
            raise LookupError("at first")
        if deliveries[0].body == b"2":
            done.set()

    middlewares = Middlewares().add_shared(tracing.middleware)
    async with (
        harebell.connect(broker_url, timeout=60, middleware=middlewares) as connection,
        connection.channel() as channel,
    ):
        await channel.queue_declare(name, exclusive=True)
        for body in (b"0", b"1", b"2"):
            await channel.publish(body, "", name)
        async with connection.consume(name, handle, batch=3, within=600):
            await asyncio.wait_for(done.wait(), 60)
    published = [span.context.span_id for span in tracing.spans if span.kind is SpanKind.PRODUCER]
    batch, *alone = [span for span in tracing.spans if span.name == f"process {name}"]
    assert (batch.parent, batch.status.status_code) == (None, StatusCode.ERROR)
    assert [link.context.span_id for link in batch.links] == published
    assert batch.attributes is not None
    assert batch.attributes["messaging.batch.message_count"] == 3
    assert [span.parent and span.parent.span_id for span in alone] == published


Points = dict[tuple[str, str, str], float]


def points(reader: InMemoryMetricReader) -> dict[str, Points]:
    """{instrument: {(operation, destination or queue, error or decision): how many}}"""
    data = reader.get_metrics_data()
    assert data is not None
    found: dict[str, Points] = {}
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.data.data_points:
            attributes = {key: str(value) for key, value in (point.attributes or {}).items()}
            queue = attributes.get(
                "messaging.destination.subscription.name", attributes.get("messaging.destination.name")
            )
            ended = attributes.get("error.type") or attributes.get("harebell.decision") or ""
            key = (attributes.get("messaging.operation.name", ""), queue or "", ended)
            assert isinstance(point, HistogramDataPoint | NumberDataPoint)
            found.setdefault(metric.name, {})[key] = (
                point.count if isinstance(point, HistogramDataPoint) else point.value
            )
    return found


async def test_metrics(broker_url: str, name: str) -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    middlewares = Middlewares().add_shared(OpenTelemetryMetrics(meters))
    ended = asyncio.Queue[bytes]()
    at_work: list[Points] = []

    async def handle(delivery: harebell.Delivery) -> None:
        try:
            match delivery.body:
                case b"fails":
                    raise LookupError
                case b"refuses":
                    raise harebell.Reject
                case _:
                    at_work.append(points(reader)["harebell.consumer.handlers"])
        finally:
            ended.put_nowait(delivery.body)

    async def later() -> AsyncIterator[harebell.Publication]:
        yield harebell.Publication(b"3", "", name)

    async with harebell.connect(broker_url, timeout=60, middleware=middlewares) as connection:
        channel = await connection.channel()
        await channel.queue_declare(name, exclusive=True)
        await channel.confirm_select()
        channel.confirmations()
        await channel.publish(b"1", "", name)
        await channel.send(b"2", "", name)
        await channel.publish_many(later())
        channel.publish_nowait(b"4", "", name)
        with pytest.raises(errors.Unroutable):
            await channel.publish(b"m", "", "nowhere", mandatory=True)
        for _ in range(4):
            assert await channel.get(name, no_ack=True) is not None
        assert await channel.get(name) is None
        async with connection.consume(name, handle, max_failures=None) as workers:
            for body in (b"fails", b"refuses", b"returns", b"returns"):
                await channel.publish(body, "", name)
                await asyncio.wait_for(ended.get(), 60)
            await workers.stop()
    assert at_work == [{("", name, ""): 1}] * 2
    found = points(reader)
    assert found["messaging.client.sent.messages"] == {
        ("publish", "amq.default", ""): 7,
        ("publish", "amq.default", "Unroutable"): 1,
        ("publish", "", ""): 1,
    }
    assert found["messaging.client.consumed.messages"] == {("get", name, ""): 4, ("receive", name, ""): 4}
    assert found["messaging.client.operation.duration"] == {
        ("publish", "amq.default", ""): 6,
        ("publish", "amq.default", "Unroutable"): 1,
        ("publish", "", ""): 1,
        ("get", name, ""): 5,
    }
    assert found["messaging.process.duration"] == {
        ("process", name, ""): 2,
        ("process", name, "LookupError"): 1,
        ("process", name, "reject"): 1,
    }
    assert found["harebell.consumer.handlers"] == {("", name, ""): 0}
    meters.shutdown()


def test_without_the_package_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import harebell\n"
        "print(harebell.middleware.Middlewares.__name__)\n"
        "try: harebell.middleware.OpenTelemetry\n"
        "except harebell.errors.MissingDependency as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == [
        "Middlewares",
        "tracing needs the package opentelemetry-api: pip install 'harebell[otel]'",
    ]
