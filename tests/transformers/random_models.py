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
# Buffers that follow from the configuration, which transformers saves and TX does not.
COMPUTED = (".slope_rate", ".query_decay", ".key_decay", ".diagonal_decay")
STEPS, BATCH, RATE, DECAY = 30, 4, 2e-3, 0.1


def make_model(config):
    """A model whose logits depend on every parameter."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * 0.2 + (1.0 if "norm" in name else 0.0))
    return bias_choices(model)


def bias_choices(model):
    """Makes buffers random: the biases that only choose experts, which most types begin with 0, and scales of layers,
    which begin with 1."""
    for name, b in list(model.named_buffers()) + list(model.named_parameters()):
        if name.endswith(("e_score_correction_bias", "expert_bias", "layer_scalar")):
            b.data.copy_(torch.randn_like(b) * 0.2 + (1.0 if name.endswith("layer_scalar") else 0.0))
    return model


def run_logits(program, folder, out, device, shard_bytes=0, length=LENGTH):
    return run(program, folder, out, device, str(shard_bytes), str(length))


def ids_of(model, length=LENGTH):
    count = model.config.get_text_config().vocab_size
    return torch.tensor([[(b * 101 + t * 37) % count for t in range(length)] for b in range(ROWS)])


def logits_of(model, length=LENGTH):
    with torch.no_grad():
        return model(ids_of(model, length)).logits.double()


def compare(name, model, folder, program, device, shard_bytes=0, length=LENGTH, amplifies=False):
    """Runs TX on `folder`, and compares its logits and its saved folder with the model in double precision. A model that
    `amplifies` rounding may differ as much as the model in fp32 does."""
    want = logits_of(model.double(), length)
    own = ((logits_of(model.float(), length) - want).abs().max() / want.abs().max()).item()
    with tempfile.TemporaryDirectory() as out:
        done = run_logits(program, folder, out, device, shard_bytes, length)
        check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
        if done.returncode:
            return
        got = load_file(os.path.join(out, "logits.safetensors"))["logits"].double()
        error = ((got - want).abs().max() / want.abs().max()).item()
        check(error <= (max(1e-5, own) if amplifies else 1e-5), f"{name}: logits differ by {error}")
        back, info = AutoModelForCausalLM.from_pretrained(out, attn_implementation=model.config._attn_implementation,
                                                          experts_implementation="eager", output_loading_info=True)
        info["missing_keys"] = [key for key in info["missing_keys"] if not key.endswith(COMPUTED)]
        check(not any(info.values()), f"{name}: loading what TX saved: {info}")
        ours, theirs = back.state_dict(), model.state_dict()
        check(set(ours) == set(theirs) and all(torch.equal(ours[k], theirs[k]) for k in ours),
              f"{name}: weights differ")
        off = ((logits_of(back.eval().double(), length) - want).abs().max() / want.abs().max()).item()
        check(off <= 1e-6, f"{name}: logits of what TX saved differ by {off}")
        print(f"{name}: largest relative difference {error:.1e}, of transformers in fp32 {own:.1e}")


def gradients_of(model, ids):
    model.zero_grad()
    model(ids, labels=ids).loss.backward()
    return {n: p.grad.double() for n, p in model.named_parameters() if p.grad is not None}


def worst_of(got, want):
    """The largest difference of a gradient. One that is 0 except for rounding, as of the biases of keys without
    positions, counts as 0."""
    return max(((got[n].double() - g).abs().max() / g.abs().max().clamp(min=1e-3)).item() if n in got else math.inf
               for n, g in want.items())


def gradients(name, model, folder, program, device, length=LENGTH, amplifies=False):
    """Compares gradients of the mean loss with those in double precision. Those of a model that `amplifies` rounding may
    differ as much as the model's in fp32 do."""
    ids = ids_of(model, length)
    want = gradients_of(model.double(), ids)
    own = worst_of(gradients_of(model.float(), ids), want)
    model.double()
    with tempfile.TemporaryDirectory() as out:
        done = run_logits(program, folder, out, device, -1, length)
        check(done.returncode == 0, f"{name}: gradients: {done.stderr.strip()}")
        ours = dict(AutoModelForCausalLM.from_pretrained(out).named_parameters()) if done.returncode == 0 else {}
    worst = worst_of({n: p.detach() for n, p in ours.items()}, want)
    check(worst <= (max(1e-4, own) if amplifies else 1e-4), f"{name}: gradients differ by {worst}")
    print(f"{name}: largest relative difference of a gradient {worst:.1e}, of transformers in fp32 {own:.1e}")


def train(name, kind, keys, program, device):
    """Compares the losses of steps on blocks of bytes in their order, with the load-balancing loss."""
    torch.manual_seed(1)
    model = bias_choices(AutoModelForCausalLM.from_config(kind(**keys)).train())
    if kind.model_type == "phimoe":  # in training transformers draws the experts
        model.eval()
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


def generate(name, model, folder, program, device, new=16, beams=1, use_cache=True):
    """Compares the likeliest continuation of each row, or that of the best beam."""
    model.float()
    for row in ids_of(model)[:, :8]:
        with torch.no_grad():
            want = model.generate(row[None], attention_mask=torch.ones_like(row[None]), max_new_tokens=new,
                                  do_sample=False, pad_token_id=0, num_beams=beams,
                                  use_cache=use_cache)[0, len(row):].tolist()
        done = run(program, model=folder, ids=" ".join(map(str, row.tolist())), max_new_tokens=new, device=device,
                   threads=1, **(dict(num_beams=beams) if beams > 1 else dict(temperature=0)))
        got = [int(token) for token in done.stdout.split()] if done.returncode == 0 else done.stderr
        check(got == want, f"{name}: txgen continues with {got}, not {want}")
