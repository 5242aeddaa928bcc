"""The chains of one connection or one channel: what stands around its calls and its events.

Rules:
1. What was registered first is called first, and the default features stand behind all of it: a call goes through the
   program's middlewares, then the features, then to the broker; an event, which comes from there, the other way:
   through the features, then the program's.
2. Where nothing stands around a method, the method is left alone. Else the object is made of a subclass with another
   method in its place (`hooked_class`); attributes of the object itself would make all its methods slower to find. The
   chain around a method is put together at its first call.
3. A middleware that fails in a call fails the call. One that fails in an event is logged, and the event goes on as it
   was unless it had been passed on: an event happens inside the protocol, where no caller could catch the error.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Protocol, TypeVar, cast

from harebell.client.middleware.hooks import HOOKS, OnChannel, OnConnection, OnEither, where_of

__all__ = ["Chains", "Function", "Standing"]

logger = logging.getLogger("harebell.client")

Function = Callable[..., object]
Standing = tuple[object, tuple[str, ...]]  # a provider, and its hooks that matter here
_E = TypeVar("_E")
_T = TypeVar("_T")


class Chains:
    """The middlewares of one connection or one channel.

    program, features  providers, each with the hooks that it has here
    providers          those of them that have an id, by it
    hooks              all the hooks where something stands
    methods            the object's methods behind their chains, those that were called
    """

    def __init__(self, program: Sequence[Standing], features: Sequence[Standing], providers: dict[str, object]) -> None:
        self._program = program
        self._features = features
        self.providers = providers
        self.hooks = frozenset([hook for _, hooks in (*program, *features) for hook in hooks])
        self.methods: dict[str, Function] = {}

    def has(self, hook: str) -> bool:
        return hook in self.hooks

    def call(self, hook: str, innermost: Function) -> Function:
        """What to call in place of `innermost`, with the hook's record."""
        if hook in self.hooks:
            for function in reversed([*_functions(self._program, hook), *_functions(self._features, hook)]):
                innermost = functools.partial(function, innermost)
        return innermost

    def event(self, hook: str, innermost: Callable[[_E], None]) -> Callable[[_E], None]:
        """What to call in place of `innermost`, with the event."""
        if hook not in self.hooks:
            return innermost
        functions = [*reversed(_functions(self._program, hook)), *_functions(self._features, hook)]  # the last is first

        def relay(event: _E) -> None:
            reached = False

            def deliver(event: _E) -> None:
                nonlocal reached
                reached = True
                innermost(event)

            chain: Function = deliver
            for function in functions:
                chain = functools.partial(function, chain)
            try:
                chain(event)
            except Exception:
                logger.exception("a middleware failed in %s of %r", hook, event)
                if not reached:
                    innermost(event)

        return relay

    def hooked_class(self, base: type[_T], names: tuple[str, ...]) -> type[_T]:
        """The class to make the object of: with these methods of `base` behind their chains, where they have one.

        An object of it has these chains as its attribute `chains`.
        """
        return cast("type[_T]", _hooked_class(base, names, self.hooks))  # type: ignore[arg-type]  # a class is hashable

    def hook_methods(self, target: object, names: Iterable[str], where: object) -> None:
        """Put these methods of an object behind their chains."""
        for name in names:
            if self.has(name):
                setattr(target, name, self.around(name, getattr(target, name), where))

    def around(self, name: str, method: Function, where: object) -> Function:
        """The method behind its chain.

        where  the connection or channel that the records name
        """
        passive = f"{name}_passive"
        record = cast(Callable[..., object], HOOKS[name].record)
        positional, keywords, at = _parameters(HOOKS[name].record)

        def bare(args: object) -> object:
            return method(
                *[getattr(args, field) for field in positional], **{field: getattr(args, field) for field in keywords}
            )

        chain = self.call(name, bare)
        here = {at: where}
        if passive not in HOOKS:

            def hooked(*args: object, **kwargs: object) -> object:
                return chain(record(*args, **kwargs, **here))

        else:
            asking = self.call(passive, bare)

            def hooked(*args: object, **kwargs: object) -> object:
                made = record(*args, **kwargs, **here)
                return asking(made) if getattr(made, "passive", False) else chain(made)

        return functools.wraps(method)(hooked)


def _functions(standings: Sequence[Standing], hook: str) -> list[Function]:
    return [getattr(provider, hook) for provider, hooks in standings if hook in hooks]


class Hooked(Protocol):
    """An object whose methods middlewares can stand around."""

    @property
    def chains(self) -> Chains: ...


@functools.cache
def _hooked_class(base: type, names: tuple[str, ...], hooks: frozenset[str]) -> type:
    hidden = [name for name in names if name in hooks or f"{name}_passive" in hooks]
    if not hidden:
        return base
    members: dict[str, object] = {name: _hooked_method(name, getattr(base, name)) for name in hidden}
    for attribute in ("__doc__", "__module__", "__qualname__"):
        members[attribute] = getattr(base, attribute)
    return type(base.__name__, (base,), members)


def _hooked_method(name: str, method: Function) -> Function:
    @functools.wraps(method)
    def hooked(self: Hooked, *args: object, **kwargs: object) -> object:
        chains = self.chains
        around = chains.methods.get(name)
        if around is None:
            around = chains.methods[name] = chains.around(name, functools.partial(method, self), self)
        return around(*args, **kwargs)

    return hooked


@functools.cache
def _parameters(record: type[OnChannel | OnConnection | OnEither]) -> tuple[list[str], list[str], str]:
    """(positional parameters, keywords, the field that is none of these) of a call's record."""
    where = where_of(record)
    names = [field for field in fields(record) if field.name != where]
    return [f.name for f in names if not f.kw_only], [f.name for f in names if f.kw_only], where
