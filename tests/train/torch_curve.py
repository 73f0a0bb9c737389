#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a GPT-2 of odd sizes with transformers and with TX, from the same weights on the same batches, and compares
the loss curves.

    torch_curve.py CURVE DEVICE        CURVE: the program of curve.c

Runs once with the labels and once with smoothed labels. The reference computes in double precision, so that the
difference is TX's error. Ends with 77 (skipped) if torch, transformers or the device are missing.
"""
import math
import subprocess
import sys
import tempfile

from oracle import decayed

import torch
import transformers

STEPS, BATCH, BLOCK, ACCUMULATION = 50, 3, 37, 2
RATE, DECAY, TOLERANCE = 1e-3, 0.1, 1e-4


def make_model():
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=257, n_positions=41, n_embd=60, n_layer=3, n_head=3, n_inner=100,
        embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, bos_token_id=256, eos_token_id=256)
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():  # biases and norms too, so that none is trivially right
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def make_data():
    """Tokens with some structure to learn, and labels of which some are ignored: rows end at odd places."""
    torch.manual_seed(2)
    rows = STEPS * ACCUMULATION * BATCH
    start, stride = torch.randint(0, 257, (rows, 1)), torch.randint(1, 4, (rows, 1))
    tokens = (start + stride * torch.arange(BLOCK)) % 61
    noise = torch.rand(rows, BLOCK) < 0.1
    tokens = torch.where(noise, torch.randint(0, 257, (rows, BLOCK)), tokens)
    labels = torch.full_like(tokens, -100)
    labels[:, :-1] = tokens[:, 1:]
    length = torch.randint(5, BLOCK + 1, (rows, 1))
    labels[torch.arange(BLOCK) >= length] = -100
    shape = (STEPS, ACCUMULATION, BATCH, BLOCK)
    return tokens.reshape(shape), labels.reshape(shape)


def train_torch(model, tokens, labels, smoothing):
    model = model.double().train()
    optimizer = torch.optim.AdamW(decayed(model, DECAY), lr=RATE, betas=(0.9, 0.999), eps=1e-8)
    curve = []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (STEPS - step) / STEPS
        count = (labels[step] != -100).sum()
        total = 0.0
        for micro in range(ACCUMULATION):
            logits = model(input_ids=tokens[step, micro], use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(
                logits.reshape(-1, logits.shape[-1]), labels[step, micro].reshape(-1), reduction="sum",
                label_smoothing=smoothing) / count
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        optimizer.step()
        optimizer.zero_grad()
        curve.append((total, norm))
    return curve


def train_tx(curve, device, folder, tokens, labels, smoothing):
    with open(f"{folder}/data", "wb") as data:
        for step in range(STEPS):
            data.write(tokens[step].int().numpy().tobytes() + labels[step].int().numpy().tobytes())
    done = subprocess.run(
        [curve, folder, f"{folder}/data", str(STEPS), str(BATCH), str(BLOCK), str(ACCUMULATION), str(RATE), str(DECAY),
         device, str(smoothing)],
        stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"curve ended with {done.returncode}")
        sys.exit(done.returncode)
    return [tuple(float(word) for word in line.split()) for line in done.stdout.splitlines()]


def compare(curve, device, smoothing):
    model = make_model()
    tokens, labels = make_data()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        ours = train_tx(curve, device, folder, tokens, labels, smoothing)
    theirs = train_torch(model, tokens, labels, smoothing)
    if len(ours) != STEPS:
        sys.exit(f"FAIL: {len(ours)} steps of {STEPS}")
    worst = max(abs(a[0] - b[0]) if math.isfinite(a[0]) else math.inf for a, b in zip(ours, theirs))
    norms = max(abs(a[1] / b[1] - 1) if math.isfinite(a[1]) else math.inf for a, b in zip(ours, theirs))
    print(f"{device}, smoothing {smoothing}: loss {theirs[0][0]:.6f} -> {theirs[-1][0]:.6f}, "
          f"largest difference {worst:.3g} "
          f"(limit {TOLERANCE:g}), gradient norms within {norms:.3g}")
    if not theirs[-1][0] < theirs[0][0] - 0.5:
        sys.exit("FAIL: nothing was learned, so nothing was tested")
    if not (worst <= TOLERANCE and norms <= 1e-2):
        sys.exit("FAIL")


def main():
    for smoothing in (0.0, 0.1):
        compare(*sys.argv[1:], smoothing)


main()
