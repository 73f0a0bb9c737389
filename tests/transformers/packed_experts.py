# SPDX-License-Identifier: Apache-2.0
"""Compares the training of adapters on experts whose frozen matrices are in NF4, Q8_0 or MXFP4 with peft, whose base has
the dequantized weights: losses, norms of gradients and the final adapter. The weights of the oracle are bitsandbytes'
formula in torch, gguf-py's Q8_0, and transformers' MXFP4. Also the logits of a base in 4 bits, of few and many rows, and
on the CPU those of a mixture in blocks of a GGUF file, beside its weights in fp32.

    packed_experts.py TXTRAIN TXGEN TXCONVERT DEVICE     exit status 77: peft or gguf is not installed, or there is no such device
"""
import copy
import sys
import tempfile

from expert_adapters import BOTH, greatest, load, train_both
from mxfp4 import pack
from oracle import check, need_device, status, succeed

import gguf
import numpy
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, GptOssConfig, MixtralConfig, Qwen3MoeConfig

STEPS, NEAR = 5, 1e-5
ROUNDING = 0.04
FAMILY = dict(vocab_size=257, max_position_embeddings=32, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
              num_attention_heads=4, num_key_value_heads=2, bos_token_id=256, eos_token_id=256, pad_token_id=0,
              num_experts_per_tok=2)
GPT_OSS = GptOssConfig(**FAMILY, head_dim=16, num_local_experts=4, layer_types=["sliding_attention", "full_attention"],
                       sliding_window=16)
QWEN = Qwen3MoeConfig(**FAMILY, head_dim=16, num_experts=8, moe_intermediate_size=64)
QUANTILES = torch.tensor([-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0.0,
                          0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0])


def nf4(weight):
    blocks = weight.reshape(-1, 64)
    absmax = blocks.abs().max(1, keepdim=True).values
    codes = torch.bucketize(blocks * (1 / absmax), (QUANTILES[1:] + QUANTILES[:-1]) / 2)
    return (QUANTILES[codes] * absmax).reshape(weight.shape)


def q8_0(weight):
    kind = gguf.GGMLQuantizationType.Q8_0
    blocks = gguf.quants.quantize(weight.numpy().astype(numpy.float32), kind)
    return torch.from_numpy(gguf.quants.dequantize(blocks, kind).copy())


# The configuration, the option, the oracle's rounding, and whether the folder has the experts in MXFP4.
CASES = {
    "qwen3_moe, NF4": (QWEN, "--load_in_4bit", nf4, False),
    "qwen3_moe, Q8_0": (QWEN, "--load_in_8bit", q8_0, False),
    "mixtral, NF4": (MixtralConfig(**FAMILY, num_local_experts=3), "--load_in_4bit", nf4, False),
    "gpt_oss, NF4": (GPT_OSS, "--load_in_4bit", nf4, False),
    "gpt_oss, Q8_0": (GPT_OSS, "--load_in_8bit", q8_0, False),
    "gpt_oss, MXFP4": (GPT_OSS, "--load_in_4bit", nf4, True),
}


def is_matrix(name, weight):
    return "_proj" in name and weight.dim() > 1 and "bias" not in name


def make(folder, config, rounded, mxfp4):
    """Makes the folder of the base, and peft's model with the dequantized weights and an adapter that is not zero."""
    torch.manual_seed(1)
    base = AutoModelForCausalLM.from_config(config)
    base.save_pretrained(f"{folder}/model")
    if mxfp4:
        pack(base, f"{folder}/model")
    model = load(f"{folder}/model") if not mxfp4 else base.float()
    changed = 0.0
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if is_matrix(name, weight) and not (mxfp4 and "experts" in name):
                value = rounded(weight.detach())
                changed = max(changed, greatest(value, weight) if "experts" in name else 0.0)
                weight.copy_(value)
    check(mxfp4 or changed > NEAR, "the types change no expert")
    model.loss_type = "ForCausalLM"
    plain = copy.deepcopy(model).eval()
    model = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, task_type="CAUSAL_LM", target_parameters=BOTH,
                                             target_modules=["q_proj", "v_proj"]))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)
    model.peft_config["default"].base_model_name_or_path = f"{folder}/model"
    model.save_pretrained(f"{folder}/begin")
    return model, plain


