"""A stand-in for RabbitMQ's programs: `epmd`, `erl_call`, `rabbitmq-server` and `rabbitmqctl` do as the tests say."""

from __future__ import annotations

import sys
from pathlib import Path

# The Erlang machine: writes its process id, answers AMQP's header with a method frame, and ends cleanly by SIGTERM.
MACHINE = """
import os, pathlib, signal, socket, sys, time
environ, how = os.environ, sys.argv[1]
log = pathlib.Path(environ["RABBITMQ_LOG_BASE"])
log.mkdir(exist_ok=True)
def say(text):
    with open(log / "node.log", "a") as file:
        file.write(text + "\\n")
def stop(number, frame):
    say("stopped cleanly")
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if how == "deaf" else stop)
with socket.create_server((environ["RABBITMQ_NODE_IP_ADDRESS"], int(environ["RABBITMQ_NODE_PORT"]))) as server:
    say("listens, with " + pathlib.Path(environ["RABBITMQ_CONFIG_FILE"]).read_text().strip())
    pathlib.Path(environ["RABBITMQ_PID_FILE"]).write_text(f"{os.getpid()}\\n")
    say("Server startup complete; 2 plugins started.")
    while True:
        peer, _ = server.accept()
        with peer:
            peer.recv(8)
            peer.sendall(b"H" if how == "http" else b"\\x01")
"""
# As Debian's script: the parent of the machine, which ends after it.
SERVER = """#!/bin/sh
echo the script begins
case {how} in fails) echo cannot read the configuration; exit 78;; esac
{python} -I -S {machine} {how} &
wait
"""
EPMD = """#!{python} -IS
import os, socket, time
if {fails}:
    raise SystemExit("no epmd today")
with socket.create_server((os.environ["ERL_EPMD_ADDRESS"], int(os.environ["ERL_EPMD_PORT"]))):
    time.sleep(600)
"""
CTL = """#!/bin/sh
case "$4" in
late) if [ ! -e "{folder}/asked" ]; then
    touch "{folder}/asked"; echo "this command requires the 'rabbit' app to be running"; exit 69; fi;;
wrong) echo "no such command"; exit 64;;
esac
echo "$@"
"""
# Answers with the last of the expressions, or fails with one that is "wrong".
ERL_CALL = """#!{python} -IS
import re, sys
file, value = re.search(r'write_file\\("(.*?)".*begin (?:.*, )?(.*) end', sys.stdin.read()).groups()
if value == "wrong":
    print('{{error, "no such value"}}')
else:
    open(file, "w").write(value)
    print("{{ok, ok}}")
"""


def install(folder: Path, how: str = "well", *, epmd: bool = True) -> Path:
    """Write the programs into the folder; returns the server's script.

    how   "well"; "fails": the script ends at once; "deaf": the machine does not react to SIGTERM; "http": it answers
          something else than AMQP
    epmd  whether epmd works
    """
    machine = folder / "machine.py"
    machine.write_text(MACHINE)
    for name, text in (
        ("rabbitmq-server", SERVER.format(how=how, python=sys.executable, machine=machine)),
        ("epmd", EPMD.format(python=sys.executable, fails=not epmd)),
        ("erl_call", ERL_CALL.format(python=sys.executable)),
        ("rabbitmqctl", CTL.format(folder=folder)),
    ):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder / "rabbitmq-server"
