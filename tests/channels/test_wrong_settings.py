"""A table of wrong settings, each met by each call: all are told at once, in words, and none is tried for long."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from harebell import errors
from harebell.broker import Broker, Tls
from harebell.channels import AsgiChannelLayer, ChannelLayer
from harebell.channels.messages.serializers import Json
from harebell.channels.names import MAX_LENGTH, MAX_PREFIX, Names

HELLO = {"type": "hello"}
AT_ONCE = 15.0  # seconds, on a machine that is busy; the layer's timeout is 60

# Of each kind of layer, each call that needs the broker.
CALLS: dict[str, Callable[[ChannelLayer], Awaitable[Any]]] = {
    "send": lambda layer: layer.send("work", HELLO),
    "send to a local channel": lambda layer: layer.send("specific.0123456789ab!x", HELLO),
    "receive": lambda layer: layer.receive("work"),
    "new_channel": lambda layer: layer.new_channel(),
    "group_add": lambda layer: layer.group_add("g", "work"),
    "group_add of a local channel": lambda layer: layer.group_add("g", "specific.0123456789ab!x"),
    "group_discard": lambda layer: layer.group_discard("g", "work"),
    "group_send": lambda layer: layer.group_send("g", HELLO),
    "group_channels": lambda layer: layer.group_channels("g"),
    "flush": lambda layer: layer.flush(),
}
SYNC_CALLS: dict[str, Callable[[AsgiChannelLayer], Any]] = {
    "send": lambda layer: layer.send("work", HELLO),
    "receive": lambda layer: layer.receive(["work"]),
    "receive, blocking": lambda layer: layer.receive(["work"], block=True),
    "new_channel": lambda layer: layer.new_channel("x?"),
    "group_add": lambda layer: layer.group_add("g", "work"),
    "group_discard": lambda layer: layer.group_discard("g", "work"),
    "send_group": lambda layer: layer.send_group("g", HELLO),
    "group_channels": lambda layer: layer.group_channels("g"),
    "flush": lambda layer: layer.flush(),
    "channel_statistics": lambda layer: layer.channel_statistics("work"),
}


async def told(layer: ChannelLayer, error: type[Exception], text: str) -> None:
    """Each call raises this error, one after the other and all at once."""
    for call in CALLS.values():
        with pytest.raises(error, match=text):
            await asyncio.wait_for(call(layer), AT_ONCE)
    for result in await asyncio.gather(*(call(layer) for call in CALLS.values()), return_exceptions=True):
        assert isinstance(result, error), result
        assert text in str(result)
    await layer.close()


def url_with(url: str, user: str = "guest:guest", vhost: str = "") -> str:
    address = urlsplit(url)
    return f"amqp://{user}@{address.hostname}:{address.port}/{vhost}"


@pytest.mark.parametrize(
    "user, vhost, error, text",
    [
        ("guest:wrong", "", errors.AccessRefused, "ACCESS_REFUSED"),
        ("nobody:guest", "", errors.AccessRefused, "ACCESS_REFUSED"),
        ("guest:guest", "there.is.none", errors.NotAllowed, "there.is.none"),
    ],
)
async def test_a_login_that_is_refused(
    broker_url: str, prefix: str, user: str, vhost: str, error: type[errors.HarebellError], text: str
) -> None:
    url = url_with(broker_url, user, vhost)
    await told(ChannelLayer(url, prefix=prefix, timeout=60), error, text)
    # Another broker that cannot be reached does not hide it, whichever comes first.
    nowhere = "amqp://guest:guest@127.0.0.1:9/"
    for hosts in ([nowhere, url], [url, nowhere]):
        layer = ChannelLayer(hosts=hosts, prefix=prefix, timeout=60)
        with pytest.raises(error):
            await asyncio.wait_for(layer.receive("work"), AT_ONCE)
        await layer.close()


@pytest.mark.parametrize("call", SYNC_CALLS)
def test_a_login_that_is_refused_is_told_to_the_other_layer(broker_url: str, prefix: str, call: str) -> None:
    layer = AsgiChannelLayer(url_with(broker_url, "guest:wrong"), prefix=prefix, timeout=60)
    with pytest.raises(errors.AccessRefused):
        SYNC_CALLS[call](layer)
    layer.close()


async def test_a_password_that_is_wrong_only_at_first(prefix: str) -> None:
    """The next call tries again."""
    async with Broker() as broker:
        layer = ChannelLayer(url_with(broker.url, "new:secret"), prefix=prefix, timeout=60)
        with pytest.raises(errors.AccessRefused):
            await layer.receive("work")
        broker.add_user("new", "secret")
        broker.set_permissions("new")
        await layer.send("work", HELLO)
        assert await layer.receive("work") == HELLO
        await layer.close()


TLS = Path(__file__).parents[1] / "client" / "tls"
OTHER = Path(__file__).parents[1] / "broker" / "tls"


@pytest.mark.parametrize(
    "scheme, query, error, text",
    [
        ("amqps", "", errors.ConnectionLost, "certificate verify failed"),  # signed by nobody known
        ("amqps", f"?cacertfile={OTHER / 'client.pem'}", errors.ConnectionLost, "certificate verify failed"),
        (
            "amqps",
            f"?cacertfile={TLS / 'certificate.pem'}&server_name_indication=elsewhere",
            errors.ConnectionLost,
            "not valid for 'elsewhere'",
        ),
        ("amqps", "?cacertfile=/no/such.pem", errors.InvalidArgument, "/no/such.pem"),
        ("amqps", f"?verify=verify_none&certfile={TLS / 'key.pem'}", errors.InvalidArgument, "key.pem"),
        ("amqps to the plain port", "?verify=verify_none", errors.ConnectionLost, "(?i)wrong.version"),
    ],
)
async def test_a_certificate_that_does_not_fit(
    prefix: str, scheme: str, query: str, error: type[errors.HarebellError], text: str
) -> None:
    async with Broker(tls=Tls(TLS / "certificate.pem", TLS / "key.pem")) as broker:
        port = broker.port if "plain" in scheme else broker.tls_port
        layer = ChannelLayer(f"amqps://guest:guest@localhost:{port}/{query}", prefix=prefix, timeout=60)
        for call in CALLS.values():
            with pytest.raises(error, match=text):
                await asyncio.wait_for(call(layer), AT_ONCE)
        await layer.close()


async def test_another_server_than_a_broker(prefix: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    layer = ChannelLayer(f"amqp://guest:guest@127.0.0.1:{port}/", prefix=prefix, timeout=60)
    with pytest.raises(errors.RemoteProtocolError):
        await asyncio.wait_for(layer.receive("work"), AT_ONCE)
    await layer.close()
    server.close()
    await server.wait_closed()


async def test_a_password_that_changes_under_a_reader(prefix: str) -> None:
    """Calls are told at once, who waits for a message after the layer's timeout."""
    async with Broker() as broker:
        broker.add_user("new", "secret")
        broker.set_permissions("new")
        layer = ChannelLayer(url_with(broker.url, "new:secret"), prefix=prefix, timeout=60)
        channel = await layer.new_channel()
        waiting = [asyncio.create_task(layer.receive(name)) for name in (channel, "work")]
        await layer.send("other", HELLO)
        connection = layer.runtime.connection
        patient, connection.settings = connection.settings, replace(connection.settings, timeout=1)
        broker.remove_user("new")
        for each in list(broker.node.connections):
            each.close(errors.ConnectionForced("a test"))
        for task in waiting:
            with pytest.raises(errors.AccessRefused):
                await asyncio.wait_for(task, AT_ONCE)
        with pytest.raises(errors.AccessRefused):
            await layer.send("work", HELLO)
        connection.settings = patient
        broker.add_user("new", "secret")
        broker.set_permissions("new")
        await layer.send(channel, HELLO)
        assert await layer.receive(channel) == HELLO
        await layer.close()


