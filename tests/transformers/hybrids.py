# SPDX-License-Identifier: Apache-2.0
"""Compares models with recurrent layers with transformers: logits and gradients of random weights for rows on both
sides of the edges of chunks, folders that TX writes, steps of training; logits of generation, greedy texts of batches,
beams, log-probabilities of txserve, and texts with draft tokens.

    hybrids.py MODEL_LOGITS TXTRAIN TXGEN CACHED_LOGITS TXSERVE [DEVICE [NAME...]]
    exit status 77: transformers is not installed
"""
import copy
import math
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from oracle import check, run, status

import torch
from safetensors.torch import load_file
from transformers import (BambaConfig, FalconH1Config, GraniteMoeHybridConfig, Lfm2Config, Lfm2MoeConfig,
                          Mamba2Config, MiniMaxConfig, NemotronHConfig, Qwen3_5MoeTextConfig, Qwen3_5TextConfig,
                          Qwen3NextConfig)
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../serve"))
from server import Server
from random_models import compare, generate, gradients, ids_of, logits_of, make_model, train

BASE = dict(vocab_size=300, max_position_embeddings=320, hidden_size=48, intermediate_size=76, num_hidden_layers=3,
            num_attention_heads=6, num_key_value_heads=2, bos_token_id=1, eos_token_id=2, pad_token_id=0,
            attn_implementation="eager")
LAYERS = ["linear_attention", "full_attention", "linear_attention"]
# With 2 tokens the gradients of queries and keys are 0.
LENGTHS = (3, 63, 64, 65, 300)
GRANITE = dict(layer_types=LAYERS, num_local_experts=0, shared_intermediate_size=52, mamba_n_heads=8, mamba_expand=2,
               mamba_n_groups=2, mamba_d_state=10, embedding_multiplier=3.0, attention_multiplier=0.2,
               residual_multiplier=0.4, logits_scaling=2.0)
NETS = dict(layer_types=LAYERS, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12,
            linear_value_head_dim=8)
FALCON = dict(head_dim=10, mamba_d_ssm=40, mamba_n_heads=4, mamba_n_groups=2, mamba_d_state=12,
              embedding_multiplier=1.5, attention_in_multiplier=0.8, attention_out_multiplier=0.9, ssm_in_multiplier=1.2,
              ssm_out_multiplier=0.5, ssm_multipliers=[0.9, 1.1, 0.7, 1.3, 0.8], mlp_multipliers=[0.6, 1.4])
MIXTURE = dict(NETS, rms_norm_eps=0.3, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=28,
               shared_expert_intermediate_size=20, experts_implementation="eager")
NEMOTRON = dict(layers_block_type=["linear_attention", "moe", "full_attention", "mlp"], head_dim=10, ssm_state_size=12,
                mamba_num_heads=4, mamba_head_dim=14, n_groups=2, n_routed_experts=6, num_experts_per_tok=2,
                moe_intermediate_size=28, moe_shared_expert_intermediate_size=20, routed_scaling_factor=1.7,
                experts_implementation="eager")
LFM2_MOE = dict(layer_types=["conv", "full_attention", "conv"], num_dense_layers=1, num_experts=5,
                num_experts_per_tok=2, moe_intermediate_size=28, experts_implementation="eager")
MINIMAX = dict(head_dim=10, num_local_experts=5, num_experts_per_tok=2, intermediate_size=28,
               experts_implementation="eager")
