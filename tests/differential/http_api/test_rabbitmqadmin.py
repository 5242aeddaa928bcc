"""`rabbitmqadmin` as RabbitMQ serves it: the same commands against RabbitMQ and Harebell print and end the same.

The script is the one of the node that it is compared with, run unmodified in this process.
"""

from __future__ import annotations

import contextlib
import gc
import html
import io
import json
import re
import runpy
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from tests.differential.http_api.conftest import Broker

VHOST = "admins"


class Outcome(NamedTuple):
    status: int
    output: str
    complaint: str


# One after the other. {file} is a file of the test's.
COMMANDS: tuple[str, ...] = (
    f"declare vhost name={VHOST}",
    f"declare permission vhost={VHOST} user=guest configure=.* write=.* read=.*",
    "declare user name=watcher password=secret tags=monitoring",
    f"declare permission vhost={VHOST} user=watcher configure= write= read=.*",
    "list users name tags",
    f"-V {VHOST} list permissions",
    f"-V {VHOST} declare exchange name=orders type=topic",
    f"-V {VHOST} declare exchange name=lost type=fanout durable=false auto_delete=true internal=true",
    f"-V {VHOST} declare queue name=eu durable=true",
    f'-V {VHOST} declare queue name=us durable=false arguments={{"x-max-length":5,"x-overflow":"reject-publish"}}',
    f"-V {VHOST} declare binding source=orders destination=eu routing_key=eu.#",
    f"-V {VHOST} declare binding source=orders destination=lost destination_type=exchange routing_key=#",
    f"-V {VHOST} declare queue name=eu durable=false",  # 400: it is durable
    f'-V {VHOST} declare queue name=bad arguments={{"x-max-length":"many"}}',
    f"-V {VHOST} declare exchange name=bad type=nosuchtype",
    f'-V {VHOST} declare policy name=short pattern=^eu definition={{"max-length":10}} priority=3 apply-to=queues',
    f'-V {VHOST} declare policy name=bad pattern=^eu definition={{"nosuchkey":10}}',
    f'-V {VHOST} declare vhost_limit name=max-queues value=9 vhost={VHOST}',
    f"-V {VHOST} declare queue nme=x",
    f"-V {VHOST} declare queue",
    f"-V {VHOST} publish exchange=orders routing_key=eu.de payload=hello",
    f"-V {VHOST} publish exchange=orders routing_key=eu.fr payload=salut",
    f"-V {VHOST} publish exchange=nosuch routing_key=x payload=x",
    f"-V {VHOST} publish exchange=amq.direct routing_key=nowhere payload=x",
    f"-V {VHOST} get queue=eu",
    f"-V {VHOST} get queue=eu count=2 ackmode=ack_requeue_true",
    f"-V {VHOST} -f raw_json get queue=eu ackmode=ack_requeue_false",
    f"-V {VHOST} get queue=eu payload_file={{file}}",
    f"-V {VHOST} get queue=nosuch",
    f"-V {VHOST} list queues name durable auto_delete",
    f"-V {VHOST} list queues name durable -S name",
    f"-V {VHOST} -f tsv list queues name durable",
    f"-V {VHOST} -f long list queues name durable",
    f"-V {VHOST} -f kvp list queues name durable",
    f"-V {VHOST} -f bash list queues name",
    f"-V {VHOST} -f raw_json -S name list queues name durable",
    f"-V {VHOST} -f pretty_json -S name list queues name durable",
    f"-V {VHOST} -S name -R list queues name",
    f"-V {VHOST} list exchanges name type durable auto_delete internal",
    f"-V {VHOST} list bindings",
    f"-V {VHOST} list bindings source destination routing_key properties_key",
    f"-V {VHOST} list policies",
    f"-V {VHOST} list operator_policies",
    f"-V {VHOST} list parameters",
    f"-V {VHOST} list vhost_limits",
    f"-V {VHOST} list consumers",
    f"-V {VHOST} list channels name",
    "list vhosts name tracing",
    "list permissions vhost user configure write read",
    "list nodes type running",
    "list nosuchthing",
    "show overview product_name_of_nobody",
    "show nosuchthing",
    "-u nobody -p x list queues",
    f"-u watcher -p secret -V {VHOST} list queues name",
    f"-u watcher -p secret -V {VHOST} declare queue name=mine",
    f"-u watcher -p secret -V {VHOST} delete queue name=eu",
    f"-V {VHOST} export {{file}}",
    f"-V {VHOST} delete queue name=eu",
    f"-V {VHOST} import {{file}}",
    f"-V {VHOST} list queues name durable",
    f"-V {VHOST} list bindings source destination routing_key",
    f"-V {VHOST} purge queue name=eu",
    f"-V {VHOST} purge queue name=nosuch",
    f"-V {VHOST} delete binding source=orders destination_type=queue destination=eu properties_key=eu.%23",
    f"-V {VHOST} delete binding source=orders destination_type=queue destination=eu properties_key=nosuch",
    f"-V {VHOST} delete policy name=short",
    f"-V {VHOST} delete queue name=nosuch",
    f"-V {VHOST} delete exchange name=orders",
    f"-V {VHOST} delete exchange name=amq.direct",
    "close connection name=nosuch",
    "delete user name=watcher",
    "delete user name=watcher",
    f"delete vhost name={VHOST}",
    "nosuchcommand",
    "",
)  # fmt: skip

