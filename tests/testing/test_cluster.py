"""A cluster of RabbitMQ nodes: they find each other, one is killed and comes back, and nothing is left behind."""

from __future__ import annotations

import psutil
import pytest

import harebell
from harebell.errors import ServerUnavailable
from harebell.testing import RabbitMQCluster
from harebell.testing.rabbitmq import find_server


@pytest.mark.rabbitmq
def test_a_node_is_killed_and_comes_back() -> None:
    try:
        find_server()
    except ServerUnavailable as error:
        pytest.skip(str(error))
    with RabbitMQCluster(2) as cluster:
        first, second = cluster.nodes
        with harebell.blocking.connect(cluster.urls[0]) as connection, connection.channel() as channel:
            channel.queue_declare("q", durable=True)
        assert "q" in second.ctl("list_queues", "name")  # they are one
        first.kill()
        with harebell.blocking.connect(cluster.urls) as connection:  # the second one, whose epmd is still there
            assert connection.parameters.port == second.port
        first.start()
        cluster.wait_running()
        pids = [first.pid, second.pid]
        folders = [node._directory for node in cluster.nodes]
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not any(folder is None or folder.exists() for folder in folders)
