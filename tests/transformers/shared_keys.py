# SPDX-License-Identifier: Apache-2.0
"""Compares models whose last layers use keys, values and caches of earlier ones with transformers: logits of pieces of
prompts and of steps, for caches of several types; losses of steps that recompute activations, and of one that clips
coefficients; and memory, which is as planned.

    shared_keys.py TXTRAIN CACHED_LOGITS [DEVICE]      exit status 77: transformers is not installed
"""
import math
import sys
import tempfile

from oracle import check, log_of, run, status

import torch
from transformers import Gemma3nTextConfig, Gemma4TextConfig
from hybrids import cached, planned
from random_models import make_model

BASE = dict(vocab_size=257, max_position_embeddings=320, hidden_size=48, intermediate_size=76, num_hidden_layers=6,
            num_attention_heads=6, num_key_value_heads=2, head_dim=12, bos_token_id=256, eos_token_id=256,
            pad_token_id=0, global_head_dim=16, sliding_window=20, rms_norm_eps=1.0, tie_word_embeddings=True,
            layer_types=["sliding_attention", "full_attention"] * 3, hidden_size_per_layer_input=10,
            vocab_size_per_layer_input=257, attn_implementation="eager", experts_implementation="eager")
VARIANTS = {
    "all types of layers share": dict(num_kv_shared_layers=3, use_double_wide_mlp=True),
    "keys that are the values, wide heads": dict(num_kv_shared_layers=2, attention_k_eq_v=True, global_head_dim=320,
                                                 num_global_key_value_heads=1),
    "experts": dict(num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2, enable_moe_block=True,
                    num_experts=5, top_k_experts=2, moe_intermediate_size=20),
    "several streams": dict(num_kv_shared_layers=3, laurel_rank=7, vocab_size_per_layer_input=200,
                            activation_sparsity_pattern=[0.95, 0.5, 0.0, 0.2, 0.0, 0.0]),
}
LENGTHS = (4, 70, 320)


def recomputed(name, model, txtrain, device):
    """Losses of steps that recompute activations are those of steps that keep them."""
    losses = []
    with tempfile.TemporaryDirectory() as out:
        model.float().save_pretrained(f"{out}/model")
        with open(f"{out}/text.txt", "w", encoding="utf-8") as file:
            file.write("a line of text\n" * 100)
        for form in ("0", "1"):
            done = run(txtrain, model_name_or_path=f"{out}/model", train_file=f"{out}/text.txt", block_size=24,
                       output_dir=f"{out}/run{form}", max_steps=4, save_strategy="no", device=device,
                       gradient_checkpointing=form)
            losses.append(log_of(f"{out}/run{form}") if done.returncode == 0 else done.stderr)
    check(len(losses[0]) == 4 and losses[0] == losses[1], f"{name}: recomputed losses: {losses}")


def clipped(name, model, txtrain, device):
    """In training the weights of streams' coefficients are clipped."""
    model.config.altup_coef_clip = 0.05
    text = b"some text of bytes that are no words: " * 4
    ids = torch.tensor(list(text[:96])).reshape(4, 24)
    with tempfile.TemporaryDirectory() as out:
        model.float().save_pretrained(f"{out}/model")
        with open(f"{out}/text.txt", "wb") as file:
            file.write(text)
        done = run(txtrain, model_name_or_path=f"{out}/model", train_file=f"{out}/text.txt", block_size=24,
                   per_device_train_batch_size=4, train_sampling_strategy="sequential", output_dir=f"{out}/run",
                   max_steps=1, save_strategy="no", device=device)
        ours = log_of(f"{out}/run") if done.returncode == 0 else [math.nan]
    free = model.eval()(ids, labels=ids).loss.item()
    want = model.train()(ids, labels=ids).loss.item()
    check(abs(ours[0] - want) <= 1e-5 * want < 0.1 * abs(free - want),
          f"{name}: clipped loss {ours[0]}, not {want}: {done.stderr}")


def main():
    txtrain, program = sys.argv[1:3]
    device = sys.argv[3] if len(sys.argv) > 3 else "cpu"
    for name, changes in VARIANTS.items():
        kind = Gemma3nTextConfig if "laurel_rank" in changes else Gemma4TextConfig
        model = make_model(kind(**{**BASE, **changes}))
        for parameter, weight in model.named_parameters():  # the size of heads does not divide scores
            if "q_norm" in parameter:
                weight.data.mul_(0.3)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            for length in LENGTHS:
                cached(name, model, folder, program, device, length)
            cached(name, model, folder, program, device, LENGTHS[-1], "bfloat16")
        planned(name, model, txtrain, device)
        recomputed(name, model, txtrain, device)
        if kind == Gemma3nTextConfig:
            clipped(name, model, txtrain, device)
    return status()


sys.exit(main())
