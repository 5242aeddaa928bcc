"""Sender-selected copies: the additional routing keys that a publisher names in the headers CC and BCC.

Rules (RabbitMQ's, probed): each header is an array; its long strings are routing keys, its other elements are ignored;
any other type of header is refused. BCC is removed from what is delivered, CC stays. A queue reached by several keys
still gets one message (`Router.route_keys`).
"""

from __future__ import annotations

from collections.abc import Sequence

from harebell.errors import PreconditionFailed
from harebell.routing.table_values import Table, type_name

__all__ = ["bcc_keys", "cc_bcc", "cc_keys", "without_bcc"]


def cc_keys(headers: Table) -> tuple[str, ...]:
    """The keys of the CC header. Raises PreconditionFailed when it is not an array."""
    return _keys(headers, "CC")


def bcc_keys(headers: Table) -> tuple[str, ...]:
    """The keys of the BCC header. Raises PreconditionFailed when it is not an array."""
    return _keys(headers, "BCC")


def cc_bcc(headers: Table) -> tuple[str, ...]:
    """The keys of CC, then those of BCC. Raises PreconditionFailed when one of them is not an array."""
    return _keys(headers, "CC") + _keys(headers, "BCC")


def without_bcc(headers: Table) -> dict[str, object]:
    """A copy of the headers without BCC, which is what consumers get."""
    return {name: value for name, value in headers.items() if name != "BCC"}


def _keys(headers: Table, name: str) -> tuple[str, ...]:
    if name not in headers:
        return ()
    value = headers[name]
    if not isinstance(value, Sequence) or type_name(value) != "array":
        raise PreconditionFailed(f'invalid message: {{unacceptable_type_in_header,"{name}",{type_name(value)}}}')
    return tuple(key for key in value if isinstance(key, str))
