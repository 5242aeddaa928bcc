"""The catalog: all durable state of a broker but messages, in one SQLite file.

It has virtual hosts, users, permissions, parameters, policies, durable exchanges, queues and bindings, as the records
of `harebell.routing.definitions`. A transaction begins with the first change and ends with `commit`, so that a batch of
a thousand declarations costs one sync; when `commit` returns, the changes are on disk. A change that fails undoes its
whole transaction, and the following `commit` fails too.

A catalog that is not certainly whole and the newest is an error, never an empty catalog: `check` compares it
with its seal before it is opened. A new one is written under another name and renamed. Records are stored as JSON
(`json_values`); a newer schema is refused, an older one is migrated.

The many bindings of a queue or an exchange that is deleted are not removed with it: a record of the section "removed"
makes them void, in the same transaction, and `sweep` removes them in steps later.
"""

from __future__ import annotations

import errno
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeAlias

from harebell.broker.store.catalog.check import (
    APPLICATION,
    COPY,
    NO_ROOM_FOR_INDEX,
    SCHEMA,
    SEAL,
    CatalogError,
    catalog_errors as _errors,
    check_catalog,
    read_only,
    sealed_by,
)  # fmt: skip
from harebell.broker.store.catalog.json_values import decode_value, encode_value
from harebell.broker.store.catalog.seal import Seal, SealFile, digest_of
from harebell.broker.store.private import make_private
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
from harebell.routing.exchanges.storing_exchanges import DelayedMessageExchange
from harebell.routing.policies import Policy
from harebell.synced_files import sync_folder

__all__ = ["SCHEMA", "Catalog", "CatalogError", "Contents", "create_catalog", "first_delay_folder", "read_contents"]

