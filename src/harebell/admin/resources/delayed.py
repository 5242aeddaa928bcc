"""The messages that a delayed exchange holds back: listed, and revoked by their id or their number."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from harebell.admin.answers import Answer, bad_request, not_found, to_json
from harebell.admin.http.requests import Request
from harebell.admin.listing import Listing
from harebell.admin.resources.objects import NO_CONTENT, exchange_of
from harebell.admin.shapes.messages import properties_of
from harebell.broker.exchanges.delayed import Delayed, Delays
from harebell.routing.exchanges.storing_exchanges import DelayedMessageExchange
from harebell.routing.steps import Steps

__all__ = ["list_of_exchange", "revoke", "revoke_one"]

STEP: Final = 4_096  # messages that are looked at in one step

QUICK: Final[Mapping[str, Callable[[Delayed], Any]]] = {
    "number": lambda it: it.number,
    "delay": lambda it: it.delay,
    "delay_id": lambda it: it.delay_id,
}


def _delays(request: Request) -> Delays | None:
    """What the exchange in the path holds; None before its first message. Raises Refused for one of another type."""
    it, vhost = exchange_of(request), request.vhost()
    if not isinstance(it, DelayedMessageExchange):
        raise bad_request(f"exchange '{it.name}' in vhost '{vhost.name}' delays no messages")
    return vhost.delays.get(it.name)


def list_of_exchange(request: Request) -> Steps[Answer]:
    """The held messages, the next one first, without their bodies. It needs the permission to read the exchange."""
    delays, vhost = _delays(request), request.vhost()
    request.user.access(vhost).check("see-exchange", {"exchange": request.names["exchange"]})
    now, clock = vhost.timers.now(), time.time_ns() // 1_000_000

    def shape(it: Delayed) -> dict[str, Any]:
        message = it.message
        if message is None:
            return {"number": it.number, "gone": True}  # it left while the list was made
        properties = properties_of(message.content.decode_properties())
        return {
            "number": it.number,
            "delay_id": it.delay_id,
            "delay": it.delay,
            "due": clock + it.due - now,
            "exchange": message.address.exchange,
            "routing_key": message.address.routing_key,
            "routing_keys": it.keys,
            "payload_bytes": message.content.body_size,
            "properties": properties,
        }

    listing: Listing[Delayed] = Listing(
        shape=shape, order=lambda it: (it.due, it.number), name=lambda it: it.delay_id or "", quick=QUICK
    )
    return (yield from listing.answer(request, [] if delays is None else delays.entries()))


def revoke(request: Request) -> Steps[Answer]:
    """Drop the messages with this id; it needs the permission to publish to the exchange, as over AMQP."""
    delays, vhost = _delays(request), request.vhost()
    request.user.access(vhost).publish(request.names["exchange"], "")
    count = 0 if delays is None else (yield from delays.revoke(request.names["id"]))
    if not count:
        raise not_found()
    return to_json({"revoked": count})


def revoke_one(request: Request) -> Steps[Answer]:
    """Drop the message with this number."""
    delays, vhost, wanted = _delays(request), request.vhost(), request.names["number"]
    request.user.access(vhost).publish(request.names["exchange"], "")
    for place, each in enumerate([] if delays is None else delays.entries(), 1):
        if str(each.number) == wanted and delays is not None and delays.revoke_entry(each):
            return NO_CONTENT
        if not place % STEP:
            yield
    raise not_found()
