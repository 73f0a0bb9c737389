# SPDX-License-Identifier: Apache-2.0
"""txgen --perplexity --reference: divergence, agreement and perplexities are those that torch computes in double
precision from the logits of both models.

    divergence.py TXGEN TXTRAIN TXTOK
"""
import json
import math
import re
import sys
import tempfile

from oracle import check, run, status

import torch
from safetensors.torch import load_file

TXGEN, TXTRAIN, TXTOK = sys.argv[1:]
WINDOW = 24
CONFIG = {"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 48,
          "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32, "vocab_size": 257,
          "bos_token_id": 256, "eos_token_id": 256}


def log_softmax(model, ids, work):
    done = run(TXGEN, model=model, ids=" ".join(map(str, ids)), logits=f"{work}/logits")
    check(done.returncode == 0, done.stderr)
    return torch.log_softmax(load_file(f"{work}/logits")["logits"][0].double(), -1)


def main():
    with tempfile.TemporaryDirectory() as work:
        with open(f"{work}/config.json", "w", encoding="utf-8") as file:
            json.dump(CONFIG, file)
        with open(f"{work}/text", "wb") as file:
            file.write(bytes(i * i % 90 + 32 for i in range(2000)))
        with open(f"{work}/short", "wb") as file:
            file.write(bytes(i * i % 90 + 32 for i in range(61)))
        for name, seed in (("one", "1"), ("two", "2")):
            done = run(TXTRAIN, "--config_name", f"{work}/config.json", "--train_file", f"{work}/text", "--seed", seed,
                       "--max_steps", "8", "--learning_rate", "1e-2", "--block_size", "24", "--output_dir",
                       f"{work}/{name}")
            check(done.returncode == 0, done.stderr)
        ids = [int(i) for i in run(TXTOK, "encode", "--tokenizer", f"{work}/one", f"{work}/short").stdout.split()]
        kl, same, losses, count = 0.0, 0, [0.0, 0.0], 0
        for begin in range(0, len(ids) - 1, WINDOW):
            window = ids[begin:begin + WINDOW]
            q, p = (log_softmax(f"{work}/{name}", window, work)[:-1] for name in ("one", "two"))
            kl += (p.exp() * (p - q)).sum().item()
            same += (p.argmax(-1) == q.argmax(-1)).sum().item()
            for i, logs in enumerate((q, p)):
                losses[i] -= logs.gather(1, torch.tensor(window[1:])[:, None]).sum().item()
            count += len(window) - 1
        done = run(TXGEN, "--model", f"{work}/one", "--reference", f"{work}/two", "--perplexity", f"{work}/short",
                   "--max_length", str(WINDOW))
        check(done.returncode == 0, done.stderr)
        got = [float(x) for x in re.findall(r"[0-9]+(?:\.[0-9]+)?", done.stdout)][:6]
        want = [math.exp(losses[0] / count), math.exp(losses[1] / count), kl / count, 100 * same / count, count,
                -(-(len(ids) - 1) // WINDOW)]
        check(len(got) == 6 and all(abs(a - b) <= 1e-5 * abs(b) + 5e-7 + 5e-3 * (i == 3)
                                    for i, (a, b) in enumerate(zip(got, want))), f"{got}, not {want}")
        check(want[2] > 1e-3 and 0 < same < count, "the models do not differ enough")
        small = dict(CONFIG, vocab_size=300)
        with open(f"{work}/config.json", "w", encoding="utf-8") as file:
            json.dump(small, file)
        done = run(TXTRAIN, "--config_name", f"{work}/config.json", "--train_file", f"{work}/text", "--max_steps", "1",
                   "--block_size", "24", "--tokenizer_name", f"{work}/one", "--output_dir", f"{work}/other")
        check(done.returncode == 0, done.stderr)
        done = run(TXGEN, "--model", f"{work}/one", "--reference", f"{work}/other", "--perplexity", f"{work}/short")
        check(done.returncode == 1 and "vocabularies have 257 and 300" in done.stderr, done.stderr)
        for more, word in ((["--stride", "8"], "--stride"), (["--batch_size", "2"], "--batch_size")):
            done = run(TXGEN, "--model", f"{work}/one", "--reference", f"{work}/two", "--perplexity", f"{work}/short",
                       *more)
            check(done.returncode == 2 and word in done.stderr, done.stderr)
    return status()


if __name__ == "__main__":
    sys.exit(main())
