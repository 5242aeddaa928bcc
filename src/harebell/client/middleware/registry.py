"""What a program registers, and the chains that are made of it for each connection and each channel.

    middlewares = harebell.middleware.Middlewares()
    middlewares.add("queue_declare", log_it)           # a function
    middlewares.add_provider(Counter)                  # a fresh one for each connection and channel
    middlewares.add_shared(auditor)                    # one for all
    middlewares.without("topology")                    # a default feature taken out
    harebell.connect(url, middleware=middlewares)

What is registered after `connect` has no effect on that connection. Bad registrations fail here, not at the call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final, Literal, Self

from harebell import errors
from harebell.client.middleware.chain import Chains, Function, Standing
from harebell.client.middleware.hooks import HOOKS, Hook, Level

__all__ = ["FEATURES", "Attached", "Factory", "Middlewares", "Per", "attached"]

Per = Literal["transport", "connection", "channel"]


@dataclass(frozen=True, slots=True)
class _Plain:
    """A function around one hook; level None: wherever the hook stands."""

    hook: str
    function: Function
    level: Level | None


@dataclass(frozen=True, slots=True)
class Factory:
    """What makes a provider.

    id   its name
    per  for what a provider is made, as in `Middlewares.add_provider`
    """

    factory: Callable[[], object]
    id: str
    per: Per


@dataclass(frozen=True, slots=True)
class _Shared:
    provider: object
    id: str
    level: Level | None


_Entry = _Plain | Factory | _Shared

FEATURES: Final = (
    "logging", "qos", "flow", "transactions", "confirms", "publish_tags", "delivery_tags", "topology"
)  # fmt: skip
"""The names of the default features; what they are: `harebell.client.recovery.features`."""


class Middlewares:
    """The middlewares of a connection and its channels, or (`connection.channel(middleware=...)`) of one channel."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._taken_out: set[str] = set()

    def add(self, hook: str, function: Function, *, level: Level | None = None) -> Self:
        """Have the function called around a hook, as `function(call_next, args)`; several are called in their order.

        hook   its name: `harebell.middleware.HOOKS` has them all
        level  "connection" or "channel" alone, for a hook that both have (`close`, `dial_event`, ...)

        InvalidArgument for an unknown hook (the text names the nearest), or a function that cannot be called that way.
        """
        known = HOOKS.get(hook)
        if known is None:
            raise errors.InvalidArgument(f"there is no hook {hook!r}{_nearest(hook, HOOKS)}")
        if level is not None and level not in known.levels:
            raise errors.InvalidArgument(f"hook {hook!r} stands on a {known.levels[0]} only, not on a {level}")
        _check(known, function)
        self._entries.append(_Plain(hook, function, level))
        return self

    def add_provider(self, factory: Callable[[], object], *, id: str | None = None, per: Per = "transport") -> Self:
        """Have a provider made by `factory()`: its methods that are named like hooks are called around these.

        id   its name for `test().provider(id)`; else the factory's attribute `id`, else the factory's own name
        per  "transport": a fresh one for the connection and for each channel, where it has hooks; "channel": for each
             channel alone; "connection": one for the connection and all its channels together

        InvalidArgument for an id that is taken, and for a class without hooks; another factory is judged by what it
        makes, when it makes it.
        """
        if per not in ("transport", "connection", "channel"):
            raise errors.InvalidArgument(f"per={per!r}: transport, connection or channel is needed")
        if not callable(factory):
            raise errors.InvalidArgument(f"{factory!r} is no factory: give its class, or use add_shared for an object")
        name = self._new_id(factory, id)
        if isinstance(factory, type):
            _hooks_of(factory, name)
        self._entries.append(Factory(factory, name, per))
        return self

    def add_shared(self, provider: object, *, id: str | None = None, level: Level | None = None) -> Self:
        """Have one provider serve every connection and channel. Its id: as with `add_provider`, or its class's name."""
        if isinstance(provider, type):
            raise errors.InvalidArgument(
                f"{provider.__name__} is a class: give an object, or use add_provider for a fresh one each"
            )
        name = self._new_id(provider, id)
        _hooks_of(provider, name)
        self._entries.append(_Shared(provider, name, level))
        return self

    def without(self, *features: str) -> Self:
        """Take default features out; `FEATURES` names them. InvalidArgument for another name."""
        for feature in features:
            if feature not in FEATURES:
                near = _nearest(feature, FEATURES)
                raise errors.InvalidArgument(f"there is no feature {feature!r}{near}; there are {', '.join(FEATURES)}")
            self._taken_out.add(feature)
        return self

    def _new_id(self, provider: object, id: str | None) -> str:
        given = id if id is not None else getattr(provider, "id", None)
        if not isinstance(given, str):
            named = provider if hasattr(provider, "__name__") else type(provider)
            given = str(getattr(named, "__name__", ""))
            if given in ("<lambda>", "partial"):
                raise errors.InvalidArgument(f"{provider!r} has no name: give id=...")
        if any(given == entry.id for entry in self._entries if not isinstance(entry, _Plain)):
            raise errors.InvalidArgument(f"a provider with id {given!r} is registered: give another id=...")
        return given


