# SPDX-License-Identifier: Apache-2.0
"""Compares txconvert's GGUF files of models with recurrent layers with the gguf package, transformers and llama.cpp:
names, shapes and values of tensors, types of blocks, logits of txgen on a file and on its folder, steps of training
from both, folders made from files, greedy texts of llama.cpp, and what is refused.

    gguf_hybrids.py TXCONVERT TXGEN TXTRAIN      exit status 77: gguf or transformers is not installed
"""
import math
import os
import sys
import tempfile

from oracle import check, log_of, run, status

import gguf
import numpy as np
import torch
from safetensors.numpy import load_file
from transformers import (AutoModelForCausalLM, BambaConfig, FalconH1Config, GraniteMoeHybridConfig, Lfm2Config, Lfm2MoeConfig,
                          Mamba2Config, NemotronHConfig, Qwen3_5MoeTextConfig, Qwen3_5TextConfig, Qwen3NextConfig)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from gguf_llama import Model, check_refused, llama_cpp
from gguf_tokenizers import VOCAB, save_tokenizer
from random_models import bias_choices

TXCONVERT, TXGEN, TXTRAIN = sys.argv[1:4]
BASE = dict(vocab_size=VOCAB, max_position_embeddings=128, hidden_size=64, intermediate_size=96, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=2, bos_token_id=1, eos_token_id=0, pad_token_id=0)
CONV = dict(layer_types=["conv", "conv", "full_attention", "conv"], block_multiple_of=32)
LFM2_MOE = dict(layer_types=CONV["layer_types"], num_dense_layers=1, num_experts=6, num_experts_per_tok=2,
                moe_intermediate_size=32)
MIXED = ["mamba", "mamba", "attention", "mamba"]
GRANITE = dict(shared_intermediate_size=96, mamba_n_heads=8, mamba_n_groups=2, mamba_d_state=16, mamba_expand=2,
               layer_types=MIXED, embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.4,
               logits_scaling=2.0)
DENSE = dict(GRANITE, num_local_experts=0, num_experts_per_tok=2)
MIXTURE = dict(GRANITE, num_local_experts=6, num_experts_per_tok=2, intermediate_size=32)
BAMBA = dict(attn_layer_indices=[1], mamba_n_heads=8, mamba_d_state=16, mamba_n_groups=2, mamba_expand=2)
FALCON = dict(head_dim=16, mamba_d_ssm=64, mamba_n_heads=4, mamba_n_groups=2, mamba_d_state=16,
              embedding_multiplier=1.5, attention_in_multiplier=0.8, attention_out_multiplier=0.9,
              ssm_in_multiplier=1.2, ssm_out_multiplier=0.5, ssm_multipliers=[0.9, 1.1, 0.7, 1.3, 0.8],
              mlp_multipliers=[0.6, 1.4], lm_head_multiplier=0.7, key_multiplier=0.6)
MAMBA2 = dict(vocab_size=VOCAB, hidden_size=64, num_hidden_layers=3, num_heads=8, head_dim=16, n_groups=2, state_size=16,
              bos_token_id=1, eos_token_id=0, pad_token_id=0, time_step_limit=[0.0, math.inf])
NETS = dict(head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
            linear_value_head_dim=16)
SHARED = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=64)
PERIOD = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
OTHERS = ["linear_attention", "full_attention", "linear_attention", "linear_attention"]
BLOCKS = dict(head_dim=16, ssm_state_size=16, mamba_num_heads=4, mamba_head_dim=32, n_groups=2, n_routed_experts=6,
              num_experts_per_tok=2, moe_intermediate_size=32, moe_shared_expert_intermediate_size=64,
              routed_scaling_factor=1.7)
