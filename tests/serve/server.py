# SPDX-License-Identifier: Apache-2.0
"""Starts txserve for the tests, and sends it requests by the standard library."""
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """`launch` has the words before the program's name; `errors` is a file for standard error, or None."""

    def __init__(self, program, model, *arguments, launch=(), errors=None):
        if not os.path.isfile(model) and not os.path.exists(os.path.join(model, "config.json")):
            print(f"skipped: no {model}")
            sys.exit(77)
        self.port = free_port()
        self.process = subprocess.Popen([*launch, program, "--model", model, "--threads", "1", "--port", str(self.port),
                                         *arguments], stdout=subprocess.PIPE, stderr=errors or subprocess.DEVNULL,
                                        text=True)
        line = self.process.stdout.readline()
        if "is served at" not in line:
            sys.exit(f"txserve did not start: {line}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def send(self, method, path, body=None, headers=None, timeout=120):
        """Returns the status and the body, as JSON if it is JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            text = None if body is None else body if isinstance(body, (bytes, str)) else json.dumps(body)
            connection.request(method, path, text, headers or {})
            answer = connection.getresponse()
            data = answer.read().decode()
            return answer.status, json.loads(data) if "json" in answer.getheader("Content-Type", "") else data
        finally:
            connection.close()

    def complete(self, prompt, most=20, **more):
        return self.send("POST", "/v1/completions",
                         {"prompt": prompt, "max_tokens": most, "temperature": 0, **more})

    def metric(self, names):
        """A metric, or the sum of several, whose names have blanks between them."""
        page = self.send("GET", "/metrics")[1]
        return sum(float(re.search(rf"^txserve_{name} (\S+)$", page, re.M).group(1)) for name in names.split())

    def wait_for(self, name, value, seconds=20):
        """Waits until a metric, or the sum of several, has a value."""
        end = time.time() + seconds
        while self.metric(name) != value:
            if time.time() > end:
                sys.exit(f"{name} is {self.metric(name)} after {seconds} s, expected {value}")
            time.sleep(0.05)

    def end(self):
        """Ends the server by SIGTERM and returns its exit status."""
        self.process.terminate()
        return self.process.wait(timeout=60)
