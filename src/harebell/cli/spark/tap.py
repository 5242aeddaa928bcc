"""`harebell spark tap QUEUE`: a stream queue bound beside a work queue, for pipelines to read."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from harebell.cli.spark.spark_job import DEFAULT_URL, Url
from harebell.cli.terminal.output import say
from harebell.cli.validators import Number, Seconds, maybe_empty
from harebell.spark.streams.tap import tap as put_tap

__all__ = ["tap"]


def tap(
    queue: Annotated[str | None, Parameter(help="The work queue: its bindings are copied.")] = None,
    *,
    url: Url = DEFAULT_URL,
    exchange: Annotated[str | None, Parameter(help="Tap this exchange instead of a queue.")] = None,
    key: Annotated[
        tuple[str, ...],
        Parameter(validator=maybe_empty, negative=(), help="Binding key for --exchange; may be repeated."),
    ] = (),
    stream: Annotated[str | None, Parameter(help="Name of the stream queue. [default: QUEUE.tap]")] = None,
    max_age: Annotated[str, Parameter(help="How long the stream retains messages: 12h, 7D, ...; 'forever'.")] = "7D",
    max_bytes: Annotated[
        int | None, Parameter(help="How many bytes the stream retains.", validator=Number(gte=1, lte=2**63 - 1))
    ] = None,
    management_url: Annotated[
        str | None, Parameter(help="A RabbitMQ's management plugin, which knows its bindings: http://host:15672")
    ] = None,
    timeout: Annotated[float, Parameter(help="Seconds for each answer.", validator=Seconds())] = 30.0,
) -> int:
    """Bind a stream queue beside a work queue. Consumers still get every message; pipelines read the stream.

    The stream gets the messages published from now on. A second call changes nothing. Delete the stream to end the tap.
    """
    done = put_tap(
        url,
        queue,
        exchange=exchange,
        routing_keys=key,
        stream=stream,
        max_age=None if max_age == "forever" else max_age,
        max_bytes=max_bytes,
        management_url=management_url,
        timeout=timeout,
    )
    say(f"stream queue '{done.stream}' gets what is published to")
    for binding in done.bindings:
        arguments = f" {dict(binding.arguments)}" if binding.arguments else ""
        say(f"  exchange '{binding.exchange}' with key '{binding.routing_key}'{arguments}")
    return 0
