"""Write the pictures of the web console in docs/how-to/pictures: a broker with a small shop on it, in a real browser.

PYTHONPATH=src python tools/console_pictures.py [VIEW ...]

It needs Chromium and the package playwright. Figures differ from run to run, so no test compares the pictures.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

import harebell
from harebell.admin import Management
from harebell.broker import Broker
from harebell.errors import ChannelClosed

PICTURES: Final = Path(__file__).resolve().parent.parent / "docs" / "how-to" / "pictures"
SIZE: Final = {"width": 880, "height": 540}
WARM_UP: Final = 20.0  # seconds of traffic before the first picture, so that charts and problems have something
SETTLE: Final = 2_500  # milliseconds after which a view has its rates; ...
SLOWLY: Final = {"wrong": 14_000}  # ... and one has its figures

VIEWS: Final[Mapping[str, str]] = {
    "overview": "overview",
    "wrong": "wrong",
    "history": "history",
    "changes": "changes",
    "audit": "audit",
    "node": "node",
    "queues": "queues",
    "streams": "streams",
    "exchanges": "exchanges",
    "topology": "topology",
    "browse": "browse/%2F/mail?q=eu.open",
    "dead-letters": "dead-letters/%2F/dead",
    "route": "route?vhost=%2F&exchange=orders&key=order.eu.paid&tested=1",
    "connections": "connections",
    "channels": "channels",
    "consumers": "consumers",
    "ack-ages": "ack-ages",
    "policies": "policies",
    "shovels": "shovels",
    "vhosts": "vhosts",
    "users": "users",
    "definitions": "definitions",
}
"""Each view of the menu, and the place that shows it best."""

EXCHANGES: Final = {"orders": "topic", "all": "fanout", "payments": "direct", "lost": "fanout", "dlx": "fanout"}
QUEUES: Final[Mapping[str, dict[str, Any]]] = {
    "invoices": {"x-dead-letter-exchange": "dlx"},
    "mail": {},
    "stock": {"x-dead-letter-exchange": "dlx"},
    "log": {"x-queue-type": "stream"},
    "audit": {"x-dead-letter-exchange": "nowhere", "x-max-length": 500},
    "payments.eu": {},
    "payments.us": {},
    "unrouted": {},
    "dead": {},
}
BINDINGS: Final = (
    ("orders", "invoices", "order.*.paid"), ("orders", "mail", "order.#"), ("orders", "mail", "customer.*"),
    ("orders", "stock", "order.eu.*"), ("all", "log", ""), ("all", "audit", ""), ("payments", "payments.eu", "eu"),
    ("payments", "payments.us", "us"), ("lost", "unrouted", ""), ("dlx", "dead", ""),
)  # fmt: skip


async def furnish(channel: harebell.Channel) -> None:
    for name, type_ in EXCHANGES.items():
        more = {"alternate-exchange": "lost"} if name == "orders" else None
        await channel.exchange_declare(name, type_, durable=True, arguments=more)
    for name, arguments in QUEUES.items():
        await channel.queue_declare(name, durable=True, arguments=arguments)
    for source, queue, key in BINDINGS:
        await channel.queue_bind(queue, source, key)
    await channel.exchange_bind("all", "orders", "#")


def named(url: str, name: str) -> Any:
    """A connection whose name the console shows."""
    return harebell.connect(url, client_properties={"connection_name": name})


async def publish(url: str) -> None:
    """Publish orders for ever."""
    keys = ["order.eu.paid", "order.us.paid", "order.eu.open", "customer.new", "return.eu"]
    async with named(url, "shop") as connection, connection.channel() as channel:
        for number in range(1_000_000):
            key = random.choice(keys)
            body = b'{"order": %d, "country": "%b", "total": %d.50}' % (number, key[6:8].encode(), number % 90 + 5)
            headers = {"kind": "web"}
            message = harebell.Message(body, content_type="application/json", message_id=f"o{number}", headers=headers)
            await channel.publish(message, "orders", key)
            await asyncio.sleep(0.02)


async def consume(url: str, queue: str, name: str, *, rejects: int, prefetch: int = 20, late: float = 0.0) -> None:
    """Acknowledge what a queue has, on average so many seconds late; reject one of so many."""
    count, loop = 0, asyncio.get_running_loop()
    async with (
        named(url, name) as connection,
        connection.channel() as channel,
        channel.consume(queue, prefetch=prefetch) as deliveries,
    ):
        async for delivery in deliveries:
            count += 1
            loop.call_later(late * random.expovariate(1), settle, delivery, count % rejects > 0)


def settle(delivery: harebell.Delivery, accepted: bool) -> None:
    with suppress(ChannelClosed):  # all pictures are taken
        if accepted:
            delivery.ack()
        else:
            delivery.reject()


async def hang(url: str) -> None:
    """Take what the prefetch allows, and acknowledge nothing."""
    async with (
        named(url, "mailer") as connection,
        connection.channel() as channel,
        channel.consume("mail", prefetch=10),
    ):
        await asyncio.Event().wait()


async def picture(url: str, wanted: list[str]) -> None:
    from playwright.async_api import async_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = await browser.new_page(viewport=SIZE, color_scheme="light")  # type: ignore[arg-type]
        await page.goto(url)
        await page.get_by_label("User").fill("guest")
        await page.get_by_label("Password").fill("guest")
        await page.keyboard.press("Enter")
        await page.get_by_text("live", exact=True).wait_for()
        for view in wanted:
            await page.evaluate("place => { location.hash = place }", f"#/{VIEWS[view]}")
            await page.wait_for_timeout(SLOWLY.get(view, SETTLE))
            await page.screenshot(path=PICTURES / f"console-{view}.png")
            print(f"console-{view}.png")
        await browser.close()


async def main(wanted: list[str]) -> None:
    PICTURES.mkdir(exist_ok=True)
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(Broker())
        management = await stack.enter_async_context(Management(broker))
        async with harebell.connect(broker.url) as connection, connection.channel() as channel:
            await furnish(channel)
        work = [
            publish(broker.url), hang(broker.url), consume(broker.url, "invoices", "billing", rejects=9),
            consume(broker.url, "stock", "warehouse", rejects=40, prefetch=400, late=9),
        ]  # fmt: skip
        tasks = [asyncio.create_task(each) for each in work]
        try:
            await asyncio.sleep(WARM_UP)
            await picture(management.url, wanted)
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or list(VIEWS)))
