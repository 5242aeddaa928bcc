"""Write the forwarding part of the blocking API from the public methods of the asyncio API.

    python -m tools.generate_blocking            # writes forwarded_*.py below src/harebell/client/blocking
    python -m tools.generate_blocking --check    # exits 1 when a committed file differs

Each public member of an asyncio class becomes a member of the same name, parameters, types and docstring:

    coroutine function   runs on the I/O thread, and the calling thread waits for it
    function             runs on the calling thread, which holds the turn (the I/O loop's lock)
    notify_...           the same; the callbacks run on the callbacks' thread
    property             is read; under the turn where it reads more than one value

Members that cannot be forwarded are written by hand in the heir: the table below names them, with the reason.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harebell.client import sessions
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.harness import ChannelHarness, ConnectionHarness, ReconnectSignal
from tools.generated import definition, needed, path_of, run

PACKAGE = "harebell.client.blocking"


@dataclass(frozen=True)
class Forwarded:
    """The forwarding class to write for one asyncio class.

    model       the asyncio class
    by_hand     members that the heir writes by hand, and why
    copied      properties that copy an object which the loop may change meanwhile: they are read under the turn
    base        the class to inherit from, which has `io` and `inner`; its module
    notifies    whether it has notify_ methods, and so takes callbacks
    """

    model: type
    by_hand: dict[str, str] = field(default_factory=dict)
    copied: frozenset[str] = frozenset()
    base: tuple[str, str] | None = None
    notifies: bool = False

    @property
    def name(self) -> str:
        return f"Forwarded{self.model.__name__}"


_TASKS = "made of tasks: asyncio only"
_BLOCK = "a block of the calling thread"
_GIVES = "gives the blocking twin of what the asyncio method gives"
FILES = {
    "channel": [
        Forwarded(
            Channel,
            by_hand={
                "ack": "per message: `Settler` takes the turn",
                "nack": "per message: `Settler` takes the turn",
                "reject": "per message: `Settler` takes the turn",
                "publish": "per message: the calling thread takes the steps",
                "send": "per message: the calling thread takes the steps",
                "publish_nowait": "per message: the calling thread writes",
                "publish_many": "the program's iterator must not run on the I/O thread",
                "get": "a message that an interrupt cuts off goes back to the queue",
                "on_return": "the callback is called on another thread",
                "consume": _GIVES,
                "confirmations": _GIVES,
                "publish_bulk": _GIVES,
                "test": _GIVES,
            },
            copied=frozenset({"consuming", "consumer_tags"}),
            base=("Settler", f"{PACKAGE}.settler"),
            notifies=True,
        )
    ],
    "connection": [
        Forwarded(
            Connection,
            by_hand={
                "channel": _GIVES,
                "events": _GIVES,
                "test": _GIVES,
                "producer": _GIVES,
                "relay": _GIVES,
                "deliveries": _TASKS,
                "consume": _TASKS,
                "dead_letters": _GIVES,
                "stream": _TASKS,
                "super_stream": _TASKS,
                "rpc": _GIVES,
                "serve": _GIVES,
                "channel_pool": _GIVES,
            },
            notifies=True,
        )
    ],
    "harness": [
        Forwarded(ReconnectSignal),
        Forwarded(
            ConnectionHarness,
            by_hand={"signal_on_reconnect": _GIVES, "reconnect_blocked": _BLOCK, "transport_lock": _BLOCK},
        ),
        Forwarded(
            ChannelHarness,
            by_hand={"signal_on_reconnect": _GIVES, "reconnect_blocked": _BLOCK, "transport_lock": _BLOCK},
        ),
    ],
    "sessions.session": [
        Forwarded(
            sessions.Session,
            by_hand={
                "publish_many": "the program's iterator must not run on the I/O thread",
                "get": "a message that an interrupt cuts off goes back to the queue",
                "consume": _GIVES,
                "browse": _GIVES,
                "copies": _GIVES,
                "acquire": "takes the deliveries of the blocking API",
                "transaction": _GIVES,
                "branch": _GIVES,
                "test": _GIVES,
            },
            copied=frozenset({"is_attached", "incomplete"}),
        )
    ],
    "sessions.connection": [
        Forwarded(sessions.Connection, by_hand={"session": _GIVES, "events": _GIVES, "test": _GIVES})
    ],
    "sessions.harness": [
        Forwarded(sessions.ReconnectSignal),
        Forwarded(sessions.ConnectionHarness, by_hand={"signal_on_reconnect": _GIVES, "reconnect_blocked": _BLOCK}),
        Forwarded(sessions.SessionHarness),
    ],
}
"""What is written, by the module that the forwarding one is named after."""


def members(model: type) -> Iterator[tuple[str, object]]:
    """The public methods and properties of a class, those of its bases first, each where it is defined last."""
    found: dict[str, object] = {}
    for base in reversed(model.__mro__[:-1]):
        found |= {name: member for name, member in vars(base).items() if not name.startswith("_")}
    for name, member in found.items():
        if inspect.isfunction(member) or isinstance(member, property):
            yield name, member


class Writer:
    """The classes of one file, and the imports that they need."""

    def __init__(self) -> None:
        self.imports = {f"from {PACKAGE}.thread import IoThread"}
        self.lines: list[str] = []

    def write_class(self, forwarded: Forwarded) -> None:
        model = forwarded.model
        present = dict(members(model))
        if unknown := forwarded.by_hand.keys() - present.keys():
            raise SystemExit(f"{model.__name__} has no {', '.join(sorted(unknown))}: mend the table of by_hand")
        where = model.__module__.rpartition(".")
        self.imports.add(f"from {where[0]} import {where[2]} as asyncio_api")
        kind = model.__name__
        inner = f"asyncio_api.{kind}"
        bases = ""
        parts = "io, inner, callbacks" if forwarded.notifies else "io, inner"
        if forwarded.base is not None:
            self.imports.add(f"from {forwarded.base[1]} import {forwarded.base[0]}")
            bases = f"({forwarded.base[0]})"
        self.lines += [
            "",
            f"class {forwarded.name}{bases}:",
            f'    """The members of a blocking {kind} that only call those of the asyncio {kind}.',
            "",
            f"    {parts}  the client's own parts, which are no public API",
            '    """',
            "",
        ]
        if forwarded.notifies:
            self.imports.add(f"from {PACKAGE}.callbacks import Callbacks")
            self.lines.append(f"    def __init__(self, io: IoThread, inner: {inner}, callbacks: Callbacks) -> None:")
        else:
            self.lines.append(f"    def __init__(self, io: IoThread, inner: {inner}) -> None:")
        if forwarded.base is not None:
            self.lines.append("        super().__init__(io, inner)")
        else:
            self.lines += ["        self.io = io", "        self.inner = inner"]
        if forwarded.notifies:
            self.lines.append("        self.callbacks = callbacks")
        for name, member in present.items():
            if name not in forwarded.by_hand:
                self.write_member(name, member, forwarded)

    def write_member(self, name: str, member: object, forwarded: Forwarded) -> None:
        function = inspect.unwrap(member.fget if isinstance(member, property) else member)  # type: ignore[arg-type]
        node, module = definition(function), importlib.import_module(function.__module__)
        arguments = node.args
        if arguments.vararg or arguments.kwarg or arguments.posonlyargs:
            raise SystemExit(f"{forwarded.model.__name__}.{name}: *args, **kwargs and / are not forwarded")
        notes = [argument.annotation for argument in (*arguments.args, *arguments.kwonlyargs)]
        self.imports |= needed([*notes, *arguments.defaults, *arguments.kw_defaults, node.returns], module)
        assert node.returns is not None
        self.lines.append("")
        if isinstance(member, property):
            self.lines.append("    @property")
        self.lines.append(f"    def {name}({ast.unparse(arguments)}) -> {ast.unparse(node.returns)}:")
        if (doc := ast.get_docstring(node, clean=False)) is not None:
            if "await" in doc or "async" in doc or "\\" in doc:
                raise SystemExit(f"{forwarded.model.__name__}.{name} is documented for asyncio alone: write it by hand")
            self.lines.append(f'        """{doc}"""')
        self.lines += body(name, member, node, copied=name in forwarded.copied)


