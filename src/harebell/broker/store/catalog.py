"""The catalog: all durable state of a broker but messages, in one SQLite file.

It has virtual hosts, users, permissions, parameters, policies, durable exchanges, queues and bindings, as the records
of `harebell.routing.definitions`. A transaction begins with the first change and ends with `commit`, so that a batch of
a thousand declarations costs one sync; when `commit` returns, the changes are on disk. A change that fails undoes its
whole transaction, and the following `commit` fails too.

A file that cannot be read is an error, never an empty catalog: a new one is written under another name and renamed.
Records are stored as JSON (`json_values`); a newer schema is refused, an older one is migrated.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final, TypeAlias

from harebell.broker.store.json_values import decode_value, encode_value
from harebell.routing.definitions import (
    BindingDefinition,
    Definitions,
    ExchangeDefinition,
    GlobalParameter,
    Parameter,
    Permission,
    QueueDefinition,
    TopicPermission,
    User,
    VirtualHost,
)  # fmt: skip
from harebell.routing.policies import Policy

__all__ = ["SCHEMA", "Catalog", "CatalogError", "Contents"]

SCHEMA: Final = 2
APPLICATION: Final = 0x57524E43  # "WRNC": marks the file as a catalog

Record: TypeAlias = (
    VirtualHost | User | Permission | TopicPermission | Parameter | GlobalParameter | Policy | ExchangeDefinition
    | QueueDefinition | BindingDefinition
)  # fmt: skip


class CatalogError(OSError):
    """The catalog cannot be read or written. `errno` is ENOSPC when the disk is full."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a catalog. `folders` are those of the queues with messages on disk, by (vhost, name)."""

    definitions: Definitions
    folders: dict[tuple[str, str], str] = field(default_factory=dict)


# The sections of Definitions: the class of their records, and the fields that identify one
_SECTIONS: Final[dict[str, tuple[Callable[..., Record], tuple[str, ...]]]] = {
    "vhosts": (VirtualHost, ("name",)),
    "users": (User, ("name",)),
    "permissions": (Permission, ("vhost", "user")),
    "topic_permissions": (TopicPermission, ("vhost", "user", "exchange")),
    "parameters": (Parameter, ("vhost", "component", "name")),
    "global_parameters": (GlobalParameter, ("name",)),
    "policies": (Policy, ("vhost", "name")),
    "operator_policies": (Policy, ("vhost", "name")),
    "exchanges": (ExchangeDefinition, ("vhost", "name")),
    "queues": (QueueDefinition, ("vhost", "name")),
    "bindings": (
        BindingDefinition,
        ("vhost", "source", "destination_type", "destination", "routing_key", "arguments"),
    ),
}

_CREATE: Final = """
CREATE TABLE records (
    section TEXT NOT NULL,  -- as in a definitions file
    key TEXT NOT NULL,      -- JSON: the fields that tell records of a section apart
    vhost TEXT,             -- JSON, as the two below
    source TEXT,            -- of a binding: its exchange; of a permission: its user
    target TEXT,            -- of a binding: [type, name] of its destination
    record TEXT NOT NULL,   -- JSON: all fields
    folder TEXT,            -- of a queue: where its messages are, in the data folder
    number INTEGER NOT NULL, -- counts them: they are read in this order
    PRIMARY KEY (section, key)
) WITHOUT ROWID;
CREATE INDEX sources ON records (source, vhost, section) WHERE source IS NOT NULL;
CREATE INDEX targets ON records (target, vhost) WHERE target IS NOT NULL;
"""

_MIGRATIONS: Final[dict[int, str]] = {
    1: "",  # the segments of streams have seeds and marks since (stream_records); no older version may write there
}
"""The SQL statements that migrate a catalog of that schema to the next one."""