SPARSE = ["mamba", "moe", "attention", "mamba", "moe"]
PLAIN = ["mamba", "mlp", "attention", "mlp", "mamba"]
NEMOTRON = {key: value for key, value in BASE.items() if key != "num_hidden_layers"}
# name: configuration and tokenizer
MODELS = {
    "lfm2": (Lfm2Config(**BASE, **CONV), "llama3"),
    "lfm2, given size": (Lfm2Config(**BASE, full_attn_idxs=[1, 3], block_auto_adjust_ff_dim=False, conv_L_cache=4,
                                    tie_word_embeddings=False), "llama3"),
    "granitemoehybrid": (GraniteMoeHybridConfig(**{**BASE, **DENSE}), "llama3"),
    "granitemoehybrid, experts, positions": (GraniteMoeHybridConfig(**{**BASE, **MIXTURE},
                                                                    position_embedding_type="rope"), "llama3"),
    "granitemoehybrid, attention": (GraniteMoeHybridConfig(**{**BASE, **DENSE, "layer_types": ["attention"] * 4},
                                                           position_embedding_type="rope",
                                                           tie_word_embeddings=True), "llama3"),
    "bamba": (BambaConfig(**BASE, **BAMBA), "llama3"),
    "falcon_h1": (FalconH1Config(**BASE, **FALCON), "llama3"),
    "falcon_h1, norm": (FalconH1Config(**{**BASE, **FALCON, "mamba_d_ssm": 96, "mamba_n_heads": 6},
                                       mamba_rms_norm=True, mamba_norm_before_gate=False), "llama3"),
    "mamba2": (Mamba2Config(**MAMBA2), "llama3"),
    "mamba2, tied": (Mamba2Config(**{**MAMBA2, "num_heads": 12}, expand=3, tie_word_embeddings=True), "llama3"),
    "qwen3_next": (Qwen3NextConfig(**BASE, **NETS, **SHARED, layer_types=PERIOD), "qwen2"),
    "qwen3_next, listed layers": (Qwen3NextConfig(**BASE, **{**NETS, "linear_num_value_heads": 2}, **SHARED,
                                                  layer_types=OTHERS, tie_word_embeddings=True), "qwen2"),
    "nemotron_h": (NemotronHConfig(**NEMOTRON, **BLOCKS, layers_block_type=PLAIN), "llama3"),
    "nemotron_h, experts": (NemotronHConfig(**NEMOTRON, **BLOCKS, layers_block_type=SPARSE), "llama3"),
    "nemotron_h, groups": (NemotronHConfig(**NEMOTRON, **BLOCKS, layers_block_type=SPARSE, n_group=2, topk_group=1,
                                           norm_topk_prob=False), "llama3"),
    "qwen3_5_text": (Qwen3_5TextConfig(**BASE, **NETS, layer_types=PERIOD), "qwen2"),
    "qwen3_5_text, other layers": (Qwen3_5TextConfig(**BASE, **{**NETS, "linear_num_value_heads": 6, "head_dim": 32},
                                                     layer_types=OTHERS, tie_word_embeddings=True), "qwen2"),
    "qwen3_5_moe_text": (Qwen3_5MoeTextConfig(**BASE, **NETS, **SHARED, layer_types=PERIOD), "qwen2"),
    "lfm2_moe": (Lfm2MoeConfig(**BASE, **LFM2_MOE), "llama3"),
}
ARCHITECTURES = dict(lfm2_moe="lfm2moe", qwen3_next="qwen3next", qwen3_5_text="qwen35", qwen3_5_moe_text="qwen35moe", granitemoehybrid="granitehybrid", bamba="granitehybrid", falcon_h1="falcon-h1")  # of model types that have another name in GGUF files
KEYS = {
    "lfm2": {"attention.head_count_kv": [0, 0, 2, 0], "shortconv.l_cache": 3, "feed_forward_length": 64},
    "lfm2, given size": {"attention.head_count_kv": [0, 2, 0, 2], "shortconv.l_cache": 4, "feed_forward_length": 96},
    "granitemoehybrid": {"attention.head_count_kv": [0, 0, 2, 0], "rope.scaling.finetuned": False,
                         "ssm.conv_kernel": 4, "ssm.state_size": 16, "ssm.group_count": 2, "ssm.time_step_rank": 8,
                         "ssm.inner_size": 128, "feed_forward_length": 96, "attention.scale": np.float32(0.2)},
    "granitemoehybrid, experts, positions": {"rope.scaling.finetuned": True, "feed_forward_length": 32,
                                             "expert_count": 6, "expert_shared_feed_forward_length": 96},
    "bamba": {"attention.head_count_kv": [0, 2, 0, 0], "rope.scaling.finetuned": True, "rope.dimension_count": 8},
    "falcon_h1": {"ssm.inner_size": 64, "attention.key_length": 16, "attention.head_count_kv": 2},
    "mamba2": {"context_length": 1 << 20, "attention.head_count": 0, "feed_forward_length": 0, "ssm.inner_size": 128},
    "qwen3_next": {"attention.recurrent_layers": [True, True, True, False], "full_attention_interval": 4, "rope.dimension_count": 4, "ssm.group_count": 2,
                   "ssm.time_step_rank": 4, "ssm.inner_size": 64, "expert_feed_forward_length": 32},
    "qwen3_next, listed layers": {"attention.recurrent_layers": [True, False, True, True]},
    "nemotron_h": {"attention.head_count_kv": [0, 0, 2, 0, 0], "feed_forward_length": [0, 96, 0, 96, 0],
                   "attention.layer_norm_epsilon": np.float32(1e-5), "ssm.inner_size": 128},
    "nemotron_h, experts": {"feed_forward_length": [0, 32, 0, 0, 32], "expert_count": 6, "expert_used_count": 2,
                            "expert_feed_forward_length": 32, "expert_shared_feed_forward_length": 64,
                            "expert_weights_norm": True, "expert_weights_scale": np.float32(1.7)},
    "nemotron_h, groups": {"expert_group_count": 2, "expert_group_used_count": 1, "expert_weights_norm": False},
    "qwen3_5_text": {"rope.dimension_sections": [1, 1, 0, 0], "ssm.time_step_rank": 4},
    "qwen3_5_text, other layers": {"rope.dimension_sections": [2, 1, 1, 0], "ssm.inner_size": 96},
    "lfm2_moe": {"leading_dense_block_count": 1, "expert_gating_func": 2, "expert_count": 6, "expert_used_count": 2,
                 "expert_feed_forward_length": 32, "attention.head_count_kv": [0, 0, 2, 0]},
}
REFUSED = [
    (Lfm2MoeConfig(**BASE, **LFM2_MOE, use_expert_bias=False), "llama3", "use_expert_bias"),
    (Lfm2MoeConfig(**BASE, **LFM2_MOE, norm_topk_prob=False), "llama3", "norm_topk_prob"),
    (Lfm2MoeConfig(**BASE, **LFM2_MOE, routed_scaling_factor=1.5), "llama3", "routed_scaling_factor"),
    (Qwen3_5TextConfig(**BASE, **NETS, rms_norm_eps=0.1), "qwen2", "rms_norm_eps"),
    (Qwen3_5TextConfig(**BASE, **{**NETS, "linear_value_head_dim": 8}), "qwen2", "linear_value_head_dim"),
    (NemotronHConfig(**NEMOTRON, **BLOCKS, layers_block_type=["mamba", "moe", "mlp"]), "llama3",
     "hybrid_override_pattern"),
    (NemotronHConfig(**NEMOTRON, **BLOCKS, layers_block_type=PLAIN, use_conv_bias=False), "llama3", "use_conv_bias"),
    (Qwen3NextConfig(**BASE, **NETS, **SHARED, mlp_only_layers=[0]), "qwen2", "mlp_only_layers"),
    (Qwen3NextConfig(**BASE, **NETS, **SHARED, norm_topk_prob=False), "qwen2", "norm_topk_prob"),
    (Qwen3NextConfig(**BASE, **{**NETS, "linear_value_head_dim": 8}, **SHARED), "qwen2", "linear_value_head_dim"),
    (Mamba2Config(**MAMBA2, use_conv_bias=False), "llama3", "use_conv_bias"),
    (GraniteMoeHybridConfig(**{**BASE, **DENSE}, time_step_limit=[0.1, 0.9]), "llama3", "time_step_limit"),
    (GraniteMoeHybridConfig(**{**BASE, **DENSE}, mamba_conv_bias=False), "llama3", "mamba_conv_bias"),
    (GraniteMoeHybridConfig(**{**BASE, **DENSE, "mamba_expand": 1}), "llama3", "mamba_expand"),
    (GraniteMoeHybridConfig(**{**BASE, **DENSE, "layer_types": ["attention"] * 4}), "llama3",
     "position_embedding_type"),
    (FalconH1Config(**BASE, **FALCON, mamba_rms_norm=True), "llama3", "mamba_norm_before_gate"),
    (FalconH1Config(**BASE, **FALCON, attention_bias=True), "llama3", "attention_bias"),
    (FalconH1Config(**BASE, **FALCON, tie_word_embeddings=True), "llama3", "different multipliers"),
]
F32 = (".ffn_gate_inp", "_norm.weight", "conv1d", "shortconv.conv")
TYPES = dict(f32="F32", f16="F16", bf16="BF16", q8_0="Q8_0")
IDS = [t * 37 % VOCAB for t in range(70)]
NEW = 12