def body(name: str, member: object, node: ast.FunctionDef | ast.AsyncFunctionDef, *, copied: bool) -> list[str]:
    """The lines that call the asyncio member, as its kind needs it."""
    inner = f"self.inner.{name}"
    given = [argument.arg for argument in node.args.args if argument.arg != "self"]
    given += [f"{argument.arg}={argument.arg}" for argument in node.args.kwonlyargs]
    after = ", ".join([inner, *given])
    keyword = "" if ast.unparse(node.returns or ast.Constant(None)) == "None" else "return "
    if isinstance(node, ast.AsyncFunctionDef):
        return [f"        {keyword}self.io.run({after})"]
    if name.startswith("notify_"):
        return [f"        return self.callbacks.register({after})"]
    if isinstance(member, property):
        return ["        with self.io.turn:", f"            return {inner}"] if copied else [f"        return {inner}"]
    return ["        with self.io.turn:", f"            {keyword}{inner}({', '.join(given)})"]


def head(noun: str) -> str:
    return f'''\
"""The {noun} methods of the blocking API that only forward. Generated by tools/generate_blocking.py; do not edit.

Signatures and docstrings are the asyncio API's. What else a {noun} does is in `{noun}`.
"""

from __future__ import annotations
'''


def generate(module: str) -> str:
    writer, noun = Writer(), module.rpartition(".")[2]
    for forwarded in FILES[module]:
        writer.write_class(forwarded)
        writer.lines.append("")
    names = ", ".join(f'"{forwarded.name}"' for forwarded in FILES[module])
    return "\n".join([head(noun), *sorted(writer.imports), "", f"__all__ = [{names}]", "", *writer.lines])


def files() -> dict[Path, str]:
    found = {}
    for module in FILES:
        package, dot, noun = module.rpartition(".")
        found[path_of(f"{PACKAGE}.{package}{dot}forwarded_{noun}")] = generate(module)
    return found


if __name__ == "__main__":
    sys.exit(run(files()))
