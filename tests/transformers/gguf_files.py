# SPDX-License-Identifier: Apache-2.0
"""Compares txconvert with the gguf package and transformers: values, blocks and names of each type, logits and ids
of files that transformers reads, the weights that txgen reads from a file, folders made from files of the gguf
package, and conversion to GGUF and back, bit by bit.

    gguf_files.py TXCONVERT TXTOK TXGEN      exit status 77: gguf or transformers is not installed
"""
import copy
import json
import os
import subprocess
import sys
import tempfile

from oracle import check, run, status

import gguf
from gguf.scripts.gguf_new_metadata import MetadataDetails, copy_with_new_metadata
import numpy as np
import torch
from safetensors.numpy import load_file
from transformers import (
    ArceeConfig, AutoModelForCausalLM, AutoTokenizer, BloomConfig, CohereConfig, Ernie4_5Config, Exaone4Config,
    FalconConfig, Gemma2Config, Gemma3TextConfig, GemmaConfig, Glm4Config, GlmConfig, GPT2Config, GPTBigCodeConfig,
    GPTNeoXConfig, GptOssConfig, GraniteConfig, GraniteMoeConfig, HunYuanDenseV1Config, LlamaConfig, MistralConfig,
    MixtralConfig, MptConfig, NemotronConfig, Olmo2Config, Olmo3Config, OlmoeConfig, Phi3Config, PhiConfig, Qwen2Config,
    Qwen2MoeConfig, Qwen3Config, Qwen3MoeConfig, SeedOssConfig, SmolLM3Config, Starcoder2Config, StableLmConfig)
from gguf_llama import Model, check_refused, llama_cpp, use_table_of_gelu
from gguf_tokenizers import VOCAB, save_tokenizer
from mxfp4 import pack

TXCONVERT, TXTOK, TXGEN = sys.argv[1:4]
BASE = dict(vocab_size=VOCAB, max_position_embeddings=64, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, bos_token_id=1, eos_token_id=2, rms_norm_eps=1e-6)
LLAMA3 = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
LINEAR = dict(rope_type="linear", rope_theta=1e4, factor=2.0)
QUARTER = dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.25)
HALF = dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5)
PLAIN = dict(rope_type="default", rope_theta=1e4)
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=2.0, original_max_position_embeddings=32)
ALPHA = dict(rope_type="dynamic", rope_theta=1e4, factor=1.0, alpha=1000.0)
BYTES = {**BASE, "bos_token_id": 1, "eos_token_id": 0}  # as the byte-level tokenizers have them
SHARED = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=64)
OSS = dict(head_dim=32, num_local_experts=5, num_experts_per_tok=2, sliding_window=16, pad_token_id=0)
FALCON = dict(vocab_size=VOCAB, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, bos_token_id=1,
              eos_token_id=0, tie_word_embeddings=True)