def architecture(config):
    kind = config.model_type
    wanted = ARCHITECTURES.get(kind, kind)
    if kind == "nemotron_h" and "moe" in config.layers_block_type:
        wanted = "nemotron_h_moe"
    if kind == "granitemoehybrid" and not {"mamba", "linear_attention"} & set(config.layer_types):
        wanted = "granite"
    return next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == wanted)


def make_model(folder, config, kind):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            one = "norm" in name and not getattr(config, "linear_key_head_dim", 0) or name.endswith(".D")
            p.copy_(torch.randn_like(p) * 0.2 + (1.0 if one else 0.0))
    bias_choices(model)
    model.save_pretrained(folder)
    save_tokenizer(folder, kind)
    return model


def heads_of(state, config):
    """As Hugging Face's files have it, without what a file of one kind joins: name, value."""
    for name in [name for name in state if ".experts.0." in name]:  # one tensor of all experts
        before, after = name.split(".experts.0.")
        every = [key for key in state if key.startswith(f"{before}.experts.") and key.endswith(f".{after}")]
        state[f"{before}.experts.{after}"] = np.stack([state.pop(f"{before}.experts.{i}.{after}")
                                                       for i in range(len(every))])
    for name in [name for name in state if ".norms.0." in name]:  # one of all heads
        before = name.split(".norms.0.")[0]
        every = [key for key in state if key.startswith(f"{before}.norms.")]
        state[before + ".weight"] = np.stack([state.pop(f"{before}.norms.{i}.weight") for i in range(len(every))])
    return state