Record: TypeAlias = (
    VirtualHost | User | Permission | TopicPermission | Parameter | GlobalParameter | Policy | ExchangeDefinition
    | QueueDefinition | BindingDefinition
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a catalog.

    folders        those of the queues with messages on disk, by (vhost, name)
    delay_folders  those of durable delayed exchanges, by (vhost, name)
    """

    definitions: Definitions
    folders: dict[tuple[str, str], str] = field(default_factory=dict)
    delay_folders: dict[tuple[str, str], str] = field(default_factory=dict)

    def owners(self) -> dict[str, str]:
        """What each of the folders belongs to, in words."""
        found = {folder: f"queue '{name}' in vhost '{vhost}'" for (vhost, name), folder in self.folders.items()}
        for (vhost, name), folder in self.delay_folders.items():
            found[folder] = f"delayed exchange '{name}' in vhost '{vhost}'"
        return found


def first_delay_folder(vhost: str, exchange: str) -> str:
    """The folder of a delayed exchange that was declared before schema 5, when folders had the names of exchanges."""
    return "delays/" + sha256(f"{vhost}\0{exchange}".encode("utf-8", "surrogateescape")).hexdigest()[:32]


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

DELAYED: Final = DelayedMessageExchange.TYPE
REMOVED: Final = "removed"  # the section of what makes bindings void: those of one source or target, up to a number
FEW: Final = 256  # bindings that are removed at once, and in one step of `sweep`

_CREATE: Final = """
CREATE TABLE records (
    section TEXT NOT NULL,  -- as in a definitions file
    key TEXT NOT NULL,      -- JSON: the fields that tell records of a section apart
    vhost TEXT,             -- JSON, as the two below
    source TEXT,            -- of a binding: its exchange; of a permission: its user
    target TEXT,            -- of a binding: [type, name] of its destination
    record TEXT NOT NULL,   -- JSON: all fields
    folder TEXT,            -- of a queue or delayed exchange: where its messages are, in the data folder
    number INTEGER NOT NULL, -- counts them: they are read in this order
    PRIMARY KEY (section, key)
) WITHOUT ROWID;
CREATE INDEX sources ON records (source, vhost, section) WHERE source IS NOT NULL;
CREATE INDEX targets ON records (target, vhost) WHERE target IS NOT NULL;
"""

_INSERT: Final = "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)"

_STATE: Final = """
CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    identity BLOB NOT NULL,      -- of this catalog, random
    generation INTEGER NOT NULL, -- counts its commits
    digest BLOB NOT NULL         -- of all records (seal)
);
"""

_MIGRATIONS: Final[dict[int, str]] = {
    1: "",  # the segments of streams have seeds and marks since (stream_log.records); no older version may write there
    2: _STATE,
    3: "",  # the section "removed" since: older versions would bind what it makes void
    4: "",  # exchanges have folders since, and long marks are before the frames (journal): older versions know neither
}
"""The SQL statements that migrate a catalog of that schema to the next one."""


class Catalog:
    """An open catalog. `seal` is that of its contents.

    changed  a transaction is open, and `commit` will write it
    unswept  there may be void bindings, which `sweep` removes
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, seal: Seal | None = None, file: SealFile | None = None
    ) -> None:
        self.path = path
        self.changed = False
        self.seal = seal
        self._seal_file = file
        self._change_of_digest = 0  # by the open transaction
        self._copied = -1  # the generation of the copy
        self._connection = connection
        self._failed: CatalogError | None = None  # the error that spoiled the transaction
        with self._errors():
            self._number: int = connection.execute("SELECT coalesce(max(number), 0) FROM records").fetchone()[0]
        self.unswept = bool(self._rows("section = ? LIMIT 1", REMOVED))

    @classmethod
    def in_memory(cls) -> Catalog:
        """A new catalog in memory, lost when the process ends."""
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.executescript(_CREATE + _STATE)
        return cls(Path(":memory:"), connection)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        sync: bool = True,
        suspect: bool = False,
        before_changes: Callable[[], object] = lambda: None,
    ) -> Catalog:
        """Open the catalog in that file, or create it. Raises CatalogError unless it is certainly whole and the newest.

        `sync` False: `commit` does not wait for the disk. `suspect`: the machine stopped with the last broker.
        `before_changes` is called when nothing has been changed, and the start is not refused.
        """
        copied = check_catalog(path, suspect=suspect)
        before_changes()
        if not path.exists():
            create_catalog(path)
        with _errors(path):
            connection = _connect(path, "NORMAL")
            try:
                connection.execute(f"PRAGMA synchronous={'FULL' if sync else 'OFF'}")
                _migrate(connection)
                seal = replace(sealed_by(connection), synced=sync)
                file = SealFile(path.with_name(SEAL))
                file.write(seal)
                file.sync()
                sync_folder(path.parent)
            except BaseException:
                connection.close()
                raise
        catalog = cls(path, connection, seal, file)
        catalog._copied = copied
        return catalog

    def close(self) -> None:
        """Commit, and close the file."""
        try:
            self.commit()
            if self._seal_file is not None:
                self._seal_file.sync()
        finally:
            self._connection.close()
            if self._seal_file is not None:
                self._seal_file.close()
                self._seal_file = None

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
            seal = self.seal
            with self._errors():
                if seal is not None:
                    digest = (seal.digest + self._change_of_digest) % (1 << 128)
                    seal = replace(seal, generation=seal.generation + 1, digest=digest)
                    self._connection.execute(
                        "UPDATE state SET generation = ?, digest = ?", (seal.generation, digest.to_bytes(16, "big"))
                    )
                self._connection.execute("COMMIT")
            if seal is not None and self._seal_file is not None:
                self._seal_file.write(seal)
            self.seal = seal
        finally:
            self.changed, self._failed, self._change_of_digest = False, None, 0

    def rollback(self) -> None:
        """Undo the changes since the last commit."""
        self.changed, self._failed, self._change_of_digest = False, None, 0
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

    def _delete(self, condition: str, *values: object) -> None:
        if self.seal is not None:
            rows = self._rows(condition, *values)
            if not rows:
                return  # a commit of nothing would cost a sync, because it has a generation too
            self._change_of_digest -= sum(map(digest_of, rows))
        self._change(f"DELETE FROM records WHERE {condition}", *values)

    def _rows(self, condition: str, *values: object) -> list[tuple[Any, ...]]:
        with self._errors():
            return self._connection.execute(f"SELECT * FROM records WHERE {condition}", values).fetchall()

    def keep_copy(self) -> None:
        """Write a copy of the catalog beside it, if it has changed since the last. OSError when the disk refuses."""
        if self.seal is None or self._copied == self.seal.generation:
            return
        copy = self.path.with_name(COPY)
        new = copy.with_name(copy.name + ".new")
        with _errors(new), _removed_after_errors(new):
            new.unlink(missing_ok=True)
            make_private(new)
            target = sqlite3.connect(new, isolation_level=None)
            try:
                self._connection.backup(target)
                target.execute("PRAGMA journal_mode=DELETE")
            finally:
                target.close()
        new.rename(copy)
        self._copied = self.seal.generation

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
        delay_folders: dict[tuple[str, str], str] = {}
        void = self._void()
        for section, _, vhost, source, target, text, folder, number in self._rows("true ORDER BY number"):
            if section == REMOVED or (section == "bindings" and void and void(vhost, source, target, number)):
                continue
            try:
                values = decode_value(text)
                record = _SECTIONS[section][0](**values)  # type: ignore[arg-type]
            except (KeyError, TypeError, ValueError) as error:
                raise CatalogError(errno.EIO, f"a record of {section} is unreadable: {error}", str(self.path)) from None
            found[section].append(record)
            if folder is not None and isinstance(record, QueueDefinition):
                folders[record.vhost, record.name] = folder
            elif isinstance(record, ExchangeDefinition) and (folder or (record.durable and record.type == DELAYED)):
                folder = folder or first_delay_folder(record.vhost, record.name)
                delay_folders[record.vhost, record.name] = folder
        definitions = Definitions(**{section: tuple(each) for section, each in found.items()})  # type: ignore[arg-type]
        return Contents(definitions, folders, delay_folders)

    # -- changing: `put` makes or replaces

    def put_vhost(self, vhost: VirtualHost) -> None:
        self._put("vhosts", vhost)

    def remove_vhost(self, name: str) -> None:
        """Remove the virtual host and everything in it."""
        self._remove("vhosts", name)
        self._delete("vhost = ?", encode_value(name))

    def put_user(self, user: User) -> None:
        self._put("users", user)

    def remove_user(self, name: str) -> None:
        """Remove the user and all its permissions."""
        self._remove("users", name)
        for section in ("permissions", "topic_permissions"):
            self._delete("source = ? AND section = ?", encode_value(name), section)

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

    def put_exchange(self, exchange: ExchangeDefinition, folder: str | None = None) -> None:
        """Add or replace an exchange. `folder`: that of the messages of a durable delayed exchange."""
        self._put("exchanges", exchange, folder=folder)

    def remove_exchange(self, vhost: str, name: str) -> None:
        """Remove the exchange and the bindings from it and to it."""
        self._remove("exchanges", vhost, name)
        self._remove_bindings(vhost, "source", name)
        self._remove_bindings(vhost, "target", ["exchange", name])

    def put_queue(self, queue: QueueDefinition, folder: str | None = None) -> None:
        """Add or replace a queue. `folder`: that of its messages, below the data folder; None when it stores none."""
        self._put("queues", queue, folder=folder)

    def remove_queue(self, vhost: str, name: str) -> None:
        """Remove the queue and the bindings to it."""
        self._remove("queues", vhost, name)
        self._remove_bindings(vhost, "target", ["queue", name])

    def sweep(self) -> Iterator[None]:
        """Remove the void bindings, some at each step; what was put since is not among them."""
        while removed := self._rows("section = ? LIMIT 1", REMOVED):
            _, key, vhost, source, target, _, _, number = removed[0]
            end, value = ("target", target) if source is None else ("source", source)
            void = f"{end} = ? AND vhost = ? AND section = 'bindings' AND number < ? LIMIT {FEW}"
            found = self._rows(void, value, vhost, number)
            for row in found:
                self._delete("section = ? AND key = ?", *row[:2])
            if len(found) < FEW:
                self._delete("section = ? AND key = ?", REMOVED, key)
            yield
        self.unswept = False

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
        if self.unswept and section == "bindings":
            self._delete("section = ? AND key = ?", section, key)  # a void one, whose number would stay
        self._number += 1
        row: tuple[object, ...] = (
            section,
            key,
            encode_value(vhost) if vhost is not None else None,
            encode_value(source) if source is not None else None,
            target,
            encode_value(values),
            folder,
            self._number,
        )
        if self.seal is not None:
            new = row
            for old in self._rows("section = ? AND key = ?", section, key):
                self._change_of_digest -= digest_of(old)
                new = (*old[:5], *row[5:7], *old[7:])
            self._change_of_digest += digest_of(new)
        self._change(f"{_INSERT} ON CONFLICT DO UPDATE SET record = excluded.record, folder = excluded.folder", *row)

    def _remove(self, section: str, *key: object) -> None:
        self._delete("section = ? AND key = ?", section, encode_value([_ordered(part) for part in key]))

    def _remove_bindings(self, vhost: str, end: str, value: str | list[str]) -> None:
        """Remove the bindings with this `end`, "source" or "target", or make them void, if they are many."""
        condition = f"{end} = ? AND vhost = ? AND section = 'bindings'"
        values = encode_value(value), encode_value(vhost)
        if len(self._rows(f"{condition} LIMIT {FEW + 1}", *values)) <= FEW:
            self._delete(condition, *values)
            return
        self._number += 1
        row: tuple[object, ...] = (
            REMOVED,
            encode_value([vhost, end, value, self._number]),
            values[1],
            values[0] if end == "source" else None,
            values[0] if end == "target" else None,
            "{}",
            None,
            self._number,
        )
        self._change_of_digest += digest_of(row)
        self._change(_INSERT, *row)
        self.unswept = True

    def _void(self) -> Callable[[str, str, str, int], bool] | None:
        """Whether a binding is void, by its columns; None when no binding is."""
        last = {
            (vhost, source, target): number
            for _, _, vhost, source, target, _, _, number in self._rows("section = ? ORDER BY number", REMOVED)
        }
        if not last:
            return None
        return lambda vhost, source, target, number: (
            number < max(last.get((vhost, source, None), 0), last.get((vhost, None, target), 0))
        )


