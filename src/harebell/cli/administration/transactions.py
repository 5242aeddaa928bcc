"""`harebell transactions`: the distributed transactions in a broker."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from harebell.cli.administration.requests import Target, Vhost, View, ask, say, show

__all__ = ["commit", "listed", "roll_back"]

Name = Annotated[str, Parameter(help="The transaction, as `list` writes it.")]


def listed(*, view: View | None = None, target: Target | None = None) -> int:
    """List the branches: their state, how many messages they publish and have taken, the sessions that work in them."""
    columns = ("transaction", "vhost", "user", "state", "messages", "taken", "timeout", "sessions")
    return show(lambda: ask(target, "list-transactions"), columns, view)


def commit(name: Name, *, vhost: Vhost = "/", target: Target | None = None) -> int:
    """Commit a prepared branch whose manager does not come back; if it does, it is told."""
    ask(target, "commit-transaction", transaction=name, vhost=vhost)
    return say(f"transaction '{name}' is committed")


def roll_back(name: Name, *, vhost: Vhost = "/", target: Target | None = None) -> int:
    """Roll back a prepared branch whose manager does not come back; if it does, it is told."""
    ask(target, "roll-back-transaction", transaction=name, vhost=vhost)
    return say(f"transaction '{name}' is rolled back")
