#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small byte GPT-2 on tinyshakespeare with every optimizer, by PyTorch (transformers' and bitsandbytes'
optimizers, or the formula) and by TX, from the same weights on the same batches. Compares the losses of the last steps.

    torch_optimizers.py CURVE DEVICE [NAME...]     CURVE: the program of curve.c; NAME: run only these rows

Ends with 77 (skipped) if torch, transformers, the text or the device are missing.
"""
import os
import subprocess
import sys
import tempfile

from oracle import DATA, skip

import torch
import transformers

STEPS, BATCH, BLOCK, LAST = 300, 8, 64, 20
DECAY, TOLERANCE = 0.01, 0.01

try:
    import bitsandbytes
except ImportError:
    bitsandbytes = None


class AnyPrecision(torch.optim.Optimizer):
    """AdamW of torchdistx, with both moments and the compensation in bf16."""

    def __init__(self, groups, lr):
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                s = self.state[p]
                if not s:
                    s.update(step=0, m=torch.zeros_like(p, dtype=torch.bfloat16),
                             v=torch.zeros_like(p, dtype=torch.bfloat16),
                             c=torch.zeros_like(p, dtype=torch.bfloat16))
                s["step"] += 1
                p.mul_(1 - group["lr"] * group["weight_decay"])
                s["m"].mul_(0.9).add_(p.grad, alpha=0.1)
                s["v"].mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                root = (1 - 0.999 ** s["step"]) ** 0.5
                size = group["lr"] / (1 - 0.9 ** s["step"])
                s["c"].addcdiv_(s["m"], (s["v"].sqrt() / root).add_(1e-8), value=-size)
                old = p.clone()
                p.add_(s["c"])
                s["c"].add_(old.sub_(p))


def decayed(parameters):
    parameters = list(parameters)
    return [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": DECAY},
            {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0}]


def muon(model, rate):
    hidden = [p for n, p in model.named_parameters() if p.dim() > 1 and ".h." in n]
    rest = [p for n, p in model.named_parameters() if not (p.dim() > 1 and ".h." in n)]
    return [torch.optim.Muon(hidden, lr=rate, weight_decay=DECAY, momentum=0.95, nesterov=True),
            torch.optim.AdamW(decayed(rest), lr=rate)]


def adamw_8bit(model, rate):
    manager = bitsandbytes.optim.GlobalOptimManager.get_instance()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            manager.register_module_override(module, "weight", {"optim_bits": 32})
    return [bitsandbytes.optim.AdamW(decayed(model.parameters()), lr=rate, optim_bits=8)]


def adafactor(model, rate, **more):
    return [transformers.Adafactor(decayed(model.parameters()), lr=rate, **more)]


# Name, --optim, --optim_args, rate, PyTorch's.
ROWS = [
    ("adamw", "adamw_torch", "", 3e-3, lambda m, r: [torch.optim.AdamW(decayed(m.parameters()), lr=r)]),
    ("sgd", "sgd", "momentum=0.9", 0.1, lambda m, r: [torch.optim.SGD(decayed(m.parameters()), lr=r, momentum=0.9)]),
    ("nesterov", "sgd", "momentum=0.9, nesterov=True", 0.1,
     lambda m, r: [torch.optim.SGD(decayed(m.parameters()), lr=r, momentum=0.9, nesterov=True)]),
    ("adafactor", "adafactor", "", 3e-3, lambda m, r: adafactor(m, r, scale_parameter=False, relative_step=False)),
    ("relative", "adafactor", "relative_step=True, scale_parameter=True", 1e-2, lambda m, r: adafactor(m, None)),
    ("adamw_8bit", "adamw_8bit", "", 3e-3, adamw_8bit),
    ("anyprecision", "adamw_anyprecision",
     "momentum_dtype=bfloat16, variance_dtype=bfloat16, use_kahan_summation=True", 3e-3,
     lambda m, r: [AnyPrecision(decayed(m.parameters()), r)]),
    ("muon", "muon", "", 3e-3, muon),
]


def make_model():
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=256, n_positions=BLOCK, n_embd=64, n_layer=2, n_head=2,
        embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    return transformers.GPT2LMHeadModel(config)


def make_data(path):
    """Rows from anywhere in the text; the labels are the tokens that follow."""
    with open(path, "rb") as file:
        text = torch.tensor(list(file.read()))
    torch.manual_seed(2)
    at = torch.randint(0, len(text) - BLOCK - 1, (STEPS, BATCH, 1)) + torch.arange(BLOCK)
    return text[at], text[at + 1]


def train_torch(model, make, rate, tokens, labels):
    optimizers = make(model, rate)
    rates = [[group["lr"] for group in o.param_groups] for o in optimizers]
    curve = []
    for step in range(STEPS):
        for o, each in zip(optimizers, rates):
            for group, lr in zip(o.param_groups, each):
                group["lr"] = lr and lr * (STEPS - step) / STEPS
        logits = model(input_ids=tokens[step], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels[step].reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for o in optimizers:
            o.step()
            o.zero_grad()
        curve.append(loss.item())
    return curve


def train_tx(curve, device, folder, row):
    _, optim, arguments, rate, _ = row
    done = subprocess.run(
        [curve, folder, f"{folder}/data", str(STEPS), str(BATCH), str(BLOCK), "1", str(rate), str(DECAY), device, "0",
         optim, arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"curve ended with {done.returncode}")
        sys.exit(done.returncode)
    return [float(line.split()[0]) for line in done.stdout.splitlines()]


def main():
    curve, device, *names = sys.argv[1:]
    text = os.path.join(DATA, "text/tinyshakespeare.txt")
    if not os.path.exists(text):
        skip(f"there is no {text}")
    torch.set_num_threads(1)  # the model is too small for more
    transformers.utils.logging.disable_progress_bar()
    tokens, labels = make_data(text)
    failed = False
    for row in ROWS:
        if (names and row[0] not in names) or (row[0] == "adamw_8bit" and not bitsandbytes):
            print(f"{row[0]}: left out")
            continue
        model = make_model()
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            with open(f"{folder}/data", "wb") as data:
                for step in range(STEPS):
                    data.write(tokens[step].int().numpy().tobytes() + labels[step].int().numpy().tobytes())
            ours = train_tx(curve, device, folder, row)
        theirs = train_torch(model.train(), row[4], row[3], tokens, labels)
        mine, his = sum(ours[-LAST:]) / LAST, sum(theirs[-LAST:]) / LAST
        good = len(ours) == STEPS and abs(mine / his - 1) <= TOLERANCE and his < theirs[0] - 1.0
        print(f"{row[0]:13} {device}: {theirs[0]:.4f} -> {his:.4f}, TX {mine:.4f}, {100 * (mine / his - 1):+.3f} %"
              f"{'' if good else '  FAIL'}", flush=True)
        failed |= not good
    sys.exit(1 if failed else 0)


main()
