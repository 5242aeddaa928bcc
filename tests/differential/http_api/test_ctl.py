"""`harebellctl` beside RabbitMQ's own rabbitmqctl and rabbitmq-diagnostics, both at one RabbitMQ: the same lines."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from harebell.cli.ctl.checks import CHECKS
from harebell.cli.ctl.facts import FACTS
from harebell.cli.ctl.main import main
from tests.cli.administering import Command, runner
from tests.differential.http_api.conftest import Broker
from tests.fixtures.rabbitmq import OLDER
from tests.wire import PATIENCE

POLICY, LIMITS = '{{"max-length":5}}', '{{"max-connections":5}}'

COMMANDS = (
    ("list_queues", "-p", "{v}", "name", "messages", "durable", "auto_delete", "arguments", "policy", "type", "state"),
    ("list_users",),
)
MORE = (
    ("-q", "list_queues", "-p", "{v}"), ("-s", "list_queues", "-p", "{v}"),
    ("list_queues", "-p", "{v}", "--no-table-headers"),
    ("list_queues", "-p", "{v}", "--formatter", "json", "name", "arguments"),
    ("list_queues", "-p", "{v}", "--formatter", "csv", "name", "arguments", "policy", "messages"),
    ("list_queues", "-p", "{v}", "--formatter", "pretty_table", "name", "arguments", "messages"),
    ("list_queues", "-p", "nosuch"), ("list_queues", "nosuch"), ("list_exchanges", "-p", "{v}"),
    ("list_bindings", "-p", "{v}"), ("list_bindings", "-p", "{v}", "--formatter", "json"),
    ("list_policies", "-p", "{v}"), ("list_policies", "-p", "{v}", "--formatter", "json"),
    ("list_operator_policies", "-p", "{v}"), ("list_permissions", "-p", "{v}"),
    ("list_vhosts", "name", "description", "tags"),
    ("list_topic_permissions", "-p", "{v}"), ("list_user_permissions", "guest"), ("list_user_permissions", "nobody"),
    ("list_vhost_limits", "-p", "{v}"), ("list_user_limits", "--user", "guest"), ("list_users", "extra"),
    ("add_vhost", "{v}"), ("delete_vhost", "nosuch"), ("clear_policy", "nosuch"), ("set_policy", "q", "^x", "{{nojson"),
    ("add_user", "guest", "x"), ("authenticate_user", "guest", "guest"), ("authenticate_user", "guest", "y"),
    ("set_permissions", "nobody", ".*", ".*", ".*"), ("delete_queue", "nosuch"),
    ("nosuchcommand",), ("list_queues", "--nosuchoption"), ("trace_on", "-p", "{v}"), ("trace_off", "-p", "{v}"),
    ("check_running",), ("check_local_alarms",), ("check_virtual_hosts",), ("server_version",),
)  # fmt: skip
OF_3_10 = (
    ("purge_queue", "nosuch"), ("delete_user", "nobody"), ("list_bindings", "-p", "nosuch"),
    ("list_exchanges", "-p", "nosuch"), ("list_consumers", "-p", "nosuch"), ("list_policies", "-p", "nosuch"),
    ("list_operator_policies", "-p", "nosuch"), ("list_parameters", "-p", "nosuch"),
    ("list_topic_permissions", "-p", "nosuch"), ("list_user_topic_permissions", "nobody"),
    ("purge_queue", "-p", "nosuch", "q"), ("delete_queue", "-p", "nosuch", "q"),
    ("clear_policy", "-p", "nosuch", "p"), ("clear_operator_policy", "-p", "nosuch", "p"),
    ("clear_parameter", "-p", "nosuch", "shovel", "p"), ("close_all_connections", "-p", "nosuch", "bye"),
    ("authenticate_user", "nobody", "x"), ("change_password", "nobody", "x"), ("check_port_listener", "abc"),
    ("list_users", "-p", "{v}"), ("list_permissions", "-p", "nosuch"), ("list_vhost_limits", "-p", "nosuch"),
    ("list_vhost_limits", "--global"), ("list_user_limits", "--global"), ("list_user_limits", "--user", "nobody"),
    ("set_permissions", "-p", "nosuch", "guest", "", "", ""), ("clear_permissions", "-p", "nosuch", "guest"),
    ("set_policy", "-p", "nosuch", "p", "^a", POLICY), ("set_vhost_limits", "-p", "nosuch", LIMITS),
    ("clear_vhost_limits", "-p", "nosuch"), ("clear_user_limits", "nobody", "all"), ("clear_password", "nobody"),
    ("set_user_limits", "nobody", LIMITS), ("set_vhost_tags", "nosuch", "a"), ("set_vhost_tags", "{v}", "a", "b"),
    ("set_global_parameter", "ctl", "1"), ("clear_global_parameter", "nosuch"), ("set_cluster_name", "ctl"),
    ("close_all_user_connections", "nobody", "bye"), ("-q", "trace_off", "-p", "{v}"), ("-s", "ping"),
    ("-q", "authenticate_user", "guest", "guest"), ("-s", "check_running"), ("-q", "check_virtual_hosts"),
    ("check_port_listener", "1"), ("check_protocol_listener", "nosuch"), ("check_certificate_expiration",),
    ("check_if_node_is_quorum_critical",), ("is_running",), ("is_running", "--formatter", "json"), ("is_booting",),
    ("alarms",), ("alarms", "--formatter", "json"), ("memory_breakdown", "--unit", "nosuch"),
)  # fmt: skip
"""Those whose texts or statuses are other ones in RabbitMQ 4, or have not been compared with it."""

DIAGNOSTICS = frozenset({*CHECKS, *FACTS})
"""What rabbitmq-diagnostics has."""


@pytest.fixture(scope="module")
def vhost(theirs: Broker) -> Iterator[str]:
    name, api = f"ctl-{uuid.uuid4().hex[:8]}", theirs.api
    assert api.put(f"/api/vhosts/{name}", {"description": "the shop", "tags": "a,b"}) == 201
    arguments = {"x-max-length": 10, "x-queue-type": "classic"}
    assert api.put(f"/api/queues/{name}/orders", {"durable": True, "arguments": arguments}) == 201
    assert api.put(f"/api/queues/{name}/a%22b%2Cc", {"auto_delete": True}) == 201
    binding = {"routing_key": "a.#", "arguments": {"n": 1}}
    assert api("POST", f"/api/bindings/{name}/e/amq.topic/q/orders", binding).status == 201
    policy = {"pattern": "^o", "definition": {"max-length": 9}, "priority": 1, "apply-to": "queues"}
    assert api.put(f"/api/policies/{name}/p", policy) == 201
    assert api.put(f"/api/vhost-limits/{name}/max-queues", {"value": 50}) == 204
    topics = {"exchange": "amq.topic", "write": "^a", "read": ".*"}
    assert api.put(f"/api/topic-permissions/{name}/guest", topics) == 201
    end = time.monotonic() + PATIENCE  # RabbitMQ's HTTP API has a queue's figures when they were collected
    while not all(_collected(each) for each in api.get(f"/api/queues/{name}")):
        assert time.monotonic() < end
        time.sleep(0.1)
    yield name
    assert api("DELETE", f"/api/vhosts/{name}").status == 204


def _collected(queue: dict[str, Any]) -> bool:
    """Whether the statistics have the queue, and since it got its policy."""
    return "messages" in queue and "state" in queue and (queue["name"] != "orders" or queue.get("policy") == "p")


@pytest.fixture
def ours(theirs: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.setenv("HAREBELL_HTTP_URL", f"http://guest:guest@127.0.0.1:{theirs.api.port}")
    return runner(monkeypatch, capsys, script=main)


def comparable(status: int, output: str, error: str, arguments: tuple[str, ...]) -> tuple[object, ...]:
    """Status, lines, and the first line that says what is wrong; rows have no order there, and JSON no layout."""
    if "json" in arguments and not status:
        rows = json.loads(output)
        rows = rows if isinstance(rows, list) else [rows]
        return status, sorted(json.dumps(row, sort_keys=True) for row in rows)
    said = [line for line in error.splitlines() if line and "[warning]" not in line]
    wrong = said[:2] if said[:1] == ["Error:"] else [" ".join(said[:1]).partition(":")[0].partition("  ")[0]]
    lines = sorted(line.rstrip() for line in output.splitlines() if line)
    if status == 64 and said[:1] != ["Error:"]:
        wrong = []  # the text of the usage is each tool's own
    return status, lines, wrong


def check(arguments: tuple[str, ...], theirs: Broker, ours: Command, vhost: str) -> None:
    given = tuple(each.format(v=vhost) for each in arguments)
    assert theirs.server is not None
    tool = "rabbitmq-diagnostics" if DIAGNOSTICS & {*arguments} else "rabbitmqctl"
    real = theirs.server.run_tool(tool, *given)
    mine = ours(*given)
    expected = comparable(real.returncode, real.stdout, real.stderr, given)
    assert comparable(mine.status, mine.output, mine.error, given) == expected


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_the_same_lines(arguments: tuple[str, ...], theirs: Broker, ours: Command, vhost: str) -> None:
    check(arguments, theirs, ours, vhost)


@pytest.mark.long
@pytest.mark.parametrize("arguments", MORE, ids=" ".join)
def test_the_same_lines_of_all(arguments: tuple[str, ...], theirs: Broker, ours: Command, vhost: str) -> None:
    check(arguments, theirs, ours, vhost)


@pytest.mark.long
@pytest.mark.parametrize("arguments", OF_3_10, ids=" ".join)
def test_the_same_lines_as_of_3_10(
    arguments: tuple[str, ...], version: str, theirs: Broker, ours: Command, vhost: str
) -> None:
    if version != OLDER:
        pytest.skip("harebellctl has the texts and statuses of RabbitMQ 3.10")
    check(arguments, theirs, ours, vhost)
