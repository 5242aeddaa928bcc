"""`harebell spark spool`: what it lists, what it deletes, what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from harebell.client.servers import BrokerIdentity
from harebell.spark.queues.spool import Spool
from tests.cli.administering import Command
from tests.spark.queues.test_pruning import HOUR, STREAM, keep


def test_list_shows_every_drain(run: Command, tmp_path: Path) -> None:
    keep(tmp_path, "monday", 1500, 0, age=3 * 24 * HOUR)
    folder = keep(tmp_path, f"{STREAM}-00000007", 2, acked=False, queue="orders")
    orders, other = run("spark", "spool", "list", tmp_path, "--json").json
    assert orders.pop("bytes") == sum(path.stat().st_size for path in folder.iterdir())
    assert orders.pop("changed") > other["changed"]
    assert orders == {
        "broker": None,
        "vhost": "/",
        "queue": "orders",
        "drain": f"{STREAM}-00000007",
        "messages": 2,
        "unacked": 2,
        "complete": False,
        "last": True,
        "damaged": [],
        "folder": str(folder),
    }
    assert (other["drain"], other["messages"], other["complete"], other["last"]) == ("monday", 1500, True, False)
    text = run("spark", "spool", "list", tmp_path).output
    assert "2 drains: 1,502 messages" in text
    assert "open, last" in text
    assert "monday" not in run("spark", "spool", "list", tmp_path, "--queue", "orders").output


def test_list_says_whose_messages_they_are(run: Command, tmp_path: Path) -> None:
    keep(tmp_path, "t", 1, 0)
    Spool(tmp_path, "/", "q").ticket("t").claim(BrokerIdentity("harebell@host", "01"))
    (state,) = run("spark", "spool", "list", tmp_path, "--json").json
    assert state["broker"] == "harebell@host"
    assert "harebell@host" in run("spark", "spool", "list", tmp_path).output


def test_list_names_a_damaged_file(run: Command, tmp_path: Path) -> None:
    folder = keep(tmp_path, "t", 3, 0)
    (folder / "00000-000000.arrow").write_bytes(b"no")
    assert f"damaged: {folder / '00000-000000.arrow'}" in run("spark", "spool", "list", tmp_path).output.replace(
        "\n", ""
    )


def test_prune_deletes_by_age(run: Command, tmp_path: Path) -> None:
    old, young = keep(tmp_path, "old", 3, 0, age=8 * 24 * HOUR), keep(tmp_path, "young", 1, 0)
    unacked = keep(tmp_path, "unacked", 2, acked=False, age=8 * 24 * HOUR)
    assert (
        "1 would be deleted: 3 messages"
        in run("spark", "spool", "prune", tmp_path, "--older-than", "7d", "--dry-run").output
    )
    assert old.exists()
    assert "1 deleted: 3 messages" in run("spark", "spool", "prune", tmp_path, "--older-than", "7d").output
    assert (old.exists(), young.exists(), unacked.exists()) == (False, True, True)
    assert run("spark", "spool", "prune", tmp_path, "--older-than", "7d").output == (
        "nothing to delete that is older than 7d\n"
    )
    (gone,) = run("spark", "spool", "prune", tmp_path, "--older-than", "7d", "--unacked", "--json").json
    assert (gone["drain"], unacked.exists()) == ("unacked", False)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("prune", ".", "--older-than", "week"), "--older-than is 'week'; it takes a number and a unit"),
        (("list", "nowhere"), "there is no spool folder nowhere"),
    ],
)
def test_what_cannot_be(run: Command, arguments: tuple[str, ...], says: str) -> None:
    refused = run("spark", "spool", *arguments)
    assert (refused.status, says in refused.error) == (1, True), refused


def test_a_folder_that_is_no_spool_is_refused(run: Command, tmp_path: Path) -> None:
    will = tmp_path / "docs" / "letters" / "old" / "will.txt"
    will.parent.mkdir(parents=True)
    will.write_text("precious")
    refused = run("spark", "spool", "prune", tmp_path, "--older-than", "0s")
    assert (refused.status, will.read_text()) == (1, "precious")
    assert "is no spool folder" in refused.error
