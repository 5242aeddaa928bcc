"""The backend and a worker, on each broker: what is enqueued is run, and its result is what Django's Tasks say."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from asgiref.sync import sync_to_async
from django.core.cache import caches
from django.db import connection, connections, transaction
from django.utils import timezone

from harebell import errors
from harebell.client.blocking import connect
from harebell.django import outbox, publishing, topology
from harebell.django.framework import InvalidTask, base, exceptions, signals, task_backends
from harebell.django.messages import delay_of, message_of
from harebell.django.models import OutboxTask, TaskRecord
from harebell.django.options import Options
from harebell.django.results import CacheResults
from harebell.django.topology import Names
from harebell.django.worker import process
from harebell.django.worker.running import Runner
from harebell.testing import EmbeddedBroker
from tests.django import jobs
from tests.django.conftest import Configure, Worker, finished, wait_for

Work = Callable[..., Worker]
SUCCESSFUL, FAILED, READY = (base.TaskResultStatus[name] for name in ("SUCCESSFUL", "FAILED", "READY"))


@pytest.mark.parametrize("results", ["cache", "database"])
def test_a_task_and_its_result(configure: Configure, work: Work, results: str) -> None:
    backend = configure(results=results)
    result = jobs.add.enqueue(1, two=2)
    assert (result.status, result.attempts, result.args, result.kwargs) == (READY, 0, [1], {"two": 2})
    assert result.enqueued_at is not None
    with pytest.raises(ValueError, match="not finished"):
        result.return_value  # noqa: B018  its refusal is the point
    assert backend.get_result(result.id) == result
    worker = work(backend)
    finished(result)
    assert (result.status, result.return_value, result.errors) == (SUCCESSFUL, 3, [])
    assert result.worker_ids == [worker.process.worker_id]
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
    assert jobs.add.get_result(result.id).return_value == 3
    with pytest.raises(exceptions.TaskResultMismatch):
        jobs.double.get_result(result.id)
    with pytest.raises(exceptions.TaskResultDoesNotExist):
        jobs.add.get_result("none")


async def test_coroutines(configure: Configure, work: Work) -> None:
    backend = configure(results="database")
    work(backend)
    result = await jobs.double.aenqueue("ab")
    async with asyncio.timeout(60):
        while not result.is_finished:
            await asyncio.sleep(0.02)
            await result.arefresh()
    assert result.return_value == "abab"
    assert (await jobs.double.aget_result(result.id)).return_value == "abab"
    await sync_to_async(connections.close_all)()  # as the end of a request does, in the same thread


@pytest.mark.parametrize("job", [jobs.count_in_context, jobs.count_in_context_of_coroutine])
def test_each_task_has_a_context_of_its_own(configure: Configure, job: Any) -> None:
    """A variable that a task sets is no other task's, in the same thread or loop."""
    backend = configure(results="database")
    results = [job.enqueue() for _ in range(3)]

    async def run() -> list[Any]:
        runner = Runner(backend, ThreadPoolExecutor(1), "worker")
        return [await asyncio.create_task(runner.run(result, 1)) for result in results]

    assert [record["return_value"] for record in asyncio.run(run())] == [1, 1, 1]


class _ThreadEach(Executor):
    """Has each call in a thread of its own, and tells which connections to the database it has left open."""

    def __init__(self) -> None:
        self.left: list[Any] = []

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **kwargs: Any) -> Future[Any]:
        def run() -> Any:
            try:
                return function(*arguments, **kwargs)
            finally:
                if connection.connection is not None:
                    self.left.append(function)
                connection.close()

        threads = ThreadPoolExecutor(1)
        call = threads.submit(run)
        threads.shutdown(wait=False)
        return call


@pytest.mark.parametrize("job", [jobs.add, jobs.double, jobs.fail], ids=["function", "coroutine", "failure"])
def test_no_thread_keeps_a_connection_to_the_database(configure: Configure, job: Any) -> None:
    """The steps of a task are calls in whichever thread is free: what one of them opened, none may come back to."""
    backend = configure(results="database")
    threads = _ThreadEach()
    result = job.enqueue(*{jobs.add: (1, 2), jobs.double: ("ab",), jobs.fail: (3,)}[job])
    asyncio.run(Runner(backend, threads, "worker").run(result, 1))
    assert threads.left == []


@pytest.mark.parametrize("broken", [jobs.break_database, jobs.break_database_in_coroutine])
def test_a_connection_to_the_database_that_a_task_has_broken(configure: Configure, work: Work, broken: Any) -> None:
    """No task after it meets it."""
    work(configure(results="cache"), concurrency=1)
    results = [task.enqueue() for task in (jobs.count_records, broken, jobs.count_records, jobs.count_in_thread)]
    assert [finished(result).status for result in results] == [SUCCESSFUL] * len(results)


@pytest.mark.parametrize("fails", [True, False])
def test_no_coroutine_leaves_a_connection_to_the_database(configure: Configure, work: Work, fails: bool) -> None:
    work(configure(results="cache"))
    jobs.order.clear()
    results = [jobs.look_into_database.enqueue(fails) for _ in range(2)]
    assert {finished(result).status for result in results} == {FAILED if fails else SUCCESSFUL}
    assert [known.connection for known in jobs.order] == [None, None]
    assert jobs.order[0] is not jobs.order[1]


def test_without_results(configure: Configure, work: Work) -> None:
    backend = configure(results=None)
    assert not backend.supports_get_result
    jobs.order.clear()
    work(backend)
    result = jobs.note.enqueue("x")
    with pytest.raises(NotImplementedError):
        result.refresh()
    wait_for(lambda: jobs.order == ["x"])


