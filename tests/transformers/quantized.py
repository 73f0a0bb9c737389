# SPDX-License-Identifier: Apache-2.0
"""Reads models whose matrices bitsandbytes, GPTQ and AWQ stored: the logits and the weights of the saved model are
those of a model whose matrices were dequantized by the published formulas.

    quantized.py TXGEN TXTRAIN      exit status 77: bitsandbytes is not installed
"""
import json
import sys
import tempfile

from oracle import check, run, status

import bitsandbytes.functional as bnb
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig

CONFIG = LlamaConfig(vocab_size=257, max_position_embeddings=32, hidden_size=64, intermediate_size=128,
                     num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, attention_bias=True)
IDS = torch.arange(3, 20)[None]


def four_bits(name, w, kind, nested):
    codes, state = bnb.quantize_4bit(w, quant_type=kind, blocksize=64, compress_statistics=nested)
    tensors = {f"{name}.weight": codes}
    tensors.update({f"{name}.weight.{key}": value for key, value in state.as_dict(packed=True).items()})
    return tensors, bnb.dequantize_4bit(codes, state)


def eight_bits(name, w):
    scale = w.abs().amax(1)
    codes = torch.round(w * 127 / scale[:, None]).to(torch.int8)
    return {f"{name}.weight": codes, f"{name}.SCB": scale,
            f"{name}.weight_format": torch.tensor(0, dtype=torch.uint8)}, codes.float() * scale[:, None] / 127


