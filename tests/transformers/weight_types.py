# SPDX-License-Identifier: Apache-2.0
"""Weights of every stored type are loaded into models of every type, and saved again: each has the bits of PyTorch's
conversion. Files are safetensors, and GGUF with rows in another order. The numbers are random bits, so they include
subnormal numbers, and ties between two numbers of the model's type. Files of integers, of other floats and of numbers
that the model's type cannot hold are refused.

    weight_types.py TXGEN TXTRAIN DEVICE      exit status 77: transformers or gguf is not installed
"""
import os
import sys
import tempfile

from oracle import check, need_device, run, status

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

TXGEN, TXTRAIN, DEVICE = sys.argv[1:4]
VOCAB, WIDTH, INNER, HEADS, KV = 4099, 64, 96, 4, 2 # the embedding has 4 parts of 65,536 elements and a rest
MODEL_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
STORED = {**MODEL_TYPES, "float64": torch.float64}
EMBEDDING = "model.embed_tokens.weight"


def numbers(shape, dtype, seed):
    """Random bits of a type, without numbers that a type with fewer bits cannot hold."""
    random = np.random.default_rng(seed)
    size = dtype.itemsize * int(np.prod(shape))
    x = torch.from_numpy(random.integers(0, 256, size, np.uint8)).view(dtype).reshape(shape).clone()
    x[~(x.abs().double() < 65000)] = 0
    if dtype.itemsize >= 4: # zeros in the last bits make ties
        whole = x.view(torch.int64 if dtype.itemsize == 8 else torch.int32)
        whole.view(-1)[::3] &= -1 << (dtype.itemsize * 8 - 17)
        x.view(-1)[1::5] = 1e-3 * torch.from_numpy(random.standard_normal(x.numel())[1::5]).to(dtype)
    return x


def make_state(config, dtype):
    state = LlamaForCausalLM(config).state_dict()
    return {name: numbers(tuple(t.shape), dtype, i) for i, (name, t) in enumerate(state.items())}


def loaded(model, out, dtype):
    """Loads a model as a type, and returns the weights that it then saves."""
    done = run(TXGEN, model=model, save_merged=out, dtype=dtype, device=DEVICE)
    check(done.returncode == 0, f"{model} as {dtype}: {done.stderr.strip()}")
    return load_file(os.path.join(out, "model.safetensors")) if done.returncode == 0 else {}


def compare(what, got, state, dtype):
    check(sorted(got) == sorted(state), f"{what}: other tensors")
    for name in got:
        want = state[name].float().to(dtype) if state[name].dtype == torch.float64 else state[name].to(dtype)
        word = torch.int32 if dtype == torch.float32 else torch.int16
        same = got[name].dtype == dtype and torch.equal(got[name].view(word), want.contiguous().view(word))
        check(same, f"{what}: {name} has other bits")


def compare_safetensors(config, work):
    for stored, of in STORED.items():
        folder = os.path.join(work, stored)
        config.save_pretrained(folder)
        state = make_state(config, of)
        save_file(state, os.path.join(folder, "model.safetensors"), {"format": "pt"})
        for dtype, to in MODEL_TYPES.items():
            compare(f"{stored} as {dtype}", loaded(folder, f"{folder}-{dtype}", dtype), state, to)


NAMES = {"embed_tokens": "token_embd", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm", "model.norm": "output_norm", "lm_head": "output"}


def write_gguf(path, config, state, kind):
    """Writes the state, whose matrices have a type of gguf, and returns the values that the file then has."""
    writer, values = gguf.GGUFWriter(path, "llama"), {}
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    for name, t in state.items():
        other = name
        for hugging, llama in NAMES.items():
            other = other.replace(hugging, llama)
        other = other.replace("model.layers", "blk").replace("model.", "")
        heads = HEADS if "q_proj" in name else KV if "k_proj" in name else 0
        rows = t.view(heads, 2, -1, WIDTH).transpose(1, 2).reshape(t.shape) if heads else t
        of = kind if t.dim() == 2 else gguf.GGMLQuantizationType.F32
        raw = gguf.quantize(rows.numpy(), of)
        writer.add_tensor(other, raw, raw_dtype=of)
        back = torch.from_numpy(np.array(gguf.dequantize(raw, of), np.float32))
        values[name] = back.view(heads, -1, 2, WIDTH).transpose(1, 2).reshape(t.shape) if heads else back
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def compare_gguf(config, work):
    state = make_state(config, torch.float32)
    for kind in ("F32", "F16", "BF16", "Q8_0"):
        path = os.path.join(work, f"{kind}.gguf")
        values = write_gguf(path, config, state, gguf.GGMLQuantizationType[kind])
        for dtype, to in MODEL_TYPES.items():
            compare(f"{kind} as {dtype}", loaded(path, f"{path}-{dtype}", dtype), values, to)


def refused(config, work):
    folder = os.path.join(work, "refused")
    config.save_pretrained(folder)
    good = make_state(config, torch.bfloat16)

    def refuse(tensor, text, dtype="bfloat16"):
        save_file({**good, EMBEDDING: tensor}, os.path.join(folder, "model.safetensors"), {"format": "pt"})
        done = run(TXGEN, model=folder, save_merged=folder + "-out", dtype=dtype, device=DEVICE)
        check(done.returncode == 1 and text in done.stderr, f"{text}: {done.returncode} {done.stderr.strip()}")
    shape = (VOCAB, WIDTH)
    for kind, name in ((torch.int32, "I32"), (torch.int8, "I8"), (torch.uint8, "U8"), (torch.bool, "BOOL"),
                       (torch.float8_e4m3fn, "F8_E4M3"), (torch.float8_e5m2, "F8_E5M2")):
        refuse(torch.zeros(shape).to(kind), f"wrong type {EMBEDDING} ({name}, not F32, F16, BF16 or F64)")
    for stored, of in STORED.items():
        for at in (0, 200_001, VOCAB * WIDTH - 1):
            for value, dtype in ((float("nan"), "bfloat16"), (float("-inf"), "float32"), (float("inf"), "float16"),
                                 (65520.0, "float16")):
                if value == 65520.0 and stored == "float16":
                    continue
                x = torch.zeros(shape, dtype=of)
                x.view(-1)[at] = value
                refuse(x, f"holds {x.double().view(-1)[at]:f} at element {at}: ", dtype)


def main():
    need_device(TXTRAIN, DEVICE)
    config = LlamaConfig(vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=1,
                         num_attention_heads=HEADS, num_key_value_heads=KV, max_position_embeddings=32)
    with tempfile.TemporaryDirectory() as work:
        compare_safetensors(config, work)
        compare_gguf(config, work)
        refused(config, work)
    return status()


sys.exit(main())
