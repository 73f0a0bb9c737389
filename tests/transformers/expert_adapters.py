# SPDX-License-Identifier: Apache-2.0
"""Compares adapters of experts' matrices with peft's target_parameters: from a folder that peft wrote, losses, norms of
gradients and the final adapter of each step of SGD; peft's logits with the adapter that TX wrote, and with the merged
model.

    expert_adapters.py TXTRAIN TXGEN DEVICE      exit status 77: peft is not installed, or there is no such device
"""
import os
import sys
import tempfile

from oracle import check, log_of, need_device, status, succeed
from training import descend

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, GptOssConfig, MixtralConfig, OlmoeConfig, Qwen3MoeConfig

STEPS, BATCH, BLOCK, RATE, NEAR = 10, 4, 24, 0.1, 1e-5
FAMILY = dict(vocab_size=257, max_position_embeddings=32, hidden_size=48, intermediate_size=40, num_hidden_layers=2,
              num_attention_heads=4, num_key_value_heads=2, bos_token_id=256, eos_token_id=256, pad_token_id=0,
              num_experts_per_tok=2)
BOTH = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
GPT_OSS = GptOssConfig(**FAMILY, head_dim=12, num_local_experts=4, layer_types=["sliding_attention", "full_attention"],
                       sliding_window=16)
CASES = {
    "qwen3_moe": (Qwen3MoeConfig(**FAMILY, head_dim=12, num_experts=5, moe_intermediate_size=20),
                  dict(target_parameters=BOTH, target_modules=["q_proj", "v_proj"])),
    "qwen3_moe, down": (Qwen3MoeConfig(**FAMILY, head_dim=12, num_experts=5, moe_intermediate_size=20),
                        dict(target_parameters=BOTH[1:], target_modules=[], rank_pattern={"experts.down_proj": 3},
                             use_rslora=True)),
    "mixtral": (MixtralConfig(**FAMILY, num_local_experts=3), dict(target_parameters=BOTH, target_modules=[])),
    "gpt_oss": (GPT_OSS, dict(target_parameters=BOTH, target_modules="all-linear")),
    "gpt_oss, gate_up": (GPT_OSS, dict(target_parameters=["0.mlp.experts.gate_up_proj"], target_modules=[])),
    "olmoe": (OlmoeConfig(**FAMILY, num_experts=4), dict(target_parameters=BOTH[:1], target_modules=["o_proj"])),
}


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", experts_implementation="eager",
                                                dtype=torch.float32)


def make(folder, config, settings):
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(config).save_pretrained(f"{folder}/model")
    model = load(f"{folder}/model")
    model.loss_type = "ForCausalLM"
    model = get_peft_model(model, LoraConfig(**dict(dict(r=4, lora_alpha=8, task_type="CAUSAL_LM"), **settings)))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)
    model.save_pretrained(f"{folder}/begin")
    return model


def greatest(a, b):
    return (a - b).abs().max().item()


def train_both(name, model, folder, device, txtrain, steps, least, *options):
    """Trains in TX from {folder}/begin, and in peft. Returns the differences of losses, norms of gradients and
    adapters, and what TX printed. Some adapters of experts must change by more than `least`."""
    said = succeed(txtrain, "--train_file", f"{folder}/text.txt", "--block_size", str(BLOCK), "--max_steps", str(steps),
                   "--learning_rate", str(RATE), "--lr_scheduler_type", "constant", "--optim", "sgd", "--max_grad_norm",
                   "0", "--per_device_train_batch_size", str(BATCH), "--dump_order", f"{folder}/order",
                   "--save_strategy", "no", "--device", device, "--model_name_or_path", f"{folder}/begin",
                   "--output_dir", f"{folder}/out", *options)
    model.train()
    values = descend(model, folder, block=BLOCK, batch=BATCH, steps=steps, rate=RATE)
    model.save_pretrained(f"{folder}/theirs")
    ours, theirs, begin = (load_file(f"{folder}/{where}/adapter_model.safetensors")
                           for where in ("out", "theirs", "begin"))
    check(set(ours) == set(theirs), f"{name}: tensors {sorted(set(ours) ^ set(theirs))}")
    off = [max(abs(a - b) / abs(b) for a, b in zip(log_of(f"{folder}/out", key)[:steps], wanted, strict=True))
           for key, wanted in zip(("loss", "grad_norm"), values)]
    off.append(max(greatest(ours[k], theirs[k]) for k in theirs))
    moved = [k for k in theirs if "experts" in k and greatest(theirs[k], begin[k]) > least]
    check(len(moved) > 1, f"{name}: few experts' adapters were trained: {moved}")
    return off, said