# Rounding grows less with a large epsilon.
VARIANTS = {
    "qwen3_5_text": (Qwen3_5TextConfig, NETS),
    "qwen3_5_moe_text": (Qwen3_5MoeTextConfig, dict(MIXTURE, rms_norm_eps=1.0)),
    "qwen3_next": (Qwen3NextConfig, dict(MIXTURE, mlp_only_layers=[0])),
    "qwen3_next, no experts": (Qwen3NextConfig, dict(NETS, num_experts=0, rms_norm_eps=0.3)),
    "granitemoehybrid": (GraniteMoeHybridConfig, dict(GRANITE, position_embedding_type="rope")),
    "granitemoehybrid, no positions, limits": (GraniteMoeHybridConfig, dict(
        GRANITE, mamba_conv_bias=False, time_step_limit=[0.4, 0.9], tie_word_embeddings=True)),
    "granitemoehybrid, experts": (GraniteMoeHybridConfig, dict(
        GRANITE, num_local_experts=5, num_experts_per_tok=2, intermediate_size=28, experts_implementation="eager")),
    "bamba": (BambaConfig, dict(attn_layer_indices=[1], mamba_n_heads=6, mamba_expand=2, mamba_d_state=12)),
    "falcon_h1": (FalconH1Config, dict(FALCON, lm_head_multiplier=0.7, key_multiplier=0.6)),
    "falcon_h1, norm": (FalconH1Config, dict(
        FALCON, mamba_d_ssm=None, mamba_rms_norm=True, mamba_norm_before_gate=False, attention_bias=True)),
    "falcon_h1, norm before gate": (FalconH1Config, dict(FALCON, mamba_rms_norm=True, rms_norm_eps=0.3)),
    "mamba2": (Mamba2Config, dict(
        num_heads=8, head_dim=12, n_groups=2, state_size=10, tie_word_embeddings=True, time_step_limit=[0.0, math.inf])),
    "mamba2, own head": (Mamba2Config, dict(num_heads=6, head_dim=16, n_groups=1, state_size=12, use_conv_bias=False)),
    "nemotron_h": (NemotronHConfig, dict(NEMOTRON, n_group=2, topk_group=1)),
    "nemotron_h, pattern": (NemotronHConfig, dict(
        NEMOTRON, layers_block_type=None, hybrid_override_pattern="M*-M", norm_topk_prob=False, n_routed_experts=5)),
    "lfm2": (Lfm2Config, dict(layer_types=["conv", "full_attention", "conv"], block_multiple_of=8)),
    "lfm2_moe": (Lfm2MoeConfig, dict(LFM2_MOE, routed_scaling_factor=1.7)),
    "lfm2_moe, no bias": (Lfm2MoeConfig, dict(LFM2_MOE, use_expert_bias=False, norm_topk_prob=False,
                                              num_dense_layers=0, tie_word_embeddings=False)),
    "minimax": (MiniMaxConfig, dict(
        MINIMAX, layer_types=LAYERS, full_attn_alpha_factor=0.9, full_attn_beta_factor=1.3, mlp_alpha_factor=1.1,
        linear_attn_alpha_factor=0.7, linear_attn_beta_factor=1.2, mlp_beta_factor=0.8)),
    "minimax, its layers, a window": (MiniMaxConfig, dict(
        MINIMAX, head_dim=None, block_size=16, sliding_window=40, num_experts_per_tok=1, tie_word_embeddings=True)),
}


# Prompts of one batch: a single token, one that ends at the end of a chunk, and some in several pieces.
PROMPTS, NEW = (1, 5, 64, 300), 6
CACHED = (4, 70, 320)


def cached(name, model, folder, program, device, length, dtype="float32"):
    """Compares the logits of pieces of prompts and of steps with a pass over the whole text. Those in bfloat16 may
    differ twice as much as those of transformers."""
    want = logits_of(model.double(), length)
    rounded = copy.deepcopy(model).to(getattr(torch, dtype))
    own = ((logits_of(rounded, length) - want).abs().max() / want.abs().max()).item()
    with tempfile.TemporaryDirectory() as out:
        done = run(program, folder, out, device, str(length), dtype)
        path = os.path.join(out, "logits.safetensors")
        got = load_file(path)["logits"].double() if done.returncode == 0 else math.nan
    error = ((got - want).abs().max() / want.abs().max()).item() if done.returncode == 0 else math.nan
    check(error <= max(1e-5, (2 if dtype == "bfloat16" else 1) * own),
          f"{name}, {length} tokens of {dtype}: cached logits differ by {error}: {done.stderr}")
    print(f"{name}, {length} tokens: largest difference of cached {dtype} logits {error:.1e}, transformers {own:.1e}")


def greedy(model, ids, new):
    """The likeliest continuation, by a pass over the whole text for each token."""
    prompt, ids = len(ids), list(ids)
    while len(ids) < prompt + new and ids[-1:] != [BASE["eos_token_id"]][:len(ids) - prompt]:
        with torch.no_grad():
            ids.append(model(torch.tensor([ids])).logits[0, -1].argmax().item())
    return ids[prompt:]


def texts(name, model, folder, txgen, device):
    """Compares greedy texts of prompts of different lengths, at once and in turn, by any number of threads."""
    prompts = [ids_of(model, count)[i % 2].tolist() for i, count in enumerate(PROMPTS)]
    want = [greedy(model.double(), ids, NEW) for ids in prompts]
    words = [word for ids in prompts for word in ("--ids", " ".join(map(str, ids)))]
    outputs = set()
    for batch, threads, dtype in (8, 1, None), (8, 2, None), (8, 3, None), (3, 2, None), (8, 1, "bfloat16"):
        done = run(txgen, *words, model=folder, max_new_tokens=NEW, temperature=0, device=device, threads=threads,
                   batch_size=batch, dtype=dtype)
        got = [list(map(int, line.split())) for line in done.stdout.splitlines()]
        if dtype:  # rounding may change a text, not its length
            check(len(got) == len(want) and all(1 <= len(text) <= NEW for text in got),
                  f"{name}: {dtype}: {got} {done.stderr}")
        else:
            check(got == want, f"{name}: batches of {batch}: {got}, not {want} {done.stderr}")
            outputs.add(done.stdout)
    check(len(outputs) == 1, f"{name}: texts depend on threads or batches")


