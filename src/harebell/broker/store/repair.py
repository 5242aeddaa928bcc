"""The repair of a data folder whose catalog refuses the start.

- The newest whole catalog takes the place of the damaged one: the part of the catalog that can still be read, or the
  copy beside it. Nothing is deleted: what is replaced goes into a folder `damaged-...`.
- Messages in folders that this catalog does not know, because the declarations of their queues are lost, come into new
  queues named `recovered-...`; those of a delayed exchange come into a new one of that name, and at their time into a
  queue of that name.
- Segments need no repair: each start skips what is damaged in them, and reports it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from harebell.broker.store.catalog.catalog import Catalog, CatalogError, create_catalog, read_contents
from harebell.broker.store.catalog.check import (
    CATALOG,
    COPY,
    SEAL,
    Inspection,
    catalog_errors,
    check_catalog,
    inspect_catalog,
    message_folders,
    read_only,
    sealed_by,
)  # fmt: skip
from harebell.broker.store.catalog.seal import SealFile, seal_if_whole
from harebell.broker.store.examination import candidates
from harebell.broker.store.private import FOLDER, make_private
from harebell.routing.definitions import BindingDefinition, ExchangeDefinition, QueueDefinition, VirtualHost
from harebell.routing.exchanges.storing_exchanges import DelayedMessageExchange

__all__ = ["repair"]

RECOVERED = "recovered-"  # the names of queues that are made for messages without a declaration


def repair(data: Path, *, new_catalog: bool = False) -> list[str]:
    """Mend the catalog of the folder, which is locked by the caller. Returns what was done, a line each.

    `new_catalog`: begin an empty one where there is no whole one. CatalogError when there is none otherwise; OSError
    when the disk refuses.
    """
    path = data / CATALOG
    try:
        check_catalog(path)
    except CatalogError as error:
        refusal = error
    else:
        return ["the catalog is whole and the newest: there is nothing to mend"]
    best = candidates(data)[0]
    if best.problem is not None and not new_catalog:
        raise CatalogError(
            refusal.errno,
            f"there is no whole catalog in {data}: restore the folder from a backup. With --new-catalog an empty one "
            "is begun; the messages stay, in queues with other names, and users, bindings and policies are lost",
        )
    newest, missing = _generations(data, best)
    made = data / f"{CATALOG}.repaired"
    _remove(made)
    if best.problem is None:
        _copy(best.path, made, newest + 1)
    else:
        create_catalog(made)
    aside = _move_aside(data, keep_copy=best.path.name == COPY or inspect_catalog(data / COPY).problem is None)
    made.rename(path)
    with closing(sqlite3.connect(path)) as connection:
        seal = sealed_by(connection)
    file = SealFile(data / SEAL)
    file.write(seal)
    file.sync()
    file.close()
    done = [f"what was there is in {aside}"]
    if best.problem is None:
        done.append(f"the catalog is that of {best.path.name}, with {best.records} records")
        if missing:
            done.append(f"{missing} later changes to queues, bindings, users or policies are lost")
    else:
        _remove(data / COPY)
        done.append("the catalog is a new one: add a user with `harebell users add NAME --data DIR`")
    return done + _adopt(data)


def _generations(data: Path, best: Inspection) -> tuple[int, int]:
    """The newest generation that is known of, and how many changes lie between the best catalog and that."""
    own = best.seal.generation if best.seal else 0
    known = [own]
    known += [each.seal.generation for each in candidates(data) if each.seal is not None]
    seal = seal_if_whole(data / SEAL)
    if seal is not None and (best.seal is None or seal.identity == best.seal.identity):
        known.append(seal.generation)
    return max(known), max(known) - own


def _copy(source: Path, target: Path, generation: int) -> None:
    """Copy a catalog, with the part of its journal that can be read, and seal it as a newer one."""
    make_private(target)
    with (
        catalog_errors(source),
        closing(read_only(source)) as old,
        closing(sqlite3.connect(target, isolation_level=None)) as new,
    ):
        old.backup(new)
        new.execute("PRAGMA journal_mode=DELETE")
        if new.execute("SELECT count(*) FROM sqlite_master WHERE name = 'state'").fetchone() != (0,):
            new.execute("UPDATE state SET generation = ?", (generation,))


def _move_aside(data: Path, *, keep_copy: bool) -> str:
    """Move the files of the catalog into a folder of their own. Returns its name."""
    aside = data / f"damaged-{time.strftime('%Y%m%d-%H%M%S')}"
    while aside.exists():
        aside = aside.with_name(aside.name + "+")
    aside.mkdir(mode=FOLDER)
    for name in (CATALOG, f"{CATALOG}-wal", f"{CATALOG}-shm", SEAL, *([] if keep_copy else [COPY])):
        if os.path.lexists(data / name):
            (data / name).rename(aside / name)
    return aside.name


def _adopt(data: Path) -> list[str]:
    """Put folders of messages without a queue into the catalog. Returns what was done."""
    known = read_contents(data / CATALOG).owners()
    unknown = [folder for folder in message_folders(data) if folder not in known and any((data / folder).glob("*.log"))]
    if not unknown:
        return []
    catalog = Catalog.open(data / CATALOG)
    try:
        vhosts = [each.name for each in catalog.load().definitions.vhosts]
        vhost = "/" if "/" in vhosts or not vhosts else vhosts[0]
        if not vhosts:
            catalog.put_vhost(VirtualHost("/"))
        done = []
        for folder in unknown:
            kind, _, name = folder.partition("/")
            if kind == "delays":
                name = _adopt_delays(catalog, vhost, folder)
                done.append(
                    f"the messages of {folder} are in delayed exchange '{name}' of vhost '{vhost}', and come into "
                    "the queue of that name at their time"
                )
                continue
            stream = kind == "streams"
            arguments = {"x-queue-type": "stream"} if stream else {}
            queue = QueueDefinition(
                vhost, RECOVERED + name, durable=True, arguments=arguments, type="stream" if stream else "classic"
            )
            catalog.put_queue(queue, folder)
            done.append(f"the messages of {folder} are in queue '{queue.name}' of vhost '{vhost}'")
    finally:
        catalog.close()
    return done


def _adopt_delays(catalog: Catalog, vhost: str, folder: str) -> str:
    """Put a delayed exchange for a folder of messages into the catalog, and a queue behind it. Returns their name."""
    base = folder.rpartition("/")[2]
    name = RECOVERED + base
    arguments = {"x-delayed-type": "fanout"}
    catalog.put_exchange(
        ExchangeDefinition(vhost, name, DelayedMessageExchange.TYPE, durable=True, arguments=arguments), folder
    )
    catalog.put_queue(QueueDefinition(vhost, name, durable=True, type="classic"), f"queues/{base}")
    catalog.put_binding(BindingDefinition(vhost, name, name, "queue"))
    return name


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
