"""Where the password is read, and where it never shows: plans, progress, logs, errors. TLS and several hosts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harebell.broker import Broker, Tls
from harebell.client.messages import Message
from harebell.errors import InvalidArgument
from harebell.spark.connection import Link
from harebell.spark.options.address import address
from harebell.testing import EmbeddedBroker
from tests.spark.bad_days import evidence
from tests.spark.conftest import cause
from tests.torture.server import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "h0nter-of-secrets"


@dataclass(frozen=True)
class Secured:
    """A broker that speaks TLS only, with a certificate of its own and the user pipeline."""

    url: str  # without the password
    certificate: Path

    @property
    def whole_url(self) -> str:
        return f"{self.url.replace('pipeline@', f'pipeline:{SECRET}@')}?cacertfile={self.certificate}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    certificate, key = folder / "localhost.pem", folder / "localhost-key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", key, "-out", certificate, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    tls = Tls(str(certificate), str(key))
    with EmbeddedBroker(lambda: Broker(port=None, tls=tls, data=folder / "data")) as server:
        server.run(lambda broker: broker.add_user("pipeline", SECRET))
        server.run(lambda broker: broker.set_permissions("pipeline"))
        yield Secured(f"amqps://pipeline@localhost:{server.broker.tls_port}/", certificate)


@pytest.mark.spark
def test_a_password_by_file_shows_nowhere(
    spark: SparkSession, secured: Secured, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    evidence.declare(secured.whole_url, "secrets", "stream")
    evidence.publish(secured.whole_url, "secrets", (Message(b"%d" % n, message_id=f"m{n}") for n in range(100)))
    evidence.declare(secured.whole_url, "secrets.out", "classic")
    password = tmp_path / "password"
    password.write_text(SECRET)
    away = f"amqps://pipeline@localhost:{free_port()}/"
    options = {
        "url": f"{away},{secured.url}",  # the first host is down
        "passwordFile": str(password),
        "cacertFile": str(secured.certificate),
    }
    batch = spark.read.format("amqp").options(**options).option("queue", "secrets").schema("body string").load()
    assert batch.count() == 100
    batch.explain(extended=True)
    stream = spark.readStream.format("amqp").options(**options).option("queue", "secrets").schema("body string").load()
    target = {"exchange": "", "routingKey": "secrets.out", "checkpointLocation": str(tmp_path / "checkpoint")}
    query = stream.writeStream.format("amqp").options(**options, **target).trigger(availableNow=True).start()
    query.awaitTermination()
    query.explain(extended=True)
    shown = "".join(one.json for one in query.recentProgress)
    assert evidence.in_queue(secured.whole_url, "secrets.out").at_least_once(100) == ""
    password.write_text(f"{SECRET}-changed")  # the next connection reads it
    with pytest.raises(Exception) as caught:
        batch.count()
    assert "AccessRefused" in cause(caught.value)
    shown += str(caught.value) + "".join(capfd.readouterr())
    for file in (tmp_path / "checkpoint").rglob("*"):
        shown += file.read_text(errors="replace") if file.is_file() else ""
    assert "amqps" not in repr(batch)
    assert "Physical Plan" in shown
    assert SECRET not in shown


@pytest.mark.spark
def test_a_url_with_its_password_shows_in_no_plan(
    spark: SparkSession, secured: Secured, capfd: pytest.CaptureFixture[str]
) -> None:
    evidence.declare(secured.whole_url, "plain", "stream")
    frame = spark.read.format("amqp").option("url", secured.whole_url).option("queue", "plain").load()
    assert frame.count() == 0
    frame.explain(extended=True)
    frame.explain(mode="formatted")
    missing = spark.read.format("amqp").option("url", secured.whole_url).option("queue", "no.such.queue").load()
    with pytest.raises(Exception) as caught:
        missing.count()
    assert "no.such.queue" in cause(caught.value)
    assert SECRET not in "".join(capfd.readouterr()) + str(caught.value)


LOGGED_JOB = """
import os, sys
from pyspark.sql import SparkSession
from harebell.spark import session
from harebell.spark.runtime.java import find_java

own, name, url, log = sys.argv[1:]
os.environ["JAVA_HOME"] = str(find_java().path)
os.environ[name] = url
settings = {
    f"spark.executorEnv.{name}": url, "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false",
    "spark.eventLog.dir": log,
}
if own == "own":
    spark = session("logged", **settings)
else:
    settings |= {"spark.ui.enabled": "false", "spark.driver.host": "localhost"}
    spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    from harebell.spark.source import AmqpDataSource
    spark.dataSource.register(AmqpDataSource)
print(spark.read.format("amqp").options(urlEnv=name, queue=f"logged.{own}").load().count())
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.parametrize(("own", "name"), [("own", "ORDERS_URL"), ("plain", "ORDERS_SECRET")])
def test_the_variable_of_executors_shows_in_no_event_log(secured: Secured, tmp_path: Path, own: str, name: str) -> None:
    evidence.declare(secured.whole_url, f"logged.{own}", "stream")
    evidence.publish(secured.whole_url, f"logged.{own}", [Message(b"1")])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    (log := tmp_path / "log").mkdir()
    command = [sys.executable, "-c", LOGGED_JOB, own, name, secured.whole_url, log.as_uri()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.split() == ["1"], done.stderr
    written = "".join(file.read_text() for file in log.rglob("*") if file.is_file())
    assert f"spark.executorEnv.{name}" in written
    assert SECRET not in written


def test_a_broker_that_nobody_vouches_for_is_refused_at_once(secured: Secured) -> None:
    where = address({"url": secured.whole_url.partition("?")[0]})
    with pytest.raises(InvalidArgument, match="option 'cacertFile'") as caught:
        Link(where, timeout=60)
    assert SECRET not in str(caught.value)


def test_an_address_by_environment_and_by_file(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_URL", secured.whole_url)
    (tmp_path / "url").write_text(secured.whole_url)
    evidence.declare(secured.whole_url, "found", "classic")
    for options in ({"urlenv": "ORDERS_URL"}, {"urlfile": str(tmp_path / "url")}):
        with Link(address(options), timeout=60) as link:
            assert link.count("found") == 0
