"""The chains of one connection or one channel: what stands around its calls and its events.

Rules:
1. What was registered first is called first, and the default features stand behind all of it: a call goes through the
   program's middlewares, then the features, then to the broker; an event, which comes from there, the other way:
   through the features, then the program's.
2. Where nothing stands around a method, the method is left alone. Else the object gets an attribute of the method's
   name that hides it: `shadow`.
3. A middleware that fails in a call fails the call. One that fails in an event is logged, and the event goes on as it
   was unless it had been passed on: an event happens inside the protocol, where nobody could catch the error.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import TypeVar, cast

from warren.client.middleware.hooks import HOOKS, OnChannel, OnConnection, OnEither, where_of

__all__ = ["Chains", "Function"]

logger = logging.getLogger("warren.client")

Function = Callable[..., object]
_E = TypeVar("_E")


class Chains:
    """The middlewares of one connection or one channel.

    providers  those made for it and those it shares, by id
    """

    def __init__(self) -> None:
        self.providers: dict[str, object] = {}
        self._program: dict[str, list[Function]] = {}
        self._features: dict[str, list[Function]] = {}

    def add(self, hook: str, function: Function) -> None:
        self._program.setdefault(hook, []).append(function)

    def add_feature(self, hook: str, function: Function) -> None:
        self._features.setdefault(hook, []).append(function)

    def has(self, hook: str) -> bool:
        return hook in self._program or hook in self._features

    def call(self, hook: str, innermost: Function) -> Function:
        """What to call in place of `innermost`, with the hook's record."""
        for function in reversed([*self._program.get(hook, ()), *self._features.get(hook, ())]):
            innermost = functools.partial(function, innermost)
        return innermost

    def event(self, hook: str, innermost: Callable[[_E], None]) -> Callable[[_E], None]:
        """What to call in place of `innermost`, with the event."""
        functions = [*reversed(self._program.get(hook, ())), *self._features.get(hook, ())]  # the last called first
        if not functions:
            return innermost

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

    def shadow(self, target: object, names: Iterable[str], where: object) -> None:
        """Hide these methods of the target behind their chains; a method without one stays as it is.

        where  the connection or channel that the records name
        """
        for name in names:
            passive = f"{name}_passive"
            if self.has(name) or self.has(passive):
                setattr(target, name, self._shadow(name, passive, getattr(target, name), where))

    def _shadow(self, name: str, passive: str, method: Function, where: object) -> Function:
        record = cast(Callable[..., object], HOOKS[name].record)
        positional, keywords, at = _parameters(HOOKS[name].record)

        def bare(args: object) -> object:
            return method(
                *[getattr(args, field) for field in positional], **{field: getattr(args, field) for field in keywords}
            )

        chain = self.call(name, bare)
        here = {at: where}
        if passive not in HOOKS:

            def shadow(*args: object, **kwargs: object) -> object:
                return chain(record(*args, **kwargs, **here))

        else:
            asking = self.call(passive, bare)

            def shadow(*args: object, **kwargs: object) -> object:
                made = record(*args, **kwargs, **here)
                return asking(made) if getattr(made, "passive", False) else chain(made)

        return functools.wraps(method)(shadow)


@functools.cache
def _parameters(record: type[OnChannel | OnConnection | OnEither]) -> tuple[list[str], list[str], str]:
    """(positional parameters, keywords, the field that is none of these) of a call's record."""
    where = where_of(record)
    names = [field for field in fields(record) if field.name != where]
    return [f.name for f in names if not f.kw_only], [f.name for f in names if f.kw_only], where