MPT = dict(vocab_size=VOCAB, d_model=96, n_layers=2, n_heads=6, max_seq_len=64, bos_token_id=1, eos_token_id=0)
SCALES = dict(embedding_multiplier=12.0, attention_multiplier=0.25, residual_multiplier=0.5, logits_scaling=8.0)
OLMO3 = {**BYTES, "num_key_value_heads": 2, "num_hidden_layers": 5, "sliding_window": 16, "pad_token_id": 0}
WIDE = dict(BYTES, head_dim=32, pad_token_id=0)
ALL_HEADS = {key: value for key, value in BYTES.items() if key != "num_key_value_heads"}
# name: configuration, tokenizer, and whether transformers' own reader of GGUF knows all of it
MODELS = {
    "gpt2": (GPT2Config(vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=0),
             "gpt2", True),
    "llama": (LlamaConfig(**BASE), "pieces", True),
    "llama, tied": (LlamaConfig(**{**BYTES, "num_key_value_heads": 4}, tie_word_embeddings=True), "llama3", True),
    "llama, biases": (LlamaConfig(**BYTES, attention_bias=True, mlp_bias=True), "llama3", False),
    "llama3": (LlamaConfig(**BYTES, rope_parameters=LLAMA3), "llama3", False),
    "linear": (LlamaConfig(**BASE, rope_parameters=LINEAR), "pieces", False),
    "yarn": (LlamaConfig(**BASE, rope_parameters=YARN), "pieces", False),
    "mistral": (MistralConfig(**BASE, sliding_window=64, head_dim=32), "pieces", False),
    "qwen2": (Qwen2Config(**BYTES), "qwen2", True),
    "qwen3": (Qwen3Config(**BYTES, head_dim=128), "qwen2", True),
    "granite": (GraniteConfig(**BYTES, **SCALES), "llama3", False),
    "olmo2": (Olmo2Config(**{**BYTES, "num_key_value_heads": 2}), "llama3", False),
    "olmo3": (Olmo3Config(**OLMO3), "dbrx", False),
    "olmo3, yarn": (Olmo3Config(**{**OLMO3, "num_hidden_layers": 3},
                                layer_types=["full_attention", "sliding_attention", "full_attention"],
                                rope_parameters=dict(full_attention=dict(YARN, attention_factor=1.0),
                                                     sliding_attention=PLAIN)), "llama3", False),
    "phi3": (Phi3Config(**BYTES, pad_token_id=0), "llama3", True),
    "stablelm": (StableLmConfig(**BYTES, use_qkv_bias=True, rope_parameters=QUARTER), "qwen2", False),
    "stablelm, parallel": (StableLmConfig(**BYTES, use_parallel_residual=True, rope_parameters=QUARTER), "qwen2",
                           False),
    "mixtral": (MixtralConfig(**BASE, num_local_experts=4, num_experts_per_tok=2), "pieces", False),
    "qwen2_moe": (Qwen2MoeConfig(**BYTES, **SHARED), "qwen2", False),
    "qwen2_moe, no biases": (Qwen2MoeConfig(**BYTES, **SHARED, qkv_bias=False), "qwen2", False),
    "qwen3_moe": (Qwen3MoeConfig(**BYTES, head_dim=32, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=32,
                                 norm_topk_prob=True), "qwen2", False),
    "granitemoe": (GraniteMoeConfig(**BYTES, **SCALES, num_local_experts=5, num_experts_per_tok=2, attention_bias=True,
                                    rope_parameters=LLAMA3), "llama3", False),
    "olmoe": (OlmoeConfig(**ALL_HEADS, num_experts=4, num_experts_per_tok=3, pad_token_id=0), "llama3", False),
    "gpt_oss": (GptOssConfig(**BYTES, **OSS, rope_parameters=dict(YARN, truncate=False)), "llama3", False),
    "gpt_oss, 5 layers": (GptOssConfig(**{**BYTES, "num_hidden_layers": 5}, **OSS, rope_parameters=PLAIN), "llama3",
                          False),
    "gemma": (GemmaConfig(**BASE, head_dim=32), "pieces", False),
    "gemma2": (Gemma2Config(**{**BASE, "num_hidden_layers": 3}, head_dim=32, query_pre_attn_scalar=32,
                            sliding_window=16), "pieces", False),
    "gemma3_text": (Gemma3TextConfig(**{**BASE, "num_hidden_layers": 7}, head_dim=32, query_pre_attn_scalar=32,
                                     sliding_window=16), "pieces", False),
    "gpt_neox": (GPTNeoXConfig(**ALL_HEADS, rotary_pct=0.25, tie_word_embeddings=False), "gpt2", False),
    "gpt_neox, sequential": (GPTNeoXConfig(**ALL_HEADS, rotary_pct=0.5, use_parallel_residual=False,
                                           tie_word_embeddings=False), "gpt2", False),
    "arcee": (ArceeConfig(**BYTES, head_dim=16), "llama3", False),
    "ernie4_5": (Ernie4_5Config(**BYTES, head_dim=32), "llama3", False),
    "seed_oss": (SeedOssConfig(**BYTES, head_dim=32, attention_bias=True, attention_out_bias=False), "llama3", False),
    "starcoder2": (Starcoder2Config(**{**BYTES, "rms_norm_eps": None}, sliding_window=64), "gpt2", False),
    "phi": (PhiConfig(**ALL_HEADS, rope_parameters=HALF), "gpt2", False),
    "nemotron": (NemotronConfig(**BYTES, rope_parameters=HALF), "llama3", False),
    "cohere": (CohereConfig(**BYTES, logit_scale=0.25), "llama3", False),
    "glm4": (Glm4Config(**WIDE, attention_bias=True, rope_parameters=HALF), "llama3", False),
    "glm": (GlmConfig(**{**WIDE, "head_dim": 16}, attention_bias=True, rope_parameters=HALF), "llama3", False),
    "hunyuan": (HunYuanDenseV1Config(**WIDE, rope_parameters=PLAIN), "deepseek-v3", False),
    "hunyuan, alpha": (HunYuanDenseV1Config(**WIDE, tie_word_embeddings=True, rope_parameters=ALPHA), "llama3",
                       False),
    "gpt_bigcode": (GPTBigCodeConfig(vocab_size=VOCAB, n_positions=64, n_embd=64, n_layer=2, n_head=4, bos_token_id=1,
                                     eos_token_id=0), "starcoder", False),
    "gpt_bigcode, untied": (GPTBigCodeConfig(vocab_size=VOCAB, n_positions=64, n_embd=64, n_layer=2, n_head=4,
                                             n_inner=96, tie_word_embeddings=False, bos_token_id=1, eos_token_id=0),
                            "starcoder", False),
    "bloom": (BloomConfig(vocab_size=VOCAB, hidden_size=96, n_layer=2, n_head=6, bos_token_id=1, eos_token_id=0),
              "bloom", False),
    "bloom, untied": (BloomConfig(vocab_size=VOCAB, hidden_size=64, n_layer=2, n_head=4, tie_word_embeddings=False,
                                  bos_token_id=1, eos_token_id=0), "bloom", False),
    "mpt": (MptConfig(**MPT), "gpt2", False),
    "mpt, clipped": (MptConfig(**{**MPT, "n_heads": 4}, attn_config=dict(clip_qkv=1.5)), "gpt2", False),
    "exaone4": (Exaone4Config(**BYTES, sliding_window=None, layer_types=["full_attention"] * 2,
                              rope_parameters=LLAMA3), "gpt2", False),
    "exaone4, windows": (Exaone4Config(**{**BYTES, "num_hidden_layers": 64, "intermediate_size": 32},
                                       sliding_window=16), "gpt2", False),
    "falcon": (FalconConfig(**FALCON), "falcon", False),
    "falcon, linear": (FalconConfig(**{**FALCON, "tie_word_embeddings": False}, ffn_hidden_size=96,
                                    rope_parameters=LINEAR), "gpt2", False),
    "smollm3": (SmolLM3Config(**{**BYTES, "num_hidden_layers": 5}, pad_token_id=0), "llama3", False),
}
GELU = ("gpt2", "gpt_neox", "gpt_bigcode", "bloom", "mpt", "falcon", "gemma", "starcoder", "phi")
# Models without GELU, whose table in ggml has fp16 numbers.
EXACT = [name for name in MODELS if not name.startswith(GELU)]
KEYS = {
    "olmo3": {gguf.Keys.Attention.SLIDING_WINDOW: 16, gguf.Keys.Tokenizer.PRE: "dbrx",
              gguf.Keys.Attention.SLIDING_WINDOW_PATTERN: [True, True, True, False, True]},
    "olmo3, yarn": {gguf.Keys.Rope.SCALING_ATTN_FACTOR: np.float32(1 / (0.1 * np.log(2) + 1))},
    "hunyuan": {gguf.Keys.Tokenizer.PRE: "hunyuan-dense"},
    "hunyuan, alpha": {gguf.Keys.Rope.FREQ_BASE: np.float32(1e4 * 1000 ** (32 / 30))},
    "mpt": {gguf.Keys.Tokenizer.PRE: "mpt"},
    "granitemoe": {gguf.Keys.LLM.LOGIT_SCALE: 8.0, gguf.Keys.LLM.EXPERT_COUNT: 5, gguf.Keys.LLM.EXPERT_USED_COUNT: 2},
    "glm": {gguf.Keys.Rope.DIMENSION_COUNT: 8},
    "granite": {gguf.Keys.LLM.LOGIT_SCALE: 8.0, gguf.Keys.LLM.EMBEDDING_SCALE: 12.0, gguf.Keys.LLM.RESIDUAL_SCALE: 0.5,
                gguf.Keys.Attention.SCALE: 0.25},
    "stablelm": {gguf.Keys.LLM.USE_PARALLEL_RESIDUAL: False, gguf.Keys.Rope.DIMENSION_COUNT: 4},
    "stablelm, parallel": {gguf.Keys.LLM.USE_PARALLEL_RESIDUAL: True},
}
ARCHITECTURES = dict(
    mistral="llama", mixtral="llama", olmo3="olmo2", gemma3_text="gemma3", gpt_neox="gptneox", phi="phi2",
    cohere="command-r", glm="chatglm", gpt_bigcode="starcoder", qwen2_moe="qwen2moe", qwen3_moe="qwen3moe",
    gpt_oss="gpt-oss", hunyuan_v1_dense="hunyuan-dense") # of model types that have another name there
