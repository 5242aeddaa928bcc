"""A program: a broker under a hard limit of descriptors, with more queues and connections than that.

    python many_queues.py FOLDER DESCRIPTORS QUEUES CONNECTIONS

It publishes to all queues while as many clients are connected as it lets in, consumes, restarts, and compares.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import subprocess
import sys
from pathlib import Path

from harebell import Connection, connect
from harebell.broker import Broker
from harebell.client.messages import Message
from harebell.config import Limits
from harebell.errors import ConnectionLost

PATIENCE = 300.0  # seconds for a sync of ten thousand new files, on a disk that has other work too

# The clients are another process, which has descriptors of its own. Those that are let in hear connection.start. They
# leave room for the one that does the work.
CROWD = """
import socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
made = []
for _ in range(count):
    each = socket.create_connection(("127.0.0.1", port), 30)
    try:
        each.sendall(b"AMQP\\x00\\x00\\x09\\x01")
        if each.recv(1):
            made.append(each)
    except ConnectionError:
        pass
for each in made[:10]:
    each.close()
print(len(made), flush=True)
sys.stdin.read()
"""


async def connected(broker: Broker) -> Connection:
    """A connection, once the broker has noticed that some of the crowd left."""
    for _ in range(100):
        try:
            return await connect(broker.url)
        except ConnectionLost:
            await asyncio.sleep(0.1)
    raise TimeoutError


async def fill(broker: Broker, queues: int) -> None:
    async with await connected(broker) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        for start in range(0, queues, 500):
            some = [f"q{number}" for number in range(start, min(start + 500, queues))]
            await asyncio.gather(*(channel.queue_declare(name, durable=True) for name in some))
            await asyncio.gather(*(channel.queue_bind(name, "amq.fanout") for name in some))
        for body in (b"1", b"2"):
            await channel.publish(Message(body, delivery_mode=2), "amq.fanout", timeout=PATIENCE)


async def drain(broker: Broker, queues: int, body: bytes) -> int:
    found = 0
    async with await connected(broker) as connection:
        channel = await connection.channel()
        for number in range(queues):
            delivery = await channel.get(f"q{number}", no_ack=True)
            found += delivery is not None and delivery.body == body
    return found


async def main(folder: Path, descriptors: int, queues: int, connections: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    broker = await Broker(data=folder, limits=Limits(handshake_timeout=600)).start()
    arguments = [sys.executable, "-c", CROWD, str(broker.port), str(connections)]
    crowd = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert crowd.stdin is not None
    assert crowd.stdout is not None
    let_in = int(await asyncio.to_thread(crowd.stdout.readline))
    await fill(broker, queues)
    print("descriptors:", len(list(Path("/proc/self/fd").iterdir())), "connections:", len(broker.node.connections))
    assert descriptors / 2 < let_in < connections
    assert len(broker.node.connections) >= let_in - 10
    assert broker.node.batch.failed is None
    crowd.stdin.close()
    await asyncio.to_thread(crowd.wait)
    assert await drain(broker, queues, b"1") == queues
    await broker.stop()
    async with Broker(data=folder) as again:
        assert await drain(again, queues, b"2") == queues
        assert again.node.batch.failed is None
    print("all there")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))
