# SPDX-License-Identifier: Apache-2.0
"""Compares models whose matrices are in blocks of a GGUF file (Llama; GPT-2, whose matrices transformers transposes)
with transformers, which computes with the values that the gguf package reads from these blocks. Files have one type, or
several in one parameter (q and k in Q4_K, v in Q6_K).
Types that occur only in files become fp32: the weights of the saved model equal gguf's values bit for bit.
Products of few rows round their inputs to 8 bits, and so do transformers' in the comparison; the error of the rounding
itself is printed. Those of many rows round groups of 32 with AVX2 or AVX512_VNNI, else they are exact. Every
instruction set, 1 to 8 threads.

    gguf_blocks.py TXGEN      exit status 77: gguf or transformers is not installed
"""
import os
import sys
import tempfile

from oracle import check, run, status

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import load_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

TXGEN = sys.argv[1]
with open("/proc/cpuinfo", encoding="ascii") as info:
    VNNI = "avx512_vnni" in info.read()
VOCAB, WIDTH, INNER, HEADS, KV, LAYERS = 300, 512, 768, 8, 4, 2
SIZES = {"q": WIDTH, "k": WIDTH // HEADS * KV, "v": WIDTH // HEADS * KV}
LONG, SHORT = list(range(3, 63)), [5, 250, 17]
MANY_GROUP = 32
# Relative to the largest logit: fp32 sums in another order, which may round a few inputs to the next of 8 bits; and the
# error of rounding in two layers of random weights.
EXACT, ROUNDED, ROUNDING = 2e-5, 5e-4, 0.04


# Where the halves of a block are, and their sizes.
SCALES = {Type.Q8_0: [(0, 6e-4)], Type.Q4_0: [(0, 0.01)], Type.Q4_K: [(0, 1e-4), (2, 7e-4)], Type.Q6_K: [(208, 3e-5)]}
DECODED = {Type.Q4_1: [(0, 0.01), (2, 0.01)], Type.Q5_0: [(0, 5e-3)], Type.Q5_1: [(0, 5e-3), (2, 0.01)],
           Type.Q2_K: [(80, 3e-3), (82, 3e-3)], Type.Q3_K: [(108, 5e-4)], Type.Q5_K: [(0, 5e-5), (2, 7e-4)],
           Type.IQ4_NL: [(0, 6e-4)], Type.IQ4_XS: [(0, 3e-5)], Type.MXFP4: []}
SCALES.update(DECODED)


def blocks(kind, rows, columns, random):
    """Random blocks of a type: bytes as the file holds them, and scales so that values are near N(0, 0.04)."""
    values, size = gguf.GGML_QUANT_SIZES[kind]
    raw = random.integers(0, 256, (rows * columns // values, size), np.uint8)

    def half(at, scale):
        raw[:, at:at + 2] = (random.uniform(0.5, 1, (len(raw), 1)) * scale).astype(np.float16).view(np.uint8)
    for at, scale in SCALES[kind]:
        half(at, scale)
    if kind == Type.MXFP4:
        raw[:, 0] = random.integers(118, 122, len(raw))
    return raw.reshape(rows, columns // values * size)


def turned(rows, heads):
    """Rows as transformers orders them: llama.cpp has pairs that rotate together next to each other."""
    return rows.reshape(heads, rows.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)


class File:
    """A file that is written, and the state of transformers' model with the same values."""
    def __init__(self, path, architecture):
        self.random = np.random.default_rng(1)
        self.state = {}
        self.writer = writer = gguf.GGUFWriter(path, architecture)
        writer.add_context_length(64)
        writer.add_embedding_length(WIDTH)
        writer.add_block_count(LAYERS)
        writer.add_feed_forward_length(INNER)
        writer.add_head_count(HEADS)

    def matrix(self, name, to, kind, rows, columns, form=lambda values: values):
        raw = blocks(kind, rows, columns, self.random)
        self.writer.add_tensor(name, raw, raw_dtype=kind)
        self.state[to] = torch.from_numpy(form(gguf.dequantize(raw, kind)).copy())

    def vector(self, name, to, shape=WIDTH, low=0.8, high=1.2):
        values = self.random.uniform(low, high, shape).astype(np.float32)
        self.writer.add_tensor(name, values)
        self.state[to] = torch.from_numpy(values)

    def load(self, model):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        missing, unknown = model.load_state_dict(self.state, strict=False)
        check(not unknown and all("lm_head" in name for name in missing), f"transformers lacks {missing}, {unknown}")
        return model.eval()


def make(path, kinds, tied):
    """Writes a Llama and returns transformers' model. `kinds` has the type of each kind of matrix."""
    file = File(path, "llama")
    matrix, vector = file.matrix, file.vector
    file.writer.add_head_count_kv(KV)
    file.writer.add_layer_norm_rms_eps(1e-5)
    matrix("token_embd.weight", "model.embed_tokens.weight", kinds["embed"], VOCAB, WIDTH)
    for i in range(LAYERS):
        at, to = f"blk.{i}.", f"model.layers.{i}."
        vector(at + "attn_norm.weight", to + "input_layernorm.weight")
        for part, heads in (("q", HEADS), ("k", KV), ("v", 0)):
            matrix(f"{at}attn_{part}.weight", f"{to}self_attn.{part}_proj.weight", kinds[part], SIZES[part], WIDTH,
                   *([lambda rows, n=heads: turned(rows, n)] if heads else []))
        matrix(at + "attn_output.weight", to + "self_attn.o_proj.weight", kinds["o"], WIDTH, WIDTH)
        vector(at + "ffn_norm.weight", to + "post_attention_layernorm.weight")
        matrix(at + "ffn_gate.weight", to + "mlp.gate_proj.weight", kinds["up"], INNER, WIDTH)
        matrix(at + "ffn_up.weight", to + "mlp.up_proj.weight", kinds["up"], INNER, WIDTH)
        matrix(at + "ffn_down.weight", to + "mlp.down_proj.weight", kinds["down"], WIDTH, INNER)
    vector("output_norm.weight", "model.norm.weight")
    if not tied:
        matrix("output.weight", "lm_head.weight", kinds["head"], VOCAB, WIDTH)
    return file.load(LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, max_position_embeddings=64, hidden_size=WIDTH, intermediate_size=INNER, rms_norm_eps=1e-5,
        num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV, tie_word_embeddings=tied)))


def make_gpt2(path, kinds, tied):
    """The same of a GPT-2, which is tied. transformers has the transposes of its matrices."""
    assert tied
    file = File(path, "gpt2")
    file.writer.add_layer_norm_eps(1e-5)
    file.matrix("token_embd.weight", "transformer.wte.weight", kinds["embed"], VOCAB, WIDTH)
    file.vector("position_embd.weight", "transformer.wpe.weight", (64, WIDTH), -0.05, 0.05)
    for i in range(LAYERS):
        at, to = f"blk.{i}.", f"transformer.h.{i}."
        for name, module, kind, rows, columns in (
                ("attn_qkv", "attn.c_attn", "q", 3 * WIDTH, WIDTH), ("attn_output", "attn.c_proj", "o", WIDTH, WIDTH),
                ("ffn_up", "mlp.c_fc", "up", INNER, WIDTH), ("ffn_down", "mlp.c_proj", "down", WIDTH, INNER)):
            file.matrix(f"{at}{name}.weight", f"{to}{module}.weight", kinds[kind], rows, columns, np.transpose)
            file.vector(f"{at}{name}.bias", f"{to}{module}.bias", rows, -0.1, 0.1)
        for name, module in (("attn_norm", "ln_1"), ("ffn_norm", "ln_2")):
            file.vector(f"{at}{name}.weight", f"{to}{module}.weight")
            file.vector(f"{at}{name}.bias", f"{to}{module}.bias", WIDTH, -0.1, 0.1)
    file.vector("output_norm.weight", "transformer.ln_f.weight")
    file.vector("output_norm.bias", "transformer.ln_f.bias", WIDTH, -0.1, 0.1)
    return file.load(GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=64, n_embd=WIDTH, n_inner=INNER,
                                                n_layer=LAYERS, n_head=HEADS, bos_token_id=None,
                                                eos_token_id=None)))


