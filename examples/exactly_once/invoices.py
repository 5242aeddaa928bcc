"""An invoice for each order, exactly once: kill the broker, or this program, whenever you like.

python invoices.py fill 20000    publishes orders
python invoices.py work          makes invoices until no order is left
python invoices.py check         counts them
"""

import asyncio
import contextlib
import os
import sys
import uuid
from collections import Counter
from pathlib import Path

import harebell
from harebell.errors import SessionStateLost

URL = os.environ.get("HAREBELL_URL", "amqp://localhost")
DECISIONS = Path("decisions")  # a line for each transaction that is to be committed
BATCH = 50


def message(body, queue):
    return harebell.Publication(harebell.Message(body, delivery_mode=2), "", queue)


async def fill(session, count):
    for queue in ("orders", "invoices"):
        await session.queue_declare(queue, durable=True)
    await session.publish_many(message(b"order %d" % number, "orders") for number in range(count))


async def work(session):
    await finish(session)
    made = 0
    while True:
        xid = harebell.sessions.Xid(uuid.uuid4().hex.encode())
        try:
            async with session.branch(xid):
                orders = []
                while len(orders) < BATCH and (order := await session.get("orders")) is not None:
                    orders.append(order)
                await session.publish_many(message(b"invoice for " + order.body, "invoices") for order in orders)
                for order in orders:
                    order.accept()
            await session.prepare(xid)  # from here on the broker keeps it over a kill
            decide(xid)  # and from here on it will be committed
            await session.commit(xid)
        except SessionStateLost:
            print("the broker was gone", flush=True)
            await finish(session)
            continue
        made += len(orders)
        print(made, "invoices", flush=True)
        if not orders:
            return


def decide(xid):
    with DECISIONS.open("ab") as file:
        file.write(xid.global_id + b"\n")
        file.flush()
        os.fsync(file.fileno())


def decided():
    return set(DECISIONS.read_bytes().split()) if DECISIONS.exists() else set()


async def finish(session):
    """Commit what was decided, and roll the rest back: at the start, and when the broker was gone."""
    commits = decided()
    while True:
        with contextlib.suppress(SessionStateLost):
            if session.state_lost is not None:
                await session.start_over()
            for xid in await session.in_doubt():
                await (session.commit(xid) if xid.global_id in commits else session.rollback(xid))
            return


async def check(session):
    left, made = await session.message_count("orders"), await session.message_count("invoices")
    found = Counter()
    async with session.browse("invoices") as invoices:
        while found.total() < made:
            found[(await anext(invoices)).body] += 1
    twice = sum(count > 1 for count in found.values())
    print(f"{left} orders left, {len(found)} invoices, {twice} of them twice")


async def main(what, *arguments):
    async with (
        harebell.sessions.connect(URL, timeout=300) as connection,
        connection.session(what, timeout=300, force=True) as session,
    ):
        await {"fill": fill, "work": work, "check": check}[what](session, *map(int, arguments))


asyncio.run(main(*sys.argv[1:]))
