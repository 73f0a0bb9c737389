# SPDX-License-Identifier: Apache-2.0
"""Compares models of experts with transformers: logits, gradients, the load-balancing loss, folders that TX saves and
transformers reads, and 30 steps of training.

    experts.py MODEL_LOGITS TXTRAIN [DEVICE]      exit status 77: transformers is not installed
"""
import json
import math
import os
import sys
import tempfile

from oracle import check, run, status

import torch
from safetensors.torch import load_file
from transformers import (AutoModelForCausalLM, Ernie4_5_MoeConfig, MiniMaxM2Config, MixtralConfig, Qwen2MoeConfig,
                          Qwen3MoeConfig)
from random_models import ids_of, make_model, run_logits, train

BASE = dict(vocab_size=300, max_position_embeddings=48, hidden_size=48, intermediate_size=76, num_hidden_layers=3,
            num_attention_heads=6, num_key_value_heads=2, bos_token_id=1, eos_token_id=2, attn_implementation="eager",
            experts_implementation="eager", use_cache=False)
QWEN = dict(BASE, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20)
VARIANTS = {
    "mixtral": (MixtralConfig, BASE),
    "mixtral, balanced": (MixtralConfig, dict(BASE, output_router_logits=True, router_aux_loss_coef=0.7)),
    "mixtral, one of five experts, a window": (MixtralConfig, dict(BASE, num_local_experts=5, num_experts_per_tok=1,
                                                                  sliding_window=7, head_dim=10)),
    "mixtral, all of three experts": (MixtralConfig, dict(BASE, num_local_experts=3, num_experts_per_tok=3,
                                                         tie_word_embeddings=True)),
    "qwen2_moe": (Qwen2MoeConfig, dict(QWEN, shared_expert_intermediate_size=28)),
    "qwen2_moe, balanced, sums of 1": (Qwen2MoeConfig,
                                       dict(QWEN, shared_expert_intermediate_size=28, norm_topk_prob=True,
                                                            output_router_logits=True, router_aux_loss_coef=0.7)),
    "qwen2_moe, every second layer, no biases": (Qwen2MoeConfig, dict(
        QWEN, shared_expert_intermediate_size=28, decoder_sparse_step=2, qkv_bias=False)),
    "qwen3_moe": (Qwen3MoeConfig, dict(QWEN, head_dim=10)),
    "qwen3_moe, balanced, a layer without experts": (Qwen3MoeConfig, dict(
        QWEN, head_dim=8, norm_topk_prob=True, mlp_only_layers=[1], output_router_logits=True,
        router_aux_loss_coef=0.7)),
    "qwen2_moe, no experts": (Qwen2MoeConfig, dict(QWEN, num_experts=0)),
    "qwen3_moe, no experts": (Qwen3MoeConfig, dict(QWEN, num_experts=0, output_router_logits=False)),
    "minimax_m2, balanced": (MiniMaxM2Config, dict(BASE, head_dim=10, num_local_experts=6, num_experts_per_tok=2,
                                                   output_router_logits=True, router_aux_loss_coef=0.7)),
    "ernie4_5_moe, balanced": (Ernie4_5_MoeConfig, dict(
        BASE, moe_num_experts=6, moe_k=2, moe_num_shared_experts=1, moe_intermediate_size=20,
        output_router_logits=True, router_aux_loss_coef=0.7)),
}


def read(folder):
    model, info = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", output_loading_info=True)
    check(not any(info.values()), f"loading what TX saved: {info}")
    return model


def apart(ours, theirs):
    """The error relative to the largest element. Gradients that are zero except for rounding count as zero, such as
    those of a router whose only choice has the weight 1."""
    return ((ours.double() - theirs).abs().max() / theirs.abs().max().clamp(min=1e-4)).item()


def compare(name, model, folder, program, device):
    """Returns logits, and the folder that TX saved."""
    model.double()
    with torch.no_grad():
        want = model(ids_of(model)).logits
    model.float()
    with tempfile.TemporaryDirectory() as out:
        done = run_logits(program, folder, out, device)
        check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
        if done.returncode:
            return
        error = apart(load_file(os.path.join(out, "logits.safetensors"))["logits"], want)
        check(error <= 1e-5, f"{name}: logits differ by {error}")
        ours, theirs = read(out).state_dict(), model.state_dict()
        check(set(ours) == set(theirs) and all(torch.equal(ours[k], theirs[k]) for k in ours),
              f"{name}: weights differ")
        files = [set(load_file(os.path.join(f, "model.safetensors"))) for f in (folder, out)]
        check(files[0] == files[1], f"{name}: names in files differ: {files[0] ^ files[1]}")
        print(f"{name}: largest relative difference {error:.1e}")


