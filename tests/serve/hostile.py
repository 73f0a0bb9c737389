# SPDX-License-Identifier: Apache-2.0
"""txserve with hostile and impatient clients: requests that are cut, slow, huge or garbage; clients that leave; more
requests than the queue holds; many clients at once; API keys; SIGTERM.

    hostile.py TXSERVE MODEL [COUNT]      COUNT: number of hostile requests, by default 400
"""
import concurrent.futures
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from health import Health
from server import Server

program, model = sys.argv[1], sys.argv[2]
count = int(sys.argv[3]) if len(sys.argv) > 3 else 400


def check(good, what):
    if not good:
        sys.exit(f"FAILED: {what}")
    print(f"ok   {what}", flush=True)


def request(path, body, extra=""):
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{extra}\r\n").encode() + body


GOOD = request("/v1/completions", json.dumps({"prompt": "Once", "max_tokens": 4, "stream": True}).encode())
BODIES = [b"", b"{", b"null", b"[]", b"[" * 100000, b'{"prompt": "a", "prompt": "b"}', b'{"prompt": "\xff\xfe"}',
          b'{"prompt": "a", "max_tokens": -1}', b'{"prompt": "a", "max_tokens": 1e300}', b'{"prompt": [1, -5]}',
          b'{"prompt": [99999999999]}', b'{"prompt": [[]]}', b'{"prompt": []}', b'{"prompt": ""}', b'{"messages": 3}',
          b'{"prompt": "a", "n": 100000}', b'{"prompt": "a", "stop": ["", ""]}', b'{"prompt": "a", "logprobs": 999}',
          b'{"prompt": "a", "temperature": NaN}', b'{"prompt": "a", "top_p": 1.5}', b'{"prompt": {"a": 1}}',
          b'{"prompt": "a\\u0000b", "max_tokens": 1}', b'{"prompt": "a", "stop": "\\u0000"}',
          b'{"prompt": "a", "seed": 18446744073709551616}', b'{"messages": [{"role": "user", "content": [{}]}]}',
          b'{"lora_name": "a", "lora_path": "/"}', b'{"lora_name": [1], "lora_path": 2}',
          b'{"tokens": [5, 5]}', b'{"tokens": [[]]}',
          b'{"input": [{"role": "user", "content": [{}]}]}', b'{"input": "a", "stream": true, "max_output_tokens": 3}',
          b'{"input": [{"type": "function_call"}, 5]}', b'{"input": "a", "tools": [{"type": "function"}], "text": []}',
          b'{"messages": [{"role": "\\ud800", "content": ""}]}', b'{"messages": []}', b'{"prompt": "a", "x": 1}',
          json.dumps({"prompt": "word " * 20000}).encode(), json.dumps({"prompt": "x" * 3000000}).encode()]
TOOL = {"type": "function", "function": {"name": "move", "parameters": {"type": "object", "properties": {
    "to": {"enum": ["north", "south"]}, "steps": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["to", "steps"]}}}
USER = [{"role": "user", "content": "Once"}]


def chat(**more):
    return json.dumps({"messages": USER, "max_tokens": 12, **more}).encode()


def with_schema(schema):
    return chat(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}})


def with_tool(**function):
    return chat(tools=[{"type": "function", "function": {"name": "a", **function}}], tool_choice="required")


DEEP = {"type": "integer"}
for _ in range(200):
    DEEP = {"type": "array", "items": DEEP}
