"""The tree of errors: it is as its module draws it, and each error can be copied, pickled and shown."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from harebell import errors
from harebell.client.messages import Returned
from harebell.protocol.v091 import Properties
from harebell.protocol.v091.content import Content, encode_content

LINE = re.compile(r"^    ((?:[│ ]   )*(?:[├└]── )?)(\w+)(?: +(\d{3})\b)?", re.MULTILINE)
# Arguments of constructors, by the parameter's name.
GIVEN: dict[str, Any] = {
    "detail": "no queue 'grüße' in vhost '/'",
    "class_id": 50,
    "method_id": 10,
    "message": "it failed",
    "text": "2 of 3 queues could not be archived",
    "archived": {"q": 3},
    "publish_tags": (1, 2),
    "orphaned": (2,),
    "failures": {3: errors.Nacked("full", (4,)), 5: errors.NotFound("no queue", 60, 20)},
    "first": 1,
    "last": 9,
    "success_first": 2,
    "success_last": 3,
    "orphan_count": 7,
    "success_count": 2,
    "returned": "what came back",
    "kind": "KeyError",
    "cls": errors.FrameError,
    "channel": 7,
    "scope": "channel",
    "code": 1,
    "unknown": 4,
    "deliveries": 5,
}


def tree(root: type[errors.HarebellError] = errors.HarebellError, depth: int = 0) -> Iterator[tuple[int, type]]:
    yield depth, root
    for each in root.__subclasses__():
        if each.__module__ == errors.__name__:
            yield from tree(each, depth + 1)


CLASSES = [cls for _, cls in tree()]


def made(cls: type[errors.HarebellError], many: bool = True) -> errors.HarebellError:
    """An error of that class with all arguments, or with only those that it must have."""
    if not any("__init__" in vars(base) for base in cls.__mro__ if base.__module__ == errors.__name__):
        return cls("it failed")
    parameters = inspect.signature(cls).parameters.values()
    return cls(**{each.name: GIVEN[each.name] for each in parameters if many or each.default is each.empty})


def state(value: object) -> object:
    """What an error says and carries, to compare."""
    if isinstance(value, errors.HarebellError):
        attributes = {name: state(each) for name, each in vars(value).items()}
        return type(value), str(value), repr(value), value.args, attributes
    if isinstance(value, dict):
        return {key: state(each) for key, each in value.items()}
    return value


def test_the_module_draws_its_tree() -> None:
    drawn = [
        (len(indent) // 4, name, int(code) if code else None)
        for indent, name, code in LINE.findall(errors.__doc__ or "")
    ]
    codes = {cls: code for code, cls in errors.REPLY_CODES.items()}
    assert drawn == [(depth, cls.__name__, codes.get(cls)) for depth, cls in tree()]


@pytest.mark.parametrize("many", [True, False])
@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_is_copied_and_pickled(cls: type[errors.HarebellError], many: bool) -> None:
    error = made(cls, many)
    error.add_note("while it was tested")
    copies = [copy.copy(error), copy.deepcopy(error)]
    copies += [pickle.loads(pickle.dumps(error, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    for each in copies:
        assert each is not error
        assert state(each) == state(error)
        assert each.__notes__ == ["while it was tested"]


def fail(cls: type[errors.HarebellError]) -> None:
    raise made(cls)


def test_a_pool_of_processes_hands_on_every_error() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        for cls, future in [(cls, pool.submit(fail, cls)) for cls in CLASSES]:
            error = future.exception(timeout=60)
            assert state(error) == state(made(cls))


def test_a_returned_message_goes_with_its_error() -> None:
    frames = encode_content(1, Properties(headers={"a": 1}), b"body", 4096)
    content = Content(1, b"", frames, 4)
    returned = Returned(content, 312, "NO_ROUTE", "exchange", "key")
    error = pickle.loads(pickle.dumps(errors.Unroutable("no queue", returned)))
    assert (error.returned.body, error.returned.properties.headers) == (b"body", {"a": 1})
    assert (error.returned.reply_code, error.returned.routing_key) == (312, "key")


@pytest.mark.parametrize("cls", errors.REPLY_CODES.values())
def test_a_close_becomes_the_error_that_the_peer_raised(cls: type[errors.AmqpError]) -> None:
    raised = cls("no queue 'q'", 50, 10)
    received = errors.from_reply(raised.reply_code, raised.reply_text, 50, 10)
    assert state(received) == state(raised)
    assert str(received) == f"{cls.reply_code} {cls.reply_name} - no queue 'q'"


def test_a_541_that_closes_a_channel_is_a_failed_plug_in() -> None:
    received = errors.from_reply(541, "INTERNAL_ERROR - of exchange 'x'", 60, 40, "channel")
    assert state(received) == state(errors.PluginFailed("of exchange 'x'", 60, 40))
    assert received.scope == "channel"


@pytest.mark.parametrize("scope, cls", [("channel", errors.ChannelError), ("connection", errors.ConnectionError)])
def test_a_code_that_nobody_knows(scope: errors.Scope, cls: type[errors.AmqpError]) -> None:
    error = errors.from_reply(799, "LATER - a text", 1, 2, scope)
    assert type(error) is cls
    assert (error.reply_code, error.scope, error.detail, error.class_id) == (799, scope, "LATER - a text", 1)
    assert str(error) == "799 UNKNOWN - LATER - a text"
    assert cls.reply_name != "UNKNOWN"


def test_an_error_of_the_peer_says_how_to_answer() -> None:
    error = errors.RemoteProtocolError(errors.NotFound, "no channel", 20, 40, channel=3)
    assert (error.reply_code, error.scope, error.channel) == (404, "channel", 3)
    assert error.reply_text == "NOT_FOUND - no channel"
    assert str(error) == "404 NOT_FOUND - no channel"


@pytest.mark.parametrize("text", ["", "x" * 255, "ü" * 127, "é" * 127 + "x"])
def test_a_text_that_fits_stays(text: str) -> None:
    assert errors.clip_reply_text(text) == text


@pytest.mark.parametrize("text", ["x" * 256, "ü" * 128, "x" + "ü" * 127 + "x", "€" * 86, "𝄞" * 64, "x" * 300])
def test_a_text_that_is_too_long_is_cut_between_characters(text: str) -> None:
    cut = errors.clip_reply_text(text)
    assert 250 <= len(cut.encode()) <= 255
    assert cut.endswith("...")
    assert text.startswith(cut[:-3])


def test_orphaned_publications_are_all_of_them_unless_some_were_refused() -> None:
    assert errors.PublishOrphaned("lost", (1, 2)).orphaned == (1, 2)
    assert errors.PublishOrphaned("lost", (1, 2), (2,)).orphaned == (2,)


def test_what_was_acknowledged_is_said_only_when_there_is_something() -> None:
    assert str(errors.AcknowledgeOrphans(1, 4, orphan_count=4)) == (
        "4 tags orphaned (1 - 4), 0 tags successfully acknowledged"
    )
    assert str(errors.AcknowledgeOrphans(1, 4, 5, 6, 4, 2)).endswith("2 tags successfully acknowledged (5 - 6)")
