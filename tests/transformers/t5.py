# SPDX-License-Identifier: Apache-2.0
"""Compares T5, T5 1.1 and mT5 with transformers, with random weights of odd sizes and rows of different lengths:
logits, gradients of every tensor, thirty steps of AdamW, and folders of TX that transformers reads.

    t5.py BERT_STEPS [DEVICE]      exit status 77: transformers is not installed
"""
import json
import os
import sys
import tempfile

from oracle import check, decayed, run, status

import torch
from safetensors.torch import load_file
from transformers import MT5ForConditionalGeneration, T5ForConditionalGeneration

torch.set_num_threads(1)
STEPS, BATCH, BLOCK, RATE = 30, 5, 38, 5e-4
BASE = dict(vocab_size=131, d_model=30, d_kv=7, d_ff=47, num_layers=2, num_heads=5, dropout_rate=0.0,
            decoder_start_token_id=0)
GATED = dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False)
VARIANTS = {
    "T5": (T5ForConditionalGeneration, {}),
    "T5, three decoder layers, near positions": (
        T5ForConditionalGeneration, dict(num_decoder_layers=3, relative_attention_num_buckets=8,
                                         relative_attention_max_distance=16, decoder_start_token_id=5)),
    "T5, silu": (T5ForConditionalGeneration, dict(feed_forward_proj="silu", num_layers=1)),
    "T5, gated silu": (T5ForConditionalGeneration, dict(feed_forward_proj="gated-silu", num_decoder_layers=1)),
    "T5 1.1": (T5ForConditionalGeneration, GATED),
    "mT5": (MT5ForConditionalGeneration, dict(GATED, d_kv=8, layer_norm_epsilon=1e-3)),
    "mT5, tied": (MT5ForConditionalGeneration, dict(feed_forward_proj="gated-gelu")),
    "T5 1.1, tied": (T5ForConditionalGeneration, dict(feed_forward_proj="gated-gelu", scale_decoder_outputs=False)),
}


def make_model(kind, changes):
    """A model whose logits depend on every parameter, with an output head of its own if the embedding is not tied."""
    torch.manual_seed(0)
    model = kind(kind.config_class(**{**BASE, **changes})).train()
    if "tie_word_embeddings" in changes:
        model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.shared.weight))
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * 0.15 + (1.0 if "layer_norm" in name else 0.0))
    return model