FLOATS = ("position_embd.weight", ".ffn_gate_inp")
ROTATED_IN_PAIRS = ("llama", "mistral", "mixtral", "granite", "granitemoe", "smollm3", "arcee")
TEXTS = ["the cat sat on the mat", "  two  spaces, 12345 numbers\n\nand lines ",
         "don't I'LL caf\u00e9 \u4e2d\u6587 \U0001f600",
         "", " ", "<|end|> a special one"]


def make_model(folder, config, kind):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * 0.2 + (1.0 if "norm" in name or "ln_" in name else 0.0))
    model.save_pretrained(folder)
    save_tokenizer(folder, kind)
    return model


def convert(name, source, to, outtype="f32"):
    done = run(TXCONVERT, source, to=to, outtype=outtype)
    check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
    return done.returncode == 0


def architecture(kind):
    """That of the gguf package for a model_type."""
    return next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == ARCHITECTURES.get(kind, kind))


def permuted(weights, heads):
    """llama.cpp's convert script, LlamaModel.permute."""
    return weights.reshape(heads, 2, weights.shape[0] // heads // 2,
                           *weights.shape[1:]).swapaxes(1, 2).reshape(weights.shape)


def expected(state, config):
    """Names by the gguf package's own table, values as the convert script turns them."""
    kind = config.model_type
    names, wanted = gguf.get_tensor_name_map(architecture(kind), config.num_hidden_layers), {}
    state = dict(state)
    for name in [name for name in state if ".experts.0." in name]:  # one tensor of all experts
        before, after = name.split(".experts.0.")
        every = [key for key in state if key.startswith(f"{before}.experts.") and key.endswith(f".{after}")]
        state[f"{before}.experts.{after}"] = np.stack([state.pop(f"{before}.experts.{i}.{after}")
                                                       for i in range(len(every))])
    for name in [name for name in state if kind == "gpt_oss" and ".experts." in name or "sinks" in name]:
        value, bias = state.pop(name), "bias" if name.endswith("_bias") else "weight"
        value = value.swapaxes(-1, -2) if bias == "weight" and value.ndim == 3 else value
        if "gate_up" in name:  # gates and ups alternate
            name = name.replace("gate_up_proj", "gate_proj").removesuffix("_bias")
            state[f"{name}.{bias}"], value = value[:, ::2], value[:, 1::2]
            name = name.replace("gate_proj", "up_proj")
        state[f"{name.removesuffix('_bias')}.{bias}"] = value
    for name in [name for name in state if "input_linear" in name]:  # gates and ups
        for part, value in zip(("gate", "up"), np.split(state.pop(name), 2, axis=1)):
            state[name.replace("block_sparse_moe.input_linear", f"mlp.experts.{part}_proj")] = value
    for name, value in state.items():
        if kind == "gpt2" and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            value = value.T
        if kind in ROTATED_IN_PAIRS and ".q_proj." in name:
            value = permuted(value, config.num_attention_heads)
        if kind in ROTATED_IN_PAIRS and ".k_proj." in name:
            value = permuted(value, config.num_key_value_heads)
        if kind.startswith(("gemma", "nemotron")) and name.endswith("norm.weight"):
            value = value + 1
        if ".query_key_value." in name and kind != "falcon":
            shape = value.shape
            value = value.reshape(config.num_attention_heads, 3, -1, *shape[1:]).swapaxes(0, 1).reshape(shape)
        if kind == "bloom":
            name = name.removeprefix("transformer.")
        wanted[names.get_name(name, (".weight", ".bias"))] = np.ascontiguousarray(value)
    return wanted


