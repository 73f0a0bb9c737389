# SPDX-License-Identifier: Apache-2.0
"""Compares a gpt-oss of MXFP4 weights with transformers, which dequantizes them: logits, gradients, the folder that TX
writes, and refusals of damaged tensors.

    mxfp4.py MODEL_LOGITS TXGEN [DEVICE]      exit status 77: transformers is not installed
"""
import json
import sys
import tempfile

from oracle import check, run, status

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GptOssConfig
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
from random_models import compare, generate, gradients, make_model

CONFIG = dict(vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, head_dim=16, num_local_experts=3, num_experts_per_tok=2, sliding_window=8,
              bos_token_id=1, eos_token_id=2, pad_token_id=0, attn_implementation="eager",
              experts_implementation="eager")


def pack(model, folder):
    """Replaces the matrices of experts by random blocks and scales, in the model and in its folder."""
    model.save_pretrained(folder)
    tensors = load_file(f"{folder}/model.safetensors")
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(("gate_up_proj", "down_proj")):
                experts, inner, outer = p.shape
                blocks = torch.randint(0, 256, (experts, outer, inner // 32, 16), generator=random, dtype=torch.uint8)
                scales = torch.randint(119, 125, blocks.shape[:3], generator=random, dtype=torch.uint8)
                p.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))
                del tensors[name]
                tensors[f"{name}_blocks"], tensors[f"{name}_scales"] = blocks, scales
    save_file(tensors, f"{folder}/model.safetensors", {"format": "pt"})
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)
    return tensors


def main():
    program, txgen = sys.argv[1:3]
    device = (sys.argv[3:] or ["cpu"])[0]
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(GptOssConfig(**CONFIG))
        tensors = pack(model, folder)
        theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
        check(all(torch.equal(theirs[n], p) for n, p in model.state_dict().items()), "transformers reads other weights")
        compare("mxfp4", model, folder, program, device)
        generate("mxfp4", model, folder, txgen, device)
        gradients("mxfp4", model, folder, program, device)
        name = "model.layers.1.mlp.experts.down_proj_scales"
        for wrong in ({n: t for n, t in tensors.items() if n != name}, {**tensors, name: tensors[name][:, :, :1].contiguous()}):
            save_file(wrong, f"{folder}/model.safetensors", {"format": "pt"})
            done = run(txgen, model=folder, ids="1 2", max_new_tokens=1, threads=1)
            check(done.returncode != 0 and name in done.stderr, f"damaged scales: {done.stderr}")
    return status()


if __name__ == "__main__":
    sys.exit(main())
