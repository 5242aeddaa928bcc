"""Random scripts, the same ones in every run, and other ones for as long as somebody wants.

    HAREBELL_RANDOM_MINUTES=30 python -m pytest tests/differential/test_random.py -s -k long

plays new scripts for 30 minutes, prints how far it is, and makes a script that shows a difference short.
"""

from __future__ import annotations

import faulthandler
import os
import random
import time
from collections.abc import Callable

import pytest
from hypothesis import Phase, given, seed, settings, strategies as st

from tests.differential.driver import OTHER_TIMES, Peer, Trace, run
from tests.differential.random_scripts import LIFE, QUEUES, Script, scripts
from tests.fixtures.profiles import scaled

Peers = Callable[..., tuple[Peer, Peer]]

MINUTES = float(os.environ.get("HAREBELL_RANDOM_MINUTES", "0"))
BATCH = 40  # scripts of one seed

repeatable = settings(
    derandomize=True,  # the seed is the test: every run plays the same scripts
    database=None,
    phases=(Phase.generate,),  # shrinking would replay for minutes; the script is printed whole
)


@settings(repeatable, max_examples=scaled(60))
@given(scripts(timed=st.just(False)))
def test_scripts(peers: Peers, script: Script) -> None:
    _play(peers, script)


@settings(repeatable, max_examples=scaled(5))
@given(scripts(timed=st.just(True)))
def test_scripts_in_which_time_passes(peers: Peers, script: Script) -> None:
    _play(peers, script)


@pytest.mark.skipif(not MINUTES, reason="set HAREBELL_RANDOM_MINUTES")
def test_long(peers: Peers, capsys: pytest.CaptureFixture[str]) -> None:
    faulthandler.cancel_dump_traceback_later()  # pytest's own, which ends what takes longer than five minutes
    start, played, findings = time.monotonic(), 0, 0
    first = number = int(os.environ.get("HAREBELL_RANDOM_SEED", random.randrange(1_000_000_000)))
    different: list[Script] = []

    def say(text: str) -> None:
        with capsys.disabled():
            minutes = (time.monotonic() - start) / 60
            print(f"\n{minutes:.1f} minutes, {played} scripts, {findings} findings: {text}", flush=True)

    @settings(repeatable, derandomize=False, max_examples=BATCH)
    @given(scripts(timed=st.sampled_from((False,) * 24 + (True,)), most=40))
    def play(script: Script) -> None:
        nonlocal played
        played += 1
        if difference := _compare(peers, script):
            different.append(script)
            say(f"found, before it is made shorter\n{script}\n{difference}")

    while time.monotonic() < start + 60 * MINUTES:
        seed(number)(play)()
        for script in different:
            findings += 1
            shorter = _minimise(peers, script)
            say(f"seed {number}\n{shorter}\n{_compare(peers, shorter, clean=script)}")
        different.clear()
        number += 1
        if (number - first) % 5 == 0:
            say(f"next seed {number}")
    assert not findings


def _minimise(peers: Peers, script: Script) -> Script:
    """Without the steps that it differs without; for a minute at most."""
    end, at, whole = time.monotonic() + 60, len(script.steps), script
    while at and time.monotonic() < end:
        at -= 1
        shorter = Script((*script.steps[:at], *script.steps[at + 1 :]), script.timed)
        if _compare(peers, shorter, agree=0.5, clean=whole):
            script = shorter
    return script


def _play(peers: Peers, script: Script) -> None:
    """A difference is one when it is there again: RabbitMQ's queues are processes of their own."""
    for _ in range(1 + OTHER_TIMES):
        difference = _compare(peers, script)
        if not difference:
            return
    raise AssertionError(difference)


def _compare(peers: Peers, script: Script, agree: float = 5.0, clean: Script | None = None) -> str:
    """What differs, or nothing. Where the script is a part of another one, `clean` is the whole."""
    ours, theirs = peers((clean or script).steps)
    longest = run(script.steps, ours, theirs, agree=agree, watch=QUEUES)
    ours.close()
    theirs.close()
    if script.timed and longest > LIFE / 1000 * 0.8:
        return ""  # a busy machine: nobody knows what should have expired
    return _difference(ours.trace, theirs.trace)


def _difference(ours: Trace, theirs: Trace) -> str:
    lines = []
    for key in sorted({*ours, *theirs}):
        if ours.get(key) != theirs.get(key):
            lines += [f"{key}, Harebell:", *ours.get(key, ()), f"{key}, RabbitMQ:", *theirs.get(key, ())]
    return "\n".join(lines)