async def test_a_deadline_says_why(prefix: str) -> None:
    layer = ChannelLayer("amqp://guest:guest@127.0.0.1:9/", prefix=prefix, timeout=0.5)
    for name in ("send", "new_channel", "group_add", "group_send", "flush"):
        with pytest.raises(errors.DeadlineExceeded, match="cannot be reached") as caught:
            await asyncio.wait_for(CALLS[name](layer), AT_ONCE)
        assert isinstance(caught.value.__cause__, errors.ConnectionLost)
    await layer.close()


HOSTS: list[tuple[dict[str, Any], str]] = [
    ({"url": "localhost"}, "url: the URL's scheme is ''"),
    ({"url": "localhost:5672"}, "url: the URL's scheme is 'localhost'"),
    ({"url": "redis://localhost:6379"}, "known are amqp and amqps"),
    ({"url": "amqp://localhost:port/"}, "url: not a URL"),
    ({"url": "amqp://localhost/a/b"}, "unescaped slash"),
    ({"url": "amqp://localhost/?heartbeats=3"}, "'heartbeats' is not known"),
    ({"url": "amqp://localhost/?cacertfile=x"}, "use amqps://"),
    ({"url": ("localhost", 5672)}, "url is a tuple: a URL is needed"),
    ({"url": 5672}, "url is a int"),
    ({"url": "embedded://here"}, "embedded://, without more"),
    ({"hosts": []}, "no URL of a broker"),
    ({"hosts": "amqp://localhost/"}, "a list of URLs is needed"),
    ({"hosts": [("localhost", 6379)]}, r"hosts\[0\] is a tuple"),
    ({"hosts": ["amqp://localhost/", {"host": "localhost"}]}, r"hosts\[1\] is a dict"),
    ({"hosts": 7}, "a list of URLs is needed"),
    ({"url": "amqp://localhost/", "hosts": ["amqp://localhost/"]}, "both given"),
    ({"prefix": "x" * 49}, "1 to 48"),
    ({"prefix": ""}, "1 to 48"),
    ({"prefix": "a:b"}, "prefix='a:b'"),
    ({"prefix": "a\u0663"}, "ASCII letters, digits"),
    ({"expiry": 2e6}, "expiry=2000000.0: seconds are needed, from 0.001 to 1,000,000"),
    ({"group_expiry": 2e6}, "group_expiry"),
    ({"timeout": 0}, "timeout=0"),
    ({"capacity": 1.5}, "capacity=1.5"),
    ({"channel_capacity": {"x*": -1}}, "channel_capacity"),
    ({"url": None}, r"url is None \(is a setting or an environment variable missing\?\): give text such as amqp://"),
    ({"hosts": [None]}, r"hosts\[0\] is None \(is a setting"),
    *[({"prefix": given}, "prefix=") for given in (None, 5, b"asgi", ["asgi"])],
    *[
        ({name: given}, f"{name}=.*seconds are needed")
        for name in ("expiry", "group_expiry", "timeout")
        for given in (None, "60", math.nan, math.inf, -1, True, Decimal(60), timedelta(seconds=60))
    ],
    *[({"capacity": given}, "capacity=.*a whole number") for given in (None, "100", -1, 2**63, True, [1])],
    *[
        ({"max_message_size": given}, "max_message_size=.*a whole number of bytes, 1 or more")
        for given in (None, 0, -1, "1", 1.5, math.inf, True, b"1", [1])
    ],
    *[
        ({name: given}, f"{name}.*{text}")
        for name in ("channel_capacity", "group_history")
        for given, text in (
            ([("x*", 5)], "numbers by pattern of a name"), (5, "numbers by pattern"), ("x*", "numbers by pattern"),
            ({"x*"}, "numbers by pattern"), ({5: 5}, "5 is no pattern"), ({b"x": 5}, "b'x' is no pattern"),
            ({re.compile(b"x"): 5}, "is no pattern"), ({None: 5}, "None is no pattern"), ({"": 5}, "'' is no pattern"),
            ({"x": "5"}, r"\['x'\]='5'"), ({"x": None}, r"\['x'\]=None"), ({"x": 1.5}, r"\['x'\]=1.5"),
        )
    ],
    *[
        ({"serializer": given}, text)
        for given, text in (
            ("pickle", "serializer='pickle': msgpack, json, or an object"), ("", "serializer=''"),
            (None, "serializer is None, which has no dumps: give msgpack, json, or an object"), (5, "has no dumps"),
            (object(), "has no dumps"), (b"json", "has no dumps"), (SimpleNamespace(dumps=len), "has no loads"),
            (SimpleNamespace(dumps=5, loads=len), "the serializer's dumps 5 cannot be called"),
            (SimpleNamespace(dumps=lambda: b"", loads=len), r"cannot be called with \(message\)"),
            (SimpleNamespace(dumps=len, loads=lambda: None), r"cannot be called with \(body\)"),
            (Json, "serializer is the class Json: give an object of it"),
        )
    ],
    *[
        ({"symmetric_encryption_keys": given}, text)
        for given, text in (
            ("key", "is one str: a list of keys"), (b"key", "is one bytes: a list"), ("", "a list of keys"),
            (5, "a list of keys"), ({"key"}, "a list of keys"), ([5], r"keys\[0\] is a int: a key is needed"),
            (["key", None], r"keys\[1\] is a NoneType \(is a setting or an environment variable missing\?\)"),
            ([""], r"keys\[0\] is empty \(is a setting"), ([b""], r"keys\[0\] is empty"),
        )
    ],
    *[({"on_missed": given}, "on_missed") for given in ("x", 5, lambda: None)],
]  # fmt: skip


@pytest.mark.parametrize("given", [None, "5", -1, math.nan, True, timedelta(seconds=5)])
def test_so_it_is_with_the_seconds_of_a_blocking_receive(given: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"block_seconds is .*a number of seconds is needed"):
        AsgiChannelLayer(block_seconds=given)


async def test_a_url_that_is_missing_beside_hosts_is_left_out(broker_url: str, prefix: str) -> None:
    layer = ChannelLayer(None, hosts=[broker_url], prefix=prefix)
    await layer.send("work", HELLO)
    assert await layer.receive("work") == HELLO
    await layer.close()


@pytest.mark.parametrize("kind", [ChannelLayer, AsgiChannelLayer])
@pytest.mark.parametrize("settings, text", HOSTS)
def test_what_can_be_seen_without_a_broker(kind: type[Any], settings: dict[str, Any], text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        kind(**settings)


def test_the_longest_names_fit(prefix: str) -> None:
    name = "x" * (MAX_LENGTH - 1)
    names = Names("p" * MAX_PREFIX)
    ChannelLayer("amqp://localhost/", prefix=names.prefix)
    for made in (names.marker(name, name), names.queue(name), names.control(name), names.joined(name)):
        assert len(made) <= 255