def compare(name, programs, folder, device, config, option, rounded, mxfp4):
    txtrain, txgen = programs
    model, plain = make(folder, config, rounded, mxfp4)
    off, said = train_both(name, model, folder, device, txtrain, STEPS, 10 * NEAR, option, "--profile")
    total = next(line.split() for line in said.splitlines() if line.split()[:1] == ["total"])
    check(device != "cpu" or total[1] == total[-1], f"{name}: planned and counted memory: {total}")
    if option == "--load_in_4bit":
        for count in (2, 24):
            ids = torch.arange(3, 3 + count)[None] * 7 % 257
            with torch.no_grad():
                succeed(txgen, "--model", f"{folder}/model", option, "--device", device, "--ids",
                        " ".join(map(str, ids[0].tolist())), "--logits", f"{folder}/logits")
                off.append(greatest(load_file(f"{folder}/logits")["logits"], plain(input_ids=ids).logits))
    check(all(value <= NEAR for value in off), f"{name}: losses, norms, adapters, logits differ by {off}")
    print(f"{name} on {device}: losses {off[0]:.1e}, norms {off[1]:.1e}, adapters {off[2]:.1e}, "
          f"logits {off[3:]}")


def compare_file(programs, folder, kind):
    """Blocks of the experts in a GGUF file. Products of blocks round their inputs to 8 bits, which ROUNDING allows."""
    txtrain, txgen, txconvert = programs
    settings = dict(FAMILY, hidden_size=256, max_position_embeddings=64)
    Qwen3MoeConfig(**settings, head_dim=64, num_experts=4, moe_intermediate_size=256, norm_topk_prob=True,
                   initializer_range=0.08).save_pretrained(folder)
    succeed(txtrain, "--config_name", f"{folder}/config.json", "--train_file", f"{folder}/text.txt", "--block_size",
            "24", "--max_steps", "1", "--output_dir", f"{folder}/base", "--save_strategy", "no", "--overwrite_output_dir")
    succeed(txconvert, f"{folder}/base", "--to", f"{folder}/{kind}.gguf", "--outtype", kind)
    for count in (2, 60):
        logits = []
        for dtype in ("auto", "float32"):
            succeed(txgen, "--model", f"{folder}/{kind}.gguf", "--dtype", dtype, "--device", "cpu", "--ids",
                    " ".join(str((3 + i) * 7 % 257) for i in range(count)), "--logits", f"{folder}/logits")
            logits.append(load_file(f"{folder}/logits")["logits"])
        # The median of the rows: rounding may send a token to another expert.
        rows = (logits[0] - logits[1]).abs().amax(-1).flatten() / logits[1].abs().max()
        off = rows.median().item()
        check(off <= ROUNDING, f"{kind}, {count} rows: logits differ by {off}")
        print(f"mixture in {kind}, {count} rows: logits {off:.1e}, at most {rows.max().item():.1e}")


def main():
    *programs, txconvert, device = sys.argv[1:]
    need_device(programs[0], device)
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/text.txt", "w", encoding="utf-8") as file:
                for i in range(150):
                    file.write(f"line {i}: the {('cat', 'dog', 'bird')[i * i % 3]} saw {i % 7} fish\n")
            compare(name, programs, folder, device, *case)
            if device == "cpu" and case[1] == "--load_in_8bit" and case[0] is QWEN:
                for kind in ("q8_0", "q4_0", "q4_k_s"):
                    compare_file((*programs, txconvert), folder, kind)
    return status()


if __name__ == "__main__":
    sys.exit(main())
