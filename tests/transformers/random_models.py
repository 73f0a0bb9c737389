# SPDX-License-Identifier: Apache-2.0
"""Causal language models of random weights, their input, and TX's program (model_logits) on their folders."""
from oracle import run

import torch
from transformers import AutoModelForCausalLM

ROWS, LENGTH = 2, 24


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
