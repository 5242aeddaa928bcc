"""A real Prometheus: it scrapes a broker, and evaluates every query of our dashboard and every alert rule."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from harebell.protocol.v091 import Properties, methods as m
from harebell.testing.rabbitmq import free_ports
from tests.admin.kit import ApiThread
from tests.wire import PATIENCE, Wire

FOLDER: Final = Path(__file__).parents[3] / "docs" / "how-to" / "prometheus"
RULES: Final = FOLDER / "alerts.yml"
PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")

pytestmark = [
    pytest.mark.repeats,
    pytest.mark.skipif(
        PROMTOOL is None or PROMETHEUS is None,
        reason="no Prometheus on this machine: install it with `apt-get install prometheus`",
    ),
]

LABELS = 'job="harebell", instance="one"'
OBJECT = 'job="harebell-per-object", instance="one", vhost="/", queue="q"'
# What RabbitMQ's own dashboard "RabbitMQ-Overview" asks for, each joined to the node's identity.
LEVELS: Final = (
    "build_info", "channels", "connections", "consumers", "disk_space_available_bytes", "global_consumers",
    "global_publishers", "process_max_fds", "process_max_tcp_sockets", "process_open_fds", "process_open_tcp_sockets",
    "process_resident_memory_bytes", "queue_messages_ready", "queue_messages_unacked", "queues",
    "resident_memory_limit_bytes",
)  # fmt: skip
COUNTERS: Final = (
    *(f"{each}_total" for each in (
        "channels_closed", "channels_opened", "connections_closed", "connections_opened", "queues_created",
        "queues_declared", "queues_deleted",
    )),
    *(f"global_messages_{each}_total" for each in (
        "acknowledged", "confirmed", "delivered", "delivered_consume_auto_ack", "delivered_consume_manual_ack",
        "delivered_get_auto_ack", "delivered_get_manual_ack", "get_empty", "received", "received_confirm",
        "redelivered", "routed", "unroutable_dropped", "unroutable_returned",
    )),
)  # fmt: skip
IDENTITY: Final = (
    "* on(instance, job) group_left(rabbitmq_cluster, rabbitmq_node) "
    'rabbitmq_identity_info{rabbitmq_cluster=~".+", namespace="", rabbitmq_endpoint="aggregated"}'
)
SYNC, LAG = "harebell_sync_seconds_bucket", "harebell_loop_lag_seconds_bucket"
GLOBAL = "rabbitmq_global_messages"

# What other programs on this machine may bring about: they fill its disk and its memory, and keep it busy.
OF_THE_MACHINE = {f"Harebell{name}" for name in ("DiskFullSoon", "DiskAlarm", "DiskSlow", "MemoryAlarm", "Busy")}


def one(name: str, values: str, labels: str = LABELS) -> dict[str, str]:
    return {"series": f"{name}{{{labels}}}", "values": values}


def histogram(name: str, below: str, all_of_them: str, bound: str) -> list[dict[str, str]]:
    """So many values a minute that are at most `bound`, and so many in all."""
    return [
        one(name, below, f'{LABELS}, le="{bound}"'),
        one(name, all_of_them, f'{LABELS}, le="5.0"'),
        one(name, all_of_them, f'{LABELS}, le="+Inf"'),
    ]


# For each alert: series with which it fires within an hour, and with which it does not. "a+bxn" is Prometheus's: from a
# on, b more each minute.
CASES: dict[str, tuple[list[dict[str, str]], list[dict[str, str]]]] = {
    "HarebellDown": ([one("up", "1 0x60")], [one("up", "1x60")]),
    "HarebellMemoryAlarm": (
        [one("rabbitmq_alarms_memory_used_watermark", "1x60")],
        [one("rabbitmq_alarms_memory_used_watermark", "0x60")],
    ),
    "HarebellDiskAlarm": (
        [one("rabbitmq_alarms_free_disk_space_watermark", "1x60")],
        [one("rabbitmq_alarms_free_disk_space_watermark", "0x60")],
    ),
    "HarebellMemoryNearLimit": (
        [one("rabbitmq_process_resident_memory_bytes", "90x60"), one("rabbitmq_resident_memory_limit_bytes", "100x60")],
        [one("rabbitmq_process_resident_memory_bytes", "70x60"), one("rabbitmq_resident_memory_limit_bytes", "100x60")],
    ),
    "HarebellDiskFullSoon": (
        [
            one("rabbitmq_disk_space_available_bytes", "1000-5x60"),
            one("rabbitmq_disk_space_available_limit_bytes", "50x60"),
        ],
        [
            one("rabbitmq_disk_space_available_bytes", "1000-1x60"),
            one("rabbitmq_disk_space_available_limit_bytes", "50x60"),
        ],
    ),
    "HarebellDescriptorsNearLimit": (
        [one("rabbitmq_process_open_fds", "90x60"), one("rabbitmq_process_max_fds", "100x60")],
        [one("rabbitmq_process_open_fds", "70x60"), one("rabbitmq_process_max_fds", "100x60")],
    ),
    "HarebellDiskSlow": (histogram(SYNC, "0+90x60", "0+100x60", "0.2"), histogram(SYNC, "0+100x60", "0+100x60", "0.2")),
    "HarebellBusy": (histogram(LAG, "0+90x60", "0+100x60", "0.1"), histogram(LAG, "0+100x60", "0+100x60", "0.1")),
    "HarebellLoginsFail": (
        [one("rabbitmq_auth_attempts_failed_total", "0+60x60", f'{LABELS}, protocol="amqp091"')],
        [one("rabbitmq_auth_attempts_failed_total", "0+1x60", f'{LABELS}, protocol="amqp091"')],
    ),
    "HarebellConnectionChurn": (
        [one("rabbitmq_connections_opened_total", "0+1200x60")],
        [one("rabbitmq_connections_opened_total", "0+60x60")],
    ),
    "HarebellUnroutable": (
        [one(f"{GLOBAL}_unroutable_dropped_total", "0+1x60")],
        [one(f"{GLOBAL}_unroutable_dropped_total", "7x60")],
    ),
    "HarebellRedeliveries": (
        [one(f"{GLOBAL}_redelivered_total", "0+60x60"), one(f"{GLOBAL}_delivered_total", "0+100x60")],
        [one(f"{GLOBAL}_redelivered_total", "0+10x60"), one(f"{GLOBAL}_delivered_total", "0+100x60")],
    ),
    "HarebellDeadLetters": (
        [one(f"{GLOBAL}_dead_lettered_maxlen_total", "0+1x60")],
        [one(f"{GLOBAL}_dead_lettered_rejected_total", "7x60"), one(f"{GLOBAL}_dead_lettered_expired_total", "0+9x60")],
    ),
    "HarebellQueueWithoutConsumer": (
        [one("rabbitmq_queue_messages_ready", "2000x60", OBJECT), one("rabbitmq_queue_consumers", "0x60", OBJECT)],
        [one("rabbitmq_queue_messages_ready", "2000x60", OBJECT), one("rabbitmq_queue_consumers", "1x60", OBJECT)],
    ),
    "HarebellQueueGrows": (
        [one("rabbitmq_queue_messages_ready", "2000+100x120", OBJECT)],
        [one("rabbitmq_queue_messages_ready", "9000x120", OBJECT)],
    ),
    "HarebellUnacked": (
        [one("rabbitmq_queue_messages_unacked", "20000x60", OBJECT)],
        [one("rabbitmq_queue_messages_unacked", "100x60", OBJECT)],
    ),
}


REASONS = ("rejected", "maxlen", "delivery_limit")
# More series with which an alert fires: any reason alone, and all together are one alert.
FIRING = [
    *(("HarebellDeadLetters", [one(f"{GLOBAL}_dead_lettered_{each}_total", "0+1x60")]) for each in REASONS),
    ("HarebellDeadLetters", [one(f"{GLOBAL}_dead_lettered_{each}_total", "0+1x60") for each in REASONS]),
]


def rules() -> list[str]:
    return re.findall(r"- alert: (\w+)", RULES.read_text())


def test_every_alert_fires_and_is_quiet(tmp_path: Path) -> None:
    assert sorted(CASES) == sorted(rules())
    tests = [
        {
            "interval": "1m",
            "input_series": series,
            # The time of a test of alerts is when it fires for the first time, or not at all.
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})',
                    "eval_time": "115m" if alert == "HarebellQueueGrows" else "55m",
                    "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
                }
            ],
        }
        for alert, fires, series in (
            *(
                (alert, fires, series)
                for alert, cases in CASES.items()
                for fires, series in zip((True, False), cases, strict=True)
            ),
            *((alert, True, series) for alert, series in FIRING),
        )
    ]
    file = tmp_path / "alerts_test.json"  # JSON is YAML
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    assert PROMTOOL is not None
    for command in (["check", "rules", str(RULES)], ["test", "rules", str(file)]):
        done = subprocess.run([PROMTOOL, *command], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", ["/metrics", "/metrics/per-object", "/metrics/detailed?family=queue_coarse_metrics"])
def test_promtool_has_nothing_to_say_about_a_page(serving: ApiThread, page: str) -> None:
    assert PROMTOOL is not None
    body = serving.api()("GET", page).body
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=body, capture_output=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


class Scraper:
    """A Prometheus with its HTTP API at `port`."""

    def __init__(self, port: int) -> None:
        self.port = port

    def query(self, expression: str) -> list[Any]:
        """The samples of an instant query."""
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?{query}", timeout=PATIENCE) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        result: list[Any] = found["data"]["result"]
        return result

    def wait(self, expression: str) -> None:
        """Until the query gives something."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                if self.query(expression):
                    return
            except OSError:
                pass  # it starts
            assert time.monotonic() < end, expression
            time.sleep(0.1)