# What an older RabbitMQ does otherwise than a newer one, which we follow.
OTHERWISE = {"3.10": (f"-V {VHOST} publish exchange=nosuch routing_key=x payload=x",)}


def run(script: Path, port: int, command: str) -> Outcome:
    """What it prints and how it ends."""
    output, complaint = io.StringIO(), io.StringIO()
    arguments = [str(script), "-H", "127.0.0.1", "-P", str(port), *command.split()]
    before, sys.argv = sys.argv, arguments
    try:
        with (
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(complaint),
            # It would have SIGPIPE end the process, and that is the one of all tests here.
            mock.patch("signal.signal"),
        ):
            try:
                runpy.run_path(str(script), run_name="__main__")
                status = 0
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
            except Exception as error:  # a fault of the script's own
                return Outcome(1, output.getvalue(), repr(error))
    finally:
        sys.argv = before
    return Outcome(status, output.getvalue(), complaint.getvalue())


def plain(outcome: Outcome, port: int, file: Path) -> Outcome:
    """Without what is another on each run, or in docs/reference/differences.md: the exchange amq.system; RabbitMQ
    escapes some of its reasons for HTML."""

    def cleaned(text: str) -> str:
        text = html.unescape(text).replace(str(port), "PORT").replace(str(file), "FILE")
        text = re.sub(r"^.*\bamq\.system\b.*\n", "", text, flags=re.M)
        return re.sub(r"(harebell|rabbit)[\w.-]*@[\w.-]+", "NODE", text)

    output = outcome.output
    if output.startswith("["):  # JSON, whose keys have no order
        output = json.dumps(json.loads(output), sort_keys=True)
    return Outcome(outcome.status, cleaned(output), cleaned(outcome.complaint))


@pytest.mark.rabbitmq
@pytest.mark.filterwarnings("ignore:unclosed")  # the script leaves its sockets to the collector
def test_it_prints_and_ends_the_same(theirs: Broker, ours: Broker, version: str, tmp_path: Path) -> None:
    script = tmp_path / "rabbitmqadmin"
    script.write_bytes(theirs.api("GET", "/cli/rabbitmqadmin").body)
    different = []
    for command in COMMANDS:
        found = []
        for broker, file in ((theirs, tmp_path / "theirs"), (ours, tmp_path / "ours")):
            outcome = plain(run(script, broker.api.port, command.replace("{file}", str(file))), broker.api.port, file)
            found.append(outcome)
        if found[0] != found[1] and command not in OTHERWISE.get(version, ()):
            different.append((command, *found))
    gc.collect()  # here, and not in another test
    assert not different, "\n\n".join(f"{command}\n  {theirs}\n  {ours}" for command, theirs, ours in different)