def attached(middleware: Middlewares | None, features: Sequence[Factory]) -> Attached:
    """What is registered now, for one connection.

    features  the default features, those nearest to the wire last
    """
    if middleware is None:
        middleware = Middlewares()
    _check_kind(middleware)
    taken_out = middleware._taken_out
    return Attached(tuple(middleware._entries), [feature for feature in features if feature.id not in taken_out])


class Attached:
    """The middlewares of one connection: its own chains, and those of its channels."""

    def __init__(self, entries: tuple[_Entry, ...], features: Sequence[Factory]) -> None:
        self._entries = entries
        self._providers: dict[str, object] = {}  # made once for the connection and its channels
        _check_ids(entries, features)
        for entry in (*entries, *features):
            if isinstance(entry, Factory) and entry.per == "connection":
                self._providers[entry.id] = provider = entry.factory()
                _hooks_of(provider, entry.id)
        self._features = features
        self.connection = self._chains("connection", entries, features)

    def channel(self, more: Middlewares | None) -> Chains:
        """The chains of a new channel. InvalidArgument when `more` holds what cannot stand there."""
        if more is None:
            return self._chains("channel", self._entries, self._features)
        _check_kind(more)
        for entry in more._entries:
            self._check_on_channel(entry)
        entries = (*self._entries, *more._entries)
        features = [feature for feature in self._features if feature.id not in more._taken_out]
        _check_ids(entries, features)
        return self._chains("channel", entries, features)

    def _check_on_channel(self, entry: _Entry) -> None:
        if isinstance(entry, _Plain) and ("channel" not in HOOKS[entry.hook].levels or entry.level == "connection"):
            raise errors.InvalidArgument(f"hook {entry.hook!r} stands on a connection: register it with connect()")
        if isinstance(entry, Factory) and entry.per == "connection":
            raise errors.InvalidArgument(f"provider {entry.id!r} is one per connection: register it with connect()")

    def _chains(self, level: Level, entries: Sequence[_Entry], features: Sequence[Factory]) -> Chains:
        providers: dict[str, object] = {}
        program = self._standing(level, entries, providers)
        return Chains(program, self._standing(level, features, providers), providers)

    def _standing(self, level: Level, entries: Sequence[_Entry], providers: dict[str, object]) -> list[Standing]:
        """What stands on a connection or on a channel; those with an id are put into `providers` too."""
        standing: list[Standing] = []
        for entry in entries:
            if isinstance(entry, _Plain):
                if level in HOOKS[entry.hook].levels and entry.level in (None, level):
                    standing.append((SimpleNamespace(**{entry.hook: entry.function}), (entry.hook,)))
                continue
            if isinstance(entry, _Shared):
                if entry.level not in (None, level):
                    continue
                provider = entry.provider
            elif entry.per == "connection":
                provider = providers[entry.id] = self._providers[entry.id]
            elif entry.per == "channel" and level == "connection":
                continue
            elif isinstance(entry.factory, type) and not _hooks_at(entry.factory, entry.id, level):
                continue  # one that is no class has to be made to be known
            else:
                provider = entry.factory()
            hooks = _hooks_at(provider, entry.id, level)
            if hooks:
                providers[entry.id] = provider
                standing.append((provider, hooks))
        return standing


