# SPDX-License-Identifier: Apache-2.0
"""The types of tensors in files of each mix are those of llama.cpp's quantizer. Files of 12 layers that txconvert
writes in all types, and for shapes of up to 80 layers the types that TX chooses by names and counts: llama.cpp
quantizes files of the same names with tensors of two rows.

    gguf_mixes.py TXCONVERT GGUF_TYPES      exit status 77: gguf, transformers or llama.cpp is not installed
"""
import ctypes
import os
import re
import subprocess
import sys
import tempfile

from oracle import check, run, skip, status

import gguf
import numpy as np
import torch
from transformers import (AutoModelForCausalLM, GptOssConfig, LlamaConfig, MixtralConfig, Qwen2Config, Qwen3Config,
                          Qwen3MoeConfig)
from gguf_llama import llama_cpp
from gguf_tokenizers import VOCAB, save_tokenizer

TXCONVERT, GGUF_TYPES = sys.argv[1:3]
SIZES = dict(vocab_size=VOCAB, max_position_embeddings=64, hidden_size=256, intermediate_size=256, bos_token_id=1,
             eos_token_id=0, num_attention_heads=8, num_key_value_heads=2, num_hidden_layers=12)
MOE = dict(num_experts=3, num_experts_per_tok=2, moe_intermediate_size=256, head_dim=32, norm_topk_prob=True)
# Name: configuration, tokenizer, and the numbers of layers.
MODELS = {
    "llama": (LlamaConfig(**SIZES), "llama3", (16, 32, 40, 80)),
    "llama, two heads to a key": (LlamaConfig(**{**SIZES, "num_key_value_heads": 4}), "llama3", (80,)),
    "llama, all heads": (LlamaConfig(**{**SIZES, "num_key_value_heads": 8}), "llama3", (80,)),
    "llama, tied": (LlamaConfig(**SIZES, tie_word_embeddings=True), "llama3", (80,)),
    "llama, odd rows": (LlamaConfig(**{**SIZES, "intermediate_size": 288}), "llama3", (22, 80)),
    "qwen2": (Qwen2Config(**SIZES), "qwen2", (80,)),
    "qwen3": (Qwen3Config(**SIZES, head_dim=32), "qwen2", (36, 80)),
    "qwen3_moe": (Qwen3MoeConfig(**SIZES, **MOE), "qwen2", (48, 80)),
    "mixtral": (MixtralConfig(**SIZES, num_local_experts=8, num_experts_per_tok=2), "llama3", (32, 80)),
    "gpt_oss": (GptOssConfig(**SIZES, head_dim=32, num_local_experts=3, num_experts_per_tok=2, sliding_window=16,
                             pad_token_id=0), "llama3", (24, 36, 80)),
}
# Words of --outtype, and numbers of llama_ftype.
TYPES = dict(q4_0=2, q4_1=3, q8_0=7, q5_0=8, q5_1=9, q2_k=10, q3_k_s=11, q3_k_m=12, q3_k_l=13, q4_k_s=14, q4_k_m=15,
             q5_k_s=16, q5_k_m=17, q6_k=18, iq4_nl=25, iq4_xs=30, mxfp4_moe=38)
WEIGHTED = ("q4_0", "q4_k_m", "q5_0", "iq4_nl", "iq4_xs")  # types that are also compared with a list of importance

if llama_cpp is None:
    skip("llama.cpp is not installed")


def quantize(path, to, number, weighted):
    """llama.cpp's quantizer. The list of importance has only another tensor: rules ask whether there is a list."""
    how, entry = llama_cpp.llama_model_quantize_default_params(), llama_cpp.llama_model_imatrix_data
    data = ctypes.cast((ctypes.c_float * 1)(1.0), ctypes.POINTER(ctypes.c_float))
    listed = (entry * 2)(entry(b"none", data, 1), entry())  # it ends with an entry without a name
    how.ftype, how.nthread = number, 1
    if weighted:
        how.imatrix = listed
    return llama_cpp.llama_model_quantize(path.encode(), to.encode(), ctypes.byref(how)) == 0


