"""Sessions of AMQP 0-10: what a program is told of them."""

from __future__ import annotations

from typing import assert_type

import harebell


async def exactly_once(url: str) -> None:
    async with harebell.sessions.connect(url, timeout=5) as connection:
        assert_type(connection, harebell.sessions.Connection)
        async with connection.session("orders", timeout=300) as session:
            assert_type(session, harebell.sessions.Session)
            async for delivery in session.consume("orders", window=100, window_bytes=1 << 20):
                assert_type(delivery, harebell.sessions.Delivery)
                async with session.transaction():
                    await session.publish(harebell.Message(delivery.body), "", "invoices")
                    delivery.accept()
            one = await session.get("orders")
            assert_type(one, harebell.sessions.Delivery | None)
            found = await session.queue_query("orders")
            assert_type(found, harebell.sessions.QueueDescription | None)
            assert_type(await session.publish_many([harebell.Publication(b"", "", "q")]), int)
            assert_type(session.state_lost, harebell.errors.SessionStateLost | None)
            session.consume("orders", window="100")  # type: ignore[arg-type]