def make_data(model):
    torch.manual_seed(1)
    ids = torch.randint(0, model.config.vocab_size, (STEPS, BATCH, BLOCK))
    lengths = torch.randint(1, BLOCK + 1, (STEPS, BATCH))
    lengths[:, 0] = BLOCK
    target = torch.randint(1, BLOCK // 2 + 1, (STEPS, BATCH))
    labels = (ids[:, :, :BLOCK // 2] + 1) % model.config.vocab_size
    labels[torch.arange(BLOCK // 2) >= target[..., None]] = -100
    begin = torch.full_like(labels[..., :1], model.config.decoder_start_token_id)
    before = torch.cat([begin, labels[..., :-1]], -1)
    return ids, before.where(before >= 0, 0), lengths, labels


def train(model, data, dtype=torch.float64):
    """Losses, logits and gradients of the first step."""
    model = model.to(dtype)
    optimizer = torch.optim.AdamW(decayed(model, 0.01), lr=RATE)
    losses, first = [], None
    for ids, before, lengths, labels in zip(*data):
        out = model(input_ids=ids, attention_mask=(torch.arange(BLOCK) < lengths[:, None]).long(), labels=labels)
        optimizer.zero_grad()
        out.loss.backward()
        if first is None:
            first = {"logits": out.logits.detach().clone()}
            first |= {name: p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
        losses.append(out.loss.item())
    return losses, first


def far(got, want):
    """The largest difference, of the size of the largest number."""
    return ((got.double() - want).abs().max() / want.abs().max()).item()


def joined(name, theirs):
    """TX holds keys and values as one, and so the two parts of a gated layer."""
    if "|" not in name:
        return theirs[name]
    before, both, after = name.rpartition(".")[0].rpartition(".")[0], name.split(".")[-2], name.split(".")[-1]
    return torch.cat([theirs[f"{before}.{part}.{after}"] for part in both.split("|")])


def train_by_tx(program, folder, out, data, device):
    """The same by TX, which also saves the model."""
    with open(os.path.join(folder, "data"), "wb") as file:
        for step in zip(*data):
            for field in step:
                file.write(field.int().numpy().tobytes())
    return run(program, folder, os.path.join(folder, "data"), out, str(len(data[0])), str(BATCH), str(BLOCK), str(RATE),
               device)


def differences(losses, first, exact, data):
    """How far logits, gradients and losses are from exact ones."""
    inside = (data[3][0] >= 0)[..., None]
    size = max(p.abs().max() for key, p in exact[1].items() if key != "logits")
    gradients = max(((g.double() - joined(key, exact[1])).abs().max() / size).item()
                    for key, g in first.items() if key != "logits")
    return (far(first["logits"] * inside, exact[1]["logits"] * inside), gradients,
            max(abs(a - b) for a, b in zip(exact[0], losses, strict=True)))


def compare(name, kind, changes, program, device, published):
    model = make_model(kind, changes)
    data = make_data(model)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as out:
        model.save_pretrained(folder)
        if published:  # published files have only the first key
            path = os.path.join(folder, "config.json")
            with open(path, encoding="utf-8") as file:
                config = json.load(file)
            config["tie_word_embeddings"] = "tie_word_embeddings" not in changes
            config.pop("scale_decoder_outputs", None)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(config, file)
        done = train_by_tx(program, folder, out, data, device)
        check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
        if done.returncode:
            return
        back, info = kind.from_pretrained(out, output_loading_info=True)
        check(not any(info.values()), f"{name}: loading what TX saved: {info}")
        ours, theirs = back.state_dict(), model.state_dict()
        check(set(ours) == set(theirs) and all(torch.equal(ours[k], theirs[k]) for k in ours),
              f"{name}: what TX saved differs")
        ids, before, lengths, labels = (field[0] for field in data)
        with torch.no_grad():
            mask = (torch.arange(BLOCK) < lengths[:, None]).long()
            same = [m.eval()(input_ids=ids, attention_mask=mask, decoder_input_ids=before).logits
                    for m in (back, model)]
        check(torch.equal(*same), f"{name}: what TX saved has other logits")
        exact = train(model.train(), data)
        logits, gradients, curve = differences(list(map(float, done.stdout.split())),
                                               load_file(os.path.join(out, "first.safetensors")), exact, data)
        check(logits <= 1e-5 and gradients <= 1e-5 and curve <= 1e-4,
              f"{name}: logits differ by {logits}, gradients by {gradients}, losses by {curve}")
        losses = exact[0]
        check(losses[-1] != losses[0], f"{name}: nothing was learned")
        trained = kind.from_pretrained(os.path.join(out, "trained")).state_dict()
        moved = max(far(trained[key], p) for key, p in model.state_dict().items())
        # Adam follows rounding errors in gradients near 0, such as of rare distances, by up to RATE a step.
        check(moved <= RATE, f"{name}: weights after {STEPS} steps differ by {moved}")
        print(f"{name}: logits {logits:.1e}, gradients {gradients:.1e}, losses {losses[0]:.3f} to {losses[-1]:.3f} "
              f"{curve:.1e}, trained weights {moved:.1e}")


def main():
    program, device = sys.argv[1], (sys.argv[2:] or ["cpu"])[0]
    for number, (name, (kind, changes)) in enumerate(VARIANTS.items()):
        compare(name, kind, changes, program, device, number % 2 == 0)
    return status()


if __name__ == "__main__":
    sys.exit(main())