def round_inputs(model, kinds, size=None):
    """Makes the matrix products round their inputs to multiples of 1/127 of the largest in `size` of them, by default
    in a block. Returns the hooks."""
    of = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o", "gate_proj": "up", "up_proj": "up",
          "down_proj": "down", "lm_head": "embed" if model.config.tie_word_embeddings else "head",
          "attn.c_attn": "q", "attn.c_proj": "o", "mlp.c_fc": "up", "mlp.c_proj": "down"}

    def rounded(group):
        def hook(module, inputs):
            x = inputs[0].reshape(-1, group)
            most = x.abs().amax(-1, keepdim=True)
            return ((x * (127 / most)).round() * (most / 127)).reshape(inputs[0].shape),
        return hook
    parts = {part: gguf.GGML_QUANT_SIZES[kind][0] for part, kind in kinds.items()}
    hooks = []
    for name, module in model.named_modules():
        part = of.get(name.split(".")[-1]) or of.get(".".join(name.split(".")[-2:]))
        plain = part in ("q", "k", "v") and len({parts["q"], parts["k"], parts["v"]}) > 1
        if part and not plain: # these become fp32
            hooks.append(module.register_forward_pre_hook(rounded(size or parts[part])))
    return hooks


def logits(path, ids, variant, threads=1, **more):
    out = path + ".logits"
    done = run("env", f"TX_CPU_VARIANT={variant}", TXGEN, model=path, ids=" ".join(map(str, ids)), logits=out,
               threads=threads, **more)
    check(done.returncode == 0, f"{path}: {done.stderr.strip()}")
    return load_file(out)["logits"][0] if done.returncode == 0 else np.full((len(ids), VOCAB), np.nan)


