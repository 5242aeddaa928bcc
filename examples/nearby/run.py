"""A broker with the plug-in `nearby`, and a client that uses its exchange type and its service."""

from __future__ import annotations

import asyncio
import json

from nearby import PLUGIN

import harebell
from harebell.broker import Broker


async def main() -> None:
    async with (
        Broker(plugins=[PLUGIN]) as broker,
        harebell.connect(broker.url) as connection,
        connection.channel() as channel,
    ):
        await channel.exchange_declare("couriers", "x-nearby", durable=True, arguments={"default-kilometres": 20})
        for name, circle in {"london": "51.51,-0.13", "paris": "48.86,2.35", "france": "46.6,2.4,600"}.items():
            await channel.queue_declare(name, durable=True)
            await channel.queue_bind(name, "couriers", circle)
        order = harebell.Message(b"a parcel at the Louvre", headers={"latitude": 48.861, "longitude": 2.336})
        await channel.publish(order, "couriers", mandatory=True)
        for name in ("london", "paris", "france"):
            message = await channel.get(name, no_ack=True)
            print(f"{name}: {message.body.decode() if message else 'nothing'}")

        await channel.queue_declare("answers", exclusive=True)
        question = json.dumps({"from": [51.51, -0.13], "to": [48.86, 2.35]}).encode()
        await channel.publish(harebell.Message(question, reply_to="answers"), "amq.system", "nearby.distance")
        answer = await channel.get("answers", no_ack=True)
        print(f"from London to Paris: {json.loads(answer.body)['kilometres']} km" if answer else "no answer")


asyncio.run(main())