class Catalog:
    """An open catalog. `changed`: a transaction is open, and `commit` will write it."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.changed = False
        self._connection = connection
        self._failed: CatalogError | None = None  # the error that spoiled the transaction
        with self._errors():
            self._number: int = connection.execute("SELECT coalesce(max(number), 0) FROM records").fetchone()[0]

    @classmethod
    def in_memory(cls) -> Catalog:
        """A new catalog in memory, lost when the process ends."""
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.executescript(_CREATE)
        return cls(Path(":memory:"), connection)

    @classmethod
    def open(cls, path: Path, *, sync: bool = True) -> Catalog:
        """Open the catalog in that file, or create it. Raises CatalogError for a file that cannot be used.

        `sync` False: `commit` does not wait for the disk.
        """
        if not path.exists():
            if path.with_name(path.name + "-wal").exists():
                raise CatalogError(
                    errno.EIO, "the catalog is gone, though its journal is there: restore it, or remove that", str(path)
                )
            _create(path)
        if path.stat().st_size == 0:
            raise CatalogError(errno.EIO, "the catalog is empty, and must not be: restore it from a backup", str(path))
        with _errors(path):
            connection = sqlite3.connect(path, isolation_level=None)
            try:
                connection.execute(f"PRAGMA synchronous={'FULL' if sync else 'OFF'}")
                connection.execute("PRAGMA journal_mode=WAL")
                _check(connection, path)
                _migrate(connection, path)
            except BaseException:
                connection.close()
                raise
        return cls(path, connection)

    def close(self) -> None:
        """Commit, and close the file."""
        try:
            self.commit()
        finally:
            self._connection.close()

    # -- transactions

    def commit(self) -> None:
        """Make the changes durable; blocks for one sync if there are any.

        CatalogError when that or one of the changes fails: then the whole transaction is undone.
        """
        if not self.changed:
            return
        try:
            if self._failed is not None:
                raise self._failed
            with self._errors():
                self._connection.execute("COMMIT")
        finally:
            self.changed, self._failed = False, None

    def rollback(self) -> None:
        """Undo the changes since the last commit."""
        self.changed, self._failed = False, None
        if self._connection.in_transaction:
            with self._errors():
                self._connection.execute("ROLLBACK")

    def _change(self, statement: str, *values: object) -> None:
        with self._errors():
            if not self.changed:
                self.changed = True
                self._connection.execute("BEGIN IMMEDIATE")
            if self._failed is not None:
                raise self._failed
            self._connection.execute(statement, values)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn SQLite's errors into CatalogError; the current transaction is undone and cannot be committed."""
        try:
            with _errors(self.path):
                yield
        except CatalogError as error:
            if self.changed:
                self._failed = self._failed or error
                if self._connection.in_transaction:
                    self._connection.rollback()
            raise

    # -- reading

    def load(self) -> Contents:
        """Load everything, each section in the order in which its records were first put."""
        found: dict[str, list[object]] = {section: [] for section in _SECTIONS}
        folders: dict[tuple[str, str], str] = {}
        with self._errors():
            rows = self._connection.execute("SELECT section, record, folder FROM records ORDER BY number").fetchall()
        for section, text, folder in rows:
            try:
                values = decode_value(text)
                record = _SECTIONS[section][0](**values)  # type: ignore[arg-type]
            except (KeyError, TypeError, ValueError) as error:
                raise CatalogError(errno.EIO, f"a record of {section} is unreadable: {error}", str(self.path)) from None
            found[section].append(record)
            if folder is not None and isinstance(record, QueueDefinition):
                folders[record.vhost, record.name] = folder
        return Contents(Definitions(**{section: tuple(each) for section, each in found.items()}), folders)  # type: ignore[arg-type]

    # -- changing: `put` makes or replaces

    def put_vhost(self, vhost: VirtualHost) -> None:
        self._put("vhosts", vhost)

    def remove_vhost(self, name: str) -> None:
        """Remove the virtual host and everything in it."""
        self._remove("vhosts", name)
        self._change("DELETE FROM records WHERE vhost = ?", encode_value(name))

    def put_user(self, user: User) -> None:
        self._put("users", user)

    def remove_user(self, name: str) -> None:
        """Remove the user and all its permissions."""
        self._remove("users", name)
        for section in ("permissions", "topic_permissions"):
            self._change("DELETE FROM records WHERE source = ? AND section = ?", encode_value(name), section)

    def put_permission(self, permission: Permission) -> None:
        self._put("permissions", permission, source=permission.user)

    def remove_permission(self, vhost: str, user: str) -> None:
        self._remove("permissions", vhost, user)

    def put_topic_permission(self, permission: TopicPermission) -> None:
        self._put("topic_permissions", permission, source=permission.user)

    def remove_topic_permission(self, vhost: str, user: str, exchange: str) -> None:
        self._remove("topic_permissions", vhost, user, exchange)

    def put_parameter(self, parameter: Parameter) -> None:
        self._put("parameters", parameter)

    def remove_parameter(self, vhost: str, component: str, name: str) -> None:
        self._remove("parameters", vhost, component, name)

    def put_global_parameter(self, parameter: GlobalParameter) -> None:
        self._put("global_parameters", parameter)

    def remove_global_parameter(self, name: str) -> None:
        self._remove("global_parameters", name)

    def put_policy(self, policy: Policy, *, operator: bool = False) -> None:
        self._put("operator_policies" if operator else "policies", policy)

    def remove_policy(self, vhost: str, name: str, *, operator: bool = False) -> None:
        self._remove("operator_policies" if operator else "policies", vhost, name)

    def put_exchange(self, exchange: ExchangeDefinition) -> None:
        self._put("exchanges", exchange)

    def remove_exchange(self, vhost: str, name: str) -> None:
        """Remove the exchange and the bindings from it and to it."""
        self._remove("exchanges", vhost, name)
        self._change(
            "DELETE FROM records WHERE source = ? AND vhost = ? AND section = 'bindings'",
            encode_value(name), encode_value(vhost),
        )  # fmt: skip
        self._remove_bindings_to("exchange", vhost, name)

    def put_queue(self, queue: QueueDefinition, folder: str | None = None) -> None:
        """Add or replace a queue. `folder`: that of its messages, below the data folder; None when it stores none."""
        self._put("queues", queue, folder=folder)

    def remove_queue(self, vhost: str, name: str) -> None:
        """Remove the queue and the bindings to it."""
        self._remove("queues", vhost, name)
        self._remove_bindings_to("queue", vhost, name)

    def put_binding(self, binding: BindingDefinition) -> None:
        target = encode_value([binding.destination_type, binding.destination])
        self._put("bindings", binding, source=binding.source, target=target)

    def remove_binding(self, binding: BindingDefinition) -> None:
        self._remove("bindings", *(getattr(binding, name) for name in _SECTIONS["bindings"][1]))

    def _put(
        self, section: str, record: Record, *, source: str | None = None, target: str | None = None,
        folder: str | None = None,
    ) -> None:  # fmt: skip
        values = {each.name: getattr(record, each.name) for each in fields(record)}
        key = encode_value([_ordered(values[name]) for name in _SECTIONS[section][1]])
        vhost = values.get("vhost")
        self._number += 1
        self._change(
            "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET record = excluded.record, folder = excluded.folder",
            section,
            key,
            encode_value(vhost) if vhost is not None else None,
            encode_value(source) if source is not None else None,
            target,
            encode_value(values),
            folder,
            self._number,
        )

    def _remove(self, section: str, *key: object) -> None:
        self._change(
            "DELETE FROM records WHERE section = ? AND key = ?", section, encode_value([_ordered(part) for part in key])
        )

    def _remove_bindings_to(self, kind: str, vhost: str, name: str) -> None:
        self._change(
            "DELETE FROM records WHERE target = ? AND vhost = ?", encode_value([kind, name]), encode_value(vhost)
        )


