"""The event loop in a thread."""

from __future__ import annotations

import asyncio
import threading

import pytest

from harebell.cli.flights.background import Background


async def thread_name() -> str:
    return threading.current_thread().name


def test_calls_run_in_the_loop_thread() -> None:
    with Background(asyncio.new_event_loop) as background:
        assert background.call(thread_name()) == "loop"
        assert background.start(thread_name()).result() == "loop"


def test_exceptions_come_back() -> None:
    async def fail() -> None:
        raise KeyError("x")

    with Background(asyncio.new_event_loop) as background, pytest.raises(KeyError):
        background.call(fail())


def test_leaving_cancels_what_still_runs() -> None:
    cancelled, started = threading.Event(), threading.Event()

    async def for_ever() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    before = set(threading.enumerate())
    with Background(asyncio.new_event_loop) as background:
        future = background.start(for_ever())
        assert started.wait(60)
    assert cancelled.is_set()
    assert future.cancelled()
    assert set(threading.enumerate()) <= before