_checked: dict[type, tuple[str, ...]] = {}  # the hooks of a provider's class, so that a channel costs little
_sorted: dict[tuple[tuple[str, ...], Level], tuple[str, ...]] = {}  # hooks of one level, of all these


def _hooks_of(provider: object, name: str) -> tuple[str, ...]:
    """The hooks that a provider, or a provider's class, has methods for. InvalidArgument when there are none."""
    kind = provider if isinstance(provider, type) else type(provider)
    hooks = _checked.get(kind)
    if hooks is None:
        hooks = tuple(hook for hook in HOOKS if callable(getattr(kind, hook, None)))
        for hook in hooks:
            _check(HOOKS[hook], getattr(kind, hook), 3)
        _checked[kind] = hooks
    own = getattr(provider, "__dict__", {}) if kind is not provider else {}
    if not HOOKS.keys().isdisjoint(own):
        more = tuple(hook for hook in own if hook in HOOKS and hook not in hooks and callable(own[hook]))
        for hook in more:
            _check(HOOKS[hook], own[hook])
        hooks += more
    if not hooks:
        raise errors.InvalidArgument(
            f"provider {name!r} has no method that is named like a hook: queue_declare, publish, delivery_event, ..."
        )
    return hooks


def _hooks_at(provider: object, name: str, level: Level) -> tuple[str, ...]:
    """Those of them that stand at this level."""
    hooks = _hooks_of(provider, name)
    found = _sorted.get((hooks, level))
    if found is None:
        found = _sorted[hooks, level] = tuple(hook for hook in hooks if level in HOOKS[hook].levels)
    return found


def _check_kind(middleware: object) -> None:
    if not isinstance(middleware, Middlewares):
        raise errors.InvalidArgument(
            f"middleware={middleware!r}: give a harebell.middleware.Middlewares, which takes functions and providers"
        )


def _check_ids(entries: Sequence[_Entry], features: Sequence[Factory]) -> None:
    seen: set[str] = set()
    for entry in (*entries, *features):
        if isinstance(entry, _Plain):
            continue
        if entry.id in seen:
            more = "; a feature of that name stands: take it out, without(...)" if entry.id in FEATURES else ""
            raise errors.InvalidArgument(f"two providers have the id {entry.id!r}{more}")
        seen.add(entry.id)


def _check(hook: Hook, function: object, parameters: int = 2) -> None:
    """InvalidArgument when it cannot be called as the hook calls it; `parameters` with self."""
    if not callable(function):
        raise errors.InvalidArgument(f"hook {hook.name!r}: {function!r} cannot be called")
    if hook.kind != "async" and inspect.iscoroutinefunction(function):
        raise errors.InvalidArgument(
            f"hook {hook.name!r} is called without await: {_named(function)} must be a plain function, not `async def`"
        )
    if isinstance(function, staticmethod | classmethod):
        return
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a builtin that does not say
    try:
        signature.bind(*range(parameters))
    except TypeError:
        raise errors.InvalidArgument(
            f"hook {hook.name!r}: {_named(function)}{signature} must take (call_next, "
            f"{'event' if hook.kind == 'event' else 'args'})"
        ) from None


def _named(function: object) -> str:
    return str(getattr(function, "__qualname__", repr(function)))


def _nearest(name: str, names: Iterable[str]) -> str:
    import difflib  # once, for an error

    near = difflib.get_close_matches(name, names, 3, 0.5)
    return f": did you mean {' or '.join(near)}?" if near else ""