def test_what_fails_is_tried_again_and_then_set_aside(configure: Configure, work: Work, broker_url: str) -> None:
    backend = configure(attempts=3, backoff=0.1)
    worker = work(backend)
    good, bad = jobs.fail.enqueue(2), jobs.fail.enqueue(9)
    assert (finished(good).return_value, good.attempts) == ("after 3", 3)
    assert [error.exception_class for error in good.errors] == [ValueError] * 2
    finished(bad)
    assert (bad.status, bad.attempts, len(bad.errors)) == (FAILED, 3, 3)
    assert "attempt 3" in bad.errors[-1].traceback
    with pytest.raises(ValueError, match="failed"):
        bad.return_value  # noqa: B018
    wait_for(lambda: worker.process.counts["failed"] == 1)
    with connect(broker_url) as connection, connection.channel() as channel:
        dead = channel.get(Names(backend.settings.prefix).dead, no_ack=True)
    assert dead is not None
    assert dead.properties.message_id == bad.id
    assert dead.headers["x-error"] == "builtins.ValueError"


def test_what_a_task_changes_in_its_arguments_is_forgotten(configure: Configure, work: Work) -> None:
    """It is told, its next attempt is given, and its result shows what was enqueued."""
    work(configure(attempts=2, backoff=0.1))
    result = finished(jobs.change.enqueue(["a"], options={"list": []}))
    assert result.status == SUCCESSFUL
    assert result.return_value == [["a"], [], 2, 1]
    assert (result.args, result.kwargs, result.attempts) == ([["a"]], {"options": {"list": []}}, 2)
    result = finished(jobs.change_in_coroutine.enqueue([], {}))
    assert (result.status, result.args, result.attempts) == (SUCCESSFUL, [[], {}], 1)


def test_whatever_a_task_raises_or_returns(configure: Configure, work: Work) -> None:
    backend = configure(attempts=2, backoff=0.1)
    work(backend)
    left, odd = jobs.leave.enqueue(), jobs.no_json.enqueue()
    assert finished(left).errors[0].exception_class is SystemExit
    assert left.attempts == 1  # it wants to end: it is not tried again
    assert finished(odd).errors[-1].exception_class is TypeError


@pytest.mark.parametrize(
    ("task", "error"), [(jobs.exhaust, StopIteration), (jobs.await_cancelled, asyncio.CancelledError)]
)
def test_errors_that_asyncio_gives_a_meaning_of_its_own(
    configure: Configure, work: Work, task: Any, error: type[BaseException]
) -> None:
    """A task that raises them has failed, and its slot is free again."""
    backend = configure(attempts=2, backoff=0.1)
    work(backend, concurrency=1)
    failed = finished(task.enqueue())
    assert [each.exception_class for each in failed.errors] == [error] * 2
    assert finished(jobs.add.enqueue(1, 2)).return_value == 3


def test_priorities_and_queues(configure: Configure, work: Work) -> None:
    backend = configure()
    jobs.order.clear()
    for priority in (0, -100, 100, 50, -50):
        jobs.note.using(priority=priority).enqueue(priority)
    last = jobs.note.using(priority=-100, queue_name="other").enqueue("other")
    with pytest.raises(InvalidTask, match="nowhere"):
        jobs.note.using(queue_name="nowhere")
    work(backend, concurrency=1, prefetch=0)
    finished(last)
    wait_for(lambda: len(jobs.order) == 6)
    assert [what for what in jobs.order if what != "other"] == [100, 50, 0, -50, -100]


def test_a_task_that_is_due_later(configure: Configure, work: Work) -> None:
    backend = configure(queues=("default", "with.dots"))
    work(backend)
    early, late = timezone.now() + timedelta(seconds=0.7), timezone.now() + timedelta(seconds=1.4)
    later = jobs.note.using(run_after=late, queue_name="with.dots").enqueue("late")
    sooner = jobs.note.using(run_after=early).enqueue("early")
    past = jobs.note.using(run_after=timezone.now() - timedelta(days=1)).enqueue("past")
    assert finished(past).status == SUCCESSFUL
    assert finished(sooner).return_value >= early.timestamp()
    assert finished(later).return_value >= late.timestamp()


@pytest.mark.parametrize("enqueue", ["commit", "now", "outbox"])
@pytest.mark.parametrize("with_zone", [True, False])
@pytest.mark.parametrize("use_tz", [True, False])
def test_a_time_with_a_zone_and_without(
    configure: Configure, work: Work, use_tz: bool, with_zone: bool, enqueue: str
) -> None:
    """With USE_TZ=False both are taken; with USE_TZ=True Django takes no time without a zone."""
    from django.test import override_settings

    with override_settings(USE_TZ=use_tz):
        work(configure(enqueue=enqueue, results="database"))
        due = datetime.now(UTC if with_zone else None) + timedelta(seconds=0.3)
        if use_tz and not with_zone:
            with pytest.raises(InvalidTask):
                jobs.note.using(run_after=due)
            return
        result = finished(jobs.note.using(run_after=due).enqueue("x"))
        assert result.return_value >= due.timestamp()
        assert finished(jobs.note.using(run_after=due).enqueue("late")).return_value >= result.return_value


def test_the_seconds_until_a_task_is_due_when_clocks_change_in_between() -> None:
    """Two hours by the clock, one by the sun."""
    zone = ZoneInfo("Europe/Berlin")
    spring = datetime(time.gmtime().tm_year + 1, 3, 25, tzinfo=zone)
    sunday = spring + timedelta(days=6 - spring.weekday())  # the last one in March
    before, after = (sunday.replace(hour=hour, minute=30) for hour in (1, 3))
    seconds = [delay_of({"run_after": each.isoformat()}) for each in (before, after)]
    assert round(seconds[1] - seconds[0]) == 3600