# Tools, and constraints: good ones that end or are cut, wrong ones, and those that are slow to follow.
AGENTS = [chat(tools=[TOOL]), chat(tools=[TOOL], tool_choice="required", max_tokens=80), chat(tools=[TOOL] * 2000), chat(tools=[]),
          chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "move"}}, max_tokens=80, stream=True),
          chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "none"}}), chat(tools=[TOOL], tool_choice=[]),
          chat(tools=[TOOL], parallel_tool_calls=False, stream=True), chat(tools=[{}, 3]), chat(tools={"a": 1}), chat(tool_choice="auto"),
          with_tool(), with_tool(parameters=3), with_tool(parameters={"type": "strin"}), with_tool(parameters={"$ref": "#"}),
          with_tool(parameters=DEEP), with_tool(description="\u0000" * 5000), with_tool(name="\ud800"), with_tool(name="x" * 100000),
          chat(messages=USER + [{"role": "assistant", "tool_calls": [{"id": 5}]}, {"role": "tool", "content": None}]),
          chat(messages=USER + [{"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": {
              "name": "move", "arguments": "{" * 50000}}]}, {"role": "tool", "tool_call_id": "b", "content": "x"}], tools=[TOOL]),
          with_schema(DEEP), with_schema({"$ref": "#"}), with_schema({"enum": list(range(3000))}), with_schema([]), with_schema({}),
          with_schema({"anyOf": [{"type": "array", "items": {"$ref": "#"}}] * 50}), with_schema({"type": "object"}),
          with_schema({"type": "string", "pattern": "(x+x+)+" * 200}), with_schema({"type": "array", "minItems": 60000}),
          with_schema({"properties": {f"p{i}": {} for i in range(1000)}}), chat(response_format={"type": "json_object"}, stream=True),
          chat(guided_regex="(a?){60000}(a?){60000}b"), chat(guided_regex="(.|.){1,30000}" * 20 + "x"), chat(guided_regex="a*b"),
          chat(guided_regex="(" + "|".join("a" * n for n in range(1, 400)) + ")*"), chat(grammar='root ::= root "a"'),
          chat(grammar='root ::= "(" root ")" | root2 root2\nroot2 ::= "(" root ")"'), chat(grammar='root ::= [a-z]+ "."', n=4),
          chat(guided_choice=["yes", "no"], stream=True), chat(guided_choice=["a" * 5000] * 1000), chat(guided_json="{")]
BODIES += AGENTS * 2
GOODS = [GOOD] + [request("/v1/chat/completions", AGENTS[i]) for i in (1, 4)] + [request("/v1/chat/completions", with_schema(
    TOOL["function"]["parameters"]))]
