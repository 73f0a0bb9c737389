# SPDX-License-Identifier: Apache-2.0
"""Compares rotary positions beyond the original length with transformers: logits where max_position_embeddings is the
original length, and text that grows across the lengths at which dynamic scaling and LongRoPE change the frequencies.

    rope_growth.py MODEL_LOGITS TXGEN [DEVICE]      exit status 77: transformers is not installed
"""
import sys
import tempfile

from oracle import check, run, status

from transformers import LlamaConfig, Phi3Config, Qwen2Config
import torch
from random_models import compare, gradients, make_model

SIZES = dict(vocab_size=300, hidden_size=48, intermediate_size=76, num_hidden_layers=2, num_attention_heads=6,
             num_key_value_heads=2, bos_token_id=1, eos_token_id=None, pad_token_id=0, attn_implementation="eager")
LONGROPE = dict(rope_type="longrope", short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.0, 3.0, 6.0, 9.0])
# Rows have 24 tokens: more than the original 10.
EXTENDED = {
    "yarn, Qwen2.5's recipe": (Qwen2Config, dict(
        max_position_embeddings=10, rope_theta=1000000.0,
        rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=10))),
    "linear": (LlamaConfig, dict(max_position_embeddings=10, rope_scaling=dict(type="linear", factor=4.0))),
    "longrope": (LlamaConfig, dict(
        max_position_embeddings=10, rope_scaling=dict(LONGROPE, factor=4.0, original_max_position_embeddings=10))),
    "dynamic": (LlamaConfig, dict(max_position_embeddings=10, rope_scaling=dict(type="dynamic", factor=4.0))),
}
# The frequencies change after 13 tokens.
GROWING = {
    "dynamic": (LlamaConfig, dict(max_position_embeddings=13, rope_scaling=dict(type="dynamic", factor=8.0))),
    "longrope without new caches": (LlamaConfig, dict(
        max_position_embeddings=64, rope_scaling=dict(LONGROPE, original_max_position_embeddings=13))),
    "longrope with new caches": (Phi3Config, dict(
        max_position_embeddings=64, original_max_position_embeddings=13, rope_scaling=dict(LONGROPE, type="longrope"))),
}


def grow(name, model, folder, txgen, device):
    """Prompts before and after the change, greedy and beam search; the limit of new tokens changes no earlier one."""
    model.float()
    for count, new, beams in ((8, 30, 1), (8, 12, 1), (8, 4, 1), (13, 9, 1), (20, 12, 1), (8, 12, 3)):
        prompt = [(count * 101 + t * 37) % 300 for t in range(count)]
        ids = torch.tensor([prompt])
        with torch.no_grad():
            want = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False,
                                  num_beams=beams, pad_token_id=0)[0, count:].tolist()
        done = run(txgen, model=folder, ids=" ".join(map(str, prompt)), max_new_tokens=new, num_beams=beams,
                   device=device, threads=1)
        got = [int(token) for token in done.stdout.split()] if done.returncode == 0 else done.stderr
        check(got == want, f"{name}: {count} tokens, {beams} beams: txgen continues with {got}, not {want}")


def main():
    program, txgen = sys.argv[1:3]
    device = (sys.argv[3:] or ["cpu"])[0]
    for name, (kind, changes) in EXTENDED.items():
        with tempfile.TemporaryDirectory() as folder:
            model = make_model(kind(**SIZES, **changes))
            model.save_pretrained(folder)
            compare(name, model, folder, program, device)
            gradients(name, model, folder, program, device)
    for name, (kind, changes) in GROWING.items():
        with tempfile.TemporaryDirectory() as folder:
            model = make_model(kind(**SIZES, **changes))
            model.save_pretrained(folder)
            grow(name, model, folder, txgen, device)
    return status()


sys.exit(main())
