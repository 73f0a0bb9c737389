# SPDX-License-Identifier: Apache-2.0
"""Reads models in fp8, and of compressed-tensors and modelopt: the weights of the saved model are, bit for bit, the
products of torch's values of the codes and the scales, rounded to bf16.

    scaled.py TXGEN
"""
import json
import sys
import tempfile

from oracle import check, run, status

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig

CONFIG = LlamaConfig(vocab_size=257, max_position_embeddings=32, hidden_size=64, intermediate_size=128,
                     num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
                     dtype="bfloat16")
E2M1 = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])
FP8 = torch.float8_e4m3fn


def spread(scale, out, inputs, block):
    """Repeats the scales of blocks."""
    return scale.repeat_interleave(block[0], 0)[:out].repeat_interleave(block[1], 1)[:, :inputs]


def fp8(name, w, block, suffix, powers=False):
    out, inputs = w.shape
    down, across = -(-out // block[0]), -(-inputs // block[1])
    scale = torch.rand(down, across) * 0.001 + 0.0005
    if powers:
        scale = torch.exp2(torch.floor(torch.log2(scale)))
    codes = (w / spread(scale, out, inputs, block)).clamp(-448, 448).to(FP8)
    wanted = codes.float() * spread(scale, out, inputs, block)
    stored = (torch.log2(scale) + 127).to(torch.uint8) if powers else scale
    return {f"{name}.weight": codes, f"{name}.weight{suffix}": stored, f"{name}.input_scale": torch.ones(1)}, wanted


def whole(name, w):
    scale = w.abs().max() / 448
    codes = (w / scale).to(FP8)
    return {f"{name}.weight": codes, f"{name}.weight_scale": scale, f"{name}.k_scale": torch.ones(1)}, \
        codes.float() * scale


def words(codes, bits):
    """Packs unsigned codes of the last dimension into words of 32 bits; the last may be partly used."""
    each = 32 // bits
    codes = torch.nn.functional.pad(codes.long(), (0, -codes.shape[-1] % each))
    total = (codes.reshape(*codes.shape[:-1], -1, each) << (bits * torch.arange(each))).sum(-1)
    return torch.where(total >= 1 << 31, total - (1 << 32), total).int().contiguous()


def packed(name, w, bits, group, zero=False, order=False):
    out, inputs = w.shape
    groups = inputs // group
    half = 2 ** (bits - 1)
    index = (torch.randperm(inputs) if order else torch.arange(inputs)) // group
    scale = (torch.rand(out, groups) * 0.01 + 0.005).bfloat16()
    offset = torch.randint(-2, 3, (out, groups)) if zero else torch.zeros(out, groups, dtype=torch.long)
    codes = (torch.round(w / scale.float()[:, index]) + offset[:, index]).clamp(-half, half - 1).long()
    made = {f"{name}.weight_packed": words(codes + half, bits), f"{name}.weight_scale": scale,
            f"{name}.weight_shape": torch.tensor([out, inputs])}
    if zero:
        made[f"{name}.weight_zero_point"] = words((offset + half).T, bits).T.contiguous()
    if order:
        made[f"{name}.weight_g_idx"] = index.int()
    return made, (codes - offset[:, index]).float() * scale.float()[:, index]


def nvfp4(name, w, divide):
    out, inputs = w.shape
    factor = torch.tensor([300.0 if divide else 1 / 300])
    scale = (torch.rand(out, inputs // 16) * 8 + 1).to(FP8)
    each = (scale.float() / factor if divide else scale.float() * factor).repeat_interleave(16, 1)
    codes = (E2M1 - (w / each)[..., None]).abs().argmin(-1).to(torch.uint8)
    pairs = codes[:, 0::2] | codes[:, 1::2] << 4
    names = ("weight_packed", "weight_global_scale") if divide else ("weight", "weight_scale_2")
    return {f"{name}.{names[0]}": pairs, f"{name}.weight_scale": scale,
            f"{name}.{names[1]}": factor if divide else factor[0]}, E2M1[codes.long()] * each


def mxfp4(name, w):
    scale = torch.randint(118, 123, (w.shape[0], w.shape[1] // 32), dtype=torch.uint8)
    each = torch.exp2(scale.float() - 127).repeat_interleave(32, 1)
    codes = (E2M1 - (w / each)[..., None]).abs().argmin(-1).to(torch.uint8)
    return {f"{name}.weight_packed": codes[:, 0::2] | codes[:, 1::2] << 4, f"{name}.weight_scale": scale}, \
        E2M1[codes.long()] * each


def int8(name, w):
    scale = w.abs().amax(1, keepdim=True) / 127
    codes = torch.round(w / scale).to(torch.int8)
    return {f"{name}.weight": codes, f"{name}.weight_scale": scale}, codes.float() * scale


def compressed(form):
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": {"format": form}}}


DEEPSEEK = {"quant_method": "fp8", "weight_block_size": [48, 40], "activation_scheme": "dynamic"}
CASES = {
    "fp8 blocks": (DEEPSEEK, lambda n, w: fp8(n, w, (48, 40), "_scale_inv")),
    "fp8 ue8m0": (DEEPSEEK, lambda n, w: fp8(n, w, (48, 40), "_scale_inv", True)),
    "fbgemm": ({"quant_method": "fbgemm_fp8"}, lambda n, w: fp8(n, w, (1, w.shape[1]), "_scale")),
    "float": (compressed("float-quantized"), lambda n, w: fp8(n, w, (1, w.shape[1]), "_scale")),
    "int": (compressed("int-quantized"), int8),
    "pack 4": (compressed("pack-quantized"), lambda n, w: packed(n, w, 4, 32)),
    "pack 8": (compressed("pack-quantized"), lambda n, w: packed(n, w, 8, 64)),
    "pack zeros": (compressed("pack-quantized"), lambda n, w: packed(n, w, 4, 16, zero=True)),
    "pack order": (compressed("pack-quantized"), lambda n, w: packed(n, w, 4, 16, order=True)),
    "nvfp4": (compressed("nvfp4-pack-quantized"), lambda n, w: nvfp4(n, w, True)),
    "mxfp4": (compressed("mxfp4-pack-quantized"), mxfp4),
    "modelopt fp8": ({"quant_method": "modelopt", "quant_algo": "FP8"}, whole),
    "modelopt nvfp4": (None, lambda n, w: nvfp4(n, w, False)),  # described in a file of its own
}
SPARSE = dict(compressed("pack-quantized"), sparsity_config={"format": "sparse-24-bitmask"})
REFUSED = [({"quant_method": "torchao"}, "torchao"), (compressed("marlin-24"), "marlin-24"), (SPARSE, "sparse-24"),
           ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "W4A8_AWQ")]


def save(folder, quantization, tensors):
    save_file(tensors, f"{folder}/model.safetensors", metadata={"format": "pt"})
    config = dict(CONFIG.to_dict(), architectures=["LlamaForCausalLM"])
    if quantization:
        config["quantization_config"] = quantization
    else:
        with open(f"{folder}/hf_quant_config.json", "w", encoding="utf-8") as file:
            json.dump({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}}, file)
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)


def wrapped(name, txgen, folder, quantization, tensors, state):
    """The same as the text of a wrapper, whose settings hold those of the quantization (Kimi K2.5)."""
    others = {"vision_tower.weight": torch.ones(3)}
    save_file({**others, **{f"language_model.{key}": w for key, w in tensors.items()}}, f"{folder}/model.safetensors",
              metadata={"format": "pt"})
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump({"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"],
                   "text_config": dict(CONFIG.to_dict(), quantization_config=quantization)}, file)
    done = run(txgen, "--model", folder, "--save_merged", f"{folder}/whole")
    check(done.returncode == 0, f"{name}, wrapped: {done.stderr}")
    ours = load_file(f"{folder}/whole/model.safetensors") if done.returncode == 0 else {}
    check(set(ours) == {*others, *(f"language_model.{key}" for key in state)}
          and all(torch.equal(ours[f"language_model.{key}"].float(), state[key].float()) for key in state),
          f"{name}, wrapped: other values")
    with open(f"{folder}/whole/config.json", encoding="utf-8") as file:
        check("quantization_config" not in file.read(), f"{name}, wrapped: the saved model claims to be quantized")


def compare(name, txgen, folder, model, quantization, make):
    tensors, state = {}, {}
    for key, w in model.state_dict().items():
        if key.endswith("_proj.weight"):
            made, wanted = make(key.removesuffix(".weight"), w.float())
            tensors.update(made)
            state[key] = wanted.bfloat16()
        elif key != "lm_head.weight":
            tensors[key] = state[key] = w.bfloat16()
    save(folder, quantization, tensors)
    done = run(txgen, "--model", folder, "--save_merged", f"{folder}/plain")
    check(done.returncode == 0, f"{name}: {done.stderr}")
    if done.returncode:
        return
    ours = load_file(f"{folder}/plain/model.safetensors")
    other = [key for key in state if key not in ours or not torch.equal(ours[key].float(), state[key].float())]
    check(set(ours) == set(state) and not other, f"{name}: other values in {other}")
    with open(f"{folder}/plain/config.json", encoding="utf-8") as file:
        check("quantization_config" not in json.load(file), f"{name}: the saved model claims to be quantized")
    if name == "pack 4":
        wrapped(name, txgen, folder, quantization, tensors, state)
    key = next(k for k in tensors if k.endswith("_scale") or k.endswith("_scale_inv"))
    save(folder, quantization, {k: v for k, v in tensors.items() if k != key})
    done = run(txgen, "--model", folder, "--ids", "1 2", "-n", "1")
    check(done.returncode == 1 and key.rsplit(".", 1)[0] in done.stderr, f"{name} without {key}: {done.stderr}")


def main():
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(CONFIG)
    for name, (quantization, make) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            compare(name, sys.argv[1], folder, model, quantization, make)
    for quantization, word in REFUSED:
        with tempfile.TemporaryDirectory() as folder:
            save(folder, quantization, {"model.norm.weight": torch.ones(64)})
            done = run(sys.argv[1], "--model", folder, "--ids", "1 2", "-n", "1")
            check(done.returncode == 1 and "quantization_config" in done.stderr and word in done.stderr, done.stderr)
    return status()


if __name__ == "__main__":
    sys.exit(main())
