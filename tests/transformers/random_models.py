# SPDX-License-Identifier: Apache-2.0
"""Causal language models of random weights, their input, and comparisons of TX's programs on their folders with
transformers."""
import math
import os
import tempfile

from oracle import check, decayed, fit, log_of, run

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

ROWS, LENGTH = 2, 24
STEPS, BATCH, RATE, DECAY = 30, 4, 2e-3, 0.1


def make_model(config):
    """A model whose logits depend on every parameter."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * 0.2 + (1.0 if "norm" in name else 0.0))
    return model


def run_logits(program, folder, out, device, shard_bytes=0):
    return run(program, folder, out, device, str(shard_bytes))


def ids_of(model):
    return torch.tensor([[(b * 101 + t * 37) % model.config.vocab_size for t in range(LENGTH)] for b in range(ROWS)])


def logits_of(model):
    with torch.no_grad():
        return model(ids_of(model)).logits.double()


def compare(name, model, folder, program, device, shard_bytes=0):
    """Runs TX on `folder`, and compares its logits and its saved folder with the model."""
    want = logits_of(model.double())
    model.float()
    with tempfile.TemporaryDirectory() as out:
        done = run_logits(program, folder, out, device, shard_bytes)
        check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
        if done.returncode:
            return
        got = load_file(os.path.join(out, "logits.safetensors"))["logits"].double()
        error = ((got - want).abs().max() / want.abs().max()).item()
        check(error <= 1e-5, f"{name}: logits differ by {error}")
        back, info = AutoModelForCausalLM.from_pretrained(out, attn_implementation=model.config._attn_implementation,
                                                          experts_implementation="eager", output_loading_info=True)
        check(not any(info.values()), f"{name}: loading what TX saved: {info}")
        ours, theirs = back.state_dict(), model.state_dict()
        check(set(ours) == set(theirs) and all(torch.equal(ours[k], theirs[k]) for k in ours),
              f"{name}: weights differ")
        off = ((logits_of(back.eval().double()) - want).abs().max() / want.abs().max()).item()
        check(off <= 1e-6, f"{name}: logits of what TX saved differ by {off}")
        print(f"{name}: largest relative difference {error:.1e}")


def gradients(name, model, folder, program, device):
    """Compares gradients of the mean loss. A gradient that is 0 except for rounding, as of the biases of keys without
    positions, counts as 0."""
    model.double()
    ids = ids_of(model)
    model(ids, labels=ids).loss.backward()
    with tempfile.TemporaryDirectory() as out:
        done = run_logits(program, folder, out, device, -1)
        check(done.returncode == 0, f"{name}: gradients: {done.stderr.strip()}")
        ours = dict(AutoModelForCausalLM.from_pretrained(out).named_parameters()) if done.returncode == 0 else {}
    worst = 0.0
    for n, p in model.named_parameters():
        size = p.grad.abs().max().clamp(min=1e-3)
        worst = max(worst, ((ours[n].detach().double() - p.grad).abs().max() / size).item() if n in ours else math.inf)
    check(worst <= 1e-4, f"{name}: gradients differ by {worst}")
    print(f"{name}: largest relative difference of a gradient {worst:.1e}")


def train(name, kind, keys, program, device):
    """Compares the losses of steps on blocks of bytes in their order, with the load-balancing loss."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(kind(**keys)).train()
    text = "".join(f"line {i}: the {('cat', 'dog', 'bird')[i * i % 3]} saw {i % 7} fish\n" for i in range(200)).encode()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(f"{folder}/model")
        with open(f"{folder}/text.txt", "wb") as file:
            file.write(text)
        done = run(program, model_name_or_path=f"{folder}/model", train_file=f"{folder}/text.txt",
                   output_dir=f"{folder}/run",
                   block_size=LENGTH, per_device_train_batch_size=BATCH, max_steps=STEPS,
                   train_sampling_strategy="sequential",
                   learning_rate=RATE, lr_scheduler_type="constant", weight_decay=DECAY, save_strategy="no",
                   device=device)
        check(done.returncode == 0, f"{name}: txtrain: {done.stderr.strip()}")
        if done.returncode:
            return
        ours = log_of(f"{folder}/run")

    def loss_of(step):
        ids = torch.tensor(list(text[step * BATCH * LENGTH:(step + 1) * BATCH * LENGTH])).reshape(BATCH, LENGTH)
        return model(ids, labels=ids).loss
    theirs = fit(torch.optim.AdamW(decayed(model, DECAY), lr=RATE), STEPS, loss_of)
    worst = max((abs(a - b) for a, b in zip(ours, theirs)), default=math.inf)
    check(len(ours) == STEPS and worst <= 1e-4, f"{name}: losses of {len(ours)} steps differ by {worst}")
    check(theirs[-1] < theirs[0] - 0.5, f"{name}: little was learned: {theirs}")
    print(f"{name}: losses of {STEPS} steps within {worst:.1e}, {theirs[0]:.3f} -> {theirs[-1]:.3f}")


def generate(name, model, folder, program, device, new=16):
    """Compares the likeliest continuation of each row."""
    model.float()
    for row in ids_of(model)[:, :8]:
        with torch.no_grad():
            want = model.generate(row[None], attention_mask=torch.ones_like(row[None]), max_new_tokens=new,
                                  do_sample=False, pad_token_id=0)[0, len(row):].tolist()
        done = run(program, model=folder, ids=" ".join(map(str, row.tolist())), max_new_tokens=new, device=device,
                   threads=1, temperature=0)
        got = [int(token) for token in done.stdout.split()] if done.returncode == 0 else done.stderr
        check(got == want, f"{name}: txgen continues with {got}, not {want}")