def gradients(name, model, folder, program, device):
    """Returns the gradients of the mean next-token loss with the load-balancing loss, and that loss."""
    model.double()
    ids = ids_of(model)
    loss = model(ids, labels=ids).loss
    loss.backward()
    with tempfile.TemporaryDirectory() as out:
        done = run_logits(program, folder, out, device, -1)
        check(done.returncode == 0, f"{name}: gradients: {done.stderr.strip()}")
        if done.returncode:
            return
        ours = dict(read(out).named_parameters())
    worst = max(apart(ours[n].detach(), p.grad) if n in ours else math.inf for n, p in model.named_parameters()
                if p.requires_grad)
    check(worst <= 1e-4, f"{name}: gradients differ by {worst}")
    off = abs(float(done.stdout) - loss.item()) / loss.item()
    check(off <= 1e-6, f"{name}: the loss {done.stdout.strip()} is not {loss.item()}")
    print(f"{name}: largest relative difference of a gradient {worst:.1e}, of the loss {off:.1e}")


def padded(name, kind, keys, program, device):
    """Compares the loss of a padded batch, with the load-balancing loss, and its gradient norm; uses an attention
    mask."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(kind(**keys)).train()
    pairs = [("abc", "defg"), ("the cat sat on", " the mat"), ("x", "y"), ("line 3: the dog", " saw 6 fish")]
    rows = [(list(p.encode()), list(c.encode()) + [256]) for p, c in pairs]
    width = max(len(p) + len(c) for p, c in rows)
    ids = torch.tensor([p + c + [0] * (width - len(p) - len(c)) for p, c in rows])
    labels = torch.tensor([[-100] * len(p) + c + [-100] * (width - len(p) - len(c)) for p, c in rows])
    mask = torch.tensor([[1] * (len(p) + len(c)) + [0] * (width - len(p) - len(c)) for p, c in rows])
    loss = model(ids, attention_mask=mask, labels=labels).loss
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(f"{folder}/model")
        with open(f"{folder}/pairs.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"prompt": p, "completion": c}) + "\n" for p, c in pairs)
        for extra in ({}, dict(pad_to_max_length=True), dict(per_device_train_batch_size=7)):
            done = run(program, **dict(dict(
                model_name_or_path=f"{folder}/model", train_file=f"{folder}/pairs.jsonl", output_dir=f"{folder}/run",
                overwrite_output_dir=True, max_seq_length=44, per_device_train_batch_size=4, max_steps=1,
                train_sampling_strategy="sequential", save_strategy="no", device=device), **extra))
            check(done.returncode == 0, f"{name}: padded: {done.stderr.strip()}")
            if done.returncode:
                return
            with open(f"{folder}/run/log.jsonl", encoding="utf-8") as file:
                ours = json.loads(file.readline())
            check(abs(ours["loss"] - loss.item()) <= 2e-6 * loss.item()
                  and abs(ours["grad_norm"] - norm) <= 1e-4 * norm,
                  f"{name}: padded {extra}: loss {ours['loss']}, norm {ours['grad_norm']}, not {loss.item()}, {norm}")
    print(f"{name}: a padded batch has loss {loss.item():.6f}, norm {norm:.5f}")


def main():
    program, trainer, device = *sys.argv[1:3], (sys.argv[3:] or ["cpu"])[0]
    for name, (kind, keys) in VARIANTS.items():
        with tempfile.TemporaryDirectory() as folder:
            model = make_model(kind(**keys))
            model.save_pretrained(folder)
            compare(name, model, folder, program, device)
            gradients(name, model, folder, program, device)
        if "balanced" in name:
            of_bytes = dict(keys, vocab_size=257, bos_token_id=256, eos_token_id=256)
            train(name, kind, dict(of_bytes, router_aux_loss_coef=0.02), trainer, device)
            padded(name, kind, of_bytes, trainer, device)
    return status()


sys.exit(main())