def served(name, model, folder, logits, txserve, device):
    """Compares the log-probabilities of prompts and texts that share a batch, of which some wait for a slot."""
    prompts = [ids_of(model, count)[i % 2].tolist() for i, count in enumerate(PROMPTS)]
    with tempfile.TemporaryDirectory() as out:
        run(logits, folder, out, device)  # writes the model with a tokenizer, which txserve needs
        with Server(txserve, out, "--slots", "3", "--device", device) as server, ThreadPoolExecutor() as pool:
            answers = list(pool.map(lambda ids: server.complete(ids, NEW, logprobs=0, echo=True), prompts))
    for ids, (code, answer) in zip(prompts, answers):
        whole = ids + greedy(model.double(), ids, NEW)
        with torch.no_grad():
            logprobs = torch.log_softmax(model(torch.tensor([whole])).logits[0], -1)
        want = [logprobs[i, token].item() for i, token in enumerate(whole[1:])]
        got = answer["choices"][0]["logprobs"]["token_logprobs"][1:] if code == 200 else []
        check(len(got) == len(want) and all(abs(a - b) <= 1e-3 for a, b in zip(got, want)),
              f"{name}: txserve, {len(ids)} tokens: {got}, not {want}: {answer if code != 200 else ''}")


def planned(name, model, txtrain, device):
    """The memory that TX plans for training is the memory that it counts."""
    with tempfile.TemporaryDirectory() as out:
        model.save_pretrained(f"{out}/model")
        with open(f"{out}/text.txt", "w", encoding="utf-8") as file:
            file.write("a line of text\n" * 100)
        done = run(txtrain, "--profile", model_name_or_path=f"{out}/model", train_file=f"{out}/text.txt",
                   output_dir=f"{out}/run", block_size=70, max_steps=2, save_strategy="no", device=device)
    total = [line.split() for line in done.stdout.splitlines() if line.split()[:1] == ["total"]]
    check(total and (device != "cpu" or total[0][1] == total[0][-1]),
          f"{name}: planned and counted memory: {total} {done.stderr}")


def speculated(name, model, folder, txgen, device):
    """Draft tokens change no text."""
    ids = (ids_of(model, 9)[0].tolist() * 3)[:25]
    want = greedy(model.double(), ids, 2 * NEW)
    done = run(txgen, model=folder, ids=" ".join(map(str, ids)), max_new_tokens=2 * NEW, temperature=0, device=device,
               prompt_lookup_num_tokens=4)
    check(done.returncode == 0 and list(map(int, done.stdout.split())) == want,
          f"{name}: with draft tokens {done.stdout}, not {want}: {done.stderr}")


def main():
    logits, txtrain, txgen, cached_logits, txserve = sys.argv[1:6]
    device = sys.argv[6] if len(sys.argv) > 6 else "cpu"
    seen = set()
    for name, (kind, keys) in VARIANTS.items():
        if not name.startswith(tuple(sys.argv[7:]) or ""):
            continue
        keys = dict(BASE, **keys)
        model = make_model(kind(**keys))
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            for length in LENGTHS if kind not in seen else LENGTHS[-1:]:
                what = dict(length=length, amplifies=name == "qwen3_5_text")
                compare(f"{name}, {length} tokens", model, folder, logits, device, **what)
                gradients(f"{name}, {length} tokens", model, folder, logits, device, **what)
            for length in CACHED if kind not in seen else CACHED[-1:]:
                cached(name, model, folder, cached_logits, device, length)
            cached(name, model, folder, cached_logits, device, CACHED[-1], "bfloat16")
            texts(name, model, folder, txgen, device)
            # transformers ignores the limit in steps with caches, and keeps states of lightning attention with other
            # beams than theirs.
            if "time_step_limit" not in keys:
                generate(f"{name}, beams", model, folder, txgen, device, beams=3, use_cache=kind != MiniMaxConfig)
            served(name, model, folder, logits, txserve, device)
            speculated(name, model, folder, txgen, device)
        if kind not in seen:
            keys.update(vocab_size=257, bos_token_id=256, eos_token_id=256)
            train(name, kind, keys, txtrain, device)
            planned(name, make_model(kind(**keys)), txtrain, device)
        seen.add(kind)
    return status()


if __name__ == "__main__":
    sys.exit(main())
