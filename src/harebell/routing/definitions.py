"""RabbitMQ's definitions file (virtual hosts, users, queues, ... as JSON), read into records and written from them.

Rules (exports of 3.8 to 4.3; probed on 3.10.8):

- `extra` takes the keys that a record has no field for, and they are written again: nothing of a file is lost. A key
  that a file leaves out has RabbitMQ's default, if there is one. A record's fields have the names of the file's keys,
  with "_" for "-".
- Password hashes stay as they are. Tags are a list, or before 3.9 a string with commas.
- In the file, operator policies are parameters of the component `operator_policy`; here they are Policies.
- `rabbitmqctl export_definitions` writes some objects as lists of pairs, [["max-length", 3]]: they are read as the
  objects they were.
- The file of one virtual host leaves the key vhost out; the caller of `parse_definitions` names the virtual host.
- Values keep their JSON types. JSON has none for byte arrays and timestamps: an export has them as texts and numbers.

What AMQP could not carry is refused (`wire_limits`): a name that is too long, text without a UTF-8 form, a number of
more than 64 bits, values nested too deep. The module does not check a policy's keys, an argument's range and a
binding's ends: the code that applies the file does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final, Protocol, TypeVar, cast

from harebell.errors import AmqpError, ChannelError, InvalidArgument
from harebell.printable import printable
from harebell.routing.policies import APPLY_TO, Policy
from harebell.routing.steps import Steps, complete
from harebell.routing.table_values import Table
from harebell.routing.wire_limits import check_key, check_name, check_table, check_value

__all__ = [
    "BindingDefinition",
    "Definitions",
    "ExchangeDefinition",
    "GlobalParameter",
    "Parameter",
    "Permission",
    "QueueDefinition",
    "TopicPermission",
    "User",
    "VirtualHost",
    "emit_definitions",
    "emitting_definitions",
    "naming",
    "parse_definitions",
    "parsing_definitions",
]


@contextmanager
def naming(what: str, refusals: type[AmqpError] = ChannelError) -> Iterator[None]:
    """A context that turns a refusal inside it (or an InvalidArgument) into an InvalidArgument that names `what`."""
    try:
        yield
    except (refusals, InvalidArgument) as error:
        text = error.detail if isinstance(error, AmqpError) else str(error)
        raise InvalidArgument(text if what in text else f"{what}: {text}") from None


@dataclass(frozen=True, slots=True)
class VirtualHost:
    name: str
    description: str | None = None
    tags: tuple[str, ...] | None = None
    default_queue_type: str | None = None
    tracing: bool | None = None
    metadata: Table | None = None
    limits: Table | None = None
    extra: Table = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class User:
    """A user. `password_hash` is `hashing_algorithm`'s result in base64, or "" for a user without password login."""

    name: str
    password_hash: str | None = field(default=None, repr=False)
    hashing_algorithm: str | None = None
    tags: tuple[str, ...] = ()
    limits: Table | None = None
    extra: Table = field(default_factory=dict, repr=False)  # a file written by hand may have the password in it


