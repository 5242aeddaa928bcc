"""Exchanges that store messages: their arguments, and how they route. The broker does the storing.

Rules (those of RabbitMQ's plugins):

- `x-delayed-message` routes as the type that its argument `x-delayed-type` names, which must be a known one. A message
  whose header `x-delay` is from 1 to MAX_DELAY is delayed by that many milliseconds first. A string of digits counts
  as a number, and so does a fraction, which is cut off. Any other value of the header delays nothing.
- `x-recent-history` routes like a fanout, and remembers the last `x-recent-history-length` messages (20 unless
  declared otherwise) for later bindings; a message with the header `x-recent-history-no-store` true is routed and not
  remembered.

The module stores nothing: `Route.delayed` and `Route.remembered` name the exchanges for which the broker has to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from math import isfinite
from re import ASCII, compile as pattern
from typing import Final

from harebell.errors import PreconditionFailed
from harebell.routing.exchanges.exchange import (
    Binding,
    BindingIdentity,
    Dependence,
    Destination,
    Exchange,
    FanoutExchange,
)
from harebell.routing.table_values import Table, erlang_term

__all__ = ["DEFAULT_HISTORY", "MAX_DELAY", "DelayedMessageExchange", "ExchangeFactory", "RecentHistoryExchange"]

DEFAULT_HISTORY: Final = 20

ExchangeFactory = Callable[..., Exchange]
"""An exchange class, or a function that makes an exchange: called with a name and the keywords of `Exchange`."""

MAX_DELAY: Final = 2**32 - 1
"""The longest delay in milliseconds, nearly 50 days: the limit of the plugin's timers. A longer one delays nothing."""

_DIGITS: Final = pattern(r"\+?\d{1,18}", ASCII)


class DelayedMessageExchange(Exchange):
    """An exchange that delays messages and then routes as `inner` does. `types` are those x-delayed-type may name."""

    TYPE = "x-delayed-message"

    __slots__ = ("_types", "inner")

    def __init__(
        self,
        name: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
        types: Mapping[str, ExchangeFactory],
    ) -> None:
        kind = types.get(str((arguments or {}).get("x-delayed-type")))
        if kind is None:
            raise PreconditionFailed("Invalid argument, 'x-delayed-type' must be an existing exchange type")
        self.inner = kind(name, arguments=arguments)
        super().__init__(name, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments)
        key_alone = self.inner.depends_on is Dependence.KEY
        self.depends_on = Dependence.HEADERS if key_alone else self.inner.depends_on

    @staticmethod
    def delay(headers: Table) -> int:
        """The delay of a message with these headers, in milliseconds; 0 for none."""
        value = headers.get("x-delay")
        if isinstance(value, bool):
            return 0
        if (isinstance(value, str) and _DIGITS.fullmatch(value)) or (
            isinstance(value, (float, Decimal)) and isfinite(value)
        ):
            value = int(value)
        return value if isinstance(value, int) and 0 < value <= MAX_DELAY else 0

    def match(self, routing_keys: Sequence[str], table: Table) -> Sequence[Destination]:
        inner = self.inner
        found = inner.match(routing_keys, table)
        if inner.effort:
            self.effort += inner.effort
            inner.effort = 0
        return found

    def _begin(self) -> None:
        """Nothing: the inner exchange has the index."""

    def _attach(self, key: BindingIdentity, binding: Binding) -> None:
        self.inner.bind(binding.destination, binding.binding_key, binding.arguments)

    def _detach(self, key: BindingIdentity, binding: Binding) -> None:
        self.inner.unbind(binding.destination, binding.binding_key, binding.arguments)


class RecentHistoryExchange(FanoutExchange):
    """A fanout exchange that remembers its last messages. `length` is their number."""

    TYPE = "x-recent-history"

    __slots__ = ("length",)

    @staticmethod
    def remembers(headers: Table) -> bool:
        """False for a message that asks not to be remembered."""
        return headers.get("x-recent-history-no-store") is not True

    def _begin(self) -> None:
        super()._begin()
        self.depends_on = Dependence.HEADERS
        length = self.arguments.get("x-recent-history-length", DEFAULT_HISTORY)
        if not isinstance(length, int) or isinstance(length, bool) or length < 1:
            raise PreconditionFailed(
                f"Invalid argument {erlang_term(length)}, 'x-recent-history-length' must be a positive integer"
            )
        self.length = length
