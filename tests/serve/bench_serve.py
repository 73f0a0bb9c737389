# SPDX-License-Identifier: Apache-2.0
"""Measures txserve beside llama.cpp's server: tokens a second and the time to the first token, of clients at once whose
prompts and answers have mixed lengths. Both servers read the same GGUF file, and answer the same requests in turn.

usage: bench_serve.py TXSERVE LLAMA-SERVER MODEL.gguf.. [--clients 1,8,32] [--pairs 3] [--requests 4] [--threads 2]

Each server has as many slots as there are clients, which send their next request when they have an answer. In each pair
of runs both servers answer the same requests, and which of them is first alternates. Prompts are random ids; answers
are sampled with top_k 40, and never end before their limit. Prints a row of docs/benchmarks/inference.json for each
file and number of clients: of each pair the ratio of tokens a second, and the medians of the rest."""
import argparse
import concurrent.futures
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import time

from server import free_port

CONTEXT = 512


class Peer:
    """A server, and what its requests need so that answers do not end early."""

    def __init__(self, name, command, more, log):
        self.name, self.more, self.port = name, more, free_port()
        self.process = subprocess.Popen([*command, "--port", str(self.port)], stdout=log, stderr=log)

    def wait(self):
        for _ in range(1200):
            try:
                if self.process.poll() is None and self.post("GET", "/health")[0].status == 200:
                    return
            except OSError:
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        sys.exit(f"{self.name} did not start: see its log")

    def post(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        return connection.getresponse(), connection

    def ask(self, request):
        """Sends a request. Returns its tokens and the seconds to the first of them."""
        ids, most, seed = request
        body = {"prompt": ids, "max_tokens": most, "stream": True, "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05,
                "seed": seed, "stream_options": {"include_usage": True}, **self.more(most)}
        begin, first, last = time.perf_counter(), None, b""
        answer, connection = self.post("POST", "/v1/completions", json.dumps(body))
        for line in answer:
            if line.startswith(b"data: {"):
                first = first or time.perf_counter()
                last = line
        connection.close()
        count = (json.loads(last[6:]).get("usage") or {}).get("completion_tokens") if last else None
        if answer.status != 200 or count != most:
            sys.exit(f"{self.name}: status {answer.status}, {count} of {most} tokens: {last[:300]}")
        return count, first - begin

    def run(self, requests, clients):
        """Tokens a second of all requests, and the median time to the first token."""
        begin = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            done = list(pool.map(self.ask, requests))
        return sum(count for count, _ in done) / (time.perf_counter() - begin), statistics.median(first for _, first in done)


def draw(rng, count):
    """Requests of mixed lengths: prompts of 8 to 256 ids, answers of 16 to 96 tokens."""
    return [([rng.randrange(300, 5000) for _ in range(rng.choice([8, 24, 64, 128, 256]))], rng.choice([16, 32, 64, 96]),
             rng.randrange(1 << 30)) for _ in range(count)]


def measure(o, model, clients, log):
    tx = Peer("txserve", [o.txserve, "--model", model, "--slots", str(clients), "--max_length", str(CONTEXT), "--threads",
                          str(o.threads), "--device", "cpu"], lambda most: {"min_tokens": most}, log)
    peer = Peer("llama-server", [o.llama_server, "-m", model, "--parallel", str(clients), "-c", str(CONTEXT * clients), "-t",
                                 str(o.threads), "-ngl", "0"], lambda most: {"ignore_eos": True}, log)
    results = {tx: [], peer: []}
    for server in results:
        server.wait()
        server.run(draw(random.Random(0), clients), clients)
    for pair in range(o.pairs):
        requests = draw(random.Random(pair + 1), max(o.requests, 2 * clients if clients > 1 else 0))
        for server in (tx, peer) if pair % 2 else (peer, tx):
            results[server].append(server.run(requests, clients))
    for server in results:
        server.process.terminate()
        server.process.wait()
    ratios = [round(ours[0] / theirs[0], 3) for ours, theirs in zip(results[tx], results[peer])]
    speed = {server.name: round(statistics.median(run[0] for run in runs), 1) for server, runs in results.items()}
    first = {server.name: round(statistics.median(run[1] for run in runs), 3) for server, runs in results.items()}
    return {"name": f"txserve beside llama-server, {os.path.basename(model)}, clients {clients}, mixed lengths", "pairs": ratios,
            "tokens_per_second": speed, "seconds_to_first_token": first, "machine": "C"}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("txserve")
    parser.add_argument("llama_server")
    parser.add_argument("model", nargs="+")
    parser.add_argument("--clients", default="1,8,32")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--requests", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    o = parser.parse_args()
    with open(os.environ.get("LOG", "bench_serve.log"), "w", encoding="utf-8") as log:
        for model in o.model:
            for clients in map(int, o.clients.split(",")):
                print(json.dumps(measure(o, model, clients, log)), flush=True)


main()