@contextmanager
def scraping(target: int, folder: Path) -> Iterator[Scraper]:
    """A Prometheus that scrapes the broker's API as docs/how-to/prometheus.md says, but each second."""
    login = {
        "basic_auth": {"username": "guest", "password": "guest"},
        "static_configs": [{"targets": [f"127.0.0.1:{target}"]}],
    }
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {"job_name": "harebell", **login},
            {"job_name": "harebell-per-object", "metrics_path": "/metrics/per-object", **login},
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    (port,) = free_ports(1)
    command = [
        str(PROMETHEUS), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield Scraper(port)
        finally:
            process.terminate()


def expressions() -> list[str]:
    """Every query of the dashboard, with its variables filled in."""
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    filled = [
        each.replace("$job", "harebell").replace("$instance", ".*").replace("$__rate_interval", "1m") for each in found
    ]
    assert not [each for each in filled if "$" in each]
    return filled


def overview() -> list[str]:
    """The queries of RabbitMQ's own dashboard."""
    return [
        *(f"sum(rabbitmq_{name} {IDENTITY}) by (rabbitmq_node)" for name in LEVELS),
        *(f"sum(rate(rabbitmq_{name}[60s]) {IDENTITY}) by (rabbitmq_node)" for name in COUNTERS),
    ]


def make_traffic(wire: Wire, rounds: int) -> None:
    """Something of everything that the dashboard shows."""
    for _ in range(rounds):
        wire.publish("", "durable", b"x", Properties(delivery_mode=2))
        wire.publish("", "no queue of this name", b"x")
        wire.call(1, m.QueueDeclare("durable", durable=True, passive=True), m.QueueDeclareOk)


def test_no_panel_is_empty(own: ApiThread, tmp_path: Path) -> None:
    with Wire(own.port).log_in() as wire, scraping(own.api_port, tmp_path) as prometheus:
        wire.channel()
        wire.call(1, m.QueueDeclare("durable", durable=True), m.QueueDeclareOk)
        prometheus.wait('up{job="harebell"} == 1 and on(instance) up{job="harebell-per-object"} == 1')
        for scrape in range(3):
            make_traffic(wire, 3)
            before = f'count_over_time(up{{job="harebell-per-object"}}[1m]) > {2 * scrape + 2}'
            prometheus.wait(before)
        empty = []
        for expression in (*expressions(), *overview()):
            samples = prometheus.query(expression)
            if not samples or any(math.isnan(float(sample["value"][1])) for sample in samples):
                empty.append(expression)
        assert not empty
        names = set(re.findall(r"\b(?:rabbitmq|harebell)_\w+", "".join(expressions()) + RULES.read_text()))
        names = {name for name in names if not name.endswith("_buckets")}
        assert len(names) > 50
        assert not [name for name in sorted(names) if not prometheus.query(f"count({name})")]
        # A quiet broker: nothing of it is alarming but what no queue got.
        alarming = {sample["metric"]["alertname"] for sample in prometheus.query("ALERTS")}
        assert alarming - OF_THE_MACHINE <= {"HarebellUnroutable"}