HEADS = [b"\r\n\r\n", b"GET", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
         b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20000 + b"\r\n",
         b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
         b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n",
         b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\nx",
         b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"pro\r\n0\r\n\r\n",
         b"DELETE /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /v1/models/%00%ff HTTP/1.1\r\nHost: x\r\n\r\n",
         b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n"]


def attack(server, number):
    """Sends one hostile request. The server may answer with a status below 500 or 505, or close the connection."""
    r = random.Random(number)
    path = r.choice(["/v1/completions", "/v1/chat/completions", "/v1/responses", "/tokenize", "/detokenize", "/v1/rerank",
                     "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/models", "/"])
    kind = r.randrange(5)
    if kind == 0:
        body = r.choice(BODIES)
        data = request("/v1/chat/completions" if body in AGENTS else path, body)
    elif kind == 1:
        data = r.choice(HEADS)
    elif kind == 2:
        data = bytes(r.randrange(256) for _ in range(r.randrange(1, 3000)))
    elif kind == 3:
        data = bytearray(r.choice(GOODS))
        for _ in range(r.randrange(1, 6)):
            data[r.randrange(len(data))] = r.randrange(256)
    else:
        data = r.choice(GOODS)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
        try:
            if kind == 4:
                s.sendall(data[:r.randrange(1, len(data) + 1)])  # cut, or left while it is answered
                return
            if r.randrange(8) == 0:
                for i in range(0, min(len(data), 12)):  # slow, then cut
                    s.sendall(data[i:i + 1])
                    time.sleep(0.01)
                return
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            s.settimeout(2)
            answer = s.recv(65536)
        except OSError:  # closed, or it waits for the rest of the request
            return
    if answer and not (answer.startswith(b"HTTP/1.") and int(answer[9:12]) in (*range(200, 500), 505)):
        sys.exit(f"FAILED: request {number}: {answer[:200]}")


def megabytes(server):
    with open(f"/proc/{server.process.pid}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) / 1024


def test_hostile():
    """Memory is measured after each quarter of the attack, without requests. /health may take 100 ms in 99 of 100 cases,
    and as long as this machine lets a process wait."""
    with Server(program, model, "--chat_template", "qwen", "--allow_runtime_lora_updating", "--max_loras", "2") as server:
        want = server.complete("Once upon a time")
        held = []
        with Health(server.port) as idle:
            time.sleep(2)
        print(f"idle: {idle}", flush=True)
        with Health(server.port) as health, concurrent.futures.ThreadPoolExecutor(16) as pool:
            for quarter in range(4):
                for _ in pool.map(lambda i: attack(server, i), range(count * quarter // 4, count * (quarter + 1) // 4)):
                    pass
                server.wait_for("requests_open", 0, 120)
                time.sleep(3)  # the server looks once a second whether it is idle
                held.append(megabytes(server))
        check(health.health(0.99) < 100 + health.bytes(0.99), f"{health}")
        check(max(held[2:]) < 1.1 * held[1] + 32, f"memory after each quarter: {[round(mb) for mb in held]} MB")
        again = server.complete("Once upon a time")
        check(again[1]["choices"] == want[1]["choices"], f"answers after {count} hostile requests")
        status, answer = server.complete('say "{[" ' * 100000)
        check(status == 400 and "tokens" in answer["error"]["message"], "quotes and brackets in a text are no values")
        check(server.end() == 0, "and ends with status 0")


BEGINS = "Once upon a time", "One day", "Lily", "The cat", "Tom and Sam", "A big dog", "It was", "She"
PROMPTS = [f"{a} {b}" for a in BEGINS for b in ("there", "was a", "went to", "had", "wanted", "saw the", "his", "said")]


def test_crowd():
    """64 clients at once, with different lengths and half of them streams, get the texts that they get alone."""
    def ask(i):
        most = 5 + i % 40
        if i % 2:
            status, text = server.complete(PROMPTS[i], most, stream=True)
            events = [json.loads(line[6:]) for line in text.split("\n\n") if line.startswith("data: {")]
            return status, "".join(e["choices"][0]["text"] for e in events), events[-1]["choices"][0]["finish_reason"]
        status, answer = server.complete(PROMPTS[i], most)
        return status, answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]

    for slots in "16", "40":
        with Server(program, model, "--slots", slots) as server:
            alone = [ask(i) for i in range(len(PROMPTS))]
            long = all(a[0] == 200 and len(a[1]) > 3 for a in alone)
            check(long and len({a[1] for a in alone}) > 40, f"64 texts alone, {slots} slots")
            with concurrent.futures.ThreadPoolExecutor(64) as pool:
                check(list(pool.map(ask, range(len(PROMPTS)))) == alone, "the same texts for 64 clients at once")
            counts = server.metric("requests_waiting"), server.metric("texts_total")
            check(counts == (0, 128), "metrics count the texts")


def test_leaving():
    """A client that leaves frees its slot; a full queue refuses."""
    with Server(program, model, "--slots", "1", "--max_queue", "2") as server:
        body = json.dumps({"prompt": "Once", "max_tokens": 400, "min_tokens": 400, "n": 2}).encode()
        for _ in range(20):  # on a busy machine the texts may end before the third request is sent
            one, two = (socket.create_connection(("127.0.0.1", server.port)) for _ in range(2))
            before = server.metric("texts_total")
            one.sendall(request("/v1/completions", body))
            server.wait_for("requests_running requests_waiting texts_total", before + 2)
            while server.metric("requests_waiting") > 1:  # until the first text is in the slot
                time.sleep(0.01)
            two.sendall(request("/v1/completions", body.replace(b', "n": 2', b"")))
            server.wait_for("requests_running requests_waiting texts_total", before + 3)
            status, answer = server.complete("Once", 3)
            if status == 429:
                break
            one.close()
            two.close()
            server.wait_for("requests_running requests_waiting", 0)
        check(status == 429 and "queue is full" in answer["error"]["message"], "a full queue refuses with 429")
        one.close()
        two.close()
        server.wait_for("requests_running", 0)
        check(server.metric("texts_cancelled_total") >= 2, "clients that leave free their slots")
        check(server.complete("Once", 3)[0] == 200, "the next client gets the slot")


def test_cut():
    """Clients that leave in the middle of a request do not keep the connections that their address may have."""
    with Server(program, model, "--max_connections", "8") as server:
        for data in GOOD[:20], GOOD[:-5]:
            begin = time.time()
            for _ in range(4):
                with socket.create_connection(("127.0.0.1", server.port)) as client:
                    client.sendall(data)
            status = 0
            while status != 200 and time.time() - begin < 60:
                try:
                    status = server.send("GET", "/health")[0]
                except OSError:
                    time.sleep(0.2)
            check(time.time() - begin < 15, f"/health {time.time() - begin:.1f} s after requests of {len(data)} bytes are cut")


def test_cache_type():
    """Caches in blocks of 8 bits need heads of 32 elements, and give a text alone and among others."""
    refused = subprocess.run([program, "--model", model, "--cache_type", "q8_0"], capture_output=True, text=True)
    check(refused.returncode == 1 and "multiple of 32" in refused.stderr, f"heads of 8 elements: {refused.stderr}")
    refused = subprocess.run([program, "--model", model, "--task", "embed", "--cache_type", "q8_0"],
                             capture_output=True, text=True)
    check(refused.returncode == 2 and "--task" in refused.stderr, f"caches of an encoder: {refused.stderr}")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(os.path.join(os.path.dirname(model), "tiny_gpt2_bytes"), folder, dirs_exist_ok=True)
        path = os.path.join(folder, "config.json")
        with open(path) as f:
            config = json.load(f)
        with open(path, "w") as f:
            json.dump({**config, "n_head": 2}, f)
        with Server(program, folder, "--cache_type", "q8_0", "--slots", "4") as server:
            alone = server.complete("Once", 20)
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                texts = list(pool.map(lambda _: server.complete("Once", 20), range(8)))
            check(alone[0] == 200 and all(t[1]["choices"] == alone[1]["choices"] for t in texts), "caches of 8 bits")


def test_keys():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "keys")
        with open(path, "w") as f:
            f.write("first-key\n\nsecond-key\n")
        with Server(program, model, "--api_key_file", path) as server:
            for header, want in [(None, 401), ("Bearer first-ke", 401), ("Bearer ", 401), ("first-key", 401),
                                 ("Bearer first-keyfirst-key", 401), ("Bearer first-key", 200),
                                 ("Bearer second-key", 200)]:
                status = server.send("GET", "/v1/models", headers={"Authorization": header} if header else {})[0]
                check(status == want, f"Authorization: {header}: {status}")
            check(server.send("GET", "/health")[0] == 200, "health needs no key")


def test_end():
    """SIGTERM: accepted requests are finished, others are refused."""
    with Server(program, model, "--slots", "2") as server:
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(server.complete("Once", 450, min_tokens=450)))
                   for _ in range(8)]
        for t in threads:
            t.start()
        server.wait_for("requests_running requests_waiting texts_total", 8)  # all have arrived
        server.process.terminate()
        refused = 0
        for _ in range(100):
            try:
                if server.send("GET", "/health")[0] == 503:  # the signal has arrived
                    refused += server.complete("Once", 2)[0] == 503
            except (ConnectionError, OSError):
                break
            time.sleep(0.005)
        for t in threads:
            t.join()
        done = [a[1]["usage"]["completion_tokens"] for a in answers if a[0] == 200]
        check(done == [450] * 8, f"SIGTERM finishes the accepted requests: {done}")
        check(refused > 0, "and refuses others with 503")
        check(server.process.wait(timeout=60) == 0, "and ends with status 0")


test_crowd()
test_leaving()
test_cut()
test_cache_type()
test_keys()
test_end()
test_hostile()