def types_of(path):
    return {t.name: t.tensor_type for t in gguf.GGUFReader(path).tensors}


def compare_types(name, got, want):
    odd = {t: (got.get(t), want.get(t)) for t in got.keys() | want.keys() if got.get(t) != want.get(t)}
    check(got and not odd, f"{name}: {len(odd)} of {len(want)} tensors: {dict(list(odd.items())[:3])}")


def enlarge(path, to, layers):
    """A file of `layers` layers, each with the tensors of the first one, in two rows of zeros."""
    reader = gguf.GGUFReader(path)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(to, architecture)
    for key, field in reader.fields.items():
        kind, value = field.types[0], field.contents()
        if not key.startswith(("GGUF.", "general.architecture", "tokenizer.huggingface")):
            writer.add_key_value(key, layers if key == f"{architecture}.block_count" else value, kind,
                                 field.types[-1] if kind == 9 else None)
    tensors = [t for t in reader.tensors if not t.name.startswith("blk.")]
    first = [t for t in reader.tensors if t.name.startswith("blk.0.")]
    shapes = {}
    for t in tensors + first:
        shape = [int(n) for n in reversed(t.shape)]
        shape[-2:] = [2, shape[-1]] if len(shape) > 1 else shape
        for i in range(layers if t in first else 1):
            shapes[re.sub(r"^blk\.0\.", f"blk.{i}.", t.name)] = shape
    for tensor, shape in shapes.items():
        writer.add_tensor(tensor, np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return shapes


def compare_shapes(name, work, path, config, layers):
    """TX's choice by names and counts."""
    large, made = f"{work}/large.gguf", f"{work}/made.gguf"
    shapes = enlarge(path, large, layers)
    architecture = gguf.GGUFReader(path).fields["general.architecture"].contents()
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", 0) or 0
    lines = "".join(f"{t} {len(s)} {' '.join(map(str, s))}\n" for t, s in shapes.items())
    for word, number in TYPES.items():
        for weighted in (False, True)[:1 + (word in WEIGHTED)]:
            done = quantize(large, made, number, weighted)
            check(done, f"{name}, {layers} layers, {word}: llama.cpp does not quantize the file")
            counts = (layers, config.num_attention_heads, config.num_key_value_heads, experts,
                      int("output.weight" not in shapes), int(weighted))
            told = subprocess.run([GGUF_TYPES, word, architecture, *map(str, counts)], input=lines, text=True,
                                  capture_output=True, check=False)
            compare_types(f"{name}, {layers} layers, {word}{', weighted' * weighted}",
                          dict(zip(shapes, map(int, told.stdout.split()))), types_of(made))


def compare(name, config, tokenizer, counts):
    with tempfile.TemporaryDirectory() as work:
        source, path, made = (f"{work}/{n}" for n in ("source", "model.gguf", "made.gguf"))
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model.to_empty(device="cpu")
        for weight in model.state_dict().values():
            weight.zero_()
        model.save_pretrained(source)
        save_tokenizer(source, tokenizer)
        done = run(TXCONVERT, source, to=path, outtype="f32")
        check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
        if done.returncode:
            return
        for word, number in TYPES.items():
            own = f"{work}/{word}.gguf"
            done = run(TXCONVERT, source, to=own, outtype=word)
            check(done.returncode == 0 and quantize(path, made, number, False), f"{name}, {word}: {done.stderr}")
            if not done.returncode:
                compare_types(f"{name}, {word}", types_of(own), types_of(made))
                os.remove(own)
        for layers in counts:
            compare_shapes(name, work, path, config, layers)
        print(f"{name}: 12 layers, and {', '.join(map(str, counts))} by names and counts, {len(TYPES)} types",
              flush=True)


def main():
    for name, row in MODELS.items():
        compare(name, *row)
    return status()


if __name__ == "__main__":
    sys.exit(main())
