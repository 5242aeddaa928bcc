"""An invoice for each order, exactly once: kill the broker, or this program, whenever you like.

python invoices.py fill 20000    publishes orders
python invoices.py work          makes invoices until no order is left
python invoices.py check         counts them
"""

import asyncio
import contextlib
import os
import sys
from collections import Counter

import harebell
from harebell.errors import SessionStateLost

URL = os.environ.get("HAREBELL_URL", "amqp://localhost")
BATCH = 50


def message(body, queue):
    return harebell.Publication(harebell.Message(body, delivery_mode=2), "", queue)


async def fill(session, count):
    for queue in ("orders", "invoices"):
        await session.queue_declare(queue, durable=True)
    await session.publish_many(message(b"order %d" % number, "orders") for number in range(count))


async def work(session):
    made = 0
    while True:
        try:
            async with session.transaction():
                orders = []
                while len(orders) < BATCH and (order := await session.get("orders")) is not None:
                    orders.append(order)
                await session.publish_many(message(b"invoice for " + order.body, "invoices") for order in orders)
                for order in orders:
                    order.accept()
        except SessionStateLost:
            print("the broker was gone", flush=True)
            await begin_again(session)
            continue
        made += len(orders)
        print(made, "invoices", flush=True)
        if not orders:
            return


async def begin_again(session):
    """The broker knows nothing of the session any more: what was committed is done, and nothing else."""
    while session.state_lost is not None:
        with contextlib.suppress(SessionStateLost):
            await session.start_over()


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