def paired(value, heads, rotated):
    """The rows of each head that rotate together are adjacent."""
    value = value.reshape(heads, value.shape[0] // heads, -1).copy()
    value[:, :rotated] = value[:, :rotated].reshape(heads, 2, rotated // 2, -1).swapaxes(1, 2).reshape(
        heads, rotated, -1)
    return value.reshape(-1, value.shape[-1])


def falcon_factors(name, value, config):
    """The multipliers that Falcon-H1's convert script puts into the weights."""
    c, inner, keys = config, config.mamba_d_ssm, config.mamba_n_groups * config.mamba_d_state
    sizes = inner, inner, keys, keys, config.mamba_n_heads
    of = {"embed_tokens": c.embedding_multiplier, "lm_head": c.lm_head_multiplier, "q_proj": c.attention_in_multiplier,
          "k_proj": c.attention_in_multiplier * c.key_multiplier, "v_proj": c.attention_in_multiplier,
          "o_proj": c.attention_out_multiplier, "out_proj": c.ssm_out_multiplier, "gate_proj": c.mlp_multipliers[0],
          "down_proj": c.mlp_multipliers[1],
          "in_proj": c.ssm_in_multiplier * np.repeat(c.ssm_multipliers, sizes)[:, None]}
    return (value * of.get(name.split(".")[-2], 1.0)).astype(np.float32)


def tiled(name, value, config):
    """Heads of values in the order of llama.cpp, which repeats those of keys as a whole (Qwen3.5)."""
    keys, size = config.linear_num_key_heads, config.linear_value_head_dim
    each, axis = config.linear_num_value_heads // keys, int(".out_proj." in name)
    before = 2 * keys * config.linear_key_head_dim if "in_proj_qkv" in name or "conv1d" in name else 0
    if "in_proj_a" in name or "in_proj_b" in name or "A_log" in name or "dt_bias" in name:
        size = 1
    q_and_k, heads = np.split(value, [before], axis=axis)
    shape = list(heads.shape)
    heads = heads.reshape(*shape[:axis], keys, each, size, *shape[axis + 1:]).swapaxes(axis, axis + 1).reshape(shape)
    return np.concatenate([q_and_k, heads], axis=axis)


def shaped(name, value, config):
    """A tensor as the convert script changes it: values and shape."""
    kind = config.model_type
    mamba = kind in ("granitemoehybrid", "bamba", "falcon_h1", "mamba2", "nemotron_h")
    if ".conv.conv." in name or "conv1d.weight" in name:
        value = value.squeeze(1)
    if name.endswith(".A_log"):
        value = -np.exp(value)
    if mamba and name.endswith((".A_log", ".D")):
        value = value[:, None]
    if mamba and (".mamba.norm." in name or ".mixer.norm." in name):
        value = value.reshape(getattr(config, "mamba_n_groups", getattr(config, "n_groups", 0)), -1)
    turned = kind in ("granitemoehybrid", "granitemoeshared", "bamba", "nemotron_h", "olmo", "ministral3")
    if kind == "falcon" and "query_key_value" in name:  # of each group: its queries, its key, its value
        each = value.shape[0] // (config.num_attention_heads + 2 * config.num_kv_heads)
        groups = value.reshape(config.num_kv_heads, -1, each, value.shape[-1])
        value = np.concatenate([part.reshape(-1, value.shape[-1]) for part in np.split(groups, [-2, -1], axis=1)])
    if turned and name.endswith(("q_proj.weight", "k_proj.weight")):
        heads = config.num_attention_heads if ".q_proj" in name else config.num_key_value_heads
        size = value.shape[0] // heads
        value = paired(value, heads, size // 2 if kind == "bamba" else size)
    if kind.startswith("qwen3_5") and ".linear_attn." in name and ".norm." not in name:
        value = tiled(name, value, config)
    if kind.startswith("qwen") and name.endswith("norm.weight") and ".linear_attn." not in name:
        value = value + 1
    return falcon_factors(name, value, config) if kind == "falcon_h1" else value


def parts_of(name, value, config):
    """Names and values of the tensors of GGUF files that one of Hugging Face's becomes."""
    if "in_proj_qkvz" in name:  # of each head of keys
        k, v = config.linear_key_head_dim, config.linear_num_value_heads // config.linear_num_key_heads * \
            config.linear_value_head_dim
        parts = np.split(value.reshape(config.linear_num_key_heads, -1, value.shape[-1]), [k, 2 * k, 2 * k + v], axis=1)
        *qkv, gates = (part.reshape(-1, value.shape[-1]) for part in parts)
        return [(name.replace("qkvz", "qkv"), np.concatenate(qkv)), (name.replace("qkvz", "z"), gates)]
    if "input_linear" in name:  # gates and ups
        to = "block_sparse_moe.input_linear", "mlp.experts.%s_proj"
        if "shared_mlp" in name:
            to = "shared_mlp.input_linear", "mlp.shared_expert.%s_proj" if config.num_local_experts else "mlp.%s_proj"
        return [(name.replace(to[0], to[1] % part), half)
                for part, half in zip(("gate", "up"), np.split(value, 2, axis=-2))]
    if "shared_mlp.output_linear" in name and not config.num_local_experts:
        name = name.replace("shared_mlp.output_linear", "mlp.down_proj")
    if config.model_type == "llama4_text":
        name = name.replace("feed_forward", "mlp")
    if config.model_type == "llama4_text" and ".experts." in name:  # transposed
        parts = np.split(value, 2, axis=-1) if "gate_up" in name else [value]
        return [(name.replace("gate_up_proj", of) + ".weight", part.swapaxes(-1, -2))
                for of, part in zip(("gate_proj", "up_proj"), parts)]
    if ".mixer.experts." in name:
        name = name.replace("backbone", "model").replace("mixer", "mlp")
    name = name.replace("feed_forward.expert_bias", "feed_forward.expert_bias.bias")
    if ".block_sparse_moe." in name:
        name = name.replace("e_score_correction.bias", "gate.e_score_correction.bias")
    if ".feed_forward.experts." in name:
        name = name.replace("model.layers", "layers")
    name = name.replace("e_score_correction_bias", "e_score_correction.bias")
    if config.model_type.startswith("gemma4"):
        name = name.replace("router.scale", "router.proj.scale").replace("layer_scalar", "layer_scalar.weight")
        name = name.replace("router.per_expert_scale", "experts.down_proj.scale")
        name += ".weight" if name.endswith("_proj") else ""
    # Of each head: the transposed matrix of keys, and that of values.
    if ".kv_b_proj." in name and config.model_type != "minicpm3":
        keys, of_values = np.split(value.reshape(config.num_attention_heads, -1, value.shape[-1]),
                                   [config.qk_nope_head_dim], axis=1)
        return [(name.replace("kv_b", "k_b"), keys.swapaxes(1, 2)), (name.replace("kv_b", "v_b"), of_values)]
    return [(name.replace(".dt_bias", ".dt_proj.bias"), value)]


def expected(state, config):
    """Names by the gguf package's own table, values as the convert script changes them."""
    names, wanted = gguf.get_tensor_name_map(architecture(config), config.num_hidden_layers), {}
    for name, whole in heads_of(dict(state), config).items():
        for part, value in parts_of(name, shaped(name, whole, config), config):
            wanted[names.get_name(part, (".weight", ".bias", ".scale"))] = np.ascontiguousarray(value)
    if config.model_type.startswith("gemma4"):  # divisors of frequencies: only some pairs rotate
        full = config.rope_parameters["full_attention"]
        norm = f"model.layers.{config.layer_types.index('full_attention')}.self_attn.q_norm.weight"
        pairs = len(state[norm]) // 2
        turned = np.arange(pairs) < pairs * full.get("partial_rotary_factor", 1.0)
        wanted["rope_freqs.weight"] = np.where(turned, 1, 1e30).astype(np.float32)
    if config.model_type == "llama4_text" and config.rope_parameters["rope_type"] == "llama3":
        pairs, theta = config.head_dim // 2, config.rope_parameters["rope_theta"]
        scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
        plain = theta ** -(np.arange(pairs) / pairs)
        wanted["rope_freqs.weight"] = (plain / scaled.double().numpy()).astype(np.float32)
    return wanted


def is_float(tensor, value):
    return value.ndim < 2 or not tensor.endswith(".weight") or any(part in tensor for part in F32)


def compare_values(name, path, state, config, outtype):
    """Exact values have the same bytes, computed ones a relative error of rounding."""
    wanted, reader = expected(state, config), gguf.GGUFReader(path)
    check(reader.fields["general.architecture"].contents() == gguf.MODEL_ARCH_NAMES[architecture(config)],
          f"{name}: another architecture")
    has = {t.name: t for t in reader.tensors}
    check(set(has) == set(wanted), f"{name}: tensors {sorted(set(has) ^ set(wanted))}")
    for tensor in set(has) & set(wanted):
        value, t = wanted[tensor], has[tensor]
        check(list(t.shape) == list(reversed(value.shape)), f"{name}: {tensor} has shape {t.shape}, not {value.shape}")
        if outtype not in TYPES:
            continue
        plain = is_float(tensor, value) or (outtype == "q8_0" and tensor == "per_layer_model_proj.weight")
        kind = gguf.GGMLQuantizationType["F32" if plain else TYPES[outtype]]
        check(t.tensor_type == kind, f"{name}: {tensor} is of type {t.tensor_type.name}")
        got = gguf.quants.dequantize(t.data, t.tensor_type).reshape(value.shape)
        same = gguf.quants.dequantize(gguf.quants.quantize(value, kind), kind).reshape(value.shape)
        close = np.allclose(got, same, rtol=3e-7, atol=0) if kind.name == "F32" else \
            np.mean(got != same) < 1e-3 and np.allclose(got, same, rtol=0.02, atol=0.05)
        check(close, f"{name}: {tensor} as {outtype}: other values")
    return reader


def logits_of_txgen(name, model, ids, **options):
    with tempfile.TemporaryDirectory() as out:
        done = run(TXGEN, model=model, ids=" ".join(map(str, ids)), logits=os.path.join(out, "logits"), **options)
        check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
        return torch.from_numpy(load_file(os.path.join(out, "logits"))["logits"]).double() if done.returncode == 0 \
            else None


def error_of(got, want):
    return math.nan if got is None else ((got - want).abs().max() / want.abs().max()).item()


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].double()


def greedy(model, ids, new):
    """The likeliest continuation, by a pass over the whole text for each token."""
    ids, count = list(ids), len(ids)
    while len(ids) < count + new and (len(ids) == count or ids[-1] != BASE["eos_token_id"]):
        ids.append(logits_of(model, ids)[-1].argmax().item())
    return ids[count:]


def compare_llama_cpp(name, path, want, outtype, bound):
    """Logits of all tokens in llama.cpp, if its Python package is there. It rounds the inputs of products with other
    types than fp32, after which some tokens go to other experts."""
    if llama_cpp is None:
        return "without llama.cpp"
    read = Model(name, path)
    if not read.model:
        return "not loaded"
    got = torch.from_numpy(read.logits(IDS, VOCAB)).double()
    read.free()
    errors = ((got - want).abs().amax(-1) / want.abs().max()).sort().values
    error = errors[-1 if outtype == "f32" else len(errors) // 2].item()
    most = bound if outtype == "f32" else 0.1 if bound <= 1e-5 else 0.3
    check(error <= most, f"{name}: logits of llama.cpp differ by {error}")
    return f"llama.cpp {error:.1e}"


def text_of_llama_cpp(path):
    read = llama_cpp.Llama(model_path=path, n_ctx=128, n_gpu_layers=0, verbose=False, n_threads=1, logits_all=False,
                           type_k=0, type_v=0)
    made = []
    for token in read.generate(IDS[:20], temp=0.0, repeat_penalty=1.0):
        made.append(token)
        if len(made) == NEW or token == BASE["eos_token_id"]:
            return made
    return made


def compare_texts(name, source, path, model):
    want = greedy(model, IDS[:20], NEW)
    for folder in (source, path):
        done = run(TXGEN, model=folder, ids=" ".join(map(str, IDS[:20])), max_new_tokens=NEW, temperature=0,
                   dtype="float32")
        check(done.stdout.split() == list(map(str, want)), f"{name}: {folder}: {done.stdout} for {want} {done.stderr}")
    if llama_cpp is not None:
        got = text_of_llama_cpp(path)
        check(got == want, f"{name}: text of llama.cpp: {got}, not {want}")


def folder_of(name, path):
    """transformers' model of the folder that a file becomes."""
    with tempfile.TemporaryDirectory() as back:
        done = run(TXCONVERT, path, to=back)
        check(done.returncode == 0, f"{name}, back: {done.stderr.strip()}")
        if done.returncode:
            return None
        model, info = AutoModelForCausalLM.from_pretrained(back, attn_implementation="eager",
                                                           output_loading_info=True)
    check(not any(info.values()), f"{name}: loading the folder: {info}")
    return model.eval()


def compare_training(name, work, source, path):
    """Steps of training from the file are those from the folder."""
    text, losses = os.path.join(work, "text.txt"), []
    with open(text, "w", encoding="utf-8") as file:
        file.write("the cat sat on the mat and the dog\n" * 60)
    for model in (source, path):
        out = os.path.join(work, f"run{len(losses)}")
        done = run(TXTRAIN, model_name_or_path=model, train_file=text, output_dir=out, block_size=32, max_steps=3,
                   per_device_train_batch_size=2, learning_rate=1e-3, save_strategy="no", logging_steps=1,
                   device="cpu")
        check(done.returncode == 0, f"{name}: txtrain: {done.stderr.strip()}")
        losses.append(log_of(out) if done.returncode == 0 else [])
    steps = 1 if "falcon" in name else 3  # other weights with the same logits have other gradients
    check(all(len(of) == 3 for of in losses) and np.allclose(losses[0][:steps], losses[1][:steps], rtol=1e-4),
          f"{name}: losses of training {losses}")


def compare(name, config, kind):
    with tempfile.TemporaryDirectory() as work:
        source, results = os.path.join(work, "source"), []
        model = make_model(source, config, kind)
        state = load_file(os.path.join(source, "model.safetensors"))
        # DeltaNets amplify rounding, and so do many layers, and scores that are not scaled.
        many, gelu = config.num_hidden_layers > 20 or "gemma" in name, "gemma" in name or name.startswith("falcon 2")
        want, bound = logits_of(model, IDS), 1e-3 if "qwen" in name else 5e-5 if many else 1e-5
        for outtype in ("f16", "bf16", "q8_0", "q4_k_m", "f32"):
            path, both = os.path.join(work, f"{outtype}.gguf"), f"{name}, {outtype}"
            done = run(TXCONVERT, source, to=path, outtype=outtype)
            check(done.returncode == 0, f"{both}: {done.stderr.strip()}")
            if done.returncode:
                return
            reader = compare_values(both, path, state, config, outtype)
            read = folder_of(both, path)
            if not read:
                return
            rounded = logits_of(read, IDS)
            error = error_of(logits_of_txgen(both, path, IDS, dtype="float32"), rounded)
            check(error <= bound, f"{both}: logits of the file differ by {error}")
            near = 2e-2 if gelu else bound  # llama.cpp's GELU has 16 bits
            results.append(f"{outtype} {error:.1e}, {compare_llama_cpp(both, path, rounded, outtype, near)}")
        error = error_of(rounded, want)
        check(error <= bound, f"{name}: logits of the folder that comes back differ by {error}")
        for key, value in KEYS.get(name, {}).items():
            field = reader.fields.get(f"{gguf.MODEL_ARCH_NAMES[architecture(config)]}.{key}")
            check(field and field.contents() == value, f"{name}: {key} is {field and field.contents()}, not {value}")
        compare_texts(name, source, path, model)
        compare_training(name, work, source, path)
        print(f"{name}: {len(reader.tensors)} tensors; {'; '.join(results)}; folder {error:.1e}", flush=True)


def main():
    only = sys.argv[4:]
    for name, model in MODELS.items():
        if not only or name.split(",")[0] in only:
            compare(name, *model)
    for config, kind, words in REFUSED:
        if not only or config.model_type in only:
            with tempfile.TemporaryDirectory() as work:
                make_model(work, config, kind)
                check_refused(config.model_type, TXCONVERT, work, words)
    return status()


if __name__ == "__main__":
    sys.exit(main())
