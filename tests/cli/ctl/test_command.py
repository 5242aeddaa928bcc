"""`harebellctl` against Harebell: lines, formats and statuses of rabbitmqctl, as tests/differential has them."""

from __future__ import annotations

import json
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import harebell
from harebell.admin.documents.endpoints import ENDPOINTS
from harebell.cli.ctl.command import INSTEAD, KNOWN, OPTIONS
from harebell.cli.ctl.main import main
from harebell.client.blocking import connect
from harebell.errors import HarebellError
from tests.admin.kit import ApiThread
from tests.cli.administering import Command, runner
from tests.wire import PATIENCE

POLICY = '{"max-length":9}'


@pytest.fixture(scope="module")
def serving() -> Iterator[ApiThread]:
    with ApiThread() as thread:
        yield thread


@pytest.fixture
def ctl(serving: ApiThread, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.setenv("HAREBELL_HTTP_URL", f"http://guest:guest@127.0.0.1:{serving.api_port}")
    return runner(monkeypatch, capsys, script=main)


@pytest.fixture
def vhost(ctl: Command) -> Iterator[str]:
    assert ctl("add_vhost", "shop", "--description", "the shop", "--tags", "a,b").output == 'Adding vhost "shop" ...\n'
    yield "shop"
    assert ctl("-q", "delete_vhost", "shop").status == 0


def test_lists_in_each_format(ctl: Command, serving: ApiThread, vhost: str) -> None:
    arguments = {"x-max-length": 10, "x-queue-type": "classic"}
    serving.api().put("/api/queues/shop/orders", {"durable": True, "arguments": arguments})
    serving.api().put("/api/queues/shop/a%09%1b%22b", {"auto_delete": True})
    given = ("list_queues", "-p", "shop", "name", "durable", "arguments", "policy")
    banner = "Timeout: 60.0 seconds ...\nListing queues for vhost shop ...\n"
    head, table = (
        "name\tdurable\targuments\tpolicy\n",
        ('a\\t\\x1b"b\tfalse\t[]\t\norders\ttrue\t[{"x-max-length",10},{"x-queue-type","classic"}]\t\n'),
    )
    assert sorted_rows(ctl(*given).output) == sorted_rows(banner + head + table)
    assert sorted_rows(ctl("-q", *given).output) == sorted_rows(head + table)
    assert sorted_rows(ctl(*given, "-s").output) == sorted_rows(table)
    assert sorted_rows(ctl(*given, "--no-table-headers").output) == sorted_rows(banner + table)
    assert ctl(*given, "--formatter", "json").json[1] == {
        "name": "orders", "durable": True, "policy": "",
        "arguments": [["x-max-length", "long", 10], ["x-queue-type", "longstr", "classic"]],
    }  # fmt: skip
    quoted = ctl(*given, "--formatter", "csv").output.splitlines()
    assert quoted[0] == '"name","durable","arguments","policy"'
    assert quoted[2] == '"orders","true","[{""x-max-length"",10},{""x-queue-type"",""classic""}]",""'
    drawn = ctl("-q", "list_queues", "-p", "shop", "name", "arguments", "--formatter", "pretty_table").output
    assert '{<<"x-max-length">>,long,10}{<<"x-queue-type">>,longstr,<<"classic">>}' in drawn
    assert "\x1b(0lqqq" in drawn
    assert '\\x1b"b' in drawn
    assert ctl("-q", "list_queues", "-p", "nosuch").output == ""


def sorted_rows(text: str) -> list[str]:
    return sorted(text.splitlines())


def test_options_that_mean_nothing_for_one_node(ctl: Command, vhost: str) -> None:
    everything = ctl("-q", "list_queues", "-p", "shop")
    assert everything.status == 0
    for options in (["--online"], ["--local"], ["-l"], ["--longnames"], ["--online", "--local"]):
        assert ctl("-q", "list_queues", "-p", "shop", *options) == everything, options
    assert ctl("-s", "list_queues", "-p", "shop", "--offline").output == ""
    assert ctl("-q", "list_users", "--offline").status == 64
    assert ctl("-q", "-l", "list_users").status == 0


def test_text_beyond_ascii_is_written_as_it_is(ctl: Command, vhost: str) -> None:
    assert ctl("set_policy", "-p", "shop", "ä", "^ä", '{"dead-letter-exchange": "ä"}').status == 0
    assert '{"dead-letter-exchange":"ä"}' in ctl("-q", "list_policies", "-p", "shop").output
    assert ctl("set_parameter", "-p", "shop", "federation-upstream", "ä", '{"uri": "ä"}').status == 0
    assert '{"uri":"ä"}' in ctl("-q", "list_parameters", "-p", "shop").output
    assert ctl("set_global_parameter", "ä", '"ä"').status == 0
    assert '"ä"' in ctl("-q", "list_global_parameters").output
    assert ctl("clear_global_parameter", "ä").status == 0


def test_users_and_permissions(ctl: Command, vhost: str) -> None:
    added = ctl("add_user", "till", "one")
    assert added.output.startswith('Adding user "till" ...\nDone. Don\'t forget to grant the user permissions')
    again = ctl("add_user", "till", "one")
    assert (again.status, again.error) == (70, 'Error:\nUser "till" already exists\n')
    assert ctl("change_password", "till", stdin="two\n").output == 'Changing password for user "till" ...\n'
    assert ctl("authenticate_user", "till", "two").output == 'Authenticating user "till" ...\nSuccess\n'
    wrong = ctl("authenticate_user", "till", "one")
    assert (wrong.status, "user 'till' - invalid credentials" in wrong.error) == (65, True)
    tags = ctl("set_user_tags", "till", "monitoring", "management").output
    assert tags == 'Setting tags for user "till" to [monitoring, management] ...\n'
    assert ctl("set_user_tags", "till", "a,b").status == 0  # one tag, as rabbitmqctl has it
    assert "till\t[a,b]\n" in ctl("list_users").output
    assert ctl("set_user_tags", "till", "monitoring", "management").status == 0
    assert ctl("authenticate_user", "till", "two").status == 0
    assert "till\t[monitoring, management]\n" in ctl("list_users").output
    assert ctl("-q", "set_permissions", "-p", "shop", "till", "", "^o", ".*").status == 0
    assert "till\t\t^o\t.*\n" in ctl("-q", "list_permissions", "-p", "shop").output
    assert ctl("-q", "list_user_permissions", "till").output == "vhost\tconfigure\twrite\tread\nshop\t\t^o\t.*\n"
    assert ctl("-q", "set_topic_permissions", "-p", "shop", "till", "amq.topic", "^a", ".*").status == 0
    assert ctl("-s", "list_topic_permissions", "-p", "shop").output == "till\tamq.topic\t^a\t.*\n"
    assert ctl("-s", "list_user_topic_permissions", "till").output == "shop\tamq.topic\t^a\t.*\n"
    for _ in range(2):
        assert ctl("clear_topic_permissions", "-p", "shop", "till").status == 0
        assert ctl("clear_permissions", "-p", "shop", "till").status == 0
    assert ctl("set_user_limits", "till", '{"max-channels":5}').status == 0
    assert ctl("-q", "list_user_limits", "--user", "till").output == '{"max-channels":5}\n'
    assert ctl("-q", "delete_user", "till").output == ""
    for command in (("delete_user", "till"), ("set_permissions", "till", "", "", ""), ("set_user_tags", "till")):
        gone = ctl(*command)
        assert (gone.status, "does not exist" in gone.error) == (67, True), command
    assert ctl("list_user_permissions", "till").error == 'Error:\n{:no_such_user, "till"}\n'


def test_policies_limits_and_parameters(ctl: Command, vhost: str) -> None:
    said = ctl("set_policy", "-p", "shop", "p", "^o", POLICY, "--priority", "3", "--apply-to", "queues").output
    assert said == f'Setting policy "p" for pattern "^o" to "{POLICY}" with priority "3" for vhost "shop" ...\n'
    assert ctl("-s", "list_policies", "-p", "shop").output == f"shop\tp\t^o\tqueues\t{POLICY}\t3\n"
    assert ctl("-q", "clear_policy", "-p", "shop", "p").status == 0
    missing = ctl("clear_policy", "-p", "shop", "p")
    assert (missing.status, missing.error) == (69, "Error:\nParameter does not exist\n")
    assert ctl("set_policy", "q", "^x", "{nojson").error == "Error:\nJSON decoding error. Reason: badarg\n"
    assert ctl("-q", "set_operator_policy", "-p", "shop", "o", "", POLICY).status == 0
    assert ctl("-s", "list_operator_policies", "-p", "shop").output == f"shop\to\t\tall\t{POLICY}\t0\n"
    assert ctl("-q", "clear_operator_policy", "-p", "shop", "o").status == 0
    assert ctl("set_vhost_limits", "-p", "shop", '{"max-queues":5}').status == 0
    assert ctl("-q", "list_vhost_limits", "-p", "shop").output == '{"max-queues":5}\n'
    assert "JSON object" in ctl("set_vhost_limits", "-p", "shop", "5").error
    assert ctl("-q", "set_parameter", "-p", "shop", "custom", "x", '{"a":1}').status == 0
    assert 'custom\tx\t{"a":1}\n' in ctl("list_parameters", "-p", "shop").output
    assert ctl("clear_parameter", "-p", "shop", "custom", "x").status == 0
    assert ctl("clear_parameter", "-p", "shop", "custom", "x").status == 69
    assert "vhost-limits\tlimits\t" in ctl("list_parameters", "-p", "shop").output


def test_queues_and_connections(ctl: Command, serving: ApiThread, vhost: str) -> None:
    serving.api().put("/api/queues/shop/q", {"durable": True})
    body = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
    serving.api()("POST", "/api/exchanges/shop/amq.default/publish", body)
    with connect(f"amqp://guest:guest@127.0.0.1:{serving.port}/shop", recovery=None) as connection:
        with connection.channel() as channel, channel.consume("q", consumer_tag="ct", no_ack=False):
            assert "\tct\ttrue\t" in ctl("-q", "list_consumers", "-p", "shop").output
            assert "guest\tshop\t1" in ctl("-q", "list_channels", "user", "vhost", "consumer_count").output
        row = ctl("-q", "list_connections", "user", "vhost", "protocol", "--formatter", "json").json
        assert row == [{"user": "guest", "vhost": "shop", "protocol": "{0,9,1}"}]
        name = ctl("-s", "list_connections", "pid").output.strip()
        assert ctl("-q", "close_connection", name, "moving").status == 0
        end = time.monotonic() + PATIENCE
        while ctl("-s", "list_connections", "pid").output.strip():  # until its client has answered
            assert time.monotonic() < end
        assert ctl("close_connection", name, "moving").status == 69
    closed = ctl("close_all_connections", "-p", "shop", "moving").output
    assert closed == "Closing all connections in vhost shop, reason: moving...\nClosed 0 connections\n"
    assert ctl("delete_queue", "-p", "shop", "q", "--if-empty").status == 69
    assert ctl("purge_queue", "-p", "shop", "q").output == "Purging queue 'q' in vhost 'shop' ...\n"
    assert ctl("delete_queue", "-p", "shop", "q", "-e").output == (
        "Deleting queue 'q' on vhost 'shop' if queue is empty ...\n"
        "Queue was successfully deleted with 0 ready messages\n"
    )
    gone, purged = ctl("delete_queue", "-p", "shop", "q"), ctl("purge_queue", "-p", "shop", "q")
    assert (gone.status, gone.error) == (64, "Error:\nQueue not found\n")
    assert (purged.status, purged.error) == (69, "Error:\nnot_found\n")
    assert ctl("trace_on", "-p", "shop").output.endswith("Trace enabled for vhost shop\n")
    assert ctl("-s", "list_vhosts", "name", "tracing").output.split("\n")[1] == "shop\ttrue"
    assert ctl("trace_off", "-p", "shop").status == 0
    assert ctl("trace_on", "-p", "nosuch").status == 65
    assert ctl("delete_vhost", "nosuch").error == "Virtual host 'nosuch' does not exist\n"


def test_results_are_printed_when_it_is_to_be_quiet(ctl: Command, serving: ApiThread, vhost: str) -> None:
    node = serving.broker.node.name
    for quiet in ("-q", "-s"):
        assert ctl(quiet, "ping").output == "Ping succeeded\n"
        for command in ("check_running", "is_running"):
            assert ctl(quiet, command).output == f"RabbitMQ on node {node} is fully booted and running\n"
        assert ctl(quiet, "authenticate_user", "guest", "guest").output == "Success\n"
        assert ctl(quiet, "trace_off", "-p", "shop").output == "Trace disabled for vhost shop\n"
        assert ctl(quiet, "close_all_connections", "-p", "shop", "bye").output == "Closed 0 connections\n"
    assert ctl("ping", "--formatter", "json").json == {"message": "Ping succeeded"}
    assert ctl("check_alarms", "--formatter", "json").json == {"result": "ok"}
    assert ctl("is_running", "--formatter", "json").json["result"] is True
    closed = ctl("close_all_connections", "-p", "shop", "bye", "--formatter", "json").json
    assert closed == {"node": node, "result": "ok", "value": "Closed 0 connections"}


def test_limits_are_cleared(ctl: Command, vhost: str) -> None:
    assert ctl("set_vhost_limits", "-p", "shop", '{"max-queues":5,"max-connections":6}').status == 0
    assert ctl("-s", "list_vhost_limits", "--global").output.startswith("shop\t{")
    assert ctl("clear_vhost_limits", "-p", "shop").output == 'Clearing vhost "shop" limits ...\n'
    assert ctl("-q", "list_vhost_limits", "-p", "shop").output.strip() in ("", "{}")
    again = ctl("clear_vhost_limits", "-p", "nosuch")
    assert (again.status, again.error) == (69, "Error:\nParameter does not exist\n")
    assert ctl("-q", "add_user", "till", "one").status == 0
    for limit in ("max-channels", "all", "nosuch"):
        ctl("set_user_limits", "till", '{"max-channels":5}')
        assert "till\t" in ctl("-s", "list_user_limits", "--global").output
        assert ctl("clear_user_limits", "till", limit).status == 0
        left = '{"max-channels":5}' if limit == "nosuch" else "{}"
        assert ctl("-q", "list_user_limits", "--user", "till").output == f"{left}\n"
    assert ctl("-q", "delete_user", "till").status == 0
    for command in (
        ("clear_user_limits", "till", "all"),
        ("set_user_limits", "till", "{}"),
        ("clear_password", "till"),
    ):
        gone = ctl(*command)
        assert (gone.status, gone.error) == (69, 'Error:\n{:no_such_user, "till"}\n'), command


def test_words_that_scripts_set_once(ctl: Command, serving: ApiThread, vhost: str) -> None:
    assert ctl("set_vhost_tags", "shop", "x", "y").output == 'Setting tags for virtual host "shop" to [x, y] ...\n'
    assert "shop\t[x, y]\tthe shop\n" in ctl("-s", "list_vhosts", "name", "tags", "description").output
    assert ctl("set_vhost_tags", "nosuch", "x").status == 65
    assert ctl("set_global_parameter", "gp", '{"a":1}').status == 0
    assert 'gp\t{"a":1}\n' in ctl("-q", "list_global_parameters").output
    for command in (("trace_on", "-p", "shop"), ("trace_off", "-p", "shop"), ("add_vhost", "shop", "--tags", "z")):
        assert ctl(*command).status == 0
        assert "shop\t[x, y]\tthe shop\n" in ctl("-s", "list_vhosts", "name", "tags", "description").output, command
    assert [ctl("clear_global_parameter", "gp").status for _ in range(2)] == [0, 69]
    assert ctl("set_cluster_name", "abc").output == "Setting cluster name to abc ...\n"
    assert serving.api().get("/api/cluster-name")["name"] == "abc"
    assert ctl("-q", "add_user", "till", "one").status == 0
    assert ctl("clear_password", "till").status == 0
    assert ctl("authenticate_user", "till", "one").status == 65
    assert ctl("-q", "delete_user", "till").status == 0


def test_the_connections_of_a_user(ctl: Command, serving: ApiThread) -> None:
    with connect(serving.broker.url, recovery=None) as connection:
        assert ctl("close_all_user_connections", "nosuch", "bye").status == 0
        assert ctl("-s", "list_connections", "user").output == "guest\n"
        done = ctl("close_all_user_connections", "guest", "bye")
        assert (done.status, done.output) == (0, "Closing connections of user guest, reason: bye...\n")
        with pytest.raises(HarebellError, match="CLOSED - bye"):
            connection.channel()


def test_listeners_and_certificates(ctl: Command, serving: ApiThread) -> None:
    node, port = serving.broker.node.name, str(serving.port)
    assert ctl("-q", "check_port_listener", port).output == f"A listener for port {port} is running on node {node}.\n"
    assert ctl("check_port_listener", port, "--formatter", "json").json == {"node": node, "port": port, "result": "ok"}
    closed, wrong = ctl("check_port_listener", "1"), ctl("check_port_listener", "x")
    assert (closed.status, closed.error.startswith("No listener for port 1 is active on node")) == (69, True)
    assert (wrong.status, "positive integer" in wrong.error) == (65, True)
    assert ctl("-q", "check_protocol_listener", "AMQP").status == 0
    missing = ctl("check_protocol_listener", "mqtt")
    assert (missing.status, "Found listeners for the following protocols: amqp, http" in missing.error) == (69, True)
    assert ctl("-q", "check_certificate_expiration").output == "No certificates are expiring within 4 weeks.\n"
    months = ctl("-q", "check_certificate_expiration", "--within", "2", "--unit", "months").output
    assert months == "No certificates are expiring within 2 months.\n"
    assert ctl("check_certificate_expiration", "--within", "0").status == 64
    assert ctl("check_if_node_is_quorum_critical").status == ctl("is_booting").status == 0
    assert ctl("-q", "alarms").output == f"Node {node} reported no alarms, local or clusterwide\n"
    serving.run(lambda: serving.broker.node.raise_alarm("memory"))
    assert ctl("-q", "alarms").output == f"Memory alarm on node {node}\n"
    assert ctl("alarms", "--formatter", "json").json["alarms"] == [{"node": node, "resource": "memory"}]
    serving.run(lambda: serving.broker.node.clear_alarm("memory"))
    assert " mb (" in ctl("memory_breakdown", "--unit", "MB").output
    assert ctl("memory_breakdown", "--unit", "x").status == 64
    share = ctl("memory_breakdown", "--formatter", "json").json["other_system"]
    assert share.keys() == {"bytes", "percentage"}


def test_definitions(ctl: Command, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    assert ctl("export_definitions", file).output == f'Exporting definitions in JSON to a file at "{file}" ...\n'
    assert json.loads(file.read_text())["vhosts"][0]["name"] == "/"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert ctl("-q", "import_definitions", file).status == 0
    assert ctl("export_definitions", "-").json["users"][0]["name"] == "guest"
    assert ctl("import_definitions", stdin="{").error == "Error:\nJSON decoding error. Reason: badarg\n"
    assert ctl("import_definitions", tmp_path / "none").status == 66
    assert ctl("export_definitions", tmp_path / "no" / "folder").status == 73


def test_checks(ctl: Command, serving: ApiThread) -> None:
    node = ctl("status", "--formatter", "json").json["node"]
    assert ctl("check_running").output.endswith(f"RabbitMQ on node {node} is fully booted and running\n")
    for command in ("ping", "await_startup", "check_alarms", "check_virtual_hosts"):
        assert ctl(command, "-n", node).status == 0
    assert ctl("check_local_alarms").output.endswith(f"Node {node} reported no local alarms\n")
    serving.run(lambda: serving.broker.node.raise_alarm("memory"))
    assert ctl("check_local_alarms").status == ctl("check_alarms").status == 69
    serving.run(lambda: serving.broker.node.clear_alarm("memory"))
    ports = ctl("check_port_connectivity").output
    assert str(serving.port) in ports.splitlines()[-1]
    assert f"port: {serving.port}, protocol: amqp" in ctl("listeners").output
    assert ctl("listeners", "--formatter", "json").json["node"] == node
    assert "rabbitmq version: " in ctl("status").output
    assert ctl("memory_breakdown", "--formatter", "json").json
    assert " gb (" in ctl("memory_breakdown").output
    assert ctl("-q", "server_version").output.count(".") == 2
    assert ctl("version").output == f"{harebell.__version__}\n"
    other = ctl("check_running", "--node", "rabbit@elsewhere")
    assert (other.status, f"is {node}, and not rabbit@elsewhere" in other.error) == (69, True)


@pytest.mark.parametrize(("arguments", "status", "says"), [
    (("list_queue",), 64, "Command 'list_queue' not found. Did you mean 'list_queues'?"), ((), 64, "validation"),
    (("list_queues", "nosuch", "pid"), 64, "Info key(s) nosuch,pid are not supported"),
    (("list_users", "extra"), 64, "too many arguments."), (("ping", "extra"), 64, "too many arguments."),
    (("environment",), 64, "`harebell config`"), (("set_disk_free_limit", "1GB"), 64, "--disk-free-limit"),
    (("set_permissions", "-p", "nosuch", "guest", "", "", ""), 69, "Virtual host nosuch does not exist"),
    (("set_policy", "-p", "nosuch", "p", "^a", "{}"), 65, "Virtual host 'nosuch' does not exist"),
    (("add_user",), 64, "not enough arguments."), (("delete_user", "a", "b"), 64, "too many arguments."),
    (("list_user_permissions",), 64, "not enough arguments."), (("list_user_limits", "x"), 64, "too many arguments."),
    (("set_user_limits", "x"), 64, "not enough arguments."), (("list_queues", "--nosuch"), 64, "--nosuch"),
    (("list_users", "--if-empty"), 64, "Invalid options for this command: --if-empty"),
    (("list_users", "--formatter", "xml"), 64, "one of table, json, csv, pretty_table"),
    (("list_users", "--url", "http://127.0.0.1:1"), 69, "no HTTP API answers"),
    (("list_users", "--url", "ftp://x"), 64, "begins with http://"),
    (("list_permissions", "-p", "nosuch"), 65, "Virtual host 'nosuch' does not exist"),
    (("list_vhost_limits", "-p", "nosuch"), 65, "Virtual host 'nosuch' does not exist"),
    (("add_user", "x"), 65, "the password is empty"),
])  # fmt: skip
def test_what_is_refused(ctl: Command, arguments: tuple[str, ...], status: int, says: str) -> None:
    refused = ctl(*arguments)
    assert (refused.status, says in refused.error) == (status, True), refused


NOWHERE = {
    0: [
        "list_queues", "list_exchanges", "list_bindings", "list_consumers", "close_all_connections bye",
        "close_all_user_connections guest bye",
    ],
    64: ["delete_queue q"],
    65: [
        "list_policies", "list_operator_policies", "list_parameters", "list_permissions", "list_topic_permissions",
        "list_vhost_limits", "set_policy p ^a {}", "set_vhost_limits {}", "trace_on", "trace_off",
        "set_parameter shovel p {}",
    ],
    69: [
        "purge_queue q", "clear_policy p", "clear_operator_policy p", "clear_parameter shovel p", "clear_vhost_limits",
        "set_permissions guest a b c", "clear_permissions guest", "set_topic_permissions guest x a b",
        "clear_topic_permissions guest",
    ],
}  # fmt: skip
NOBODY = {
    0: ["close_all_user_connections nobody bye"],
    65: ["authenticate_user nobody x"],
    67: [
        "delete_user nobody", "change_password nobody x", "set_user_tags nobody", "set_permissions nobody a b c",
        "clear_permissions nobody", "set_topic_permissions nobody x a b", "clear_topic_permissions nobody",
    ],
    69: [
        "list_user_permissions nobody", "list_user_topic_permissions nobody", "list_user_limits --user nobody",
        "set_user_limits nobody {}", "clear_user_limits nobody all", "clear_password nobody",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("status", "line"), [(status, line) for status, lines in NOWHERE.items() for line in lines])
def test_a_vhost_that_does_not_exist(ctl: Command, status: int, line: str) -> None:
    assert ctl(*line.split(), "-p", "nosuch").status == status


@pytest.mark.parametrize(("status", "line"), [(status, line) for status, lines in NOBODY.items() for line in lines])
def test_a_user_that_does_not_exist(ctl: Command, status: int, line: str) -> None:
    assert ctl(*line.split()).status == status


@pytest.mark.parametrize("name", INSTEAD)
def test_what_does_it_instead(ctl: Command, name: str) -> None:
    assert name not in KNOWN
    refused = ctl(name, "x")
    assert (refused.status, f"has no '{name}': {INSTEAD[name]}" in refused.error) == (64, True)
    named = re.findall(r"`harebellctl (\w+)", INSTEAD[name])
    assert set(named) <= set(KNOWN)
    paths = {re.sub(r"{\w+}", "X", f"{each.method} {each.path}") for each in ENDPOINTS}
    for request in re.findall(r"(?:GET|DELETE) /api/\S+", INSTEAD[name]):
        assert re.sub(r"\b[A-Z]+\b(?! /)", "X", request) in paths, request


@pytest.mark.parametrize("more", [(), ("list_queues",)])
def test_help_is_a_command_too(ctl: Command, more: tuple[str, ...]) -> None:
    said = ctl("help", *more)
    assert (said.status, "list_queues" in said.output) == (0, True)


def test_a_wrong_password(ctl: Command, serving: ApiThread) -> None:
    refused = ctl("list_users", "--url", f"http://guest:wrong@127.0.0.1:{serving.api_port}")
    assert (refused.status, "Login failed" in refused.error) == (77, True)


def test_options_are_of_commands_that_exist() -> None:
    assert not set().union(*OPTIONS.values()) - set(KNOWN)