@dataclass(frozen=True, slots=True)
class Permission:
    """Regular expressions for the names that the user may configure, write to and read from."""

    vhost: str
    user: str
    configure: str
    write: str
    read: str
    extra: Table = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """Regular expressions for the routing keys that the user may write with, and bind with to read."""

    vhost: str
    user: str
    exchange: str
    write: str
    read: str
    extra: Table = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A setting of a plugin or of the vhost: component "vhost-limits", "shovel", ..."""

    vhost: str
    component: str
    name: str
    value: object
    extra: Table = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GlobalParameter:
    name: str
    value: object
    extra: Table = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueDefinition:
    """A queue. `type` is the queue's type, which newer exports have beside the argument x-queue-type."""

    vhost: str
    name: str
    durable: bool = True
    auto_delete: bool = False
    arguments: Table = field(default_factory=dict)
    type: str | None = None
    extra: Table = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExchangeDefinition:
    vhost: str
    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Table = field(default_factory=dict)
    extra: Table = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BindingDefinition:
    """A binding. `destination_type` is "queue" or "exchange"."""

    vhost: str
    source: str
    destination: str
    destination_type: str
    routing_key: str = ""
    arguments: Table = field(default_factory=dict)
    extra: Table = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Definitions:
    """A whole definitions file. `about` has the keys that are no sections: rabbitmq_version, product_name, ..."""

    vhosts: tuple[VirtualHost, ...] = ()
    users: tuple[User, ...] = ()
    permissions: tuple[Permission, ...] = ()
    topic_permissions: tuple[TopicPermission, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    global_parameters: tuple[GlobalParameter, ...] = ()
    policies: tuple[Policy, ...] = ()
    operator_policies: tuple[Policy, ...] = ()
    queues: tuple[QueueDefinition, ...] = ()
    exchanges: tuple[ExchangeDefinition, ...] = ()
    bindings: tuple[BindingDefinition, ...] = ()
    about: Table = field(default_factory=dict)


# Reading


def parse_definitions(document: str | bytes | Table, *, vhost: str | None = None) -> Definitions:
    """As `parsing_definitions`, at once."""
    return complete(parsing_definitions(document, vhost=vhost))


def parsing_definitions(document: str | bytes | Table, *, vhost: str | None = None) -> Steps[Definitions]:
    """The definitions in a file's text, or in the object that its JSON makes.

    `vhost` is the virtual host of a file that has only one. Raises InvalidArgument; its text names the place:
    "queues[3].arguments: expected an object, got a string".
    """
    if isinstance(document, (str, bytes)):
        try:
            document = json.loads(document, parse_constant=_refuse_constant)
        except ValueError as error:
            raise InvalidArgument(f"definitions: not JSON: {error}") from None
        except RecursionError:
            raise InvalidArgument("definitions: nested too deep") from None
    _checked(document, "definitions", dict)
    top = _object(document, "definitions")
    read: dict[str, tuple[object, ...]] = {}
    for section, reader in _READERS.items():
        listed = top.get(section)
        entries = [] if listed is None else _checked(listed, section, list)
        records = []
        for number, entry in enumerate(entries):
            path = f"{section}[{number}]"
            records.append(reader(_entry(entry, path), path, vhost))
            yield
        read[section] = tuple(records)
    mixed = read["parameters"]
    read["operator_policies"] = tuple(each for each in mixed if isinstance(each, Policy))
    read["parameters"] = tuple(each for each in mixed if not isinstance(each, Policy))
    about = {key: value for key, value in top.items() if key not in _READERS}
    check_table(about, "definitions")
    return Definitions(**read, about=about)  # type: ignore[arg-type]  # the readers make what the sections hold


class _Record(Protocol):
    @property
    def extra(self) -> Table: ...


_R = TypeVar("_R", bound=_Record)
_Reader = Callable[[Table, str, str | None], object]
_Field = Callable[[object, str], object]


def _record(kind: Callable[..., _R], **allowed: _Field) -> _Reader:
    """A function that reads an object into a record of `kind`; `allowed` has the reader of each field."""
    declared = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]  # a dataclass

    def read(entry: Table, path: str, vhost: str | None) -> object:
        values: dict[str, object] = {}
        for name, field_of in allowed.items():
            value = entry.get(name)
            if value is None and name == "vhost":
                value = vhost
            if value is not None:
                values[name] = field_of(value, f"{path}.{name}")
            elif declared[name].default is MISSING and declared[name].default_factory is MISSING:
                if name not in entry or field_of is not _any:
                    raise InvalidArgument(f"{path}.{name}: missing")
                values[name] = None  # null is a value of parameters
        extra = {name: value for name, value in entry.items() if name not in allowed}
        check_table(extra, path)
        return kind(**values, extra=extra)

    return read


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")


def _entry(value: object, path: str) -> dict[str, object]:
    """An entry of a section: an empty list is no empty object here."""
    return _object(_checked(value, path, dict) if value == [] else value, path)


def _text(value: object, path: str) -> object:
    check_value(_checked(value, path, str), path)
    return value


def _name(value: object, path: str) -> object:
    check_name(_checked(value, path, str), path)
    return value


def _name_or_empty(value: object, path: str) -> object:
    """A name that may be empty, as that of the default exchange."""
    check_name(_checked(value, path, str), path, empty=True)
    return value


