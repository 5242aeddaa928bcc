"""Finds one object of a broker by its name, or says which name was meant; reads arguments in NAME=VALUE form."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeVar

from cyclopts import Parameter

from harebell.cli.http_api.client import HttpApi
from harebell.cli.http_api.failures import Missing, RequestFailed, missing
from harebell.errors import InvalidArgument

__all__ = ["Arguments", "AsJson", "InVhost", "Vhost", "find", "known_from", "listed_in", "need_one", "pairs", "trying"]

AsJson = Annotated[bool, Parameter(name="--json", negative=(), help="Print JSON.")]
Vhost = Annotated[str, Parameter(help="The virtual host.")]
InVhost = Annotated[str | None, Parameter(help="Only in this virtual host; left out: in all that the user may see.")]
Arguments = Annotated[
    tuple[str, ...],
    Parameter(name="--argument", help="NAME=VALUE; VALUE is JSON, or text as it is; repeatable."),
]

PLURALS: Final = {"policy": "policies", "operator policy": "operator-policies"}

T = TypeVar("T")


def plural(noun: str) -> str:
    """The noun as the paths of the API have it."""
    return PLURALS.get(noun, f"{noun}s")


def find(api: HttpApi, noun: str, name: str, vhost: str | None = None) -> dict[str, Any]:
    """The object. Raises Missing with the nearest name, or with the virtual host that has one of that name."""
    where = () if vhost is None else (vhost,)
    return trying(api, noun, name, vhost, lambda: api.get(plural(noun), *where, name))


def trying(api: HttpApi, noun: str, name: str, vhost: str | None, work: Callable[[], T]) -> T:
    """The result of `work` on the object; when that is missing, Missing with the name that may be meant."""
    try:
        return work()
    except Missing as error:
        raise _missing(api, noun, name, vhost) from error


def _missing(api: HttpApi, noun: str, name: str, vhost: str | None) -> Missing:
    text = f"{noun} '{name}'" + (f" in vhost '{vhost}'" if vhost is not None else "")
    try:
        known = api.get(plural(noun))
    except RequestFailed:
        return Missing(f"no {text}")
    if vhost is not None:
        elsewhere = [each["vhost"] for each in known if each["name"] == name and each["vhost"] != vhost]
        if elsewhere:
            return Missing(f"no {text}: vhost '{elsewhere[0]}' has one, add --vhost {elsewhere[0]}")
    here = [each["name"] for each in known if vhost is None or each["vhost"] == vhost]
    listing = f"harebell {plural(noun)} list" if noun != "operator policy" else ""
    return missing(text, name, here, listing)


def listed_in(api: HttpApi, path: str, vhost: str | None) -> list[dict[str, Any]]:
    """All objects of a kind, or those in one virtual host. Raises Missing for a virtual host that does not exist."""
    if vhost is None:
        found = api.get(path)
    else:
        found = trying(api, "vhost", vhost, None, lambda: api.get(path, vhost))
    return list(found)


def need_one(api: HttpApi, nouns: Sequence[str], name: str, vhost: str | None) -> None:
    """Raise Missing unless an object of one of these kinds has the name, in the virtual host or in any."""
    known = [each["name"] for noun in nouns for each in listed_in(api, plural(noun), vhost)]
    if name not in known:
        where = f" in vhost '{vhost}'" if vhost is not None else ""
        raise missing(f"{' or '.join(nouns)} '{name}'{where}", name, known)


def known_from(vhost: str | None) -> Sequence[str]:
    """The columns that a list need not show: that of the virtual host, when all objects are in one."""
    return () if vhost is None else ("vhost", "queue.vhost")


def pairs(given: Sequence[str], option: str) -> dict[str, object]:
    """The names and values of a repeatable option; a value is JSON, or text as it is."""
    found: dict[str, object] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise InvalidArgument(f"{option} {each!r}: write NAME=VALUE")
        if name in found:
            raise InvalidArgument(f"{option} {each!r}: '{name}' is given twice")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):
            found[name] = value
    return found
