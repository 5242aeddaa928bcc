"""`harebell policies`: list them, show, set and clear one; operator policies with --operator."""

from __future__ import annotations

from typing import Annotated, Final

from cyclopts import Parameter

from harebell.cli.http_api.target import HttpTarget, connect_to
from harebell.cli.listing import View, show_one, show_rows
from harebell.cli.objects.lookup import AsJson, InVhost, Vhost, find, known_from, listed_in, pairs, trying
from harebell.cli.terminal.output import say
from harebell.cli.validators import maybe_empty
from harebell.errors import InvalidArgument

__all__ = ["clear", "listed", "set_", "shown"]

Name = Annotated[str, Parameter(help="The policy.")]
Operator = Annotated[bool, Parameter(negative=(), help="Operator policies, in place of policies.")]

COLUMNS: Final = ("vhost", "name", "pattern", "apply-to", "priority", "definition")
APPLY_TO: Final = ("all", "queues", "classic_queues", "quorum_queues", "streams", "exchanges")


def listed(
    *, operator: Operator = False, vhost: InVhost = None, view: View | None = None, target: HttpTarget | None = None
) -> int:
    """List policies."""
    with connect_to(target) as api:
        return show_rows(lambda: listed_in(api, _path(operator), vhost), COLUMNS, view, without=known_from(vhost))


def shown(
    name: Name, *, operator: Operator = False, vhost: Vhost = "/", json: AsJson = False,
    target: HttpTarget | None = None,
) -> int:  # fmt: skip
    """Show a policy."""
    with connect_to(target) as api:
        return show_one(find(api, _noun(operator), name, vhost), as_json=json)


def set_(
    name: Name,
    pattern: Annotated[str, Parameter(validator=maybe_empty, help="A regular expression, searched for in names.")],
    *,
    define: Annotated[
        tuple[str, ...],
        Parameter(help="KEY=VALUE, such as max-length=1000; VALUE is JSON, or text as it is; repeatable."),
    ],
    priority: Annotated[int, Parameter(help="Of several that match, the largest is in force.")] = 0,
    apply_to: Annotated[str, Parameter(help=f"{', '.join(APPLY_TO[:-1])} or {APPLY_TO[-1]}.")] = "all",
    operator: Operator = False,
    vhost: Vhost = "/",
    target: HttpTarget | None = None,
) -> int:
    """Set a policy, in place of one of the same name."""
    if apply_to not in APPLY_TO:
        raise InvalidArgument(f"--apply-to {apply_to!r}: one of {', '.join(APPLY_TO)}")
    body = {
        "pattern": pattern, "definition": pairs(define, "--define"), "priority": priority, "apply-to": apply_to,
    }  # fmt: skip
    with connect_to(target) as api:
        trying(api, "vhost", vhost, None, lambda: api.put(_path(operator), vhost, name, body=body))
    return say(f"{_noun(operator)} '{name}' in vhost '{vhost}' is set")


def clear(name: Name, *, operator: Operator = False, vhost: Vhost = "/", target: HttpTarget | None = None) -> int:
    """Remove a policy."""
    with connect_to(target) as api:
        trying(api, _noun(operator), name, vhost, lambda: api.delete(_path(operator), vhost, name))
    return say(f"{_noun(operator)} '{name}' in vhost '{vhost}' is cleared")


def _path(operator: bool) -> str:
    return "operator-policies" if operator else "policies"


def _noun(operator: bool) -> str:
    return "operator policy" if operator else "policy"