def compare_values(name, path, state, config, outtype):
    types = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16,
             "bf16": gguf.GGMLQuantizationType.BF16, "q8_0": gguf.GGMLQuantizationType.Q8_0}
    wanted, reader = expected(state, config), gguf.GGUFReader(path)
    check(reader.fields["general.architecture"].contents() == gguf.MODEL_ARCH_NAMES[architecture(config.model_type)],
          f"{name}: another architecture")
    has = {t.name: t for t in reader.tensors if t.name != "rope_freqs.weight"}
    check(set(has) == set(wanted), f"{name}: tensors {sorted(set(has) ^ set(wanted))}")
    for tensor in set(has) & set(wanted):
        value, t = wanted[tensor], has[tensor]
        plain = value.ndim < 2 or tensor.endswith(".bias") or any(part in tensor for part in FLOATS)
        kind = gguf.GGMLQuantizationType.F32 if plain else types[outtype]
        check(t.tensor_type == kind, f"{name}: {tensor} is of type {t.tensor_type.name}")
        check(list(t.shape) == list(reversed(value.shape)), f"{name}: {tensor} has shape {t.shape}")
        same = np.array_equal(t.data.reshape(-1).view(np.uint8),
                              gguf.quants.quantize(value, kind).reshape(-1).view(np.uint8))
        check(same, f"{name}: {tensor} as {outtype}: bytes differ from the gguf package's")
        check(t.data_offset % 32 == 0, f"{name}: {tensor} at {t.data_offset}")
    return reader