def pack(codes, bits, order):
    """Packs 32 / bits codes of the last dimension into a word."""
    words = codes.reshape(*codes.shape[:-1], -1, 32 // bits).long()
    sum_ = sum(words[..., k] << (bits * place) for k, place in enumerate(order))
    return torch.where(sum_ >= 1 << 31, sum_ - (1 << 32), sum_).int().contiguous()


def grouped(w, bits, group, perm):
    """Scales and zero points of groups of inputs, and codes [in, out]."""
    out, inputs = w.shape
    group = inputs if group < 0 else group
    g_idx = torch.empty(inputs, dtype=torch.int32)
    g_idx[perm] = (torch.arange(inputs) // group).int()
    low = torch.stack([w[:, g_idx == g].amin(1) for g in range(inputs // group)])
    high = torch.stack([w[:, g_idx == g].amax(1) for g in range(inputs // group)])
    scale = ((high - low) / (2 ** bits - 1)).half()
    zero = torch.round(-low / scale.float()).clamp(1, 2 ** bits - 1)
    codes = torch.round(w.T / scale.float()[g_idx] + zero[g_idx]).clamp(0, 2 ** bits - 1)
    return g_idx, scale, zero, codes, (scale.float()[g_idx] * (codes - zero[g_idx])).T


def gptq(name, w, bits, group, act_order, second):
    perm = torch.randperm(w.shape[1]) if act_order else torch.arange(w.shape[1])
    g_idx, scale, zero, codes, wanted = grouped(w, bits, group, perm)
    order = range(32 // bits)
    return {f"{name}.qweight": pack(codes.T, bits, order).T.contiguous(), f"{name}.scales": scale,
            f"{name}.qzeros": pack(zero - int(not second), bits, order), f"{name}.g_idx": g_idx}, wanted


def awq(name, w, group):
    _, scale, zero, codes, wanted = grouped(w, 4, group, torch.arange(w.shape[1]))
    order = [[0, 2, 4, 6, 1, 3, 5, 7].index(k) for k in range(8)]
    return {f"{name}.qweight": pack(codes, 4, order), f"{name}.scales": scale,
            f"{name}.qzeros": pack(zero, 4, order)}, wanted


def case(method, make, **more):
    return dict(quant_method=method, **more), make


CASES = {
    "nf4": case("bitsandbytes", lambda n, w: four_bits(n, w, "nf4", False), load_in_4bit=True),
    "nf4 twice": case("bitsandbytes", lambda n, w: four_bits(n, w, "nf4", True), load_in_4bit=True),
    "fp4": case("bitsandbytes", lambda n, w: four_bits(n, w, "fp4", False), load_in_4bit=True),
    "fp4 twice": case("bitsandbytes", lambda n, w: four_bits(n, w, "fp4", True), load_in_4bit=True),
    "int8": case("bitsandbytes", eight_bits, load_in_8bit=True),
    "gptq 4": case("gptq", lambda n, w: gptq(n, w, 4, 32, False, False), bits=4, group_size=32),
    "gptq 8": case("gptq", lambda n, w: gptq(n, w, 8, -1, False, False), bits=8, group_size=-1),
    "gptq 2": case("gptq", lambda n, w: gptq(n, w, 2, 16, False, False), bits=2, group_size=16),
    "gptq order": case("gptq", lambda n, w: gptq(n, w, 4, 32, True, False), bits=4, group_size=32, desc_act=True),
    "gptq v2": case("gptq", lambda n, w: gptq(n, w, 4, 32, True, True), bits=4, group_size=32,
                    checkpoint_format="gptq_v2"),
    "awq": case("awq", lambda n, w: awq(n, w, 32), bits=4, group_size=32, version="gemm"),
}
REFUSED = [(dict(quant_method="hqq"), "hqq"), (dict(quant_method="gptq", bits=3), "bits"),
           (dict(quant_method="awq", bits=4, version="gemv"), "version")]


def save(folder, quantization, tensors):
    save_file(tensors, f"{folder}/model.safetensors", metadata={"format": "pt"})
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(dict(CONFIG.to_dict(), architectures=["LlamaForCausalLM"], quantization_config=quantization), file)


def compare(name, txgen, folder, model, quantization, make):
    tensors = {}
    wanted = AutoModelForCausalLM.from_config(CONFIG).eval()
    state = {}
    for key, w in model.state_dict().items():
        module = key.removesuffix(".weight")
        if key.endswith("_proj.weight"):
            made, state[key] = make(module, w)
            tensors.update(made)
        else:
            tensors[key] = state[key] = w
    save(folder, quantization, tensors)
    wanted.load_state_dict(state)
    done = run(txgen, "--model", folder, "--ids", " ".join(map(str, IDS[0].tolist())), "--logits", f"{folder}/logits")
    check(done.returncode == 0, f"{name}: {done.stderr}")
    if done.returncode:
        return
    with torch.no_grad():
        off = (load_file(f"{folder}/logits")["logits"] - wanted(input_ids=IDS).logits).abs().max().item()
    if name == "nf4":  # the same codes and scales in memory
        done = run(txgen, "--model", folder, "--load_in_4bit", "--ids", " ".join(map(str, IDS[0].tolist())), "--logits",
                   f"{folder}/packed")
        packed = (load_file(f"{folder}/logits")["logits"] - load_file(f"{folder}/packed")["logits"]).abs().max().item()
        check(packed <= 5e-6, f"{name}: in 4 bits, logits differ by {packed}")
    done = run(txgen, "--model", folder, "--save_merged", f"{folder}/plain")
    check(done.returncode == 0, f"{name}: {done.stderr}")
    ours = load_file(f"{folder}/plain/model.safetensors")
    weights = max((ours[key] - state[key]).abs().max().item() for key in ours)
    with open(f"{folder}/plain/config.json", encoding="utf-8") as file:
        check("quantization_config" not in json.load(file), f"{name}: the saved model claims to be quantized")
    check(set(ours) == set(state) and off <= 5e-6 and weights <= 2e-7, f"{name}: logits {off}, weights {weights}")
    print(f"{name}: logits {off:.1e}, weights {weights:.1e}")


def main():
    txgen, txtrain = sys.argv[1:]
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(CONFIG)
    for name, (quantization, make) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            compare(name, txgen, folder, model, quantization, make)
            if name == "nf4":  # an adapter of it, whose base stays in 4 bits
                with open(f"{folder}/text", "wb") as file:
                    file.write(bytes(i * i % 90 + 32 for i in range(3000)))
                done = run(txtrain, "--model_name_or_path", folder, "--train_file", f"{folder}/text", "--lora_r", "4",
                           "--load_in_4bit", "--max_steps", "2", "--block_size", "16", "--output_dir", f"{folder}/out")
                check(done.returncode == 0, f"{name}: {done.stderr}")
    for quantization, word in REFUSED:
        with tempfile.TemporaryDirectory() as folder:
            save(folder, quantization, {"model.norm.weight": torch.ones(64)})
            done = run(txgen, "--model", folder, "--ids", "1 2", "-n", "1")
            check(done.returncode == 1 and "quantization_config" in done.stderr and word in done.stderr, done.stderr)
    return status()


if __name__ == "__main__":
    sys.exit(main())
