# SPDX-License-Identifier: Apache-2.0
"""Compares adapters that are trained with --qat with peft and torch: each matrix is rounded by the gguf package as
txconvert rounds it, that of an adapted layer after the adapter was added, and gradients pass straight through.
Compares the first losses, and for 8 bits the final adapter. With fewer bits a sum in another order soon rounds some
weight to the other neighbour, and the runs part.

    rounded_adapters.py TXTRAIN DEVICE      exit status 77: peft is not installed, or there is no such device
"""
import sys
import tempfile

from oracle import check, need_device, status

import gguf
import torch
from peft.tuners.lora import layer as lora_layer
from safetensors.torch import load_file
from transformers import GPT2Config, LlamaConfig
from transformers.pytorch_utils import Conv1D
from lora import STEPS, data, greatest, make, train_ours, train_theirs

EARLY, LOSS, WEIGHTS = 8, 2e-5, 1e-3
FAMILY = dict(vocab_size=257, max_position_embeddings=32, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
              num_attention_heads=4, num_key_value_heads=2, bos_token_id=256, eos_token_id=256, attention_bias=True)
GPT2 = GPT2Config(vocab_size=257, n_positions=32, n_embd=64, n_layer=2, n_head=4, embd_pdrop=0.0, attn_pdrop=0.0,
                  resid_pdrop=0.0, bos_token_id=256, eos_token_id=256)
# Configuration, arguments of LoraConfig, the type, and that of the output head.
CASES = {
    "llama, q4_0": (LlamaConfig(**FAMILY), dict(target_modules="all-linear"), "q4_0", "q8_0"),
    "llama, q8_0, rules": (LlamaConfig(**FAMILY),
                           dict(target_modules=["q_proj", "v_proj", "up_proj"], bias="all",
                                rank_pattern={"q_proj": 6, "up_proj": 2}, alpha_pattern={"v_proj": 3}), "q8_0", "q8_0"),
    "llama, q5_0, saved": (LlamaConfig(**FAMILY), dict(target_modules=["o_proj", "down_proj"],
                                                       modules_to_save=["norm", "lm_head"]), "q5_0", "q8_0"),
    "gpt2, q4_1": (GPT2, dict(target_modules="all-linear", modules_to_save=["ln_f"]), "q4_1", "q8_0"),
}


class Rounded(torch.autograd.Function):
    """The values of the blocks of rows; the gradient passes."""
    @staticmethod
    def forward(ctx, weight, kind):
        kind = gguf.GGMLQuantizationType[kind.upper()]
        return torch.from_numpy(gguf.dequantize(gguf.quantize(weight.detach().numpy(), kind), kind).copy())

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def product(x, weight, bias, columns):
    y = x @ weight if columns else x @ weight.T
    return y if bias is None else y + bias


def rounded(weight, kind, columns):
    return Rounded.apply(weight.T.contiguous(), kind).T if columns else Rounded.apply(weight, kind)


def adapted(module, kind, columns):
    base, name = module.get_base_layer(), "default"

    def forward(x):
        delta = module.scaling[name] * (module.lora_B[name].weight @ module.lora_A[name].weight)
        return product(x, rounded(base.weight + (delta.T if columns else delta), kind, columns), base.bias, columns)
    return forward


def plain(module, kind, columns):
    def forward(x):
        weight = rounded(module.weight, kind, columns)
        if isinstance(module, torch.nn.Embedding):
            return torch.nn.functional.embedding(x, weight)
        return product(x, weight, module.bias, columns)
    return forward


def round_all(model, kind, head):
    """GPT-2's positions and all norms stay as they are."""
    for name, module in list(model.named_modules()):
        last = [part for part in name.split(".") if part not in ("default", "modules_to_save", "original_module")][-1:]
        if "lora_" in name or "base_layer" in name or last == ["wpe"]:
            continue
        own = head if last in (["lm_head"], ["wte"]) else kind
        if isinstance(module, lora_layer.Linear):
            module.forward = adapted(module, own, isinstance(module.get_base_layer(), Conv1D))
        elif isinstance(module, (torch.nn.Linear, torch.nn.Embedding, Conv1D)):
            module.forward = plain(module, own, isinstance(module, Conv1D))


def compare(name, program, folder, device, config, settings, kind, head):
    model = make(folder, config, settings)
    told, batch = data(folder, config)
    ours = train_ours(program, folder, device, "out", *told, "--qat", kind)
    unrounded = train_ours(program, folder, device, "plain", *told)
    round_all(model, kind, head)
    theirs = train_theirs(folder, model, batch)
    off = max((abs(a - b) for a, b in zip(ours[:EARLY], theirs)), default=float("nan"))
    other = max((abs(a - b) for a, b in zip(unrounded[:EARLY], theirs)), default=float("nan"))
    check(len(ours) == STEPS and off <= LOSS, f"{name}: losses differ by {off}: {ours[:EARLY]}, {theirs[:EARLY]}")
    check(other > 3 * LOSS, f"{name}: rounding changes losses by {other} only")
    model.save_pretrained(f"{folder}/theirs")
    a, b = (load_file(f"{folder}/{where}/adapter_model.safetensors") for where in ("out", "theirs"))
    check(set(a) == set(b), f"{name}: tensors {sorted(set(a) ^ set(b))}")
    weights = max((greatest(a[key], b[key]) for key in set(a) & set(b)), default=float("nan"))
    check(weights <= WEIGHTS or kind != "q8_0", f"{name}: adapters differ by {weights}")
    print(f"{name}: losses {off:.1e} (without rounding {other:.1e}), adapters {weights:.1e}", flush=True)


def main():
    program, device = sys.argv[1:]
    need_device(program, device)
    for name, row in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            compare(name, program, folder, device, *row)
    return status()


if __name__ == "__main__":
    sys.exit(main())
