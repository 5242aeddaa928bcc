"""Plug-ins for tests: an exchange type for each thing that a match may depend on, and one that fails when told to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from harebell.broker import Binding, Dependence, Plugin, RoutedMessage
from harebell.errors import PreconditionFailed


class Kept:
    """The bindings in their order."""

    depends_on = Dependence.KEY

    def __init__(self, arguments: Mapping[str, object]) -> None:
        self.bindings: dict[Binding, None] = {}

    def add(self, binding: Binding) -> None:
        self.bindings[binding] = None

    def remove(self, binding: Binding) -> None:
        del self.bindings[binding]


class Fitting(Kept, ABC):
    """An exchange that asks each binding by its key; `asked` counts the matches of all exchanges of the type."""

    asked = 0

    def match(self, message: RoutedMessage) -> Iterable[Binding]:
        type(self).asked += 1
        return [binding for binding in self.bindings if self.fits(binding.binding_key, message)]

    @abstractmethod
    def fits(self, key: str, message: RoutedMessage) -> bool:
        """Whether a binding with this key matches."""


class Prefix(Fitting):
    """Keys that begin with the binding key, whose longest length is an argument."""

    def __init__(self, arguments: Mapping[str, object]) -> None:
        super().__init__(arguments)
        longest = arguments.get("longest", 255)
        if not isinstance(longest, int):
            raise PreconditionFailed("longest must be a number")
        self.longest = longest

    def add(self, binding: Binding) -> None:
        if len(binding.binding_key) > self.longest:
            raise PreconditionFailed(f"binding key '{binding.binding_key}' is longer than {self.longest}")
        super().add(binding)

    def fits(self, key: str, message: RoutedMessage) -> bool:
        return any(each.startswith(key) for each in message.routing_keys)


class Tenant(Fitting):
    """Messages whose header `tenant` is the binding key."""

    depends_on = Dependence.HEADERS

    def fits(self, key: str, message: RoutedMessage) -> bool:
        return message.headers.get("tenant") == key


class Word(Fitting):
    """Messages whose body or property `type` has the binding key."""

    depends_on = Dependence.MESSAGE

    def fits(self, key: str, message: RoutedMessage) -> bool:
        return key.encode() in message.body or message.properties.get("type") == key


class Faulty(Kept):
    """Fails where `fault` says: "make", "add", "remove", "match", "wrong", "peek"; "refuse" refuses each message."""

    fault = ""

    def __init__(self, arguments: Mapping[str, object]) -> None:
        super().__init__(arguments)
        self._fail("make")

    def _fail(self, where: str) -> None:
        if Faulty.fault == where:
            raise ZeroDivisionError(where)

    def add(self, binding: Binding) -> None:
        self._fail("add")
        super().add(binding)

    def remove(self, binding: Binding) -> None:
        self._fail("remove")
        super().remove(binding)

    def match(self, message: RoutedMessage) -> Iterable[Binding]:
        self._fail("match")
        if Faulty.fault == "refuse":
            raise PreconditionFailed("no such message")
        if Faulty.fault == "peek":
            return [binding for binding in self.bindings if message.body]
        if Faulty.fault == "wrong":
            return [Binding(each.source, each.destination, each.binding_key, {}) for each in self.bindings]
        return self.bindings


class Undecided(Kept):
    depends_on = Dependence.CHANCE

    def match(self, message: RoutedMessage) -> Iterable[Binding]:
        return ()


TYPES = Plugin(
    exchange_types={
        "x-prefix": Prefix,
        "x-tenant": Tenant,
        "x-word": Word,
        "x-faulty": Faulty,
        "x-undecided": Undecided,
    }
)
