# SPDX-License-Identifier: Apache-2.0
"""txconvert --calibrate: the sums of squared inputs in the file are those that hooks of transformers see in the same
windows, in double precision, experts apart; gguf-py reads the file. The converted model is the same with --imatrix.

    calibration.py TXCONVERT TXTRAIN DEVICE     exit status 77: gguf or transformers is not installed, or no such device
"""
import os
import sys
import tempfile

from oracle import check, need_device, run, status

import gguf
import numpy as np
import torch
from transformers import (AutoModelForCausalLM, AutoTokenizer, GPT2Config, GptOssConfig, LlamaConfig, Qwen3MoeConfig,
                          Qwen3_5TextConfig)
from transformers.pytorch_utils import Conv1D
from gguf_tokenizers import VOCAB, save_tokenizer
from mxfp4 import pack

TXCONVERT, TXTRAIN, DEVICE = sys.argv[1:4]
WINDOW, WINDOWS, NEAR = 64, 4, 1e-5
SIZES = dict(vocab_size=VOCAB, max_position_embeddings=WINDOW, hidden_size=256, intermediate_size=512, bos_token_id=1,
             eos_token_id=0, num_attention_heads=8, num_key_value_heads=2, num_hidden_layers=2, head_dim=32)
ARCH = gguf.MODEL_ARCH
# Name: configuration, llama.cpp's name, tokenizer.
MODELS = {
    "llama": (LlamaConfig(**SIZES), ARCH.LLAMA, "pieces"),
    "gpt2": (GPT2Config(vocab_size=VOCAB, n_positions=WINDOW, n_embd=256, n_layer=2, n_head=8, bos_token_id=1,
                        eos_token_id=0), ARCH.GPT2, "gpt2"),
    "qwen3_moe": (Qwen3MoeConfig(**SIZES, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=256,
                                 norm_topk_prob=True), ARCH.QWEN3MOE, "qwen2"),
    "gpt_oss": (GptOssConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2, sliding_window=16, pad_token_id=0,
                             rope_parameters={"rope_type": "default", "rope_theta": 1e4}), ARCH.GPT_OSS, "llama3"),
    "qwen3_5": (Qwen3_5TextConfig(**SIZES, layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2,
                                  linear_num_value_heads=4, linear_key_head_dim=32, linear_value_head_dim=32),
                ARCH.QWEN35, "qwen2"),
}
MODELS["gpt_oss, mxfp4"] = MODELS["gpt_oss"]


class Sums:
    """The sums of squares of the inputs of each tensor of the file, by expert, and the numbers of inputs."""

    def __init__(self, model, arch):
        self.sums, self.counts = {}, {}
        names = gguf.get_tensor_name_map(arch, model.config.num_hidden_layers)
        for name, module in model.named_modules():
            if type(module).__name__.endswith("Experts"):
                layer = int(name.split(".layers.")[1].split(".")[0])
                module.register_forward_pre_hook(
                    lambda m, inputs, kind, layer=layer: self.add_experts(m, layer, *inputs, **kind), with_kwargs=True)
            elif isinstance(module, (torch.nn.Linear, Conv1D)) and (".layers." in name or ".h." in name):
                module.register_forward_pre_hook(
                    lambda m, inputs, own=names.get_name(name) + ".weight": self.add(own, 0, 1, inputs[0]))

    def add(self, name, expert, experts, x):
        x = x.reshape(-1, x.shape[-1])
        self.sums.setdefault(name, np.zeros((experts, x.shape[1])))[expert] += (x.double() ** 2).sum(0).numpy()
        self.counts.setdefault(name, np.zeros(experts))[expert] += len(x)

    def add_experts(self, module, layer, hidden, chosen, *_):
        hidden = hidden.reshape(-1, hidden.shape[-1])
        chosen = chosen.reshape(len(hidden), -1)
        for e in range(module.num_experts):
            x = hidden[(chosen == e).any(-1)]
            if hasattr(module, "gate_up_proj_bias"):
                h = module._apply_gate(x @ module.gate_up_proj[e] + module.gate_up_proj_bias[e])
            else:
                gate, up = (x @ module.gate_up_proj[e].T).chunk(2, -1)
                h = module.act_fn(gate) * up
            for kind, inputs in (("gate", x), ("up", x), ("down", h)):
                self.add(f"blk.{layer}.ffn_{kind}_exps.weight", e, module.num_experts, inputs)


