"""A signal whose handler raises, at every point of a call where Python may run it.

Whatever the point: the connection stays, an interrupted publication has left whole or not at all, every other one gets
its own answer, and no delivery is lost to the program: it is settled or not, and says so. A signal's handler runs where
CPython looks for signals: at the beginning of a function, after a call and in a loop; the script raises at each
beginning and each return in turn, in every function that the call goes through. It is a process of its own, without
coverage, and without the warning that a coroutine never ran.
"""

from __future__ import annotations

import pytest

from tests.client.blocking.test_thread import run

INTERRUPT = """
import inspect, sys
from harebell import blocking, errors
from harebell.client.blocking.loop import TurnLock
from harebell.client.messages import Publication

ENTER = TurnLock.__enter__.__code__  # what `with` calls, where the lock is one (Python 3.14)
WAITS = inspect.CO_COROUTINE | inspect.CO_GENERATOR  # what it returns to its caller may be a step of it


class Interrupt(BaseException):
    pass


class Points:
    '''Raises at the point number `at` of a call; counts them.'''

    def __init__(self, at):
        self.at, self.seen = at, 0

    def __call__(self, frame, event, argument):
        code = frame.f_code
        if code.co_filename.endswith("_weakrefset.py"):
            return  # Python prints what is raised there, and goes on
        if event == "return" and code.co_name == "receive":
            return  # nobody can have what a call that has ended was about to give
        if event == "return" and code is ENTER:
            return  # CPython goes on in the caller, and looks for no signal before that
        if event in ("call", "c_return") or (event == "return" and not code.co_flags & WAITS):
            self.seen += 1
            if self.seen == self.at:
                sys.setprofile(None)
                raise Interrupt


def interrupt(call, at):
    sys.setprofile(Points(at))
    try:
        call()
    except Interrupt:
        return True
    finally:
        sys.setprofile(None)
    return False
"""


PUBLISHING = (
    INTERRUPT
    + """
url, queue, way, size = sys.argv[1:]
SMALL, LARGE = b"x" * 10, b"y" * int(size)

with blocking.connect(url, timeout=60) as connection, connection.channel() as channel:
    channel.queue_declare(queue)
    lost = []
    connection.notify_disconnect(lost.append)
    if way == "unconfirmed":
        pass
    elif way == "kept":
        channel.confirm_select(on_orphan="retry", on_nack="retry")
    else:
        channel.confirm_select()
    if way == "noticed":
        channel.notify_publish(lambda confirmation: None)
    if way == "send":
        ends = channel.confirmations()
    if way == "producer":
        producer = connection.producer()
        producer.start()
    calls = {
        "publish": lambda: channel.publish(LARGE, "", queue),
        "kept": lambda: channel.publish(LARGE, "", queue),
        "noticed": lambda: channel.publish(LARGE, "", queue),
        "unconfirmed": lambda: channel.publish(LARGE, "", queue),
        "mandatory": lambda: channel.publish(LARGE, "", queue, mandatory=True),
        "another": lambda: channel.publish(LARGE, "amq.direct", "nowhere"),
        "send": lambda: channel.send(LARGE, "", queue),
        "nowait": lambda: channel.publish_nowait(LARGE, "", queue),
        "at once": lambda: channel.publish_nowait(LARGE, "", queue, at_once=True),
        "many": lambda: channel.publish_many([Publication(LARGE, "", queue)] * 3),
        "producer": lambda: producer.publish_soon(LARGE, queue),
    }
    call, whole = calls[way], 3 if way == "many" else 1
    interrupted = 0
    while interrupt(call, interrupted + 1):
        interrupted += 1
        if way != "unconfirmed":  # the next two get the answers that are theirs
            assert channel.publish(SMALL, "", queue, mandatory=True, timeout=60).acked
            try:
                channel.publish(SMALL, "", "no queue of this name", mandatory=True, timeout=60)
                raise AssertionError("was not returned")
            except errors.Unroutable:
                pass
        if way == "producer":
            assert producer.publish_soon(SMALL, queue).result(timeout=60).acked
        assert not lost, (interrupted, lost)
    if way == "producer":
        producer.drain()
    channel.publish_many([Publication(SMALL, "", queue)])
    channel.queue_declare(queue, passive=True)  # also behind what no confirm was awaited for
    bodies = []
    while (delivery := channel.get(queue, no_ack=True)) is not None:
        bodies.append(delivery.body)
    assert set(bodies) <= {SMALL, LARGE}
    if way != "another":
        assert whole <= bodies.count(LARGE) <= whole * (interrupted + 1), (bodies.count(LARGE), interrupted)
    assert not lost
    channel.queue_delete(queue)
print("points", interrupted)
"""
)


WAYS = (
    "publish",
    "kept",
    "noticed",
    "unconfirmed",
    "mandatory",
    "another",
    "send",
    "nowait",
    "at once",
    "many",
    "producer",
)
LARGE = ("publish", "at once")  # more than a socket takes at a time


@pytest.mark.parametrize(("way", "size"), [*((way, 10) for way in WAYS), *((way, 2_000_000) for way in LARGE)])
def test_an_interrupted_publish_costs_nobody_anything(harebell_url: str, name: str, way: str, size: int) -> None:
    said = run(PUBLISHING, harebell_url, name, way, str(size))
    assert int(said.removeprefix("points ")) > 20


SETTLING = (
    INTERRUPT
    + """
url, queue, way = sys.argv[1:]
DONE = errors.LocalProtocolError  # of a delivery that is settled

with blocking.connect(url, timeout=60) as connection, connection.channel() as channel:
    channel.queue_declare(queue, exclusive=True)
    channel.confirm_select()
    ended = []
    connection.notify_disconnect(ended.append)
    channel.notify_disconnect(ended.append)
    sent = 0

    def publish(count):
        global sent
        channel.publish_many([Publication(b"%d" % number, "", queue) for number in range(sent, sent + count)])
        sent += count

    settle = {
        "ack": lambda delivery: delivery.ack(),
        "nack": lambda delivery: delivery.nack(requeue=False),
        "reject": lambda delivery: delivery.reject(requeue=False),
        "multiple": lambda delivery: channel.ack(delivery.delivery_tag, multiple=True),
        "receive": lambda delivery: channel.ack(delivery.delivery_tag, multiple=True),
    }[way]
    seen, interrupted, done = [], 0, False
    # A window of three: the broker sends the next three when none is left unsettled.
    with channel.consume(queue, prefetch=3) as deliveries:
        while not done:
            publish(3)
            batch = []
            if way == "receive":
                done = not interrupt(lambda: batch.extend(deliveries.receive(3, timeout=60)), interrupted + 1)
            while len(batch) < 3:
                batch += deliveries.receive(3 - len(batch), timeout=60)
            last = batch[-1]
            if way in ("ack", "nack", "reject"):
                for delivery in batch[:-1]:
                    settle(delivery)
            if way != "receive":
                done = not interrupt(lambda: settle(last), interrupted + 1)
            try:
                settle(last)
            except DONE:
                pass
            seen += batch
            interrupted += not done
            assert not ended, (interrupted, ended)
    assert [int(delivery.body) for delivery in seen] == list(range(sent))
    assert channel.get(queue) is None
print("points", interrupted)
"""
)


@pytest.mark.parametrize("way", ["ack", "nack", "reject", "multiple", "receive"])
def test_an_interrupted_delivery_is_settled_or_not(harebell_url: str, name: str, way: str) -> None:
    said = run(SETTLING, harebell_url, name, way)
    assert int(said.removeprefix("points ")) > 5
