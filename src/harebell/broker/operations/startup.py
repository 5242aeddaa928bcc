"""The start of a node: it is created, connected with its operations, and recovered from its store."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from harebell.broker.node import DEFAULT_LIMITS, Node, monotonic_ms
from harebell.broker.operations.events import Events
from harebell.broker.operations.recovery import recover
from harebell.broker.operations.user_changes import UserChanges
from harebell.broker.plugins import Plugins
from harebell.broker.rules.parameters import Component
from harebell.broker.store.data_folder import LastStop
from harebell.broker.store.files import Files
from harebell.config import Limits

__all__ = ["start_node"]


def start_node(
    data: Path,
    call_soon: Callable[[Callable[[], None]], object],
    *,
    temporary: bool = False,
    last_stop: LastStop = LastStop.KILLED,
    before_changes: Callable[[], object] = lambda: None,
    sync: bool = True,
    events: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    clock: Callable[[], int] = monotonic_ms,
    components: Mapping[str, Component] | None = None,
    plugins: Plugins | None = None,
    files: Files = os,
    open_files: int | None = None,
    stopwatch: Callable[[], float] = time.perf_counter,
) -> Node:
    """The node, with everything in its store. Arguments are those of `Node`.

    `events`: publish events to the exchange amq.rabbitmq.event of vhost "/". OSError when the store cannot be read or
    written, CatalogError for an invalid catalog.
    """
    listener = Events(on=events)
    node = Node(
        data,
        call_soon,
        listener,
        temporary=temporary,
        last_stop=last_stop,
        before_changes=before_changes,
        sync=sync,
        limits=limits,
        clock=clock,
        components=components,
        plugins=plugins,
        files=files,
        open_files=open_files,
        stopwatch=stopwatch,
    )
    listener.attach(node.name, node.vhosts)
    node.users.watcher = UserChanges(node)
    try:
        recover(node)
    except BaseException:
        node.abandon()
        raise
    return node
