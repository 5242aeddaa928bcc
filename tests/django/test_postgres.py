"""The tests of the backend for tasks, once more, in a process whose Django has its database in PostgreSQL.

Django's settings hold for a process. The broker is Harebell: what a broker does depends on no database.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.fixtures.postgres import PostgresServer

ROOT = Path(__file__).parents[2]


def test_the_backend_on_postgres(postgres: PostgresServer, postgres_database: str) -> None:
    where = f"{postgres.folder},harebell,{postgres_database.rpartition('=')[2]}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not rabbitmq", "-p", "no:xdist",
         "-W", "ignore:<psycopg.Connection object:ResourceWarning",  # Django drops it with its thread
         "tests/django/test_backend.py"],
        env={**os.environ, "HAREBELL_TEST_POSTGRES": where}, cwd=ROOT, capture_output=True, text=True, check=False,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
