"""Callers of every kind: no loop, several loops, loops that have ended, threads, forked children."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from harebell import errors
from harebell.channels import ChannelLayer
from harebell.channels.runtime import LayerRuntime
from tests.channels.conftest import Make

HELLO = {"type": "hello"}


@pytest.fixture
def plain(broker_url: str, prefix: str) -> Iterator[ChannelLayer]:
    layer = ChannelLayer(broker_url, prefix=prefix, expiry=600, timeout=60)
    yield layer
    async_to_sync(layer.close)()


def test_from_code_without_a_loop(plain: ChannelLayer) -> None:
    for number in range(3):
        async_to_sync(plain.send)("work", {"type": "x", "n": number})
    assert [async_to_sync(plain.receive)("work")["n"] for _ in range(3)] == [0, 1, 2]


def test_from_many_threads(plain: ChannelLayer) -> None:
    def work(number: int) -> None:
        async_to_sync(plain.send)("work", {"type": "x", "n": number})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted([async_to_sync(plain.receive)("work")["n"] for _ in range(20)]) == list(range(20))


def test_two_loops_at_once_read_one_channel(plain: ChannelLayer) -> None:
    channel = asyncio.run(plain.new_channel())
    got: list[int] = []

    def read() -> None:
        async def main() -> None:
            got.extend([(await plain.receive(channel))["n"] for _ in range(10)])

        asyncio.run(main())

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()

    async def send() -> None:
        for number in range(20):
            await plain.send(channel, {"type": "x", "n": number})

    asyncio.run(send())
    for thread in threads:
        thread.join(60)
    assert sorted(got) == list(range(20))


def test_a_loop_that_ended_while_it_waited(plain: ChannelLayer) -> None:
    channel = asyncio.run(plain.new_channel())
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(plain.receive(channel))
    loop.run_until_complete(asyncio.sleep(0.05))
    loop.close()  # without a word to the task
    del waiting

    async def main() -> dict[str, object]:
        await plain.send(channel, HELLO)
        return await plain.receive(channel)

    assert asyncio.run(main()) == HELLO


def _child(layer: ChannelLayer, parents: str, answers: multiprocessing.Queue[str]) -> None:
    async def main() -> str:
        mine = await layer.new_channel()
        await layer.send(mine, {"type": "mine"})
        await layer.send(parents, {"type": "from the child"})
        return str((await layer.receive(mine))["type"])

    answers.put(asyncio.run(main()))


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_has_its_own(plain: ChannelLayer) -> None:
    channel = asyncio.run(plain.new_channel())
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_child, args=(plain, channel, answers))
    child.start()
    assert answers.get(timeout=60) == "mine"
    assert asyncio.run(asyncio.wait_for(plain.receive(channel), 60)) == {"type": "from the child"}
    child.join(60)


SHARED: dict[str, Callable[[LayerRuntime], Coroutine[Any, Any, object]]] = {
    "a channel's queue": lambda runtime: runtime.connection.declare("work"),
    "a process's queue": lambda runtime: runtime.local_queues.ensure("specific.x!"),
    "control messages": lambda runtime: runtime.controls.ensure(),
    "a membership": lambda runtime: runtime.groups.add("g", f"specific.{runtime.connection.client_id}!x"),
}


@pytest.mark.parametrize("start", SHARED.values(), ids=list(SHARED))
async def test_an_error_whose_callers_were_all_cancelled_is_no_complaint(
    make: Make, monkeypatch: pytest.MonkeyPatch, start: Callable[[LayerRuntime], Coroutine[Any, Any, object]]
) -> None:
    """And the next caller begins anew."""
    runtime = make().runtime
    complaints: list[dict[str, Any]] = []

    async def all_cancelled() -> None:
        begun, end = asyncio.Event(), asyncio.Event()

        async def refused(work: object) -> None:
            begun.set()
            await end.wait()
            raise errors.NotAllowed("refused")

        before = asyncio.all_tasks()
        with monkeypatch.context() as patched:
            patched.setattr(runtime.connection, "over_links", refused)
            patched.setattr(runtime.thread.loop, "call_exception_handler", complaints.append)
            caller = asyncio.ensure_future(start(runtime))
            await begun.wait()
            caller.cancel()
            await asyncio.wait([caller])
            end.set()
            if left := asyncio.all_tasks() - before:
                await asyncio.wait(left)
            del caller, left
            for _ in range(3):
                await asyncio.sleep(0)
                gc.collect()

    await runtime.call(all_cancelled)
    assert complaints == []
    await runtime.call(lambda: start(runtime))
