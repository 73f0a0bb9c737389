# SPDX-License-Identifier: Apache-2.0
"""Compares the Llama family with transformers, with random weights, for every key that changes the logits and every
scaling of rotary positions beyond the original length. Compares logits, gradients, and folders of TX that transformers
reads.

    llama.py MODEL_LOGITS [DEVICE]      exit status 77: transformers is not installed
"""
import os
import sys
import tempfile

from oracle import check, status

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config
from random_models import LENGTH, compare, gradients, make_model, run_logits

BASE = dict(vocab_size=300, max_position_embeddings=48, hidden_size=48, intermediate_size=76, num_hidden_layers=3,
            num_attention_heads=6, num_key_value_heads=2, bos_token_id=1, eos_token_id=2, attn_implementation="eager")
LONGROPE = dict(rope_type="longrope", rope_theta=1e4, short_factor=[1.0, 1.1, 1.3, 2.0],
                long_factor=[1.0, 2.5, 4.0, 11.0])
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=8)
VARIANTS = {
    "llama": (LlamaConfig, {}),
    "tied": (LlamaConfig, dict(tie_word_embeddings=True)),
    "a head of keys for each of queries": (LlamaConfig, dict(num_key_value_heads=6)),
    "one head of keys, odd sizes": (LlamaConfig, dict(num_attention_heads=5, num_key_value_heads=1, hidden_size=50,
                                                      intermediate_size=33, vocab_size=131)),
    "biases": (LlamaConfig, dict(attention_bias=True, mlp_bias=True)),
    "head_dim": (LlamaConfig, dict(head_dim=10)),
    "epsilon, theta": (LlamaConfig, dict(rms_norm_eps=1e-2, rope_parameters=dict(rope_type="default", rope_theta=5e5))),
    "linear": (LlamaConfig, dict(rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=3.0))),
    "dynamic": (LlamaConfig, dict(rope_parameters=dict(rope_type="dynamic", rope_theta=1e4, factor=3.0))),
    "dynamic, beyond": (LlamaConfig, dict(max_position_embeddings=16, rope_parameters=dict(
        rope_type="dynamic", rope_theta=1e4, factor=1.5))),
    "dynamic, far beyond": (LlamaConfig, dict(max_position_embeddings=8, head_dim=4, rope_parameters=dict(
        rope_type="dynamic", rope_theta=5e3, factor=9.0))),
    "llama3": (LlamaConfig, dict(head_dim=32, rope_parameters=dict(
        rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=8))),
    "longrope, long": (LlamaConfig,
                       dict(head_dim=8, rope_parameters=dict(LONGROPE, original_max_position_embeddings=8))),
    "longrope, short": (LlamaConfig,
                        dict(head_dim=8, rope_parameters=dict(LONGROPE, original_max_position_embeddings=LENGTH))),
    "longrope as Phi-3": (MistralConfig, dict(head_dim=8, original_max_position_embeddings=8, rope_theta=1e4,
                                              rope_parameters=dict(
        type="longrope", short_factor=[1.0] * 4, long_factor=[1.5, 2.0, 3.0, 7.25]))),
    "longrope, attention factor": (Qwen3Config, dict(head_dim=8, rope_parameters=dict(
        LONGROPE, original_max_position_embeddings=8, attention_factor=1.25, factor=6.0))),
    "proportional": (LlamaConfig, dict(head_dim=32, rope_parameters=dict(
        rope_type="proportional", rope_theta=1e4, factor=3.0, partial_rotary_factor=0.5))),
    "yarn": (LlamaConfig, dict(head_dim=32, rope_parameters=YARN)),
    "yarn, beyond": (Qwen2Config, dict(max_position_embeddings=8, rope_parameters=dict(YARN, factor=8.0))),
    "linear, beyond": (LlamaConfig, dict(max_position_embeddings=8, rope_parameters=dict(
        rope_type="linear", rope_theta=1e4, factor=8.0))),
    "yarn, its temperatures and ends": (LlamaConfig, dict(head_dim=32, rope_parameters=dict(
        YARN, mscale=0.7, mscale_all_dim=1.3, beta_fast=3.0, beta_slow=0.5, truncate=False))),
    "mistral, a token of padding": (MistralConfig, dict(sliding_window=None, pad_token_id=37)),
    "mistral within its window": (MistralConfig, dict(sliding_window=LENGTH)),
    "mistral beyond its window": (MistralConfig, dict(sliding_window=5)),
    "mistral, a window of one": (MistralConfig, dict(sliding_window=1)),
    "qwen2, windows of some layers": (Qwen2Config,
                                      dict(use_sliding_window=True, sliding_window=7, max_window_layers=1)),
    "qwen3, windows of all layers": (Qwen3Config, dict(use_sliding_window=True, sliding_window=4, max_window_layers=0)),
    "qwen2, windows of every second layer": (Qwen2Config, dict(
        use_sliding_window=True, sliding_window=4, max_window_layers=3,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"])),
    "qwen2": (Qwen2Config, {}),
    "qwen2, tied, a token of padding": (Qwen2Config, dict(tie_word_embeddings=True, pad_token_id=37)),
    "qwen3": (Qwen3Config, dict(head_dim=10)),
    "qwen3, biases, heads of one key": (Qwen3Config, dict(head_dim=16, attention_bias=True, num_key_value_heads=1)),
}


def refuse(name, kind, changes, words, program, device):
    """Options that TX does not support are refused by name."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as out:
        make_model(kind(**{**BASE, **changes})).save_pretrained(folder)
        done = run_logits(program, folder, out, device)
        check(done.returncode == 1 and words in done.stderr, f"{name}: {done.returncode} {done.stderr.strip()}")


def main():
    program, device = sys.argv[1], (sys.argv[2:] or ["cpu"])[0]
    for name, (kind, changes) in VARIANTS.items():
        with tempfile.TemporaryDirectory() as folder:
            model = make_model(kind(**{**BASE, **changes}))
            model.save_pretrained(folder)
            compare(name, model, folder, program, device)
            if changes.get("sliding_window") != 1:  # of one key the scores have no gradient
                gradients(name, model, folder, program, device)
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(LlamaConfig(**BASE)).to(torch.bfloat16)
        model.save_pretrained(folder, max_shard_size="50KB")
        wide = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        compare("bfloat16, shards", wide, folder, program, device, 40000)
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(LlamaConfig(**BASE, tie_word_embeddings=True))
        model.save_pretrained(folder)
        path = os.path.join(folder, "model.safetensors")
        state = load_file(path)
        save_file(state | {"lm_head.weight": state["model.embed_tokens.weight"].clone()}, path, {"format": "pt"})
        compare("tied, stored twice", model, folder, program, device)
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Qwen3Config(**BASE, tie_word_embeddings=True))
        model.save_pretrained(folder)
        path = os.path.join(folder, "model.safetensors")
        save_file({name.removeprefix("model."): t for name, t in load_file(path).items()}, path, {"format": "pt"})
        compare("names of a base model, as of Qwen3-Embedding", model, folder, program, device)
    refuse("chunks", Qwen2Config, dict(layer_types=["full_attention", "chunked_attention", "full_attention"]),
           "layer_types", program, device)
    return status()


sys.exit(main())
