#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of `txbench train --peer torch` and `txbench generate --peer torch`: a GPT-2 of transformers with PyTorch.

    peer_torch.py train|generate VOCAB POSITIONS WIDTH LAYERS HEADS BATCH BLOCK THREADS

fp32, eager, the default SDPA attention, no dropout. train: random tokens, AdamW, global norm clipped to 1. generate: greedy
continuation of random prompts of BLOCK tokens, with key-value caches. Says "ready <versions>"; then takes a number of steps
(train) or of new tokens (generate) a line on standard input and answers "seconds <time of all of them>".
"""
import os
import sys
import time

try:
    import torch
    import transformers
except ImportError as error:
    sys.exit(f"peer_torch.py: {error}; install it (python3 -m venv torch; torch/bin/pip install torch transformers) "
             "and set TX_PYTHON=torch/bin/python")


def trainer(model, vocab, batch, block):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)

    def run(steps):
        for _ in range(steps):
            tokens = torch.randint(0, vocab, (batch, block))
            loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            loss.item()
    return run


def generator(model, vocab, batch, block):
    model.eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0

    def run(count):
        tokens = torch.randint(0, vocab, (batch, block))
        with torch.no_grad():
            out = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=count, do_sample=False)
        assert out.shape[1] == block + count
    return run


def main():
    task = sys.argv[1]
    vocab, positions, width, layers, heads, batch, block, threads = (int(word) for word in sys.argv[2:])
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=vocab, n_positions=positions, n_embd=width, n_layer=layers, n_head=heads,
        embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0))
    run = {"train": trainer, "generate": generator}[task](model, vocab, batch, block)
    print(f"ready torch {torch.__version__}, transformers {transformers.__version__}, {torch.get_num_threads()} threads",
          flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        run(int(line))
        print(f"seconds {time.perf_counter() - begin}", flush=True)


main()
