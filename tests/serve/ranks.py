# SPDX-License-Identifier: Apache-2.0
"""txserve on two ranks that divide the model: the answers of one rank, half of its weights; clients that leave; /health
while it computes; signals; a rank that dies; what ranks cannot serve.

    ranks.py TXSERVE MODEL MPIEXEC TXLAUNCH
"""
import concurrent.futures
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from server import Server

program, model, mpiexec, txlaunch = sys.argv[1:]
if not shutil.which(mpiexec):
    print(f"skipped: no {mpiexec}")
    sys.exit(77)
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                  PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")
RANKS = [mpiexec, "-n", "2"]


def check(good, what):
    if not good:
        sys.exit(f"FAILED: {what}")
    print(f"ok   {what}", flush=True)


REQUESTS = [{"prompt": prompt, "max_tokens": most, "logprobs": 2, **more} for prompt, most, more in [
    ("Once upon a time", 40, {}), ("Once upon a time", 25, {"n": 4, "temperature": 0.9, "seed": 5}),
    ("Lily and Tom " * 40, 30, {"echo": True}), ("Tom", 60, {"stop": ["."]}), ("One day " * 60, 10, {}),
    ("The dog", 20, {"temperature": 1.1, "seed": 2}), ("She", 50, {"repetition_penalty": 1.2}),
    ("A cat", 30, {"guided_regex": "( [a-z]+)+\\."})]]


def answers(server):
    """The texts of all requests at once, and the log-probabilities of their tokens."""
    def ask(request):
        status, answer = server.send("POST", "/v1/completions", {"temperature": 0, **request})
        if status != 200:
            sys.exit(f"FAILED: {request}: {answer}")
        return [(c["text"], c["finish_reason"], c["logprobs"]["token_logprobs"]) for c in answer["choices"]]
    with concurrent.futures.ThreadPoolExecutor(len(REQUESTS)) as pool:
        return [choice for choices in pool.map(ask, REQUESTS) for choice in choices]


def memory(errors):
    """Megabytes of weights, of all memory, and of caches."""
    errors.seek(0)
    line = re.search(r"weights (\S+) MB; memory (\S+) MB, of it caches (\S+) MB", errors.read())
    return [float(n) for n in line.groups()]


def test_same():
    with tempfile.TemporaryFile("w+") as errors:
        with Server(program, model, "--slots", "4", errors=errors) as server:
            want, whole = answers(server), memory(errors)
    with tempfile.TemporaryFile("w+") as errors:
        with Server(program, model, "--slots", "4", launch=RANKS, errors=errors) as server:
            got, part = answers(server), memory(errors)
            check([g[:2] for g in got] == [w[:2] for w in want], f"{len(want)} texts of two ranks")
            most = max(abs(a - b) for g, w in zip(got, want) for a, b in zip(g[2], w[2]) if a is not None)
            check(most < 1e-4, f"log-probabilities differ by at most {most:.1e}")
            check(answers(server) == got, "the same requests once more get the same bits")
            check(all(0.4 * w - 0.1 < p < 0.65 * w + 0.1 for p, w in zip(part, whole)), f"memory: {part} of {whole} MB")
            leave(server)
            end_by(signal.SIGINT, server)


def leave(server):
    """Clients close their connections while the server writes."""
    body = json.dumps({"prompt": "Once", "max_tokens": 400, "min_tokens": 400, "stream": True}).encode()
    before = server.metric("texts_cancelled_total")
    clients = []
    for _ in range(6):
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        clients.append(client)
    longest = 0.0
    for client in clients:
        client.recv(100)
        begin = time.time()
        check(server.send("GET", "/health")[0] == 200, "health")
        longest = max(longest, time.time() - begin)
        client.close()
    check(longest < 1, f"/health takes at most {longest:.3f} s")
    server.wait_for("requests_running", 0)
    check(server.metric("texts_cancelled_total") > before, "clients that leave free their slots")
    check(server.complete("Once", 5)[0] == 200, "the next client gets a slot")


def rank_of(server, rank):
    """The process of a rank, which has its port and its number from the launcher."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as f:
                words = f.read().split("\0")
            with open(f"/proc/{pid}/environ", errors="replace") as f:
                variables = dict(v.split("=", 1) for v in f.read().split("\0") if "=" in v)
        except OSError:
            continue
        number = variables.get("OMPI_COMM_WORLD_RANK", variables.get("PMI_RANK", variables.get("PMIX_RANK")))
        if os.path.basename(words[0]) == "txserve" and str(server.port) in words and number == str(rank):
            return int(pid)
    sys.exit(f"FAILED: no rank {rank}")


def gone(pid):
    for _ in range(100):
        if not os.path.exists(f"/proc/{pid}"):
            return True
        time.sleep(0.1)
    return False


def end_by(number, server):
    ranks = rank_of(server, 0), rank_of(server, 1)
    os.kill(ranks[0], number)
    status = server.process.wait(timeout=60)
    check(status == 0 and all(map(gone, ranks)), f"signal {number} to rank 0 ends all ranks with status {status}")


def test_launch():
    """SIGTERM to txlaunch finishes the accepted request."""
    with Server(program, model, launch=[txlaunch, "-n", "2", "--launcher", mpiexec]) as server:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(server.complete, "Once", 450, min_tokens=450)
            server.wait_for("requests_running", 1)
            server.process.terminate()
            status, answer = answer.result()
        check(status == 200 and answer["usage"]["completion_tokens"] == 450, "SIGTERM to txlaunch finishes the request")
        check(server.process.wait(timeout=60) == 0, "and ends with status 0")


def test_death():
    with tempfile.TemporaryFile("w+") as errors:
        launch = [txlaunch, "-n", "2", "--launcher", mpiexec, "--max_restarts", "0"]
        with Server(program, model, launch=launch, errors=errors) as server:
            other = rank_of(server, 0)
            os.kill(rank_of(server, 1), signal.SIGKILL)
            status = server.process.wait(timeout=60)
            errors.seek(0)
            lines = [line for line in errors if "rank 1" in line]
            check(status != 0 and gone(other) and len(lines) == 1 and "signal 9" in lines[0],
                  f"a rank dies: {status} {lines}")


def test_refused():
    for words, options in [("--task generate", ["--task", "embed"]), ("--lora", ["--lora", f"a={model}"]),
                           ("--device_map", ["--device_map", "auto"]), ("--device_map", ["--load_in_4bit"])]:
        run = subprocess.run([*RANKS, program, "--model", model, *options], capture_output=True, text=True, timeout=60)
        lines = [line for line in run.stderr.splitlines() if line.startswith("txserve:")]
        check(run.returncode != 0 and len(lines) == 1 and words in lines[0], f"{options}: {lines}")


test_same()
test_launch()
test_death()
test_refused()
