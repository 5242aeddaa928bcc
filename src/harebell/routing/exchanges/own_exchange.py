"""Exchanges of types that a program adds to the broker: the program matches, the exchange does the rest.

Rules:

- The program gives a factory for each type. It is called with the arguments of each exchange that is declared, and
  returns a `Matcher`: the index of that exchange's bindings. The name of a type begins with "x-" (section 2.2.3.6 of
  the draft of AMQP 0-10), and is not that of a built-in type.
- `depends_on` says what a match depends on beside the routing keys and the bindings. A route by keys alone is cached,
  one by headers is for messages with the same headers; with MESSAGE the matcher is asked for each message, and may use
  what it likes: the body, data from elsewhere, chance.
- A refusal of the program is a ChannelError (PreconditionFailed for an argument), which the client gets. Any other
  exception is reported, and becomes PluginFailed: the client gets 541 on its channel.

The exchange trusts nothing that it gets: an answer that is not an iterable of its own bindings is a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol, TypeAlias

from harebell.errors import ChannelError, PluginFailed
from harebell.routing.exchanges.exchange import NO_MESSAGE, Binding, BindingIdentity, Dependence, Destination, Exchange
from harebell.routing.table_values import Table

__all__ = ["Matcher", "MatcherFactory", "OwnExchange", "Report", "RoutedMessage"]

DEPENDENCES: Final = (Dependence.KEY, Dependence.HEADERS, Dependence.MESSAGE)

_NOTHING: Final[Table] = {}


class RoutedMessage:
    """A message on its way through an exchange: `routing_keys` are its routing key, then those of CC and BCC."""

    __slots__ = ("_depends_on", "_table", "routing_keys")

    def __init__(self, routing_keys: Sequence[str], table: Table, depends_on: Dependence) -> None:
        self.routing_keys = routing_keys
        self._table = table
        self._depends_on = depends_on

    @property
    def headers(self) -> Table:
        """The headers. RuntimeError for a matcher that depends on the key alone."""
        if self._depends_on is Dependence.HEADERS:
            return self._table
        found = self._part("headers")
        return found if isinstance(found, dict) else _NOTHING

    @property
    def properties(self) -> Table:
        """The properties that are set, by name, without the headers. RuntimeError unless it depends on MESSAGE."""
        found = self._part("properties")
        return found if isinstance(found, dict) else _NOTHING

    @property
    def body(self) -> bytes:
        """The body. RuntimeError unless the matcher depends on MESSAGE."""
        found = self._part("body")
        return found if isinstance(found, bytes) else b""

    def _part(self, name: str) -> object:
        if self._depends_on is not Dependence.MESSAGE:
            raise RuntimeError(f"it uses the message's {name}, and depends_on is {self._depends_on}")
        return self._table[name]


class Matcher(Protocol):
    """What an own type of exchange has to be: the bindings of one exchange, and which of them match a message.

    The methods are called in the broker's thread: they must not block. None is called by two threads at once.
    """

    @property
    def depends_on(self) -> Dependence:
        """KEY, HEADERS or MESSAGE: what a match depends on, beside the routing keys. It may not change."""

    def add(self, binding: Binding) -> None:
        """Add a new binding. PreconditionFailed, which the client gets, for a binding key or arguments that are bad."""

    def remove(self, binding: Binding) -> None:
        """Remove a binding that was added: the same object."""

    def match(self, message: RoutedMessage) -> Iterable[Binding]:
        """The bindings that match, of those that were added: the queues get the message in their order."""


MatcherFactory: TypeAlias = "Callable[[Table], Matcher]"
"""An own type: a class or a function that makes a matcher of an exchange's arguments, or raises PreconditionFailed."""

Report: TypeAlias = "Callable[[str, Exception], None]"
"""Called with what failed, and the exception."""


class OwnExchange(Exchange):
    """An exchange that asks the program's matcher."""

    __slots__ = ("_identities", "_make", "_matcher", "_report")

    def __init__(
        self,
        name: str,
        *,
        type: str,
        make: MatcherFactory,
        report: Report,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
    ) -> None:
        self._make, self._report = make, report
        super().__init__(
            name, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments, type=type
        )

    def match(self, routing_keys: Sequence[str], table: Table) -> Sequence[Destination]:
        return tuple(dict.fromkeys(binding.destination for binding in self.matched(routing_keys, table)))

    def matched(self, routing_keys: Sequence[str], table: Table) -> Sequence[Binding]:
        """The bindings that the matcher gives, each once."""
        if table is NO_MESSAGE and self.depends_on is not Dependence.KEY:
            return ()
        try:  # without the context manager, which costs as much as the rest
            found = tuple(dict.fromkeys(self._matcher.match(RoutedMessage(routing_keys, table, self.depends_on))))
            for binding in found:
                if binding not in self._identities:
                    raise TypeError(f"match gave {binding!r}, which is no binding of this exchange")
        except ChannelError:
            raise
        except Exception as error:  # the program's own: nothing of it may reach the broker
            raise self._failed("cannot match", error) from error
        return found

    def _begin(self) -> None:
        self._identities: dict[Binding, BindingIdentity] = {}
        with self._guarded("cannot be made"):
            self._matcher = self._make(dict(self.arguments))
            depends_on = self._matcher.depends_on
            if depends_on not in DEPENDENCES:
                raise TypeError(f"depends_on is {depends_on!r}, and must be one of {', '.join(map(str, DEPENDENCES))}")
        self.depends_on = depends_on

    def _attach(self, key: BindingIdentity, binding: Binding) -> None:
        with self._guarded("cannot be bound"):
            self._matcher.add(binding)
        self._identities[binding] = key

    def _detach(self, key: BindingIdentity, binding: Binding) -> None:
        del self._identities[binding]
        try:
            self._matcher.remove(binding)
        except Exception as error:  # whatever it is, the binding is gone
            self._report(f"{self._called()}: a binding cannot be removed", error)

    @contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        try:
            yield
        except ChannelError:
            raise
        except Exception as error:  # the program's own: nothing of it may reach the broker
            raise self._failed(what, error) from error

    def _failed(self, what: str, error: Exception) -> PluginFailed:
        self._report(f"{self._called()} {what}", error)
        return PluginFailed(f"{self._called()} {what}: its plug-in failed, the broker's log says how")

    def _called(self) -> str:
        return f"exchange '{self.name}' of type '{self.type}'"
