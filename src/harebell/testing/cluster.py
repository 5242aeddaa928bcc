"""A cluster of RabbitMQ nodes on this machine: each may be stopped, killed and started again.

    with RabbitMQCluster() as cluster:
        async with harebell.connect(cluster.urls) as connection: ...
        cluster.nodes[0].kill()
        cluster.nodes[0].start()

The nodes are those of `rabbitmq`, with one cookie and one epmd for all, which the first node that starts has and the
last one to be closed ends. They find each other by their configuration, and start side by side.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from harebell.errors import ServerUnavailable
from harebell.testing.rabbitmq import START_SECONDS, RabbitMQ, free_ports

__all__ = ["RabbitMQCluster"]

COOKIE: Final = ".erlang.cookie"
POLL_SECONDS: Final = 0.2


class _Shared:
    """What the nodes of one cluster have in common."""

    def __init__(self, size: int) -> None:
        epmd, *ports = free_ports(1 + 2 * size)
        self.epmd_port = epmd
        self.ports = list(zip(ports[:size], ports[size:], strict=True))
        self.cookie = secrets.token_hex(16)
        self.starting = threading.Lock()  # the first one has the epmd
        self.nodes: list[_Member] = []


class _Member(RabbitMQ):
    """One node of a cluster."""

    def __init__(self, shared: _Shared, number: int, config: Mapping[str, str], root: Path | None) -> None:
        super().__init__(config=config, root=root)
        self._shared = shared
        self._number = number

    def _furnish(self, directory: Path) -> None:
        self._ports = [*self._shared.ports[self._number], self._shared.epmd_port]
        cookie = directory / COOKIE
        cookie.touch(0o600)
        cookie.write_text(self._shared.cookie)
        cookie.chmod(0o400)

    def _start_epmd(self) -> int:
        with self._shared.starting:
            for node in self._shared.nodes:
                if node._epmd is not None and node._epmd.poll() is None:
                    return node._epmd.pid
            return super()._start_epmd()

    def kill(self) -> None:
        """End the node at once; the others go on, and so does their epmd."""
        others = [node for node in self._shared.nodes if node is not self and node.is_running]
        if others and self._epmd is not None:
            others[0]._epmd, self._epmd = self._epmd, None
        super().kill()


class RabbitMQCluster:
    """RabbitMQ nodes that are one cluster. `start` and `close` it, or use it in a `with` block.

    size    how many nodes
    config  lines of each one's rabbitmq.conf
    root    as for `RabbitMQ`
    nodes   each is a `RabbitMQ`, with its `url`, `stop`, `kill` and `start`; its data stay until the cluster is closed
    """

    def __init__(self, size: int = 3, *, config: Mapping[str, str] | None = None, root: Path | None = None) -> None:
        self._shared = shared = _Shared(size)
        names = [f"harebell{port}@localhost" for port, _ in shared.ports]
        found = {f"cluster_formation.classic_config.nodes.{n}": name for n, name in enumerate(names, 1)}
        lines = {"cluster_formation.peer_discovery_backend": "classic_config", **found, **(config or {})}
        shared.nodes = [_Member(shared, number, lines, root) for number in range(size)]
        self.nodes: list[RabbitMQ] = list(shared.nodes)

    @property
    def urls(self) -> list[str]:
        """The URL of each node, for `harebell.connect`."""
        return [node.url for node in self.nodes]

    def start(self) -> None:
        """Start all nodes; returns when they are one cluster. ServerUnavailable as for `RabbitMQ.start`."""
        try:
            with ThreadPoolExecutor(len(self.nodes)) as threads:
                list(threads.map(RabbitMQ.start, self.nodes))
            self.wait_running()
        except BaseException:
            self.close()
            raise

    def wait_running(self) -> None:
        """Until each node that is started knows all others."""
        deadline = time.monotonic() + START_SECONDS
        for node in self.nodes:
            while int(node.evaluate("length(rabbit_mnesia:cluster_nodes(running))")) < len(self.nodes):
                if time.monotonic() > deadline:
                    raise ServerUnavailable(f"the nodes form no cluster:\n{node.log()[-2000:]}")
                time.sleep(POLL_SECONDS)

    def close(self) -> None:
        """End all nodes and remove what they have written."""
        for node in self.nodes:
            node.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
