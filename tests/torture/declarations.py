"""What was declared, set and deleted while the broker was killed, and whether it is so afterwards.

A `Ledger` knows for each thing the values that it may have: one when the broker has answered, two or more while it has
not. None stands for a thing that is not there. The `Declarer` works on one connection at a time, so that it looks at
everything at the beginning of each, which is after each kill.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, Final

from harebell.protocol.v091 import Content, Properties, methods as m
from tests.torture.history import History
from tests.torture.peer import PATIENCE, Peer
from tests.torture.workers import PAUSE, Stage, Worker

__all__ = ["Declarer", "Ledger", "Thing"]

REPLIES: Final = "amq.rabbitmq.reply-to"
PREFIX: Final = "declared."
MANY: Final = 6  # things of a kind
TYPES: Final = ("classic", "quorum", "stream")

Thing = tuple[str, ...]  # its kind, and its names
Value = str | None


class Ledger:
    """What may be there, by what was asked and what was answered."""

    def __init__(self, history: History) -> None:
        self.may_be: dict[Thing, set[Value]] = {}
        self._history = history

    def value(self, thing: Thing) -> Value:
        """What it is, where that is known."""
        (value,) = self.may_be.get(thing, {None})
        return value

    def there(self, kind: str) -> list[Thing]:
        return [thing for thing in self.may_be if thing[0] == kind and self.value(thing) is not None]

    def asked(self, changes: Mapping[Thing, Value]) -> None:
        """The broker is about to be asked for all of this at once."""
        for thing, value in changes.items():
            self.may_be.setdefault(thing, {None}).add(value)

    def answered(self, changes: Mapping[Thing, Value]) -> None:
        """It has said that it is so."""
        for thing, value in changes.items():
            self.may_be[thing] = {value}
            self._history.figures["deleted" if value is None else "declared"] += 1

    def found(self, things: Mapping[Thing, str]) -> None:
        """All that is there, now that nothing is being asked."""
        for thing, values in self.may_be.items():
            value = things.get(thing)
            if value not in values:
                said = "it was deleted" if values == {None} else f"it may be {sorted(map(str, values))}"
                self._history.breach(f"{' '.join(thing)} is {value}, but {said}")
            self._history.figures["unanswered, settled"] += len(values) > 1
            self.may_be[thing] = {value}
        for thing in things.keys() - self.may_be.keys():
            self._history.breach(f"{' '.join(thing)} was never declared")
            self.may_be[thing] = {things[thing]}
        self._history.figures["looks at what is declared"] += 1


class Declarer(Worker):
    """Declares, sets and deletes, one thing after the other, and notes each answer."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.ledger = Ledger(stage.history)
        self._answers: list[Any] = []

    def __repr__(self) -> str:
        return "declarer"

    async def session(self, peer: Peer) -> None:
        await self.look(peer)
        while self.goes_on:
            await self.random.choice(self._deeds)(self, peer, self.random)
            await peer.sleep(PAUSE * self.random.random())

    async def look(self, peer: Peer) -> None:
        """Compare everything with the ledger."""
        self._answers.clear()
        peer.receive = self._receive
        await peer.call(m.BasicConsume(REPLIES, "answers", no_ack=True), m.BasicConsumeOk)
        queues = (await self._ask(peer, "amq.stats"))["queues"]
        routes = await self._ask(peer, "amq.routes")
        things: dict[Thing, str] = {("queue", name): each["type"] for name, each in queues.items() if _is_ours(name)}
        things |= {("exchange", name): kind for name, kind in routes["exchanges"].items() if _is_ours(name)}
        things |= {
            ("binding", each["source"], each["destination"]): "bound"
            for each in routes["bindings"]
            if _is_ours(each["source"])
        }
        for kind, names, value in LISTS:
            for each in await self._administer(peer, {"do": f"list-{kind}"}):
                if _is_ours(each[names[0]]):
                    things[(kind, *(each[name] for name in names))] = value(each)
        self.ledger.found(things)

    # -- what it does

    async def _queue(self, peer: Peer, random: Random) -> None:
        thing = ("queue", _name(random))
        if (kind := self.ledger.value(thing)) is not None and random.random() < 0.5:
            bound = [each for each in self.ledger.there("binding") if each[2] == thing[1]]
            await self._do(_gone(thing, *bound), peer.call(m.QueueDelete(thing[1]), m.QueueDeleteOk))
            return
        new = kind is None
        kind = kind or random.choice(TYPES)
        declare = m.QueueDeclare(thing[1], durable=True, arguments={"x-queue-type": kind})
        answer = await self._do({thing: kind}, peer.call(declare, m.QueueDeclareOk))
        if new and answer.message_count:
            self.history.breach(f"{thing[1]} is new and has {answer.message_count} messages")
        for _ in range(random.randrange(4)):
            peer.publish("", thing[1], b"not to be seen in the next queue of that name", Properties(delivery_mode=2))

    async def _exchange(self, peer: Peer, random: Random) -> None:
        thing = ("exchange", _name(random))
        if (kind := self.ledger.value(thing)) is not None and random.random() < 0.5:
            bound = [each for each in self.ledger.there("binding") if each[1] == thing[1]]
            await self._do(_gone(thing, *bound), peer.call(m.ExchangeDelete(thing[1]), m.ExchangeDeleteOk))
            return
        kind = kind or random.choice(["direct", "fanout", "topic", "headers"])
        declare = m.ExchangeDeclare(thing[1], kind, durable=True)
        await self._do({thing: kind}, peer.call(declare, m.ExchangeDeclareOk))

    async def _binding(self, peer: Peer, random: Random) -> None:
        exchanges, queues = self.ledger.there("exchange"), self.ledger.there("queue")
        if not exchanges or not queues:
            return
        exchange, queue = random.choice(exchanges)[1], random.choice(queues)[1]
        thing = ("binding", exchange, queue)
        if self.ledger.value(thing) is not None:
            await self._do(_gone(thing), peer.call(m.QueueUnbind(queue, exchange, "k"), m.QueueUnbindOk))
        else:
            await self._do({thing: "bound"}, peer.call(m.QueueBind(queue, exchange, "k"), m.QueueBindOk))

    async def _user(self, peer: Peer, random: Random) -> None:
        thing = ("users", _name(random))
        tags = random.choice(["a", "b", "c"])
        if self.ledger.value(thing) is None:
            user = {"name": thing[1], "tags": [tags], "password_hash": "", "hashing_algorithm": HASHING}
            await self._do({thing: tags}, self._administer(peer, {"do": "add-user", **user}))
        elif random.random() < 0.5:
            await self._do({thing: tags}, self._administer(peer, {"do": "set-tags", "name": thing[1], "tags": [tags]}))
        else:
            theirs = [each for each in self.ledger.there("permissions") if each[1] == thing[1]]
            await self._do(_gone(thing, *theirs), self._administer(peer, {"do": "delete-user", "name": thing[1]}))

    async def _vhost(self, peer: Peer, random: Random) -> None:
        thing = ("vhosts", _name(random))
        if self.ledger.value(thing) is None:
            await self._do({thing: "there"}, self._administer(peer, {"do": "add-vhost", "name": thing[1]}))
            return
        inside = [
            each for kind in ("permissions", "policies") for each in self.ledger.there(kind) if each[2] == thing[1]
        ]
        await self._do(_gone(thing, *inside), self._administer(peer, {"do": "delete-vhost", "name": thing[1]}))

    async def _permission(self, peer: Peer, random: Random) -> None:
        users = self.ledger.there("users")
        if not users:
            return
        user, vhost = random.choice(users)[1], self._some_vhost(random)
        thing, where = ("permissions", user, vhost), {"vhost": vhost, "user": user}
        if self.ledger.value(thing) is not None and random.random() < 0.5:
            await self._do(_gone(thing), self._administer(peer, {"do": "clear-permission", **where}))
            return
        pattern = str(random.randrange(100))
        patterns = {"configure": pattern, "write": "", "read": ".*"}
        await self._do({thing: pattern}, self._administer(peer, {"do": "set-permission", **where, **patterns}))

    async def _policy(self, peer: Peer, random: Random) -> None:
        name, vhost = _name(random), self._some_vhost(random)
        thing, where = ("policies", name, vhost), {"vhost": vhost, "name": name}
        if self.ledger.value(thing) is not None and random.random() < 0.5:
            await self._do(_gone(thing), self._administer(peer, {"do": "clear-policy", **where}))
            return
        most = random.randrange(1_000, 2_000)
        body = {"pattern": f"^{PREFIX}", "definition": {"max-length": most}, "apply_to": "classic_queues"}
        await self._do({thing: str(most)}, self._administer(peer, {"do": "set-policy", **where, **body}))

    _deeds = (_queue, _queue, _exchange, _binding, _binding, _user, _vhost, _permission, _policy)

    def _some_vhost(self, random: Random) -> str:
        return random.choice(["/", *(vhost for _, vhost in self.ledger.there("vhosts"))])

    async def _do(self, changes: Mapping[Thing, Value], deed: Any) -> Any:
        """`deed` asks the broker and waits for its answer; nothing is sent before that."""
        self.ledger.asked(changes)
        answer = await deed
        self.ledger.answered(changes)
        return answer

    # -- requests

    async def _administer(self, peer: Peer, request: Mapping[str, object]) -> Any:
        return await self._ask(peer, "amq.administer", request)

    async def _ask(self, peer: Peer, service: str, request: object = None) -> Any:
        peer.publish("amq.system", service, json.dumps(request).encode(), Properties(reply_to=REPLIES))
        async with asyncio.timeout(PATIENCE):
            while not self._answers:
                await peer.sleep(PAUSE / 10)
        answer = self._answers.pop()
        if isinstance(answer, dict) and "error" in answer:
            self.history.breach(f"{service} refused {request}: {answer['reason']}")
        return answer

    def _receive(self, event: m.Method | Content) -> None:
        assert isinstance(event, Content), event
        self._answers.append(json.loads(event.body))


HASHING: Final = "rabbit_password_hashing_sha256"
LISTS: Final[Iterable[tuple[str, tuple[str, ...], Callable[[Any], str]]]] = (
    ("users", ("name",), lambda each: each["tags"][0]),
    ("vhosts", ("name",), lambda each: "there"),
    ("permissions", ("user", "vhost"), lambda each: each["configure"]),
    ("policies", ("name", "vhost"), lambda each: str(each["definition"]["max-length"])),
)


def _name(random: Random) -> str:
    return f"{PREFIX}{random.randrange(MANY)}"


def _is_ours(name: str) -> bool:
    return name.startswith(PREFIX)


def _gone(*things: Thing) -> dict[Thing, Value]:
    return dict.fromkeys(things)