def compare_loaded(name, work, path, state, config):
    """txgen's weights of the file, as it writes them, are those that the gguf package reads, bit by bit."""
    folder = os.path.join(work, "loaded")
    done = run(TXGEN, model=path, save_merged=folder, dtype="float32")
    check(done.returncode == 0, f"{name}, loaded: {done.stderr.strip()}")
    if done.returncode == 0:
        got = expected(load_file(os.path.join(folder, "model.safetensors")), config)
        has = {t.name: t for t in gguf.GGUFReader(path).tensors if t.name != "rope_freqs.weight"}
        check(set(got) == set(has), f"{name}, loaded: tensors {sorted(set(got) ^ set(has))}")
        for tensor in set(got) & set(has):
            want = gguf.quants.dequantize(has[tensor].data, has[tensor].tensor_type).reshape(got[tensor].shape)
            check(np.array_equal(want.view(np.uint32), got[tensor].view(np.uint32)),
                  f"{name}: {tensor} as loaded differs")


def compare_rope(name, reader, config):
    """The factors that the convert script writes for llama3, by transformers' frequencies."""
    found = [t for t in reader.tensors if t.name == "rope_freqs.weight"]
    if not getattr(config, "rope_parameters", None) or config.rope_parameters.get("rope_type") != "llama3":
        check(not found, f"{name}: factors of rotary positions")
        return
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    plain = 1.0 / (5e5 ** (np.arange(0, 16, 2) / 16))
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    check(np.allclose(found[0].data, plain / scaled.double().numpy(), rtol=1e-5),
          f"{name}: factors of rotary positions")


def ids_of(folder):
    lines = "".join(json.dumps({"text": t}) + "\n" for t in TEXTS)
    done = subprocess.run([TXTOK, "encode", "--tokenizer", folder, "--jsonl", "--add_special_tokens"], input=lines,
                          capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()] or done.stderr


def copy_file(path, to, remove=(), new=None):
    """A copy of a file with other values, by the gguf package's own script. Matrices of one row become vectors,
    as older files have them."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(to, reader.fields["general.architecture"].contents())
    reader.tensors = [t._replace(data=t.data.reshape(t.data.shape[-1:]) if t.data.shape[0] == 1 else t.data)
                      for t in reader.tensors]
    copy_with_new_metadata(reader, writer, new or {}, remove)


def same_logits(*models):
    """Whether txgen computes the same logits, bit by bit."""
    made = []
    for model in models:
        done = run(TXGEN, model=model, ids="1 5 250 17 3", logits=os.path.join(model, "logits"))
        check(done.returncode == 0, done.stderr.strip())
        made.append(load_file(os.path.join(model, "logits"))["logits"])
    return np.array_equal(*made)


def compare_back(name, work, source, state, path):
    """Converts back to a folder: the same weights and ids, also with a tokenizer made only of the file's tokens."""
    back, bare, rebuilt = (os.path.join(work, n) for n in ("back", "bare.gguf", "rebuilt"))
    if not convert(f"{name}, back", path, back):
        return
    got = load_file(os.path.join(back, "model.safetensors"))
    rounds = name.startswith(("gemma", "nemotron"))  # files have norms plus 1
    check(set(got) == set(state) and all(np.array_equal(got[k].view(np.uint32), state[k].view(np.uint32))
                                         or (rounds and "norm" in k
                                             and np.allclose(got[k], state[k], atol=2e-7, rtol=0))
                                         for k in state),
          f"{name}: weights that come back differ")
    config = AutoModelForCausalLM.from_pretrained(source).config
    want, known = config.to_dict(), type(config)().to_dict()
    have = AutoModelForCausalLM.from_pretrained(back).config.to_dict()
    skip = {"_name_or_path", "architectures", "dtype", "transformers_version", "pad_token_id", "use_cache", "n_inner",
            "attn_implementation", "max_window_layers"}
    if want.get("rope_parameters", {}) == ALPHA:  # the file has the base that results
        skip.add("rope_parameters")
        check(same_logits(source, back), f"{name}: other logits of the folder that comes back")
    odd = {k: (want[k], have.get(k)) for k in want if k in known and k not in skip and want[k] != have.get(k)}
    check(not odd, f"{name}: config.json comes back as {odd}")
    copy_file(path, bare, ["tokenizer.huggingface.json"])
    if convert(f"{name}, from tokens", bare, rebuilt):
        ids = ids_of(source)
        check(len(ids) == len(TEXTS) and ids == ids_of(back), f"{name}: ids of the tokenizer that comes back differ")
        same = load_file(os.path.join(rebuilt, "model.safetensors"))
        check(all(np.array_equal(got[k], same[k]) for k in got), f"{name}: weights of the copied file differ")
        check(ids == ids_of(rebuilt), f"{name}: ids of the rebuilt tokenizer: {ids_of(rebuilt)} for {ids}")
        own = AutoTokenizer.from_pretrained(rebuilt)
        check([own(t)["input_ids"] for t in TEXTS] == ids, f"{name}: transformers' ids of the rebuilt tokenizer differ")


