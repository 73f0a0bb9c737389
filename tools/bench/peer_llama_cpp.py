#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of `txbench generate` with --peer llama.cpp: the same GGUF file in llama.cpp, through llama-cpp-python.

    peer_llama_cpp.py generate {"model": FILE, "batch": ROWS, "block": TOKENS, "count": TOKENS, "threads": N,
                                  "gpu": BOOL}

It continues random prompts greedily on the CPU, or on the GPU if llama.cpp was built for one: all prompts in one batch,
then a token of each row at a time. Caches have llama.cpp's default type, fp16.

The script prints "ready VERSIONS". Then it reads a number of new tokens, at most "count", from each line of standard
input, and prints "seconds WALL_CLOCK_SECONDS CPU_SECONDS".
"""
import json
import os
import random
import sys
import time

try:
    import llama_cpp as llama
    import numpy
except ImportError as error:
    sys.exit(f"peer_llama_cpp.py: {error}; install it (python3 -m venv llama; llama/bin/pip install llama-cpp-python) "
             "and set TX_PYTHON=llama/bin/python")


@llama.llama_log_callback
def only_errors(level, text, _):
    if level == 4:
        sys.stderr.write(text.decode(errors="replace"))


class Peer:
    def __init__(self, what, threads):
        self.rows, self.block = what["batch"], what["block"]
        settings = llama.llama_model_default_params()
        settings.n_gpu_layers = 999 if what["gpu"] else 0
        self.model = llama.llama_model_load_from_file(what["model"].encode(), settings)
        if not self.model:
            sys.exit(f"peer_llama_cpp.py: llama.cpp cannot load {what['model']}")
        how = llama.llama_context_default_params()
        # The context is divided among the rows, in steps of 256 tokens.
        how.n_ctx = self.rows * -(-(self.block + what["count"]) // 256) * 256
        how.n_batch = self.rows * self.block
        how.n_seq_max = self.rows
        how.n_threads = how.n_threads_batch = threads
        self.context = llama.llama_init_from_model(self.model, how)
        self.vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))
        self.batch = llama.llama_batch_init(how.n_batch, 0, 1)

    def decode(self, tokens):
        """Runs (row, position, id, wanted) and returns the most likely next id of each wanted one."""
        self.batch.n_tokens = len(tokens)
        for i, (row, position, token, wanted) in enumerate(tokens):
            self.batch.token[i], self.batch.pos[i], self.batch.logits[i] = token, position, wanted
            self.batch.n_seq_id[i], self.batch.seq_id[i][0] = 1, row
        if llama.llama_decode(self.context, self.batch):
            sys.exit("peer_llama_cpp.py: llama_decode failed")
        found = []
        for i, token in enumerate(tokens):
            if token[3]:
                logits = llama.llama_get_logits_ith(self.context, i)
                found.append(int(numpy.ctypeslib.as_array(logits, (self.vocab,)).argmax()))
        return found

    def run(self, count):
        llama.llama_memory_clear(llama.llama_get_memory(self.context), True)
        last = self.block - 1
        ids = self.decode([(row, at, random.randrange(self.vocab), at == last)
                           for row in range(self.rows) for at in range(self.block)])
        for step in range(count - 1):
            ids = self.decode([(row, self.block + step, ids[row], True) for row in range(self.rows)])


def main():
    what = json.loads(sys.argv[2])
    random.seed(1)
    llama.llama_log_set(only_errors, llama.ctypes.c_void_p(0))
    llama.llama_backend_init()
    if what["gpu"] and not llama.llama_supports_gpu_offload():
        sys.exit("peer_llama_cpp.py: TX runs on a GPU, but this llama.cpp was built for CPUs: build llama-cpp-python "
                 "for this GPU, or use --device cpu")
    threads = what["threads"] or len(os.sched_getaffinity(0))
    peer = Peer(what, threads)
    system = " ".join(llama.llama_print_system_info().decode().split())
    print(f"ready llama.cpp of llama-cpp-python {llama.__version__}, {threads} threads, {system}"[:250], flush=True)
    for line in sys.stdin:
        begin, processor = time.perf_counter(), time.process_time()
        peer.run(int(line))
        print(f"seconds {time.perf_counter() - begin} {time.process_time() - processor}", flush=True)


main()