def _connect(path: Path, locking_mode: str) -> sqlite3.Connection:
    """Connect with a journal. EXCLUSIVE keeps its index in memory, for a disk without room for the file of it."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(f"PRAGMA locking_mode={locking_mode}")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.Error as error:
        connection.close()
        if getattr(error, "sqlite_errorname", "") != NO_ROOM_FOR_INDEX or locking_mode == "EXCLUSIVE":
            raise
        return _connect(path, "EXCLUSIVE")
    except BaseException:
        connection.close()
        raise
    return connection


def _ordered(value: object) -> object:
    """A table as a key: tables that differ only in the order of their fields have the same key."""
    return dict(sorted(value.items())) if isinstance(value, dict) else value


def read_contents(path: Path) -> Contents:
    """The contents of a catalog, which is not changed and need not be the newest. CatalogError if it cannot be read."""
    with _errors(path), closing(read_only(path)) as connection:
        return Catalog(path, connection).load()


def create_catalog(path: Path) -> None:
    """Write a new catalog, in which there is nothing."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    make_private(new)  # SQLite's journals get the mode of the file
    with _errors(path):
        connection = sqlite3.connect(new, isolation_level=None)
        try:
            connection.executescript(
                f"PRAGMA application_id={APPLICATION}; PRAGMA user_version={SCHEMA}; BEGIN; "
                f"{_CREATE} {_STATE} {_first_state(0)} COMMIT"
            )
        finally:
            connection.close()
    new.rename(path)
    sync_folder(path.parent)


@contextmanager
def _removed_after_errors(path: Path) -> Iterator[None]:
    """Remove an unfinished file, and what SQLite leaves beside it."""
    try:
        yield
    except BaseException:
        for suffix in ("", "-wal", "-shm", "-journal"):
            with suppress(OSError):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
        raise


def _migrate(connection: sqlite3.Connection) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    while version < SCHEMA:
        statements = _MIGRATIONS[version]
        if statements is _STATE:
            digest = sum(map(digest_of, connection.execute("SELECT * FROM records"))) % (1 << 128)
            statements += _first_state(digest)
        connection.executescript(f"BEGIN; {statements}; PRAGMA user_version={version + 1}; COMMIT")
        version += 1


def _first_state(digest: int) -> str:
    """The statement that gives a catalog its identity, and seals it for the first time."""
    return f"INSERT INTO state VALUES (1, x'{secrets.token_hex(8)}', 1, x'{digest:032x}');"
