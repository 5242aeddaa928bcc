"""Sessions of the blocking API in signals, forks, running loops and at the interpreter's end."""

from __future__ import annotations

import asyncio
import os

import pytest

from harebell import blocking, errors
from harebell.client.blocking import thread
from harebell.testing import EmbeddedBroker
from tests.client.blocking.test_thread import run

SIGNALS = """
import os, signal, sys, threading
import harebell
from harebell import blocking, errors

url, queue = sys.argv[1:]
armed, arm = os.pipe()  # a signal may come in the midst of a semaphore, and leave it broken
wanted = False

def interrupt(number, frame):
    if wanted:
        raise KeyboardInterrupt

def unraisable(ignored):
    assert ignored.exc_type is KeyboardInterrupt, ignored  # in a weak reference's callback: Python passes it over

signal.signal(signal.SIGINT, interrupt)
sys.unraisablehook = unraisable

def interrupter():
    while True:
        os.read(armed, 1)
        while wanted:  # a thread that is just about to wait for a lock does not notice a signal either
            os.kill(os.getpid(), signal.SIGINT)
            pause.wait(0.05)

pause = threading.Event()
threading.Thread(target=interrupter, daemon=True).start()

def interrupted(work, times):
    global wanted
    for _ in range(times):
        try:
            wanted = True
            os.write(arm, b"!")
            while True:
                work()
        except KeyboardInterrupt:
            while wanted:
                try:
                    wanted = False
                except KeyboardInterrupt:
                    pass

with blocking.sessions.connect(url, timeout=60) as connection, connection.session() as session:
    session.queue_declare(queue)
    session.queue_declare(queue + ".moved")
    published = 0

    def publish():
        global published
        session.publish(b"m", "", queue)
        published += 1

    interrupted(publish, 40)
    assert published <= session.message_count(queue) <= published + 40
    interrupted(lambda: session.message_count(queue), 40)
    with connection.session() as mover:

        def move():
            with mover.transaction():
                message = mover.get(queue)
                if message is not None:
                    mover.publish(message.body, "", queue + ".moved")
                    message.accept()

        total = session.message_count(queue)
        interrupted(move, 40)
    assert session.message_count(queue) + session.message_count(queue + ".moved") == total
    batch = [harebell.Publication(b"n", "", queue) for _ in range(600)]
    interrupted(lambda: session.publish_many(batch), 20)
    reading = connection.session()
    deliveries = reading.consume(queue, window=50)

    def consume():
        for delivery in deliveries:
            try:
                delivery.accept()
            except errors.LocalProtocolError:
                pass  # an interrupt came right after it was accepted

    interrupted(consume, 40)
    for _ in range(1000):
        session.publish(b"last", "", queue)
    last = 0
    while last < 1000 - 50:  # an interrupt may have taken a delivery with it
        for delivery in deliveries.receive(timeout=60):
            last += delivery.body == b"last"
            delivery.accept()
    deliveries.cancel()
    reading.close()
    session.publish(b"still", "", queue)
    session.queue_delete(queue)
    session.queue_delete(queue + ".moved")
print("usable")
"""


def test_interrupts_leave_everything_usable(harebell_url: str, name: str) -> None:
    assert run(SIGNALS, harebell_url, name) == "usable\n"


FORK = """
import os, sys
from harebell import blocking, errors

url, queue = sys.argv[1:]
connection = blocking.sessions.connect(url, timeout=60)
session = connection.session()
session.queue_declare(queue)
deliveries = session.consume(queue)
deliveries.start()
child = os.fork()
if not child:
    publish, take = lambda: session.publish(b"", "", queue), lambda: next(deliveries)
    for call in (connection.close, connection.session, publish, take, session.transaction().__enter__):
        try:
            call()
        except errors.LocalProtocolError as error:
            assert "before a fork" in str(error), error
        else:
            raise AssertionError("the parent's connection was used")
    with blocking.sessions.connect(url, timeout=60) as own, own.session() as mine:
        mine.publish(b"from the child", "", queue)
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
print(next(deliveries).body.decode())
session.queue_delete(queue)
connection.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_connects_for_itself(harebell_url: str, name: str) -> None:
    with blocking.sessions.connect(harebell_url) as connection, connection.session() as session:
        session.queue_declare(name)
        session.queue_delete(name)
    assert run(FORK, harebell_url, name) == "from the child\n"


END = """
import sys, threading
import harebell
from harebell import blocking

url, queue = sys.argv[1:]
connection = blocking.sessions.connect(url, timeout=60)
session = connection.session()
waiting = threading.Event()

def consume():
    deliveries = connection.session().consume(queue)
    deliveries.start()
    waiting.set()
    for delivery in deliveries:
        pass

threading.Thread(target=consume, daemon=True).start()
waiting.wait()
events = connection.events()
for delivery in range(10):
    session.publish(b"m", "", queue + ".out")
print("the end")
"""


def test_a_program_may_end_without_closing_anything(harebell_url: str, name: str) -> None:
    with blocking.sessions.connect(harebell_url, timeout=60) as connection, connection.session() as session:
        session.queue_declare(name)
        session.queue_declare(f"{name}.out")
        assert run(END, harebell_url, name) == "the end\n"
        assert session.message_count(f"{name}.out") == 10
        session.queue_delete(name)
        session.queue_delete(f"{name}.out")


async def test_inside_a_running_loop_it_refuses(harebell_url: str) -> None:
    with pytest.raises(errors.LocalProtocolError, match=r"asyncio\.to_thread"):
        blocking.sessions.connect(harebell_url)
    connection = await asyncio.to_thread(blocking.sessions.connect, harebell_url)
    session = await asyncio.to_thread(connection.session)
    for call in (connection.close, session.sync, lambda: next(session.consume("q"))):
        with pytest.raises(errors.LocalProtocolError, match=r"asyncio\.to_thread"):
            call()
    await asyncio.to_thread(connection.close)


def test_a_connection_that_is_dropped_says_so_and_is_closed(harebell_url: str) -> None:
    held = [blocking.sessions.connect(harebell_url, timeout=60)]
    inner = held[0].inner
    with pytest.warns(ResourceWarning, match="unclosed connection to"):
        held.clear()
    assert "closed by this client" in str(thread.io_thread().run(inner.wait_closed))


def test_credentials_may_block() -> None:
    with EmbeddedBroker() as server:
        bare = server.url.replace("guest:guest@", "nobody:wrong@")
        with blocking.sessions.connect(bare, credentials=lambda: ("guest", "guest"), timeout=60) as connection:
            connection.test().force_reconnect()
