# SPDX-License-Identifier: Apache-2.0
"""txserve on two ranks that divide the model: the answers of one rank, half of its weights; clients that leave; /health
while it computes; signals; a rank that dies; what ranks cannot serve. Adapters on two and four ranks.

    ranks.py TXSERVE MODEL MPIEXEC TXLAUNCH
"""
import concurrent.futures
import json
import math
import os
import random
import re
import shutil
import signal
import socket
import struct
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
    for words, options in [("--task generate", ["--task", "embed"]), ("holds no adapter", ["--lora", f"a={model}"]),
                           ("--device_map", ["--device_map", "auto"]), ("--device_map", ["--load_in_4bit"])]:
        run = subprocess.run([*RANKS, program, "--model", model, *options], capture_output=True, text=True, timeout=60)
        lines = [line for line in run.stderr.splitlines() if line.startswith("txserve:")]
        check(run.returncode != 0 and len(lines) == 1 and words in lines[0], f"{options}: {lines}")


# ---- Adapters ---------------------------------------------------------------------------------------------


def write_tensors(path, shapes, rng, width):
    """Writes random tensors, evenly from -width to width, as safetensors."""
    header, at, data = {}, 0, []
    for name, shape in shapes.items():
        count = math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * count]}
        data.append(struct.pack(f"<{count}f", *(1 if "norm" in name else rng.uniform(-width, width) for _ in range(count))))
        at += 4 * count
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def make_llama(folder):
    """A random Llama whose two heads of keys and values are fewer than four ranks."""
    os.mkdir(folder)
    shutil.copy(os.path.join(model, "tokenizer.json"), folder)
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "hidden_size": 32, "bos_token_id": 1,
              "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2,
              "max_position_embeddings": 256, "tie_word_embeddings": True, "eos_token_id": 2, "hidden_act": "silu",
              "rms_norm_eps": 1e-5}
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    shapes = {"model.embed_tokens.weight": [512, 32], "model.norm.weight": [32]}
    for i in range(2):
        for name, shape in LLAMA.items():
            shapes[f"model.layers.{i}.{name}.weight"] = [shape[1], shape[0]]
        shapes.update({f"model.layers.{i}.{name}.weight": [32] for name in ("input_layernorm", "post_attention_layernorm")})
    write_tensors(os.path.join(folder, "model.safetensors"), shapes, random.Random(1), 0.4)


# The inputs and outputs of modules.
LLAMA = {"self_attn.q_proj": (32, 32), "self_attn.k_proj": (32, 8), "self_attn.v_proj": (32, 8), "self_attn.o_proj": (32, 32),
         "mlp.gate_proj": (32, 48), "mlp.up_proj": (32, 48), "mlp.down_proj": (48, 32)}
GPT2 = {"attn.c_attn": (64, 192), "attn.c_proj": (64, 64), "mlp.c_fc": (64, 256), "mlp.c_proj": (256, 64)}


def make_adapter(folder, base, layers, modules, rank):
    os.mkdir(folder)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": list(modules), "task_type": "CAUSAL_LM",
              "fan_in_fan_out": "attn.c_attn" in modules}
    with open(os.path.join(folder, "adapter_config.json"), "w") as f:
        json.dump(config, f)
    shapes = {}
    for module, (inputs, outputs) in modules.items():
        for i in range(2):
            name = f"base_model.model.{layers}.{i}.{module}"
            shapes.update({f"{name}.lora_A.weight": [rank, inputs], f"{name}.lora_B.weight": [outputs, rank]})
    write_tensors(os.path.join(folder, "adapter_model.safetensors"), shapes, random.Random(base + folder[-1]), 0.3)


def ask_adapters(server, names):
    """The texts of requests to all models at once, after the last adapter was loaded."""
    status, answer = server.send("POST", "/v1/load_lora_adapter", {"lora_name": "late", "lora_path": names["late"]})
    check(status == 200, f"an adapter is loaded: {answer}")
    asked = [(name, prompt, more) for name in names for prompt, more in
             (("Once", {}), ("Lily and Tom " * 8, {}), ("A", {"temperature": 1, "seed": 4, "n": 2}))]

    def ask(request):
        status, answer = server.complete(request[1], 20, model=request[0], min_tokens=20, **request[2])
        if status != 200:
            sys.exit(f"FAILED: {request}: {answer}")
        return [c["text"] for c in answer["choices"]]
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        texts = list(pool.map(ask, asked))
    status, answer = server.send("POST", "/v1/unload_lora_adapter", {"lora_name": "late"})
    check(status == 200 and server.end() == 0, f"an adapter is unloaded, and the server ends: {answer}")
    return texts


def test_adapters(work):
    make_llama(os.path.join(work, "llama"))
    gpt2 = os.path.join(os.path.dirname(model), "tiny_gpt2_bytes")
    for base, layers, modules, ranks in ((os.path.join(work, "llama"), "model.model.layers", LLAMA, (2, 4)),
                                         (gpt2, "model.transformer.h", GPT2, (2,))):
        names = {os.path.basename(base): ""}
        for name, of, rank in (("all", modules, 4), ("late", dict(list(modules.items())[:2]), 2),
                               ("few", dict(list(modules.items())[1::2]), 3)):
            names[name] = os.path.join(work, f"{os.path.basename(base)}-{name}")
            make_adapter(names[name], os.path.basename(base), layers.removeprefix("model."), of, rank)
        options = ["--slots", "6", "--lora", f"all={names['all']}", f"few={names['few']}", "--max_loras", "3",
                   "--allow_runtime_lora_updating"]
        with Server(program, base, *options) as server:
            want = ask_adapters(server, names)
        check(len({str(texts) for texts in want}) == len(want), f"{len(want)} different texts")
        for count in ranks:
            with Server(program, base, *options, launch=[mpiexec, "-n", str(count)]) as server:
                check(ask_adapters(server, names) == want, f"{os.path.basename(base)}: adapters on {count} ranks")


test_same()
with tempfile.TemporaryDirectory() as scratch:
    test_adapters(scratch)
test_launch()
test_death()
test_refused()