@pytest.mark.parametrize(("missing", "delay"), [("binding", 0.0), ("exchange", 0.0), ("exchange", 0.5)])
def test_a_task_that_reaches_no_queue_is_published_again(
    configure: Configure, broker_url: str, monkeypatch: pytest.MonkeyPatch, delay: float, missing: str
) -> None:
    """Somebody has deleted what leads to the queue, or the broker does not route by it yet.

    RabbitMQ answers the declaration of what another process declares at that time before it routes by it; the
    declarations that are answered and do nothing stand for these.
    """
    monkeypatch.setattr(topology, "RUNGS", 2)
    backend = configure()
    names, publisher = Names(backend.settings.prefix), backend.publisher
    publisher.publish(backend_record(backend))
    publisher._run(connected(publisher).declare("default", delayed=True))
    exchange = names.exchange
    if delay:
        exchange = names.delayed if is_harebell(backend) else names.rung(1)
    with connect(broker_url) as amqp, amqp.channel() as channel:
        if missing == "exchange":
            channel.exchange_delete(exchange)
        elif not delay:
            channel.queue_unbind(names.queue("default"), exchange, "default")
        early = answered_early(monkeypatch, 2)
        publisher.publish(backend_record(backend), delay=delay)
        if not delay and missing == "binding":
            assert early["declare_queue"] == 3
        wait_for(lambda: channel.message_count(names.queue("default")) == 2)


