# SPDX-License-Identifier: Apache-2.0
"""Compares the training of an adapter of a base in 8 bits with peft, whose base has the weights that gguf-py reads from
Q8_0: quantized by gguf-py from the same folder, or in a GGUF file, whose blocks train as they are. Compares losses,
norms of gradients and the final adapter.

    eight_bits.py TXTRAIN TXCONVERT DEVICE      exit status 77: peft or gguf is not installed, or there is no such device
"""
import json
import sys
import tempfile

from oracle import check, log_of, need_device, status, succeed
from training import descend

import gguf
import numpy
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig

STEPS, BATCH, BLOCK, RATE, NEAR = 10, 4, 32, 0.05, 1e-5
CONFIG = LlamaConfig(vocab_size=257, max_position_embeddings=64, hidden_size=96, intermediate_size=160,
                     num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, bos_token_id=256,
                     eos_token_id=256, architectures=["LlamaForCausalLM"])
Q8_0 = gguf.GGMLQuantizationType.Q8_0


def rounded(weight):
    blocks = gguf.quants.quantize(weight.numpy().astype(numpy.float32), Q8_0)
    return torch.from_numpy(gguf.quants.dequantize(blocks, Q8_0).copy())


def scale_half(path):
    """Halves the codes of every second block, so that their greatest is not 127 and only a copy keeps them."""
    reader = gguf.GGUFReader(path, "r+")
    for tensor in reader.tensors:
        if tensor.tensor_type == Q8_0:
            blocks = tensor.data.reshape(-1, 34)
            blocks[::2, 2:] = (blocks[::2, 2:].view(numpy.int8) // 2).view(numpy.uint8)
    reader.data.flush()


def of_file(path, name):
    """A weight of the file, by transformers' name of a Llama, in its order of rows."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, CONFIG.num_hidden_layers)
    tensor = next(t for t in gguf.GGUFReader(path).tensors if t.name == names.get_name(name, (".weight",)) + ".weight"
                  or t.name == names.get_name(name, (".weight",)))
    weight = torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy())
    heads = {"q_proj": CONFIG.num_attention_heads, "k_proj": CONFIG.num_key_value_heads}.get(name.split(".")[-2])
    if heads:
        weight = weight.reshape(heads, -1, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
    return weight


def make(folder, base, weight_of):
    """Makes peft's model, with an adapter whose B are not zero."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(f"{folder}/base", attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(weight_of(name, weight))
    model.loss_type = "ForCausalLM"
    model = get_peft_model(model, LoraConfig(r=4, lora_alpha=16, task_type="CAUSAL_LM", target_modules="all-linear"))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)
    model.save_pretrained(f"{folder}/begin")
    with open(f"{folder}/begin/adapter_config.json", encoding="utf-8") as file:
        config = json.load(file)
    config["base_model_name_or_path"] = base
    with open(f"{folder}/begin/adapter_config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)
    return model


def compare(name, txtrain, folder, device, base, weight_of):
    model = make(folder, base, weight_of)
    succeed(txtrain, "--model_name_or_path", f"{folder}/begin", "--output_dir", f"{folder}/out", "--max_steps",
            str(STEPS), "--learning_rate", str(RATE), "--lr_scheduler_type", "constant", "--optim", "sgd",
            "--max_grad_norm", "0", "--per_device_train_batch_size", str(BATCH), "--dump_order", f"{folder}/order",
            "--save_strategy", "no", "--device", device, "--train_file", f"{folder}/text.txt", "--block_size",
            str(BLOCK), "--overwrite_output_dir", "--load_in_8bit")
    losses, norms = descend(model, folder, block=BLOCK, batch=BATCH, steps=STEPS, rate=RATE)
    model.save_pretrained(f"{folder}/theirs")
    ours, theirs = (load_file(f"{folder}/{where}/adapter_model.safetensors") for where in ("out", "theirs"))
    begin = load_file(f"{folder}/begin/adapter_model.safetensors")
    check(set(ours) == set(theirs), f"{name}: tensors {sorted(set(ours) ^ set(theirs))}")
    moved = max(((theirs[k] - begin[k]).abs().max().item() for k in theirs), default=float("nan"))
    off = [max((abs(a - b) / abs(b) for a, b in zip(log_of(f"{folder}/out", key)[:STEPS], values, strict=True)))
           for key, values in (("loss", losses), ("grad_norm", norms))]
    off.append(max((ours[k] - theirs[k]).abs().max().item() for k in theirs))
    check(all(value <= NEAR for value in off), f"{name}: losses, norms and adapters differ by {off}")
    check(moved > 100 * NEAR and losses[-1] < losses[0], f"{name}: nothing was learnt")
    print(f"{name} on {device}: losses {off[0]:.1e}, norms {off[1]:.1e}, adapters {off[2]:.1e}")


def main():
    txtrain, txconvert, device = sys.argv[1:]
    need_device(txtrain, device)
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/text.txt", "w", encoding="utf-8") as file:
            for i in range(150):
                file.write(f"line {i}: the {('cat', 'dog', 'bird')[i * i % 3]} saw {i % 7} fish\n")
        CONFIG.save_pretrained(folder)
        succeed(txtrain, "--config_name", f"{folder}/config.json", "--train_file", f"{folder}/text.txt",
                "--block_size", str(BLOCK), "--max_steps", "2", "--output_dir", f"{folder}/base", "--save_strategy",
                "no")
        compare("a folder", txtrain, folder, device, f"{folder}/base",
                lambda name, weight: rounded(weight) if "_proj" in name else weight)
        path = f"{folder}/base.gguf"
        succeed(txconvert, f"{folder}/base", "--to", path, "--outtype", "q8_0")
        scale_half(path)
        compare("a file", txtrain, folder, device, path, lambda name, weight: of_file(path, name))
    return status()


if __name__ == "__main__":
    sys.exit(main())