def _key(value: object, path: str) -> object:
    check_key(_checked(value, path, str), path)
    return value


def _flag(value: object, path: str) -> object:
    return _checked(value, path, bool)


def _table(value: object, path: str) -> object:
    table = _object(value, path)
    check_table(table, path)
    return table


def _any(value: object, path: str) -> object:
    check_value(value, path)
    return _unpaired(value)


def _tags(value: object, path: str) -> object:
    if isinstance(value, str):
        check_value(value, path)
        return tuple(tag.strip() for tag in value.split(",") if tag.strip())
    return tuple(_text(tag, f"{path}[{number}]") for number, tag in enumerate(_checked(value, path, list, tuple)))


def _checked(value: object, path: str, *types: type) -> Sequence[object]:
    """The value. Raises InvalidArgument unless it has one of the types; a bool is no number."""
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types and object not in types):
        expected = " or ".join(dict.fromkeys(_KINDS[kind] for kind in types))
        raise InvalidArgument(f"{path}: expected {expected}, got {_kind(value)}")
    return value  # type: ignore[return-value]  # used as a sequence where `types` is one


def _object(value: object, path: str) -> dict[str, object]:
    """The object with its values unchanged: a list of pairs in an argument stays a list."""
    if isinstance(value, list) and (not value or _is_pairs(value)):
        return dict(value)  # some exports write an empty object as []
    return dict(_checked(value, path, dict))  # type: ignore[arg-type]


def _unpaired(value: object) -> object:
    """The value of a parameter, with lists of pairs turned back into objects, at any depth."""
    if isinstance(value, list) and _is_pairs(value):
        value = dict(value)
    if isinstance(value, dict):
        return {name: _unpaired(item) for name, item in value.items()}
    return value


def _is_pairs(value: Sequence[object]) -> bool:
    return bool(value) and all(isinstance(item, list) and len(item) == 2 and isinstance(item[0], str) for item in value)


def _policy(entry: Table, path: str, vhost: str | None) -> Policy:
    for name in ("name", "pattern", "definition"):
        if entry.get(name) is None:
            raise InvalidArgument(f"{path}.{name}: missing")
    where = entry.get("vhost", vhost)
    if where is None:
        raise InvalidArgument(f"{path}.vhost: missing")
    apply_to = entry.get("apply-to", "all")
    if not isinstance(apply_to, str) or apply_to not in APPLY_TO:
        shown = f'"{printable(apply_to, 63)}"' if isinstance(apply_to, str) else _kind(apply_to)
        raise InvalidArgument(f"{path}.apply-to: expected one of {', '.join(APPLY_TO)}, got {shown}")
    priority = entry.get("priority", 0)
    _checked(priority, f"{path}.priority", int, float)
    check_value(priority, f"{path}.priority")
    return Policy(
        vhost=str(_name(where, f"{path}.vhost")),
        name=str(_name_or_empty(entry["name"], f"{path}.name")),
        pattern=str(_text(entry["pattern"], f"{path}.pattern")),
        definition=cast("Table", _table(entry["definition"], f"{path}.definition")),
        apply_to=apply_to,  # type: ignore[arg-type]  # one of them
        priority=priority,  # type: ignore[arg-type]  # a number
    )


def _parameter(entry: Table, path: str, vhost: str | None) -> object:
    """The parameter, or the operator policy if its component says so."""
    if entry.get("component") != _OPERATOR_POLICY:
        return _PARAMETER(entry, path, vhost)
    value = _object(entry.get("value"), f"{path}.value")
    return _policy(value | {key: entry[key] for key in ("vhost", "name") if key in entry}, path, vhost)


_KINDS: Final[Mapping[type, str]] = {
    str: "a string", bool: "true or false", dict: "an object", list: "a list", tuple: "a list", int: "a number",
    float: "a number", type(None): "null",
}  # fmt: skip
_OPERATOR_POLICY: Final = "operator_policy"

_PARAMETER: Final = _record(Parameter, vhost=_name, component=_name, name=_name, value=_any)

