"""`manage.py harebell_worker`: runs tasks in one process or several, until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError
from django.utils import autoreload

from harebell.django.backend import TaskBackend
from harebell.django.framework import task_backends
from harebell.django.options import EMBEDDED
from harebell.django.worker.health import Health, free_port, state_of_all
from harebell.django.worker.process import WorkerProcess

RESTART_SECONDS: Final = 1.0  # before a process that has died is replaced
OF_ONE: Final = ("backend", "queues", "threads", "prefetch", "drain")  # options of each of several processes
PARENT: Final = "HAREBELL_WORKER_PARENT"  # the process that has started this one


class Command(BaseCommand):  # type: ignore[misc]
    help = (
        "Runs tasks that were enqueued with harebell.django.TaskBackend. SIGTERM and Ctrl-C drain, a second one ends."
    )

    _from_command_line = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--backend", default="default", help="The alias in TASKS.")
        parser.add_argument("--queues", help="Queues, with commas between; all of the backend's if not given.")
        parser.add_argument("--processes", type=int, default=1, help="Processes; one that dies is replaced.")
        parser.add_argument("--threads", type=int, default=4, help="Tasks that run at once in each process.")
        parser.add_argument("--prefetch", type=int, default=4, help="Further tasks that each process fetches.")
        parser.add_argument("--drain", type=float, help="Seconds to finish after a stop; else no limit.")
        parser.add_argument("--reload", action="store_true", help="Restart when the program's code changes.")
        parser.add_argument("--health", help="Address for HTTP probes: PORT or HOST:PORT.")

    def run_from_argv(self, argv: list[str]) -> None:
        self._from_command_line = True
        super().run_from_argv(argv)

    def handle(self, **options: Any) -> None:
        self._check(options)
        if options["reload"]:
            autoreload.run_with_reloader(self._work, options)
        elif options["processes"] > 1:
            self._supervise(options)
        else:
            self._work(options)

    def _check(self, options: dict[str, Any]) -> None:
        try:
            backend = task_backends[options["backend"]]
        except Exception as error:
            raise CommandError(str(error)) from error
        if not isinstance(backend, TaskBackend):
            raise CommandError(
                f"TASKS[{options['backend']!r}] is no harebell.django.TaskBackend: name it with --backend"
            )
        if backend.settings.url == EMBEDDED:
            raise CommandError(
                "tasks on embedded:// run in the process that enqueues them: give url a broker, as of `harebell serve`"
            )
        for name in ("processes", "threads"):
            if options[name] < 1:
                raise CommandError(f"--{name} {options[name]}: at least 1 is needed")
        if options["reload"] and options["processes"] > 1:
            raise CommandError(f"--reload works with one process: leave out --processes {options['processes']}")
        if options["prefetch"] < 0:
            raise CommandError(f"--prefetch {options['prefetch']}: 0 or more is needed")
        unknown = set(self._queues(backend, options)) - backend.queues if backend.queues else set()
        if unknown:
            known = ", ".join(sorted(backend.queues))
            raise CommandError(
                f"--queues: {', '.join(sorted(unknown))} is not among QUEUES of TASKS, which has {known}"
            )

    def _queues(self, backend: TaskBackend, options: dict[str, Any]) -> list[str]:
        if options["queues"]:
            return [name.strip() for name in options["queues"].split(",") if name.strip()]
        if not backend.queues:
            raise CommandError("TASKS has no QUEUES, so a task may have any queue: name those to work on with --queues")
        return sorted(backend.queues)

    # -- one process -------------------------------------------------------------------------------------------------

    def _work(self, options: dict[str, Any]) -> None:
        try:
            cut_off = asyncio.run(self._run(options))
        except KeyboardInterrupt:
            sys.exit(130)
        if cut_off:
            sys.exit(1)

    async def _run(self, options: dict[str, Any]) -> int:
        """Work until a stop; how many tasks were cut off by the end of the drain."""
        backend: TaskBackend = task_backends[options["backend"]]
        queues = self._queues(backend, options)
        worker = WorkerProcess(backend, queues, options["threads"], options["prefetch"])
        loop = asyncio.get_running_loop()
        stops = 0

        def stop() -> None:
            nonlocal stops
            stops += 1
            if stops > 1:
                os._exit(1)  # what runs is delivered again
            self.stderr.write(f"stopping: {worker.running} tasks run")
            worker.stop()

        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop)
        except RuntimeError:
            pass  # under --reload this is no main thread: Django ends the process
        parent = asyncio.create_task(_orphaned(worker))
        health = self._health(options, lambda: {"ok": worker.is_ready, "running": worker.running, **worker.counts})
        self.stderr.write(f"worker {worker.worker_id}: queues {', '.join(queues)}")
        try:
            await worker.run(drain=options["drain"])
        finally:
            parent.cancel()
            if health is not None:
                health.close()
        if worker.threads_running or worker.running:
            os._exit(1)  # a thread cannot be ended, and the interpreter, or a coroutine, would wait for it
        return worker.cut_off

    def _health(self, options: dict[str, Any], state: Any) -> Health | None:
        if not options["health"]:
            return None
        address, _, port = str(options["health"]).rpartition(":")
        try:
            return Health(address or "127.0.0.1", int(port), state)
        except (ValueError, OSError) as error:
            raise CommandError(f"--health {options['health']}: {error}") from error

    # -- several processes -------------------------------------------------------------------------------------------

    def _command(self, options: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
        """What starts one process, and the variables that it needs.

        As this process was started, by a manage.py of the program's own; but a program that calls this command was
        started to do something else.
        """
        if self._from_command_line:
            return [*autoreload.get_child_arguments(), "--processes=1"], {}  # of two options of a name the last counts
        if "DJANGO_SETTINGS_MODULE" not in os.environ:
            raise CommandError(
                f"processes={options['processes']}: each needs the settings, and those of this process are in no "
                "module: set DJANGO_SETTINGS_MODULE, or leave out processes"
            )
        given = [f"--{name}={options[name]}" for name in OF_ONE if options[name] is not None]
        command = [sys.executable, "-m", "django", "harebell_worker", *given]
        return command, {"PYTHONPATH": os.pathsep.join(str(Path(path).absolute()) for path in sys.path)}

    def _supervise(self, options: dict[str, Any]) -> None:
        """Run as many processes, replace those that die, and end them together."""
        command, path = self._command(options)
        processes: dict[subprocess.Popen[bytes], int] = {}  # how many stops each was told
        ports: dict[subprocess.Popen[bytes], int] = {}  # of the health of each
        stops = 0

        def stop(number: int, frame: object) -> None:
            nonlocal stops  # no more than this: a process that is being started is not known yet
            stops += 1

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        health = self._health(options, lambda: state_of_all(options["processes"], tuple(ports.values())))
        try:
            while not stops or processes:
                while not stops and len(processes) < options["processes"]:
                    # In a group of its own: Ctrl-C reaches this process alone, which tells the others.
                    environment = {**os.environ, **path, PARENT: str(os.getpid())}
                    port = free_port() if health is not None else None
                    own = "--health=" if port is None else f"--health=127.0.0.1:{port}"
                    process = subprocess.Popen([*command, own], start_new_session=True, env=environment)
                    processes[process] = 0
                    if port is not None:
                        ports[process] = port
                for process, told in processes.items():
                    if told < stops:
                        process.send_signal(signal.SIGTERM)
                        processes[process] += 1
                time.sleep(0.1)
                for process in [process for process in processes if process.poll() is not None]:
                    del processes[process]
                    ports.pop(process, None)
                    if not stops:
                        self.stderr.write(f"process {process.pid} ended with {process.returncode}, and is replaced")
                        time.sleep(RESTART_SECONDS)
        finally:
            for process in processes:
                process.kill()
            if health is not None:
                health.close()


async def _orphaned(worker: WorkerProcess) -> None:
    """Stop the worker when the process that has started it is killed."""
    parent = os.environ.get(PARENT)
    while parent is not None:
        await asyncio.sleep(1)
        if os.getppid() != int(parent):
            worker.stop()
            return
