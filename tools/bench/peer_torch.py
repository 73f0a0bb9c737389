#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of `txbench train --peer torch` and `txbench generate --peer torch`: a GPT-2 of transformers with PyTorch.

    peer_torch.py train VOCAB POSITIONS WIDTH LAYERS HEADS BATCH BLOCK THREADS PRECISION OPTIM OPTIM_ARGS CHECKPOINTING MICRO
    peer_torch.py generate VOCAB POSITIONS WIDTH LAYERS HEADS BATCH BLOCK THREADS

Eager, the default SDPA attention, no dropout. train: random tokens, MICRO batches a step, global norm clipped to 1; PRECISION
fp32, tf32, bf16 or fp16 (autocast); the optimizer that transformers' Trainer has by the name OPTIM; CHECKPOINTING true or false.
generate: fp32, greedy continuation of random prompts of BLOCK tokens, with key-value caches. Says "ready <versions>"; then takes a number of steps
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


def optimizer_of(model, name, args):
    """The one that Trainer makes for --optim and --optim_args; where it is a plain AdamW, with its defaults."""
    try:
        arguments = transformers.TrainingArguments(output_dir=".", report_to="none", use_cpu=True, optim=name,
                                                   optim_args=args or None)
    except ValueError:
        sys.exit(f"peer_torch.py: transformers has no optimizer {name}")
    kind, options = transformers.Trainer.get_optimizer_cls_and_kwargs(arguments)
    return kind(model.parameters(), **options)


def trainer(model, vocab, batch, block, precision="fp32", optim="adamw_torch", optim_args="", checkpointing="false", micro="1"):
    model.train()
    if checkpointing == "true":
        model.gradient_checkpointing_enable()
    if precision == "tf32":
        torch.set_float32_matmul_precision("high")
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    scaler = torch.amp.GradScaler("cpu", enabled=precision == "fp16")
    optimizer = optimizer_of(model, optim, optim_args)

    def run(steps):
        for _ in range(steps):
            for _ in range(int(micro)):
                tokens = torch.randint(0, vocab, (batch, block))
                with torch.autocast("cpu", dtype=half or torch.bfloat16, enabled=half is not None):
                    loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss / int(micro)
                scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
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
    vocab, positions, width, layers, heads, batch, block, threads = (int(word) for word in sys.argv[2:10])
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=vocab, n_positions=positions, n_embd=width, n_layer=layers, n_head=heads,
        embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0))
    run = {"train": trainer, "generate": generator}[task](model, vocab, batch, block, *sys.argv[10:])
    print(f"ready torch {torch.__version__}, transformers {transformers.__version__}, {torch.get_num_threads()} threads",
          flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        run(int(line))
        print(f"seconds {time.perf_counter() - begin}", flush=True)


main()
