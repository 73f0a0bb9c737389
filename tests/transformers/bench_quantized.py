# SPDX-License-Identifier: Apache-2.0
"""Measures the perplexity of quantized files of a small Llama, with and without training for their types.

usage: bench_quantized.py BIN-FOLDER TEXT [--seeds 3] [--steps 150] [--more 30] [--rate 1e-4] [--device cpu]

The model reads bytes: 2 layers of width 256. It learns all of the text but the last 16 kB, which are held out. For
each seed it is trained, and from there trained further: without --qat, with --qat of the file's type, and with --qat of
another type. All files have these weights in the row's type. Importance is that of --calibrate on 64 kB of the training
text. Prints the rows of docs/benchmarks/quantized.json, with the perplexities of each seed on the held-out text, in
windows of 128 bytes."""
import argparse
import json
import os
import re
import sys
import tempfile

from oracle import run

CONFIG = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 768,
          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "vocab_size": 257,
          "bos_token_id": 256, "eos_token_id": 256}
# Name: the type, whether importance is used, and the other type that is trained for.
ROWS = {"f32": ("f32", False, None), "q8_0": ("q8_0", False, "q4_0"), "q4_k_m": ("q4_k_m", False, "q4_0"),
        "q4_k_m, imatrix": ("q4_k_m", True, "q4_0"), "q4_0": ("q4_0", False, "q2_k"),
        "q3_k_m": ("q3_k_m", False, "q4_0"), "q2_k": ("q2_k", False, "q4_0")}


def must(*command, **options):
    done = run(*command, **options)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


class Seed:
    def __init__(self, o, work, seed):
        self.o, self.work, self.seed = o, work, seed

    def train(self, name, steps, rate, **options):
        must(f"{self.o.bin}/txtrain", train_file=f"{self.work}/train", block_size=128, per_device_train_batch_size=8,
             max_steps=steps, learning_rate=rate, lr_scheduler_type="cosine", warmup_steps=steps // 10,
             seed=self.seed, save_strategy="no", device=self.o.device, output_dir=f"{self.work}/{self.seed}{name}",
             **options)

    def begin(self):
        """Trains the model, then without --qat and for each type."""
        self.train("base", self.o.steps, 1e-3, config_name=f"{self.work}/config.json")
        base = f"{self.work}/{self.seed}base"
        for kind in {None, *(row[0] for row in ROWS.values()), *(row[2] for row in ROWS.values())} - {"f32"}:
            self.train(kind or "plain", self.o.more, self.o.rate, model_name_or_path=base, qat=kind)

    def perplexity(self, trained, kind, weighted):
        folder, path = f"{self.work}/{self.seed}{trained}", f"{self.work}/model.gguf"
        must(f"{self.o.bin}/txconvert", folder, to=path, outtype=kind,
             calibrate=f"{self.work}/calibrate" if weighted else None)
        told = must(f"{self.o.bin}/txgen", model=path, perplexity=f"{self.work}/held", max_length=128, stride=128,
                    dtype="float32")
        return float(re.search(r"perplexity ([0-9.]+)", told).group(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("text")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--more", type=int, default=30)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--device", default="cpu")
    o = parser.parse_args()
    rows = {name: dict(table="quality", name=name, other_type=other, without=[], own=[], other=[])
            for name, (_, _, other) in ROWS.items()}
    with tempfile.TemporaryDirectory() as work:
        with open(o.text, "rb") as file:
            text = file.read()
        for part, data in (("train", text[:-(1 << 14)]), ("held", text[-(1 << 14):]), ("calibrate", text[:1 << 16]),
                           ("config.json", json.dumps(CONFIG).encode())):
            with open(f"{work}/{part}", "wb") as file:
                file.write(data)
        for number in range(1, o.seeds + 1):
            seed = Seed(o, work, number)
            seed.begin()
            for name, (kind, weighted, other) in ROWS.items():
                row = rows[name]
                row["without"].append(seed.perplexity("plain", kind, weighted))
                if other:
                    row["own"].append(seed.perplexity(kind, kind, weighted))
                    row["other"].append(seed.perplexity(other, kind, weighted))
                print(number, name, row["without"][-1], row["own"][-1:], row["other"][-1:], file=sys.stderr, flush=True)
    command = f"sh tests/python.sh tests/transformers/bench_quantized.py BIN TEXT --seeds {o.seeds} --steps {o.steps} " \
              f"--more {o.more} --rate {o.rate}"
    for row in rows.values():
        print(json.dumps({**row, "machine": "C", "command": command}))


if __name__ == "__main__":
    main()
