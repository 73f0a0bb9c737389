# SPDX-License-Identifier: Apache-2.0
"""Measures the time of /health from another process than the attack's, and of a process that only returns bytes: it
waits for the processor as long as any other.

    health.py PORT      asks until standard input ends, then prints the milliseconds of both as JSON
"""
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time


class Health:
    """The measurement, while it is used as a context; then `server` and `floor` have the sorted milliseconds."""

    def __init__(self, port):
        self.process = subprocess.Popen([sys.executable, __file__, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server, self.floor = json.loads(self.process.communicate()[0])

    def __str__(self):
        return "; ".join(f"{name} {at(0.5):.1f}, {at(0.99):.1f} and {at(1):.1f} ms" for name, at in (
            ("/health", self.health), ("bytes", self.bytes))) + f" (median, 99 %, all of {len(self.server)})"

    def health(self, part):
        return self.server[min(int(part * len(self.server)), len(self.server) - 1)]

    def bytes(self, part):
        return self.floor[min(int(part * len(self.floor)), len(self.floor) - 1)]


def answer(listener):
    while True:
        with listener.accept()[0] as connection:
            connection.sendall(connection.recv(4096))


def ask(port):
    begin = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert connection.recv(4096).startswith((b"HTTP/1.1 200", b"GET"))
    return 1000 * (time.perf_counter() - begin)


def main(port):
    times = [], []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = os.fork()
        if not child:
            answer(listener)
        while not select.select([sys.stdin], [], [], 0.01)[0]:
            for to, asked in zip(times, (port, listener.getsockname()[1])):
                to.append(ask(asked))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    print(json.dumps([sorted(row) for row in times]))


if __name__ == "__main__":
    main(int(sys.argv[1]))
