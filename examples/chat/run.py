"""The broker, two web servers and a worker; Enter kills the broker and starts it again, Ctrl-C ends it all."""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a server listens on the port."""
    for _ in range(300):
        if process.poll() is not None:
            sys.exit(f"{' '.join(map(str, process.args))} ended with {process.returncode}")  # type: ignore[arg-type]
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"nothing listens on port {port}")


def broker(port: int, data: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-m", "harebell", "serve", "--port", str(port), "--data", data])
    wait_for(port, process)
    return process


def check_free(port: int) -> None:
    """End with a line where something else listens already: it would be taken for the server that is started."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            sys.exit(f"port {port} cannot be used: {error.strerror}; name two others with --ports")


def web_server(port: int, url: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", "daphne", "-b", "127.0.0.1", "-p", str(port), "chat.asgi:application"],
        cwd=HERE,
        env={**os.environ, "CHAT_BROKER": url},
    )
    wait_for(port, process)
    return process


def worker(url: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "manage.py", "harebell_worker"]
    return subprocess.Popen(command, cwd=HERE, env={**os.environ, "CHAT_BROKER": url})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="of a broker of yours")
    parser.add_argument("--ports", type=int, nargs=2, default=[8001, 8002], help="of the two web servers")
    arguments = parser.parse_args()
    for number in arguments.ports:
        check_free(number)
    with tempfile.TemporaryDirectory() as data:
        url, node, port = arguments.url, None, 0
        if url is None:
            port = free_port()
            url, node = f"amqp://guest:guest@127.0.0.1:{port}/", broker(port, data)
        servers = [*(web_server(number, url) for number in arguments.ports), worker(url)]
        print("\n".join(f"http://127.0.0.1:{number}/" for number in arguments.ports), flush=True)
        try:
            while True:
                if node is not None:
                    print("Enter kills the broker and starts it again, Ctrl-C ends it all", flush=True)
                if not sys.stdin.readline():
                    time.sleep(3600)
                elif node is not None:
                    node.kill()
                    node.wait()
                    node = broker(port, data)
        except KeyboardInterrupt:
            pass
        finally:
            for process in [*servers, *([node] if node is not None else [])]:
                process.terminate()
            for process in [*servers, *([node] if node is not None else [])]:
                process.wait()


if __name__ == "__main__":
    main()