def compare(name, programs, folder, device, config, settings):
    txtrain, txgen = programs
    model = make(folder, config, settings)
    off, _ = train_both(name, model, folder, device, txtrain, STEPS, 100 * NEAR)

    # peft's logits with the folder that TX wrote, and those of TX, which merges it.
    ids = torch.arange(3, 3 + BLOCK)[None] * 7 % 257
    loaded = PeftModel.from_pretrained(load(f"{folder}/model"), f"{folder}/out").eval()
    with torch.no_grad():
        wanted = loaded(input_ids=ids).logits
        plain = load(f"{folder}/model").eval()(input_ids=ids).logits
    succeed(txgen, "--adapter", f"{folder}/out", "--device", device, "--ids", " ".join(map(str, ids[0].tolist())),
            "--logits", f"{folder}/logits")
    off.append(greatest(load_file(f"{folder}/logits")["logits"], wanted))
    succeed(txgen, "--adapter", f"{folder}/out", "--save_merged", f"{folder}/merged")
    with torch.no_grad():
        off.append(greatest(load(f"{folder}/merged").eval()(input_ids=ids).logits, wanted))
    check(all(value <= NEAR for value in off), f"{name}: losses, norms, adapters, logits, merged differ by {off}")
    check(greatest(plain, wanted) > 100 * NEAR, f"{name}: the adapter changes nothing")
    print(f"{name} on {device}: losses {off[0]:.1e}, norms {off[1]:.1e}, adapters {off[2]:.1e}, logits {off[3]:.1e}, "
          f"merged {off[4]:.1e}")


def compare_new(programs, folder, config):
    """An adapter that TX began has peft's tensors."""
    succeed(programs[0], "--train_file", f"{folder}/text.txt", "--block_size", str(BLOCK), "--max_steps", "1",
            "--model_name_or_path", f"{folder}/model", "--output_dir", f"{folder}/new", "--lora_r", "4",
            "--lora_target_modules", "q_proj,v_proj", "--target_parameters", ",".join(BOTH), "--save_strategy", "no")
    model = get_peft_model(load(f"{folder}/model"), LoraConfig(r=4, target_modules=["q_proj", "v_proj"],
                                                               target_parameters=BOTH, task_type="CAUSAL_LM"))
    model.save_pretrained(f"{folder}/empty")
    ours, theirs = (load_file(f"{folder}/{where}/adapter_model.safetensors") for where in ("new", "empty"))
    check({k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items()},
          f"{config.model_type}: another adapter than peft's: {sorted(set(ours) ^ set(theirs))}")
    PeftModel.from_pretrained(load(f"{folder}/model"), f"{folder}/new")


def main():
    *programs, device = sys.argv[1:]
    need_device(programs[0], device)
    for name, (config, settings) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "text.txt"), "w", encoding="utf-8") as file:
                for i in range(150):
                    file.write(f"line {i}: the {('cat', 'dog', 'bird')[i * i % 3]} saw {i % 7} fish\n")
            compare(name, programs, folder, device, config, settings)
            if name in ("qwen3_moe", "gpt_oss"):
                compare_new(programs, folder, config)
    return status()


if __name__ == "__main__":
    sys.exit(main())
