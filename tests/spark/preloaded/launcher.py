# What Spark starts as Python. For `-m module` a server forks the process, which gets the standard streams of this one;
# this one ends as that one ends. Anything else is run by the interpreter itself.

import os
import signal
import socket
import sys

TOLD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(address: str) -> None:
    if sys.argv[1:2] != ["-m"]:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    signal.pthread_sigmask(signal.SIG_BLOCK, TOLD)  # they wait until they can be handed on
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        arguments = sys.argv[1:]
        said = [os.getcwd(), str(len(arguments)), *arguments]  # noqa: PTH109  pathlib would triple the time of this process
        said += [f"{name}={text}" for name, text in os.environ.items()]
        text = "\0".join(said).encode("utf-8", "surrogateescape")
        socket.send_fds(connection, [len(text).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(text)
        answers = connection.makefile("rb")
        process = int(answers.readline())
        for number in TOLD:
            signal.signal(number, lambda number, _: os.kill(process, number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TOLD)
        for descriptor in (0, 1, 2):
            os.close(descriptor)  # a stream ends when the process ends it
        os._exit(int(answers.readline() or b"1"))