_READERS: Final[Mapping[str, _Reader]] = {
    "vhosts": _record(
        VirtualHost,
        name=_name,
        description=_text,
        tags=_tags,
        default_queue_type=_text,
        tracing=_flag,
        metadata=_table,
        limits=_table,
    ),
    "users": _record(User, name=_name, password_hash=_text, hashing_algorithm=_text, tags=_tags, limits=_table),
    "permissions": _record(Permission, vhost=_name, user=_name, configure=_text, write=_text, read=_text),
    "topic_permissions": _record(
        TopicPermission, vhost=_name, user=_name, exchange=_name_or_empty, write=_text, read=_text
    ),
    "parameters": _parameter,
    "global_parameters": _record(GlobalParameter, name=_name, value=_any),
    "policies": _policy,
    "queues": _record(
        QueueDefinition,
        vhost=_name,
        name=_name_or_empty,
        durable=_flag,
        auto_delete=_flag,
        arguments=_table,
        type=_name,
    ),
    "exchanges": _record(
        ExchangeDefinition,
        vhost=_name,
        name=_name_or_empty,
        type=_name,
        durable=_flag,
        auto_delete=_flag,
        internal=_flag,
        arguments=_table,
    ),
    "bindings": _record(
        BindingDefinition,
        vhost=_name,
        source=_name_or_empty,
        destination=_name_or_empty,
        destination_type=_name,
        routing_key=_key,
        arguments=_table,
    ),
}
"""The reader of each section; the keys are all sections, in the order in which RabbitMQ applies them."""


def _kind(value: object) -> str:
    return _KINDS.get(type(value), type(value).__name__)


# Writing


def emit_definitions(definitions: Definitions, *, vhost: str | None = None) -> dict[str, object]:
    """As `emitting_definitions`, at once."""
    return complete(emitting_definitions(definitions, vhost=vhost))


def emitting_definitions(definitions: Definitions, *, vhost: str | None = None) -> Steps[dict[str, object]]:
    """The definitions as RabbitMQ reads them: an object for `json.dumps`.

    With a `vhost`, the file of that virtual host alone: without users and permissions, and without the key vhost.
    """
    written: dict[str, object] = dict(definitions.about)
    if vhost is None:
        for section in ("users", "vhosts", "permissions", "topic_permissions", "global_parameters"):
            written[section] = yield from _emitting(getattr(definitions, section), _emitted)
    sections: dict[str, tuple[tuple[Iterable[Any], Callable[[Any], dict[str, object]]], ...]] = {
        "parameters": (
            (definitions.parameters, _emitted),
            (definitions.operator_policies, _emitted_operator_policy),
        ),
        "policies": ((definitions.policies, _emitted_policy),),
        "queues": ((definitions.queues, _emitted),),
        "exchanges": ((definitions.exchanges, _emitted),),
        "bindings": ((definitions.bindings, _emitted),),
    }
    for section, parts in sections.items():
        entries = []
        for records, emit in parts:
            for record in records:
                if vhost is None:
                    entries.append(emit(record))
                elif record.vhost == vhost:
                    entries.append({key: value for key, value in emit(record).items() if key != "vhost"})
                yield
        written[section] = entries
    return written


def _emitting(records: Iterable[_R], emit: Callable[[_R], dict[str, object]]) -> Steps[list[dict[str, object]]]:
    entries = []
    for record in records:
        entries.append(emit(record))
        yield
    return entries


def _emitted(record: _Record) -> dict[str, object]:
    """The record as an object, without the fields that are not set."""
    entry: dict[str, object] = {}
    for each in fields(record):  # type: ignore[arg-type]  # a dataclass
        value = getattr(record, each.name)
        if each.name != "extra" and (value is not None or isinstance(record, (Parameter, GlobalParameter))):
            entry[each.name] = list(value) if isinstance(value, tuple) else value
    return entry | dict(record.extra)


def _emitted_policy(policy: Policy) -> dict[str, object]:
    return {
        "vhost": policy.vhost,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": dict(policy.definition),
        "priority": policy.priority,
    }


def _emitted_operator_policy(policy: Policy) -> dict[str, object]:
    value = _emitted_policy(policy)
    return {
        "vhost": value.pop("vhost"),
        "component": _OPERATOR_POLICY,
        "name": value.pop("name"),
        "value": value,
    }
