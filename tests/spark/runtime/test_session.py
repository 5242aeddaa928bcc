from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harebell.errors import MissingDependency
from harebell.spark import session

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


@pytest.mark.spark
def test_the_session_is_set_up_for_the_source(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert (Path(os.environ["JAVA_HOME"]) / "bin" / "java").exists()
    assert session() is spark
