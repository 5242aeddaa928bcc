"""The blocking API of sessions has the methods of the asyncio API, with the same parameters, types and docstrings."""

from __future__ import annotations

import inspect

import pytest

from harebell import blocking, sessions
from harebell.client import blocking as client_blocking, sessions as client_sessions
from tests.client.blocking.test_signatures import DUNDERS, public, shape

PAIRS = [
    (sessions.Connection, blocking.sessions.Connection),
    (sessions.Session, blocking.sessions.Session),
    (sessions.Consumer, blocking.sessions.Consumer),
    (sessions.Delivery, blocking.sessions.Delivery),
    (sessions.Transaction, blocking.sessions.Transaction),
    (sessions.Branch, blocking.sessions.Branch),
    (sessions.ConnectionHarness, blocking.sessions.ConnectionHarness),
    (sessions.SessionHarness, blocking.sessions.SessionHarness),
    (sessions.ReconnectSignal, blocking.sessions.ReconnectSignal),
]
MORE: dict[type, set[str]] = {blocking.sessions.Consumer: {"receive"}}


@pytest.mark.parametrize("model, twin", PAIRS, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_both_have_the_same_members(model: type, twin: type) -> None:
    wanted = {DUNDERS.get(name, name): member for name, member in public(model).items()}
    ours = public(twin)
    assert sorted(ours.keys() - MORE.get(twin, set())) == sorted(wanted)
    for name, member in wanted.items():
        assert shape(ours[name]) == shape(member), name
        assert not inspect.iscoroutinefunction(ours[name])
        assert ours[name].__doc__ or name.startswith("__") or not member.__doc__, name


def test_both_connect_alike() -> None:
    theirs, ours = inspect.signature(sessions.connect), inspect.signature(blocking.sessions.connect)
    assert ours.parameters == theirs.parameters
    assert theirs.return_annotation == f"Opening[{ours.return_annotation}]"


def test_both_packages_offer_the_same() -> None:
    assert sorted(client_blocking.sessions.__all__) == sorted(client_sessions.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'session'"):
        blocking.session  # noqa: B018
