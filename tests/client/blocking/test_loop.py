"""The lock of the loop: whenever an interrupt comes, the thread holds it inside its `with` statement only."""

from __future__ import annotations

import os
import subprocess
import sys

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
