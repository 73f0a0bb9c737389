#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The residual stream in bf16, beside PyTorch: models of transformers under autocast, whose hidden states are cast to
bf16 after the embedding and after each addition.

    torch_residual.py CURVE DEVICE        CURVE: the program of curve.c

Losses of a GPT-2 must agree within what bf16 allows. A Llama with large embeddings is not trained: the layers add less
than an embedding's last digit, so that the losses depend on the rounding of each sum. Ends with 77 (skipped) if torch,
transformers or the device are missing.
"""
import subprocess
import sys
import tempfile

from oracle import check, status

import torch
import transformers

STEPS, BATCH, BLOCK, RATE = 20, 2, 48, 1e-3


def make_model(kind):
    torch.manual_seed(1)
    if kind == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=257, n_positions=64, n_embd=64, n_layer=6, n_head=4, embd_pdrop=0.0, attn_pdrop=0.0,
            resid_pdrop=0.0, bos_token_id=256, eos_token_id=256)).train()
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=6, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False, bos_token_id=None,
        eos_token_id=None)).train()
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(50)
        model.lm_head.weight.mul_(20)
    return model


def make_data():
    torch.manual_seed(2)
    shape = (STEPS, BATCH, BLOCK)
    start, stride = torch.randint(0, 256, shape[:2] + (1,)), torch.randint(1, 4, shape[:2] + (1,))
    tokens = (start + stride * torch.arange(BLOCK)) % 61
    tokens = torch.where(torch.rand(shape) < 0.1, torch.randint(0, 256, shape), tokens)
    labels = torch.full_like(tokens, -100)
    labels[..., :-1] = tokens[..., 1:]
    return tokens, labels


def add(stream, part):
    return stream.bfloat16() + part.bfloat16()


def gpt2_block(block, hidden, *_, **given):
    hidden = add(hidden, block.attn(block.ln_1(hidden.bfloat16()), attention_mask=given.get("attention_mask"))[0])
    return add(hidden, block.mlp(block.ln_2(hidden)))


def llama_layer(layer, hidden, *_, **given):
    given = {name: given.get(name) for name in ("attention_mask", "position_embeddings")}
    hidden = add(hidden, layer.self_attn(hidden_states=layer.input_layernorm(hidden.bfloat16()), **given)[0])
    return add(hidden, layer.mlp(layer.post_attention_layernorm(hidden)))


def train_torch(kind, rate, data):
    model = make_model(kind)
    layers, forward = (model.transformer.h, gpt2_block) if kind == "gpt2" else (model.model.layers, llama_layer)
    for layer in layers:
        layer.forward = forward.__get__(layer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    curve = []
    for step, (tokens, labels) in enumerate(zip(*data)):
        for group in optimizer.param_groups:
            group["lr"] = rate * (STEPS - step) / STEPS
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(input_ids=tokens, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        curve.append(loss.item())
    return torch.tensor(curve, dtype=torch.float64)


def train_tx(kind, rate, data, precision, curve, device):
    with tempfile.TemporaryDirectory() as folder:
        make_model(kind).save_pretrained(folder)
        with open(f"{folder}/data", "wb") as file:
            for tokens, labels in zip(*data):
                file.write(tokens.int().numpy().tobytes() + labels.int().numpy().tobytes())
        done = subprocess.run(
            [curve, folder, f"{folder}/data", str(STEPS), str(BATCH), str(BLOCK), "1", str(rate), "0", device, "0",
             precision], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"curve ended with {done.returncode}")
        sys.exit(done.returncode)
    return torch.tensor([float(line.split()[0]) for line in done.stdout.splitlines()], dtype=torch.float64)


def distances(kind, rate, curve, device):
    """The largest difference from PyTorch's losses, and that of a stream in fp32."""
    data = make_data()
    theirs = train_torch(kind, rate, data)
    ours, full = (train_tx(kind, rate, data, precision, curve, device) for precision in ("residual", "bf16"))
    own, other = ((losses - theirs).abs().max().item() for losses in (ours, full))
    print(f"{kind} on {device}: losses differ by {own:.2g}, with a stream in fp32 by {other:.2g}")
    return own, other


def main():
    own, _ = distances("gpt2", RATE, *sys.argv[1:])
    check(own < 2e-3, f"gpt2: losses of {STEPS} steps differ by {own}")
    own, other = distances("llama", 0.0, *sys.argv[1:])
    check(own < 0.4 * other, "llama: the stream does not round as PyTorch's")
    sys.exit(status())


main()