def compare_logits(name, model, work, file):
    """transformers' reader of GGUF as a second one."""
    ids = torch.tensor([[(t * 37) % VOCAB for t in range(24)]])
    read = AutoModelForCausalLM.from_pretrained(work, gguf_file=file, dtype=torch.float32, pad_token_id=0,
                                                attn_implementation="eager").eval()
    with torch.no_grad():
        want, got = model(ids).logits, read(ids).logits
    error = ((got - want).abs().max() / want.abs().max()).item()
    check(error <= 1e-5, f"{name}: logits of the file as transformers reads it differ by {error}")
    return error


def compare_llama_cpp(name, model, path, folder, bound=None):
    """Ids and logits of llama.cpp, if its Python package is there."""
    if llama_cpp is None:
        return "without llama.cpp"
    read, ids = Model(name, path), [t * 37 % VOCAB for t in range(40)]
    for text, want in zip(TEXTS, ids_of(folder)):  # the file names a pre-tokenizer
        check(read.tokenize(text) == want, f"{name}: ids of llama.cpp: {read.tokenize(text)} for {want}")
    got = torch.from_numpy(read.logits(ids, VOCAB))
    use_table_of_gelu(model)
    if (getattr(model.config, "rope_parameters", None) or {}).get("truncate") is False:  # llama.cpp always truncates
        rounded = copy.deepcopy(model.config)
        rounded.rope_parameters["truncate"] = True
        model.model.rotary_emb = type(model.model.rotary_emb)(rounded)
    with torch.no_grad():
        want = model(torch.tensor([ids])).logits[0]
    read.free()
    error, bound = ((got - want).abs().max() / want.abs().max()).item(), bound or (1e-5 if name in EXACT else 5e-4)
    check(error <= bound, f"{name}: logits of llama.cpp differ by {error}")
    return f"llama.cpp {error:.1e}"


def compare(name, config, kind, readable):
    with tempfile.TemporaryDirectory() as work:
        source = os.path.join(work, "source")
        model = make_model(source, config, kind)
        state = {k: v for k, v in load_file(os.path.join(source, "model.safetensors")).items()}
        for outtype in ("f16", "bf16", "q8_0", "f32"):
            path = os.path.join(work, "model.gguf")
            if not convert(f"{name}, {outtype}", source, path, outtype):
                return
            reader = compare_values(name, path, state, config, outtype)
            compare_loaded(f"{name}, {outtype}", work, path, state, config)
        compare_rope(name, reader, config)
        for key, want in KEYS.get(name, {}).items():
            field = reader.fields.get(key.format(arch=gguf.MODEL_ARCH_NAMES[architecture(config.model_type)]))
            check(field and field.contents() == want, f"{name}: {key} is {field}, not {want}")
        compare_back(name, work, source, state, path)
        error = compare_logits(name, model, work, "model.gguf") if readable else None
        other = compare_llama_cpp(name, model, path, source)
        print(f"{name}: {len(reader.tensors)} tensors" + (f", logits {error:.1e}" if readable else "") + f", {other}")