@pytest.mark.parametrize(
    "missing", ["queue", "binding, at once", "rung", "binding of rung", "way down", "binding, not at once"]
)
def test_a_task_that_is_due_and_reaches_no_queue_is_kept(
    configure: Configure, work: Work, broker_url: str, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """Somebody has deleted what leads to its queue. Deleted before the task is published, because a machine under load
    could be later than the task: its publisher knows that all was there."""
    monkeypatch.setattr(topology, "RUNGS", 3)
    monkeypatch.setattr(topology, "RUNG_MS", 50)
    backend = configure()
    names, publisher = Names(backend.settings.prefix), backend.publisher
    publisher.publish(backend_record(backend))
    publisher._run(connected(publisher).declare("default", delayed=True))
    if is_harebell(backend) and missing in ("rung", "binding of rung", "way down"):
        pytest.skip("Harebell's delayed exchange has no rungs")
    delay = 0.2 if missing == "way down" else 0.25  # in binary digits 100 and 101: the last rung is passed by, or not
    with connect(broker_url) as amqp, amqp.channel() as channel:
        if missing == "queue":
            channel.queue_delete(names.queue("default"))
        elif missing.startswith("binding,") and is_harebell(backend):
            channel.queue_unbind(names.queue("default"), names.delayed, "default")
        elif missing.startswith("binding,"):
            channel.queue_unbind(names.queue("default"), names.due, "*.*.*.default")
        elif missing == "rung":
            channel.queue_delete(names.rung(0))
        elif missing == "binding of rung":
            channel.queue_unbind(names.rung(0), names.rung(0), topology._patterns(0)[0])
        else:
            channel.exchange_unbind(names.due, names.rung(0), topology._patterns(0)[1])
        record, due = {**backend_record(backend), "id": uuid.uuid4().hex}, time.time() + delay
        publisher.publish(record, delay=delay)
        wait_for(lambda: channel.message_count(names.unrouted) == 1)
    if missing == "binding, not at once":  # by which RabbitMQ does not route yet
        monkeypatch.setattr(publishing, "FORGET_SECONDS", 0.05)
        answered_early(monkeypatch, 1)
    worker = work(backend)
    wait_for(lambda: worker.process.counts["published again"] >= 1)
    wait_for(lambda: (backend.results.get(record["id"]) or {}).get("status") == "SUCCESSFUL")
    assert backend.results.get(record["id"])["return_value"] >= due


def test_a_queue_that_is_deleted_below_its_worker(configure: Configure, work: Work, broker_url: str) -> None:
    backend = configure(queues=("default",))
    names, worker = Names(backend.settings.prefix), work(backend)
    finished(jobs.add.enqueue(1, 2))
    with connect(broker_url) as amqp, amqp.channel() as channel:
        for queue in (names.queue("default"), names.unrouted):
            channel.queue_delete(queue)
        finished(jobs.add.enqueue(3, 4))
        channel.publish(message_of(backend_record(backend), backend.settings), names.unrouted)
    wait_for(lambda: worker.process.counts["published again"] == 1)
    wait_for(lambda: worker.process.counts["succeeded"] == 3)


def answered_early(monkeypatch: pytest.MonkeyPatch, times: int) -> Counter[str]:
    """The number of declarations from now on, the first of which do nothing."""
    count: Counter[str] = Counter()
    for name in ("declare_queue", "declare_delays", "bind_delayed"):

        async def declare(*arguments: Any, name: str = name, real: Any = topology.__dict__[name]) -> None:
            count[name] += 1
            if count[name] > times:
                await real(*arguments)

        monkeypatch.setattr(topology, name, declare)
    return count


def test_a_task_that_reaches_no_queue_in_time_is_an_error(
    configure: Configure, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = configure()
    backend.publisher.publish(backend_record(backend))
    names, broker = Names(backend.settings.prefix), connected(backend.publisher)
    broker.options = replace(broker.options, timeout=0.2)
    with connect(broker_url) as amqp, amqp.channel() as channel:
        channel.queue_unbind(names.queue("default"), names.exchange, "default")
    early = answered_early(monkeypatch, 1000)
    with pytest.raises(errors.Unroutable):
        jobs.add.enqueue(1, 2)
    assert early["declare_queue"] >= 1


def test_a_dead_task_whose_queue_was_deleted(configure: Configure, work: Work, broker_url: str) -> None:
    backend = configure()
    worker = work(backend)
    dead = Names(backend.settings.prefix).dead
    finished(jobs.fail.enqueue(9))
    wait_for(lambda: worker.process.counts["failed"] == 1)
    with connect(broker_url) as amqp, amqp.channel() as channel:
        wait_for(lambda: channel.message_count(dead) == 1)
        channel.queue_delete(dead)
        finished(jobs.fail.enqueue(9))
        wait_for(lambda: worker.process.counts["failed"] == 2 and not worker.process.running)
        assert channel.message_count(dead) == 1


def test_a_task_that_comes_too_early_waits_again(configure: Configure, work: Work) -> None:
    """As one whose delay is longer than what keeps messages."""
    backend = configure()
    work(backend)
    due = timezone.now() + timedelta(seconds=1.2)
    result = jobs.note.using(run_after=due).enqueue("x")
    backend.publisher.publish({**backend.results.get(result.id), "id": "early"}, delay=0)
    assert finished(result).return_value >= due.timestamp()
    wait_for(lambda: (backend.results.get("early") or {}).get("status") == "SUCCESSFUL")
    assert backend.results.get("early")["return_value"] >= due.timestamp()


def test_tasks_of_a_transaction(configure: Configure, work: Work) -> None:
    backend = configure()
    work(backend)
    jobs.order.clear()
    with transaction.atomic():
        result = jobs.note.enqueue("committed")
        assert result.enqueued_at is None
        time.sleep(0.2)
        assert jobs.order == []
    finished(result)
    with pytest.raises(RuntimeError), transaction.atomic():
        jobs.note.enqueue("rolled back")
        raise RuntimeError
    assert finished(jobs.note.enqueue("after")).status == SUCCESSFUL
    assert jobs.order == ["committed", "after"]


@pytest.mark.parametrize(
    ("failing", "attempts", "failed"),
    [
        ({0: errors.ConnectionLost}, 1, {0, 1, 2}),
        ({0: errors.DeadlineExceeded}, 1, {0, 1, 2}),
        ({1: errors.ConnectionLost}, 2, {1, 2}),
        ({0: errors.LocalProtocolError}, 3, {0}),
        ({}, 3, set()),
    ],
)
def test_each_task_of_a_transaction_is_published_or_has_failed(
    configure: Configure,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failing: dict[int, type[errors.HarebellError]],
    attempts: int,
    failed: set[int],
) -> None:
    """The transaction is committed whatever becomes of them: the hooks of others run, and one wait is enough."""
    backend = configure(results="database")
    tried: list[int] = []

    def publish(self: Any, record: dict[str, Any], delay: float) -> None:
        tried.append(record["args"][0])
        if tried[-1] in failing:
            raise failing[tried[-1]]("as a test has it")

    monkeypatch.setattr(publishing.Publisher, "publish", publish)
    hooks: list[str] = []
    with transaction.atomic():
        results = [jobs.note.enqueue(number) for number in range(2)]
        with pytest.raises(RuntimeError), transaction.atomic():
            jobs.note.enqueue("rolled back")
            raise RuntimeError
        results.append(jobs.note.enqueue(2))
        transaction.on_commit(lambda: hooks.append("of another program"))
    assert hooks == ["of another program"]
    assert tried == list(range(attempts))
    assert {number for number, result in enumerate(results) if result.status == FAILED} == failed
    for result in results:
        assert backend.get_result(result.id).status == result.status
    told = [record.message for record in caplog.records if "enqueue it again" in record.message]
    assert [results[number].id in text for number, text in zip(sorted(failed), told, strict=True)] == [True] * len(
        failed
    )
    with transaction.atomic():
        jobs.note.enqueue(3)
    assert tried[-1] == 3  # the broker may be there again


def test_the_outbox(configure: Configure, work: Work) -> None:
    backend = configure(enqueue="outbox", results="database")
    jobs.order.clear()
    with pytest.raises(RuntimeError), transaction.atomic():
        jobs.note.enqueue("rolled back")
        raise RuntimeError
    with transaction.atomic():
        result = jobs.note.enqueue("committed")
        assert OutboxTask.objects.count() == 1
    assert OutboxTask.objects.count() == 0  # published after the commit
    work(backend)
    finished(result)
    assert jobs.order == ["committed"]


def test_the_outbox_without_a_broker(configure: Configure, work: Work) -> None:
    """The row stays, and a worker publishes it."""
    backend = configure(enqueue="outbox", results="database", url="amqp://127.0.0.1:9/", timeout=0.3)
    prefix = backend.settings.prefix
    result = jobs.note.enqueue("kept")
    assert OutboxTask.objects.count() == 1
    backend = configure(enqueue="outbox", results="database", prefix=prefix)
    work(backend)
    assert finished(result).status == SUCCESSFUL
    wait_for(lambda: OutboxTask.objects.count() == 0)


def test_a_task_of_the_outbox_that_can_never_be_published(configure: Configure, work: Work) -> None:
    """Its result says why, its row is kept for whoever looks after it, and those behind it go on."""
    backend = configure(enqueue="outbox", results="database", queues=("default", "q" * 250))
    with transaction.atomic():
        bad = jobs.note.using(queue_name="q" * 250).enqueue("bad")
        good = jobs.note.enqueue("good")
    bad.refresh()
    assert (bad.status, bad.errors[0].exception_class) == (FAILED, errors.LocalProtocolError)
    row = OutboxTask.objects.get()
    assert row.error == bad.errors[0].traceback
    assert backend.relay_outbox() == 0
    work(configure(prefix=backend.settings.prefix, results="database"))
    assert finished(good).status == SUCCESSFUL
    row.delete()


def test_the_outbox_is_kept_while_the_broker_refuses_the_connection(configure: Configure, broker_url: str) -> None:
    """As with a password that was changed: it is not the fault of the tasks."""
    user = broker_url.partition("://")[2].partition("@")[0]
    configure(enqueue="outbox", results="database", url=broker_url.replace(user, "guest:wrong"), timeout=5)
    result = jobs.note.enqueue("kept")
    result.refresh()
    assert result.status == READY
    row = OutboxTask.objects.get()
    assert row.error == ""
    row.delete()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no server that ends connections")
def test_a_worker_outlives_its_connections_to_the_database(
    configure: Configure, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server restarts while the worker has nothing to do but to look into the outbox."""
    monkeypatch.setattr("harebell.django.worker.process.RELAY_SECONDS", 0.02)
    backend = configure(enqueue="outbox", results="database")
    work(backend, concurrency=1)
    finished(jobs.add.enqueue(1, 2))
    with connection.cursor() as cursor:
        for _ in range(20):
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            time.sleep(0.02)
    outbox.store(backend_record(backend))
    wait_for(lambda: OutboxTask.objects.count() == 0)


def test_what_is_relayed_twice_is_run_once(configure: Configure, work: Work) -> None:
    """A process died between the confirm and the deletion of its row."""
    backend = configure(enqueue="outbox", results="database")
    jobs.order.clear()
    published: list[Any] = []

    def publish(record: dict[str, Any], delay: float) -> None:
        backend.publisher.publish(record, delay=delay)
        published.append(record)
        if len(published) == 1:
            raise errors.ConnectionLost("killed")

    outbox.store(backend_record(backend))
    with pytest.raises(errors.ConnectionLost):
        outbox.relay("default", publish, backend._refused, 1)
    assert outbox.relay("default", publish, backend._refused, 1) == 1
    assert len(published) == 2
    work(backend, concurrency=1)
    after = jobs.note.enqueue("after")
    finished(after)
    assert jobs.order.count("twice") == (1 if is_harebell(backend) else 2)


@pytest.mark.parametrize("in_transaction", [True, False])
def test_nothing_waits_for_the_database_while_the_outbox_waits_for_the_broker(
    configure: Configure, monkeypatch: pytest.MonkeyPatch, in_transaction: bool
) -> None:
    """Others write, and publish their own tasks; what one process publishes, no other does."""
    configure(enqueue="outbox", results="database")
    waits, answers, published = threading.Event(), threading.Event(), Counter[str]()

    def publish(self: Any, record: dict[str, Any], delay: float) -> None:
        (what,) = record["args"]
        if what == "first":
            waits.set()
            assert answers.wait(60)
        published[what] += 1

    monkeypatch.setattr(publishing.Publisher, "publish", publish)
    failures: list[BaseException] = []

    def enqueue(*what: str) -> None:
        try:
            with transaction.atomic() if in_transaction else nullcontext():
                for each in what:
                    jobs.note.enqueue(each)
        except BaseException as error:
            failures.append(error)
        finally:
            connections.close_all()

    first = threading.Thread(target=enqueue, args=("first", "behind it"))
    first.start()
    try:
        assert waits.wait(60)
        others = [threading.Thread(target=enqueue, args=(f"other {number}",)) for number in range(3)]
        for thread in others:
            thread.start()
        for thread in others:
            thread.join(20)
            assert not thread.is_alive()
        assert published == {f"other {number}": 1 for number in range(3)}
    finally:
        answers.set()
        first.join(60)
    assert failures == []
    assert set(published.values()) == {1}
    assert published.total() == 5
    assert OutboxTask.objects.count() == 0


def test_the_outbox_waits_once_for_each_commit(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(enqueue="outbox", results="database")
    tried: list[Any] = []

    def publish(self: Any, record: dict[str, Any], delay: float) -> None:
        tried.append(record["args"])
        raise errors.ConnectionLost("as a test has it")

    monkeypatch.setattr(publishing.Publisher, "publish", publish)
    for commits in (1, 2):
        with transaction.atomic():
            for number in range(3):
                jobs.note.enqueue(number)
        assert tried == [[0]] * commits
    assert OutboxTask.objects.filter(error="", claimed_until=0).count() == 6  # a worker has them at once
    OutboxTask.objects.all().delete()


@pytest.mark.parametrize("seconds", [-1, 60])
def test_what_a_killed_process_has_claimed(configure: Configure, seconds: float) -> None:
    """Nobody publishes it before the claim ends."""
    backend = configure(enqueue="outbox", results="database")
    outbox.store(backend_record(backend))
    OutboxTask.objects.update(claimed_by="a process", claimed_until=time.time() + seconds)
    assert backend.relay_outbox() == (seconds < 0)
    OutboxTask.objects.all().delete()


@pytest.mark.parametrize(("at_once", "seconds"), [(1, 60), (2, 60), (3, 60), (100, 60), (100, -1)])
def test_an_outbox_of_several_claims(
    configure: Configure, monkeypatch: pytest.MonkeyPatch, at_once: int, seconds: float
) -> None:
    """Each task is published once, in the order of the rows; a claim that gets old is made anew."""
    monkeypatch.setattr(outbox, "AT_ONCE", at_once)
    monkeypatch.setattr(outbox, "CLAIM_SECONDS", seconds)
    backend, published = configure(enqueue="outbox", results="database"), list[str]()
    records = [backend_record(backend) for _ in range(5)]
    for record in records:
        outbox.store(record)
    refused = records[1]["id"]

    def publish(record: dict[str, Any], delay: float) -> None:
        published.append(record["id"])
        if record["id"] == refused:
            raise errors.LocalProtocolError("as a test has it")

    assert outbox.relay("default", publish, lambda record, error: True, 1) == 4
    assert published == [record["id"] for record in records]
    assert OutboxTask.objects.get().error == "as a test has it"
    OutboxTask.objects.all().delete()


def backend_record(backend: Any) -> dict[str, Any]:
    from harebell.django.messages import record_of

    return record_of(backend._new(jobs.note, ("twice",), {}))


def is_harebell(backend: Any) -> bool:
    return connected(backend.publisher).product == "Harebell"


def connected(publisher: publishing.Publisher) -> publishing.Broker:
    return publisher._run(publisher._connected())


def test_a_broker_that_is_away(configure: Configure) -> None:
    configure(url="amqp://127.0.0.1:9/", timeout=0.3)
    for _ in range(2):
        with pytest.raises(errors.ConnectionLost):
            jobs.add.enqueue(1, 2)
    (record,) = [None]
    assert record is None


def test_a_task_that_cannot_be_enqueued_is_not_waited_for(configure: Configure) -> None:
    configure(url="amqp://127.0.0.1:9/", timeout=0.3, results="database")
    TaskRecord.objects.all().delete()
    with pytest.raises(errors.ConnectionLost):
        jobs.add.enqueue(1, 2)
    assert [record.status for record in TaskRecord.objects.all()] == ["FAILED"]


@pytest.mark.parametrize(
    ("status", "due", "failures", "longer"),
    [
        ("READY", None, 0, 0),
        ("READY", -1000, 0, 0),
        ("READY", 1000, 0, 1000),
        ("READY", None, 1, 10),
        ("READY", -1000, 3, 40),
        ("READY", None, 1000, 3600),
        ("RUNNING", None, 2, 20),
        ("SUCCESSFUL", 1000, 2, 0),
        ("FAILED", -1000, 2, 0),
    ],
)
def test_a_result_in_a_cache_outlives_the_wait_of_its_task(
    monkeypatch: pytest.MonkeyPatch, status: str, due: int | None, failures: int, longer: int
) -> None:
    kept: list[float] = []
    monkeypatch.setattr(caches["default"], "set", lambda key, text, seconds: kept.append(seconds))
    run_after = None if due is None else (timezone.now() + timedelta(seconds=due)).isoformat()
    record = {"id": "x", "status": status, "run_after": run_after, "errors": [["builtins.ValueError", ""]] * failures}
    CacheResults(Options(result_ttl=60)).save(record)
    assert kept == [pytest.approx(60 + longer, abs=5)]


def test_old_results_are_deleted(configure: Configure, work: Work) -> None:
    backend = configure(results="database", result_ttl=0.2)
    result = jobs.add.enqueue(1, 2)
    work(backend)
    wait_for(lambda: TaskRecord.objects.filter(id=result.id, finished=True).exists())
    time.sleep(0.3)
    assert backend.results.clean() >= 1
    assert not TaskRecord.objects.filter(id=result.id).exists()


def test_messages_that_are_no_tasks(configure: Configure, work: Work, broker_url: str) -> None:
    backend = configure()
    worker = work(backend)
    finished(jobs.add.enqueue(1, 2))
    gone = {**backend_record(backend), "task": "tests.django.jobs.gone"}
    no_task = {**backend_record(backend), "task": "tests.django.jobs.threading"}
    for record in (gone, no_task):
        backend.publisher.publish(record)
    with connect(broker_url) as amqp, amqp.channel() as channel:
        for body in (b"\xff", b"[]", b'{"id": 1}', b"{}"):
            channel.publish(body, "", Names(backend.settings.prefix).queue("default"))
    wait_for(lambda: worker.process.counts["unreadable"] == 6)
    assert finished(jobs.add.enqueue(3, 4)).return_value == 7
    assert backend.results.get(gone["id"])["status"] == "FAILED"
    with connect(broker_url) as amqp, amqp.channel() as channel:
        assert channel.message_count(Names(backend.settings.prefix).dead) == 6


def test_signals(configure: Configure, work: Work) -> None:
    backend = configure()
    told: list[tuple[str, str]] = []
    receivers = {}
    for name in ("task_enqueued", "task_started", "task_finished"):

        def receive(sender: Any, task_result: Any, name: str = name, **kwargs: Any) -> None:
            assert sender is type(backend)
            told.append((name, str(task_result.status.value)))

        receivers[name] = receive
        getattr(signals, name).connect(receive)
    try:
        work(backend)
        finished(jobs.add.enqueue(1, 2))
        wait_for(lambda: len(told) == 3)
    finally:
        for name, receive in receivers.items():
            getattr(signals, name).disconnect(receive)
    assert sorted(told) == [("task_enqueued", "READY"), ("task_finished", "SUCCESSFUL"), ("task_started", "RUNNING")]


@pytest.mark.parametrize("name", ["task_started", "task_finished"])
def test_a_receiver_that_raises(configure: Configure, work: Work, name: str) -> None:
    """Its mistake is logged, and the task is not run again."""
    backend = configure(results=None)
    jobs.order.clear()

    def receive(**kwargs: Any) -> None:
        raise ValueError("a mistake of the receiver")

    getattr(signals, name).connect(receive)
    try:
        worker = work(backend, concurrency=1)
        jobs.note.enqueue("one")
        wait_for(lambda: worker.process.counts["succeeded"] == 1)
        jobs.note.enqueue("two")
        wait_for(lambda: worker.process.counts["succeeded"] == 2)
    finally:
        getattr(signals, name).disconnect(receive)
    assert jobs.order == ["one", "two"]


def test_a_stop_gives_back_what_waits_for_a_free_slot(configure: Configure, broker_url: str) -> None:
    """While a task runs that takes long: another worker can run what is given back."""
    backend = configure(queues=("default",))
    jobs.gate.clear()
    worker = Worker(backend, concurrency=1, prefetch=3)
    try:
        running = jobs.wait.enqueue()
        wait_for(lambda: worker.process.running == 1)
        for number in range(2):
            jobs.add.enqueue(number, 0)
        with connect(broker_url) as amqp, amqp.channel() as channel:
            queue = Names(backend.settings.prefix).queue("default")
            wait_for(lambda: channel.message_count(queue) == 0)
            worker.begin_stop()
            wait_for(lambda: channel.message_count(queue) == 2)
    finally:
        jobs.gate.set()
        worker.stop()
    assert finished(running).return_value is True


def test_the_outbox_while_tasks_have_all_threads(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harebell.django.worker.process.RELAY_SECONDS", 0.05)
    backend = configure(enqueue="outbox", results="database")
    jobs.begun.clear()
    jobs.gate.clear()
    worker = Worker(backend, concurrency=1)
    try:
        jobs.wait.enqueue()
        assert jobs.begun.wait(60)
        outbox.store(backend_record(backend))
        wait_for(lambda: OutboxTask.objects.count() == 0)
    finally:
        jobs.gate.set()
        worker.stop()


@pytest.mark.parametrize("broker_url", ["harebell"], indirect=True)
@pytest.mark.parametrize("part", ["_relay", "_keep_deliveries", "_read_unrouted", "_read_queue"])
def test_a_worker_ends_with_the_error_of_any_of_its_parts(
    configure: Configure, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    async def fail(*_: Any) -> None:
        raise LookupError(part)

    monkeypatch.setattr(process.WorkerProcess, part, fail)
    backend = configure(queues=("default",), results="database")

    async def run() -> None:
        async with asyncio.timeout(60):
            await process.WorkerProcess(backend, ["default"], 1, 1).run()

    with pytest.raises(LookupError, match=part):
        asyncio.run(run())


@pytest.mark.parametrize("broker_url", ["harebell"], indirect=True)
@pytest.mark.parametrize("stopping", [False, True])
def test_a_task_that_takes_longer_than_the_consumer_timeout(
    configure: Configure, work: Work, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stopping: bool
) -> None:
    """Neither it nor what the worker has fetched in advance goes to another worker meanwhile."""
    asked: list[Any] = []
    started: Counter[str] = Counter()

    def receive(task_result: Any, **_: Any) -> None:
        started[task_result.id] += 1

    async def lease_all(channel: Any, real: Any = process._lease_all) -> None:
        await real(channel)
        asked.append(channel)

    monkeypatch.setattr(process, "LEASE_SECONDS", 0.02)
    monkeypatch.setattr(process, "_lease_all", lease_all)
    jobs.order.clear()
    jobs.begun.clear()
    jobs.gate.clear()
    signals.task_started.connect(receive)
    with EmbeddedBroker() as broker:
        backend = configure(url=broker.url, queues=("default",), results="database")
        worker = Worker(backend, concurrency=1, prefetch=1)
        try:
            results = [jobs.wait.enqueue(), jobs.note.enqueue("in advance")]
            assert jobs.begun.wait(60)
            if stopping:
                worker.begin_stop()
            work(backend)
            other = connect(broker.url)
            channel = other.channel()
            channel.queue_declare("other")
            channel.publish(b"", "", "other")
            with channel.consume("other") as deliveries:
                next(deliveries)
                before = len(asked)
                wait_for(lambda: len(asked) >= before + 4)  # each channel has asked for what it has now
                broker.run(lambda known: known.set_limits(replace(known.node.limits, consumer_timeout=0.5)))
                with pytest.raises(errors.ConsumerCancelled):  # what is younger than the task is overdue
                    next(deliveries)
            other.close()
            finished(jobs.note.enqueue("by the other worker"))  # which has taken by now what went back
            jobs.gate.set()
            assert [(finished(result).status, started[result.id]) for result in results] == [(SUCCESSFUL, 1)] * 2
            assert "consumes from it again" not in caplog.text
        finally:
            signals.task_started.disconnect(receive)
            jobs.gate.set()
            worker.stop()
        backend.close()


@pytest.mark.parametrize("results", ["cache", "database"])
def test_an_attempt_that_was_killed_is_remembered(
    configure: Configure, work: Work, broker_url: str, results: str
) -> None:
    """The result shows the worker of each attempt, the errors of those that ended, and when the first one began."""
    backend = configure(results=results, queues=("default",))
    result = jobs.fail.enqueue(2)
    began = timezone.now() - timedelta(hours=1)
    known = backend.results.get(result.id)
    killed = {"status": "RUNNING", "worker_ids": ["a", "b"], "errors": [["builtins.ValueError", "of a"]]}
    backend.results.save({**known, **killed, "started_at": began.isoformat()})
    with connect(broker_url) as amqp, amqp.channel() as channel:
        wait_for(lambda: channel.message_count(Names(backend.settings.prefix).queue("default")) == 1)
        delivery = channel.get(Names(backend.settings.prefix).queue("default"))
        assert delivery is not None
        delivery.nack(requeue=True)
    worker = work(backend)
    assert finished(result).return_value == "after 3"
    assert result.worker_ids == ["a", "b", worker.process.worker_id]
    assert [error.traceback for error in result.errors] == ["of a"]
    assert result.started_at == began < result.last_attempted_at


@pytest.mark.parametrize("broker_url", ["harebell"], indirect=True)
def test_a_worker_whose_user_may_ask_for_no_more_time(
    configure: Configure, work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker() as broker:
        broker.run(lambda known: known.set_permissions("guest", ".*", "tasks.*|amq.default", ".*"))
        backend = configure(url=broker.url, prefix="tasks")
        worker = work(backend)
        assert finished(jobs.add.enqueue(1, 2)).return_value == 3
        wait_for(lambda: "write to the exchange amq.system" in caplog.text)
        worker.stop()
        backend.close()


def test_a_stop_drains(configure: Configure, broker_url: str) -> None:
    """What runs is finished, what was fetched in advance goes back."""
    backend = configure()
    jobs.gate.clear()
    worker = Worker(backend, concurrency=1, prefetch=3)
    running = jobs.wait.enqueue()
    waiting = [jobs.add.enqueue(number, 0) for number in range(3)]
    wait_for(lambda: worker.process.running == 1)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    with connect(broker_url) as client, client.channel() as channel:
        queue = Names(backend.settings.prefix).queue("default")
        wait_for(lambda: channel.message_count(queue) == len(waiting))  # while the first one runs
    assert stopping.is_alive()
    jobs.gate.set()
    stopping.join(60)
    assert finished(running).return_value is True
    for result in waiting:
        result.refresh()
    assert {result.status for result in waiting} == {READY}
    other = Worker(backend)
    assert [finished(result).return_value for result in waiting] == [0, 1, 2]
    other.stop()


def test_embedded() -> None:
    """Tasks run in this process, with no broker and no worker to start."""
    from django.test import override_settings

    params = {"BACKEND": "harebell.django.TaskBackend", "OPTIONS": {"url": "embedded://", "results": "database"}}
    with override_settings(TASKS={"default": params}):
        assert finished(jobs.add.enqueue(20, 22)).return_value == 42
        task_backends["default"].close()


@pytest.mark.parametrize("broker", ["embedded", "outside"])
def test_backends_with_the_same_prefix(configure: Configure, work: Work, broker: str) -> None:
    """They share their queues; the worker of one runs the tasks of the other as that one's options say."""
    from django.test import override_settings

    backend = configure(results="cache", **({"url": "embedded://"} if broker == "embedded" else {}))
    here = {"BACKEND": "harebell.django.TaskBackend", "QUEUES": list(backend.queues)}
    options = {"url": backend.settings.url, "prefix": backend.settings.prefix, "results": "cache"}
    audit = {**options, "results": "database", "attempts": 2, "backoff": 0.1}
    with override_settings(TASKS={"default": {**here, "OPTIONS": options}, "audit": {**here, "OPTIONS": audit}}):
        if broker == "outside":
            work(task_backends["default"])
        assert finished(jobs.add.enqueue(1, 2)).return_value == 3
        assert finished(jobs.fail.using(backend="audit").enqueue(1)).return_value == "after 2"
        assert task_backends["default"].results.get(TaskRecord.objects.latest("changed_at").id) is None
        task_backends["default"].close()
        task_backends["audit"].close()


def test_a_second_configuration_of_embedded() -> None:
    """As with override_settings in the tests of a program."""
    from django.test import override_settings

    for results in ("cache", "database"):
        options = {"url": "embedded://", "prefix": "second", "results": results}
        with override_settings(TASKS={"default": {"BACKEND": "harebell.django.TaskBackend", "OPTIONS": options}}):
            assert finished(jobs.add.enqueue(20, 22)).return_value == 42
            task_backends["default"].close()


@pytest.mark.parametrize("change", [{"queue": "nowhere"}, {"backend": "nowhere"}, {"backend": "dummy"}])
def test_a_task_that_the_settings_do_not_have(configure: Configure, work: Work, change: dict[str, str]) -> None:
    """It is set aside, with what is wrong."""
    from django.conf import settings
    from django.test import override_settings

    backend = configure()
    dummy = {"BACKEND": f"{base.__name__.rpartition('.')[0]}.backends.dummy.DummyBackend"}
    with override_settings(TASKS={**settings.TASKS, "dummy": dummy}):
        worker = work(task_backends["default"])
        finished(jobs.add.enqueue(1, 2))
        record = {**backend_record(backend), **change}
        message = message_of(record, backend.settings)
        with connect(backend.settings.url) as amqp, amqp.channel() as channel:
            channel.publish(message, "", Names(backend.settings.prefix).queue("default"))
        wait_for(lambda: worker.process.counts["unreadable"] == 1)
        wait_for(lambda: (backend.results.get(record["id"]) or {}).get("status") == "FAILED")


def test_what_is_missing_is_said_by_check(configure: Configure) -> None:
    from django.test import override_settings

    with override_settings(INSTALLED_APPS=[]):
        assert configure().check() == []
        for options in ({"results": "database"}, {"enqueue": "outbox"}):
            (error,) = configure(**options).check()
            assert "INSTALLED_APPS" in error.hint


def test_the_tables_are_those_of_the_migrations() -> None:
    from io import StringIO

    from django.core.management import call_command

    output = StringIO()
    call_command("makemigrations", "harebell", check=True, dry_run=True, stdout=output)
    assert "No changes" in output.getvalue()
    assert connection.vendor == ("postgresql" if os.environ.get("HAREBELL_TEST_POSTGRES") else "sqlite")
