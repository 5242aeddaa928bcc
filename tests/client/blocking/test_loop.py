"""The lock of the loop: whenever an interrupt comes, the thread holds it inside its `with` statement only."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading

import pytest

from harebell.client.blocking.loop import TurnLoop

PROGRAM = """
import os, random, signal, sys, threading, time
from harebell.client.blocking.loop import TurnLock, TurnLoop

signal.signal(signal.SIGINT, signal.default_int_handler)
armed, arm = os.pipe()

def interrupter():
    while True:
        os.read(armed, 1)
        time.sleep(random.random() / 1000)
        os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupter, daemon=True).start()
loop = TurnLoop()
locks = [loop.lock]
if hasattr(loop.lock, "_recursion_count"):
    locks.append(TurnLock())
for lock in locks:
    inside = 0
    for _ in range(500):
        try:
            os.write(arm, b"!")
            while True:
                with lock:
                    with lock:
                        inside += 1
        except KeyboardInterrupt:
            pass
        assert not lock._is_owned(), lock
    assert inside
loop.close()
print("free")
"""


def test_an_interrupt_leaves_the_lock_free() -> None:
    # Without coverage's variables: a tracer in a storm of signals does not come to its end.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "free\n"), done.stderr


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_the_loop_outlives_what_would_end_the_program(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    loop = TurnLoop()
    later = threading.Event()

    def fail() -> None:
        raise error

    async def fail_in_a_task() -> None:
        raise error

    def serve() -> None:
        with loop.lock:
            loop.run_forever()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    loop.call_soon_threadsafe(fail)
    failed = asyncio.run_coroutine_threadsafe(fail_in_a_task(), loop)
    with pytest.raises(type(error)):
        failed.result(60)
    loop.call_soon_threadsafe(later.set)
    assert later.wait(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()
    assert caplog.text.count("wanted to end the program") >= 2
