from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harebell.errors import MissingDependency
from harebell.spark import session
from tests.spark.preloaded import Interpreters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_importing_the_package_imports_no_pyspark_and_no_pyarrow() -> None:
    code = (
        "import sys, harebell.spark, harebell.spark.runtime.java\n"
        "print([m for m in ('pyspark', 'pyarrow') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_without_pyspark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(MissingDependency, match=r"pip install 'harebell\[spark\]'"):
        session()


@pytest.mark.parametrize("missing", ["grpc", "google.rpc", "google", "zstandard"])
def test_without_a_package_of_connect_the_error_names_it(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> object:
        if missing == "google" and name == "google.rpc":  # its parent is missing
            raise ModuleNotFoundError("No module named 'google'")
        return None if name == missing else found("sys")

    monkeypatch.setattr(importlib.util, "find_spec", without)
    told = "google.rpc" if missing == "google" else missing
    with pytest.raises(MissingDependency, match=rf"{told} is not installed.*pip install 'harebell\[connect\]'"):
        session(master="sc://localhost:1")


@pytest.mark.spark
def test_the_session_is_set_up_for_the_source(
    spark: SparkSession, interpreters: Interpreters, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.ui.enabled") == "false"
    # What the fixture took for sys.executable. The variable may be another test's, whose session came later.
    assert spark.sparkContext.pythonExec == str(interpreters.executable)
    assert (Path(os.environ["JAVA_HOME"]) / "bin" / "java").exists()
    monkeypatch.setattr(sys, "executable", str(interpreters.executable))
    assert session() is spark


@pytest.mark.spark
def test_each_thread_that_asks_for_the_session_finds_what_is_registered_with_it(spark: SparkSession) -> None:
    def written() -> None:
        frame = session().createDataFrame([(b"",)], "nothing binary")
        frame.write.format("amqp").mode("append").option("exchange", "").option("routingKey", "work").save()

    with ThreadPoolExecutor(1) as pool:  # its thread has no session
        refused = pool.submit(written).exception(60)
    assert "cannot write column 'nothing'" in str(refused)