def make(folder, config, tokenizer, mxfp4):
    """A model whose inputs differ by column and expert, and its text."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config, experts_implementation="eager").eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 1 and "norm" in name:
                weight.copy_(torch.rand(len(weight)) + 0.5)
    model.save_pretrained(folder)
    if mxfp4:
        pack(model, folder)
    save_tokenizer(folder, tokenizer)
    words = "the a fox dog runs sees likes hot cold water, and then it was gone. why? because".split()
    order = torch.randint(len(words), (400,)).tolist()
    with open(f"{folder}/text", "w", encoding="utf-8") as file:
        file.write(" ".join(words[i] for i in order))
    return model.double()


def want(model, arch, folder):
    with open(f"{folder}/text", encoding="utf-8") as file:
        text = file.read()
    encode = AutoTokenizer.from_pretrained(folder)
    ids, begin = encode(text)["input_ids"], encode("")["input_ids"]
    windows = torch.tensor(ids[:len(ids) // WINDOW * WINDOW]).reshape(-1, WINDOW)
    if begin:
        windows[:, 0] = begin[0]
    sums = Sums(model, arch)
    with torch.no_grad():
        for row in windows:
            model(row[None])
    check(len(windows) >= WINDOWS, f"only {len(windows)} windows")
    return sums, len(windows)


def convert(folder, to, *options):
    return run(TXCONVERT, folder, "--to", to, *(options or ("--outtype", "f32")))


def sort_columns(sums, model, folder, work):
    """GGUF files have the columns of this matrix in another order."""
    done = convert(folder, f"{work}/f32.gguf")
    check(done.returncode == 0, done.stderr)
    file = {t.name: t.data for t in gguf.GGUFReader(f"{work}/f32.gguf").tensors}
    for layer, module in enumerate(model.model.layers):
        if hasattr(module, "linear_attn"):
            name, own = f"blk.{layer}.ssm_out.weight", module.linear_attn.out_proj.weight[0].float()
            order = [(own == value).nonzero().item() for value in torch.tensor(file[name][0])]
            check(order != sorted(order), f"{name} has the columns of the model")
            sums.sums[name] = sums.sums[name][:, order]


def data(path):
    return {t.name: t.data.tobytes() for t in gguf.GGUFReader(path).tensors}


def compare(name, work):
    config, arch, tokenizer = MODELS[name]
    folder, text, listed = f"{work}/{name}", f"{work}/{name}/text", f"{work}/imatrix.gguf"
    os.mkdir(folder)
    model = make(folder, config, tokenizer, "mxfp4" in name)
    sums, windows = want(model, arch, folder)
    if name == "qwen3_5":
        sort_columns(sums, model, folder, work)
    own = ("--calibrate", text, "--device", DEVICE, "--threads", "1")
    q3 = ("--outtype", "q3_k_m")
    for to, options in (("first", (*own, "--imatrix", listed)), ("second", ("--imatrix", listed)), ("third", own),
                        ("plain", ())):
        done = convert(folder, f"{work}/{to}.gguf", *q3, *options)
        check(done.returncode == 0 and "lacks" not in done.stderr, f"{name}: {done.stderr}")
    file = gguf.GGUFReader(listed)
    got = {t.name: t.data.reshape(tuple(reversed(t.shape.tolist()))) for t in file.tensors}
    values = {key: file.fields[f"imatrix.{key}"].contents() for key in ("datasets", "chunk_count", "chunk_size")}
    check(file.fields["general.type"].contents() == "imatrix", f"{name}: general.type")
    check(values == {"datasets": [text], "chunk_count": windows, "chunk_size": WINDOW}, f"{name}: {values}")
    check(got.keys() == {f"{n}.{end}" for n in sums.sums for end in ("in_sum2", "counts")},
          f"{name}: {sorted(got.keys() ^ {f'{n}.{e}' for n in sums.sums for e in ('in_sum2', 'counts')})}")
    for tensor in sums.sums:
        a, b = got.get(f"{tensor}.in_sum2"), sums.sums[tensor]
        good = a is not None and a.shape == b.shape and (np.abs(a - b) <= NEAR * b).all()
        check(good, f"{name}: {tensor}: {0 if a is None else (np.abs(a - b) / np.maximum(b, 1e-30)).max()}")
        check(np.array_equal(got[f"{tensor}.counts"][:, 0], sums.counts[tensor]), f"{name}: counts of {tensor}")
    with open(f"{work}/first.gguf", "rb") as one, open(f"{work}/second.gguf", "rb") as two:
        check(one.read() == two.read(), f"{name}: --imatrix gives another file")
    first, plain = data(f"{work}/first.gguf"), data(f"{work}/plain.gguf")
    check(first == data(f"{work}/third.gguf"), f"{name}: without --imatrix the tensors differ")
    check(any(first[t] != plain[t] for t in first if t.startswith("blk.")), f"{name}: importance changes nothing")


def main():
    need_device(TXTRAIN, DEVICE)
    with tempfile.TemporaryDirectory() as work:
        for name in MODELS:
            compare(name, work)
        with open(f"{work}/short", "w", encoding="utf-8") as file:
            file.write("the fox runs")
        done = convert(f"{work}/llama", f"{work}/none.gguf", "--outtype", "q2_k", "--calibrate", f"{work}/short")
        check(done.returncode == 1 and f"give one of at least {WINDOW}" in done.stderr, done.stderr)
        check(not os.path.exists(f"{work}/none.gguf"), "a file of a short text")
    return status()


sys.exit(main())