def check_saved(name, path, model, work):
    """The saved model has the values of the file."""
    saved = os.path.join(work, "saved")
    done = run(TXGEN, model=path, save_merged=saved)
    check(done.returncode == 0, f"{name}: {done.stderr}")
    ours, state = load_file(os.path.join(saved, "model.safetensors")), model.state_dict()
    other = [key for key, w in ours.items() if w.tobytes() != state[key].contiguous().numpy().tobytes()]
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    check(not other and set(state) - set(ours) == tied, f"{name}: {other} or others are not saved as they were")


def compare(name, kinds, tied, variants, make=make):
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "model.gguf")
        model = make(path, kinds, tied)
        with torch.no_grad():
            want, exact = (model(torch.tensor([ids])).logits[0].numpy() for ids in (LONG, SHORT))
            hooks = round_inputs(model, kinds, MANY_GROUP)
            many = model(torch.tensor([LONG])).logits[0].numpy()
            for hook in hooks:
                hook.remove()
            round_inputs(model, kinds)
            rounded = model(torch.tensor([SHORT])).logits[0].numpy()

        def error(got, expected):
            return np.abs(got - expected).max() / np.abs(expected).max()
        worst, rounding = 0, error(rounded, exact)
        for variant in variants:
            rounds = variant == "avx2" or (variant == "avx512" and VNNI)
            got = logits(path, LONG, variant)
            long = error(got, want)
            converted = error(logits(path, SHORT, variant, dtype="float32"), exact)
            short = error(logits(path, SHORT, variant), exact if variant == "base" else rounded)
            check(long <= (ROUNDING if rounds else EXACT), f"{name}, {variant}: many rows differ by {long}")
            if rounds: # an input that rounds to the next changes all later rounding of its row
                row = min(error(*rows) for rows in zip(got, many))
                check(row <= ROUNDED, f"{name}, {variant}: many rows round otherwise, by {row}")
            check(converted <= EXACT, f"{name}, {variant}: with --dtype float32 logits differ by {converted}")
            check(short <= (EXACT if variant == "base" else ROUNDED), f"{name}, {variant}: few rows differ by {short}")
            worst = max(worst, short)
        check(ROUNDED < rounding <= ROUNDING, f"{name}: rounding changes logits by {rounding}")
        check_saved(name, path, model, work)
        # Matrices in one parameter whose blocks differ become fp32, and many rows are multiplied by oneDNN, whose sums may
        # depend on the number of threads.
        mixed = len({gguf.GGML_QUANT_SIZES[kinds[part]][0] for part in "qkv"}) > 1
        for ids in (SHORT,) if mixed else (SHORT, LONG):
            one = logits(path, ids, variants[0])
            for threads in (2, 3, 8):
                check(np.array_equal(logits(path, ids, variants[0], threads), one),
                      f"{name}: {threads} threads give other bits for {len(ids)} rows")
        print(f"{name}: few rows {worst:.1e}, rounding {rounding:.1e}")


def compare_decoded(kind):
    """Logits and weights of a type that is converted when it is read."""
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "model.gguf")
        model = make(path, same(kind), False)
        with torch.no_grad():
            want = model(torch.tensor([SHORT])).logits[0].numpy()
        off = np.abs(logits(path, SHORT, "base", dtype="float32") - want).max() / np.abs(want).max()
        check(off <= EXACT, f"{kind.name}: logits {off}")
        check_saved(kind.name, path, model, work)


def same(kind):
    return {part: kind for part in ("embed", "q", "k", "v", "o", "up", "down", "head")}


def here(variant):
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "model.gguf")
        make(path, same(Type.Q8_0), True)
        return run("env", f"TX_CPU_VARIANT={variant}", TXGEN, model=path, ids="1", logits=path + ".l").returncode == 0


VARIANTS = [v for v in ("avx512", "avx2", "base") if here(v)]
check("base" in VARIANTS, "no instruction set works")
for kind in (Type.Q8_0, Type.Q4_0, Type.Q4_K, Type.Q6_K):
    compare(kind.name, same(kind), False, VARIANTS)
for kind in DECODED:
    compare_decoded(kind)
compare("Q4_K with v, down and head in Q6_K", {**same(Type.Q4_K), "v": Type.Q6_K, "down": Type.Q6_K,
                                               "head": Type.Q6_K}, False, VARIANTS)
compare("tied, q in Q8_0", {**same(Type.Q4_0), "q": Type.Q8_0}, True, VARIANTS)
compare("v has other blocks", {**same(Type.Q4_K), "v": Type.Q8_0}, True, VARIANTS)
compare("GPT-2 in Q8_0", same(Type.Q8_0), True, VARIANTS, make_gpt2)
compare("GPT-2 in Q4_K, down in Q6_K", {**same(Type.Q4_K), "down": Type.Q6_K}, True, VARIANTS, make_gpt2)
sys.exit(status())