def compare_packed(name, config, kind):
    """The file of a folder with MXFP4 weights has the values that transformers makes of them."""
    with tempfile.TemporaryDirectory() as work:
        model, path = make_model(work, config, kind), os.path.join(work, "model.gguf")
        pack(model, work)
        if convert(name, work, path):
            compare_values(name, path, {k: v.numpy() for k, v in model.state_dict().items()}, config, "f32")
            print(f"{name}: {compare_llama_cpp('gpt_oss', model, path, work)}")


def compare_blocks(name, config, kind):
    """A file whose experts are in blocks of MXFP4, as llama.cpp's convert script writes gpt-oss."""
    with tempfile.TemporaryDirectory() as work:
        source, path, packed, back = (os.path.join(work, n) for n in ("source", "model.gguf", "packed.gguf", "back"))
        model, mxfp4 = make_model(source, config, kind), gguf.GGMLQuantizationType.MXFP4
        convert(name, source, path)
        reader, random = gguf.GGUFReader(path), np.random.default_rng(0)
        writer = gguf.GGUFWriter(packed, reader.fields["general.architecture"].contents())
        for t in [t for t in reader.tensors if t.name.endswith("_exps.weight")]:
            raw = random.integers(0, 256, (*t.data.shape[:-1], t.data.shape[-1] // 32 * 17), np.uint8)
            raw[..., ::17] = random.integers(118, 126, raw[..., ::17].shape, np.uint8)
            reader.tensors[reader.tensors.index(t)] = t._replace(data=raw, tensor_type=mxfp4)
        copy_with_new_metadata(reader, writer, {}, ["tokenizer.huggingface.json"])
        if not convert(name, packed, back):
            return
        state = load_file(os.path.join(back, "model.safetensors"))
        got, has = expected(state, config), {t.name: t for t in gguf.GGUFReader(packed).tensors}
        for tensor, t in has.items():
            want = gguf.quants.dequantize(t.data, t.tensor_type).reshape(got[tensor].shape)
            check(np.array_equal(want.view(np.uint32), got[tensor].view(np.uint32)), f"{name}: {tensor} differs")
        check(sum(t.tensor_type == mxfp4 for t in has.values()) == 3 * config.num_hidden_layers, f"{name}: no blocks")
        done = run(TXGEN, model=packed, save_merged=os.path.join(work, "loaded"))
        check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
        loaded = load_file(os.path.join(work, "loaded", "model.safetensors"))
        check(all(np.array_equal(loaded[k], state[k]) for k in state), f"{name}: txgen loads other values")
        model.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
        # llama.cpp rounds the inputs of such products to 8 bits.
        print(f"{name}: {compare_llama_cpp(name, model, packed, source, 0.1)}")


def refuse(name, config, kind, words):
    with tempfile.TemporaryDirectory() as work:
        make_model(work, config, kind)
        check_refused(name, TXCONVERT, work, words)


def refuse_file(name, key, value, words):
    """A file with another value of a key is not read."""
    with tempfile.TemporaryDirectory() as work:
        make_model(work, *MODELS[name][:2])
        path, other, back = (os.path.join(work, n) for n in ("model.gguf", "other.gguf", "back"))
        convert(name, work, path)
        copy_file(path, other, new={key: MetadataDetails(gguf.GGUFValueType.UINT32, value)})
        done = run(TXCONVERT, other, to=back)
        check(done.returncode == 1 and words in done.stderr and not os.path.exists(back),
              f"{name}: {done.returncode} {done.stderr.strip()}")


def warn(name, config, kind, words):
    """Exports a model with a warning that has these words, or without any."""
    with tempfile.TemporaryDirectory() as work:
        make_model(work, config, kind)
        done = run(TXCONVERT, work, to=os.path.join(work, "model.gguf"))
        check(done.returncode == 0 and words in done.stderr and ("warning" in done.stderr) == bool(words),
              f"{name}: {done.returncode} {done.stderr.strip()}")


for name, model in MODELS.items():
    compare(name, *model)
compare_packed("gpt_oss, mxfp4", *MODELS["gpt_oss"][:2])
compare_blocks("gpt_oss, mxfp4 in the file", *MODELS["gpt_oss"][:2])
refuse("a biased qwen3", Qwen3Config(**BASE, attention_bias=True), "qwen2", "attention_bias")
for setting in (dict(swiglu_limit=5.0), dict(rope_parameters=YARN), dict(tie_word_embeddings=True),
                dict(layer_types=["full_attention"] * 2)):
    refuse("a gpt-oss with another setting", GptOssConfig(**{**BYTES, **OSS, "rope_parameters": PLAIN, **setting}),
           "llama3", next(iter(setting)))
refuse("a qwen2_moe with scaled weights", Qwen2MoeConfig(**BYTES, **SHARED, norm_topk_prob=True), "qwen2",
       "norm_topk_prob")
refuse("a gemma 2 with another scale", Gemma2Config(**BASE, head_dim=32), "pieces", "query_pre_attn_scalar")
for row in ("olmo2", "olmo3", "olmoe", "stablelm", "nemotron", "qwen2_moe"):
    tied = type(MODELS[row][0]).from_dict(dict(MODELS[row][0].to_dict(), tie_word_embeddings=True))
    refuse(f"a tied {row}", tied, MODELS[row][1], "tie_word_embeddings")
refuse("an olmoe with grouped heads", OlmoeConfig(**BYTES, num_experts=4, num_experts_per_tok=3, pad_token_id=0),
       "llama3", "num_key_value_heads")
refuse("a biased olmo3", Olmo3Config(**OLMO3, attention_bias=True), "llama3", "attention_bias")
refuse("an olmo3 with two bases", Olmo3Config(**OLMO3, rope_parameters=dict(
    full_attention=PLAIN, sliding_attention=dict(PLAIN, rope_theta=5e5))), "llama3", "sliding_attention")
refuse("a glm with wide heads", GlmConfig(**WIDE), "llama3", "head_dim")
refuse("a biased hunyuan", HunYuanDenseV1Config(**WIDE, attention_bias=True, rope_parameters=PLAIN), "llama3",
       "attention_bias")
SMALL = dict(vocab_size=VOCAB, n_positions=64, n_embd=64, n_layer=1, n_head=4, bos_token_id=0, eos_token_id=0)
refuse("relu", GPT2Config(**SMALL, activation_function="relu"), "gpt2", "gelu_new")
for exact in (GPT2Config(**SMALL, activation_function="gelu"), GPTNeoXConfig(**ALL_HEADS, hidden_act="gelu"),
              Starcoder2Config(**{**BYTES, "rms_norm_eps": None}, hidden_act="gelu")):
    warn("exact gelu", exact, "gpt2", "gelu_new")
for tanh in (GPT2Config(**SMALL), GPTNeoXConfig(**ALL_HEADS, hidden_act="gelu_new")):
    warn("tanh gelu", tanh, "gpt2", "")
warn("gpt-oss", MODELS["gpt_oss"][0], "llama3", "truncate")
warn("mpt", MODELS["mpt"][0], "gpt2", "gelu_new")
refuse("mpt with another scale", MptConfig(**MPT, attn_config=dict(softmax_scale=0.5)), "gpt2", "softmax_scale")
refuse_file("mpt", "mpt.attention.max_alibi_bias", 4, "max_alibi_bias is 4, not 8")
refuse("exaone4 with windows", Exaone4Config(**BYTES, sliding_window=16), "gpt2", "sliding_window")
for setting in (dict(alibi=True, multi_query=False), dict(bias=True), dict(multi_query=False),
                dict(parallel_attn=False)):
    refuse("a falcon with another setting", FalconConfig(**FALCON, **setting), "gpt2", next(iter(setting)))
for row in ("qwen2", "olmo2", "stablelm", "gpt_neox", "cohere", "smollm3", "falcon"):
    other = copy.deepcopy(MODELS[row][0])
    other.rope_parameters = dict(LLAMA3, partial_rotary_factor=(other.rope_parameters or {}).get(
        "partial_rotary_factor", 1.0))
    refuse(f"{row} with llama3", other, MODELS[row][1], "does not compute llama3")
refuse_file("hunyuan", "hunyuan-dense.rope.scaling.alpha", 50, "scaling.alpha")
refuse_file("olmo3", "olmo2.attention.sliding_window_pattern", 4, "sliding_window_pattern")
refuse_file("falcon", "falcon.attention.head_count_kv", 4, "blk.0.attn_qkv.weight does not have the shape")
refuse_file("gpt_bigcode", "starcoder.attention.head_count_kv", 2, "head_count_kv is 2, not 1")
sys.exit(status())
