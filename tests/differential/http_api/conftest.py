"""RabbitMQ with its management plug-in, and Harebell with its HTTP API, each with the same things on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from harebell.bridge import Shovels
from harebell.testing.rabbitmq import RabbitMQ, free_ports
from tests.admin.kit import Api, ApiThread
from tests.fixtures.rabbitmq import Nodes

PLUGINS = ("rabbitmq_management", "rabbitmq_shovel_management")


class Broker(NamedTuple):
    """The port of AMQP, a user of the HTTP API with all rights, and RabbitMQ's node."""

    port: int
    api: Api
    server: RabbitMQ | None = None


@pytest.fixture(scope="package")
def theirs(rabbitmq_nodes: Nodes, version: str) -> Iterator[Broker]:
    (port,) = free_ports(1)
    config = {
        "management.tcp.port": str(port), "management.tcp.ip": "127.0.0.1", "collect_statistics_interval": "1000",
    }  # fmt: skip
    with rabbitmq_nodes.fresh(version, config, PLUGINS) as server:
        yield Broker(server.port, Api(port), server)


@pytest.fixture
def ours() -> Iterator[Broker]:
    with ApiThread(components={"shovel": Shovels()}) as own:
        yield Broker(own.port, own.api())