def _ordered(value: object) -> object:
    """A table as a key: tables that differ only in the order of their fields have the same key."""
    return dict(sorted(value.items())) if isinstance(value, dict) else value


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into CatalogError."""
    try:
        yield
    except sqlite3.Error as error:
        number = errno.ENOSPC if getattr(error, "sqlite_errorname", "") == "SQLITE_FULL" else errno.EIO
        raise CatalogError(number, f"the catalog cannot be used: {error}", str(path)) from error


def _create(path: Path) -> None:
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with _errors(path):
        connection = sqlite3.connect(new, isolation_level=None)
        try:
            connection.executescript(
                f"PRAGMA application_id={APPLICATION}; PRAGMA user_version={SCHEMA}; BEGIN; {_CREATE} COMMIT"
            )
        finally:
            connection.close()
    new.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    problems = [row[0] for row in connection.execute("PRAGMA quick_check(1)")]
    if problems != ["ok"]:
        raise CatalogError(errno.EIO, f"the catalog is damaged: {problems[0]}; restore it from a backup", str(path))
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise CatalogError(errno.EIO, "this is not a catalog of Harebell", str(path))


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA:
        raise CatalogError(
            errno.EIO,
            f"store format {version}, this version reads {SCHEMA}: use the version that wrote it, or another data "
            "folder",
            str(path),
        )
    while version < SCHEMA:
        connection.executescript(f"BEGIN; {_MIGRATIONS[version]}; PRAGMA user_version={version + 1}; COMMIT")
        version += 1
