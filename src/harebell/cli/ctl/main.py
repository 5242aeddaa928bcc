"""The script `harebellctl`: rabbitmqctl's grammar, and rabbitmq-diagnostics' commands, over the HTTP API.

Rules: the commands, columns, formats and exit statuses are RabbitMQ's, so that a script needs another name only. What
needs Erlang or a cluster is no command here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from harebell.cli.entry import interruption
from harebell.cli.main import fail, wrong_argument
from harebell.cli.terminal.output import in_words, say, standard_streams
from harebell.cli.validators import as_written, plausible
from harebell.errors import HarebellError, InvalidArgument

__all__ = ["main"]

ABOUT: Final = "rabbitmqctl's and rabbitmq-diagnostics' commands, for a broker with RabbitMQ's HTTP API."


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that `arguments` name (by default those of the process), and exit with its status."""
    with standard_streams("harebellctl"):
        try:
            _run(list(sys.argv[1:] if arguments is None else arguments))
        except KeyboardInterrupt:
            text, status = interruption()
            _end(status, f"harebellctl: {text}")


def _run(given: list[str]) -> None:
    try:
        import rich  # noqa: F401
        from cyclopts import App, CycloptsError, Parameter
    except ImportError as error:
        fail(f"`harebellctl` needs the package {error.name}: pip install 'harebell[server]'")
    from harebell.cli.ctl.call import USAGE, Failed, WrongUsage
    from harebell.cli.ctl.command import harebellctl
    from harebell.cli.http_api.failures import RequestFailed

    if given[:1] == ["help"]:  # of one command too: the page has all of them
        given = ["--help"]
    if "-" in given and "--" not in given:  # standard input or output, which no parser takes for an argument
        given = [each for each in given if each != "-"] + ["--", "-"]
    app = App(
        name="harebellctl",
        help=ABOUT,
        suppress_keyboard_interrupt=False,
        version_flags=[],
        default_parameter=Parameter(validator=plausible),
        config=as_written,
    )
    app.default(harebellctl)
    try:
        sys.exit(app(given, exit_on_error=False, print_error=False))
    except CycloptsError as error:
        _end(USAGE, f"Error (argument validation): {wrong_argument(error)}")
    except (WrongUsage, InvalidArgument) as error:
        _end(USAGE, f"Error (argument validation): {error}")
    except Failed as error:
        _end(error.status, *error.lines)
    except RequestFailed as error:
        _end(69 if error.exit_status == 1 else error.exit_status, "Error:", str(error))
    except HarebellError as error:
        _end(70, "Error:", str(error))
    except OSError as error:
        _end(70, "Error:", in_words(error))


def _end(status: int, *texts: str) -> None:
    for each in texts:
        say(each, sys.stderr)
    sys.exit(status)
