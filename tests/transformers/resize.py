# SPDX-License-Identifier: Apache-2.0
"""Adds tokens to tokenizer and model: ids are those of tokenizers, old logits stay, new rows are the mean of the old
ones, and transformers loads the result. Adapters that carry resized embeddings, of peft and of txtrain, give the same
logits in both.

    resize.py TXTRAIN TXGEN      exit status 77: peft is not installed
"""
import sys
import tempfile

from oracle import check, run, status

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, Qwen2Config

FAMILY = dict(max_position_embeddings=64, hidden_size=36, intermediate_size=55, num_hidden_layers=2,
              num_attention_heads=6, num_key_value_heads=2)
NEW = ["<|user|>", "<|end|>"]
IDS = torch.arange(3, 20)[None]


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def logits(model, ids):
    with torch.no_grad():
        return model(input_ids=ids).logits


def make(folder, config):
    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(config.vocab_size)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w0", eos_token="w1").save_pretrained(folder)
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    with open(f"{folder}/text", "w", encoding="utf-8") as file:
        for i in range(400):
            file.write(f"{NEW[0]} w{i % 7} w{i * i % 90} {NEW[1]} w{i % 11} w3\n")


def train(txtrain, folder, out, *more):
    done = run(txtrain, "--threads", "1", "--model_name_or_path", folder, "--train_file", f"{folder}/text",
               "--block_size", "32", "--max_steps", "3", "--per_device_train_batch_size", "2", "--add_tokens",
               ",".join(NEW), "--output_dir", out, "--save_strategy", "no", *more)
    check(done.returncode == ("--resize_token_embeddings" not in more), f"train {more}: {done.stderr}")
    return done


def ours(txgen, folder, ids, *more):
    done = run(txgen, "--ids", " ".join(map(str, ids[0].tolist())), "--logits", f"{folder}/logits", *more)
    check(done.returncode == 0, f"{more}: {done.stderr}")
    return load_file(f"{folder}/logits")["logits"]


def greatest(a, b):
    return (a - b).abs().max().item() if a.shape == b.shape else float("nan")


def compare(name, txtrain, txgen, folder, config):
    make(folder, config)
    vocab = config.vocab_size
    done = train(txtrain, folder, f"{folder}/none")
    check("--resize_token_embeddings" in done.stderr, f"{name}: not refused: {done.stderr}")
    train(txtrain, folder, f"{folder}/still", "--resize_token_embeddings", "--learning_rate", "0", "--weight_decay",
          "0")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(f"{folder}/still")
    check(tokenizer.convert_tokens_to_ids(NEW) == [vocab, vocab + 1] and
          tokenizer(f"w5 {NEW[1]}w7").input_ids == [5, vocab + 1, 7], f"{name}: other ids")
    old, grown = load(folder), load(f"{folder}/still")
    for a, b in zip((old.get_input_embeddings(), old.get_output_embeddings()),
                    (grown.get_input_embeddings(), grown.get_output_embeddings())):
        off = greatest(b.weight[vocab:], a.weight.mean(0, keepdim=True).expand(2, -1))
        check(off <= 1e-6 and torch.equal(a.weight, b.weight[:vocab]),
              f"{name}: new rows differ from the mean by {off}")
    check(greatest(logits(old, IDS), logits(grown, IDS)[..., :vocab]) <= 1e-6, f"{name}: old logits have changed")

    # Adapters: of txtrain, and of peft with a resized model.
    ids, off = torch.tensor([[5, vocab, 7, vocab + 1, 9]]), []
    for more in ((), ("--trainable_token_indices", f"{vocab},{vocab + 1}")):
        adapter = f"{folder}/adapter{len(more)}"
        train(txtrain, folder, adapter, "--resize_token_embeddings", "--learning_rate", "1e-2", "--lora_r", "4", *more)
        base = load(folder)
        base.resize_token_embeddings(vocab + 2)
        wanted = logits(PeftModel.from_pretrained(base, adapter).eval(), ids)
        off.append(greatest(ours(txgen, folder, ids, "--adapter", adapter), wanted))
    for how in ({}, dict(modules_to_save=["lm_head", "embed_tokens"]),
                dict(trainable_token_indices=[vocab, 5, vocab + 1])):
        base = load(folder)
        base.resize_token_embeddings(vocab + 3)
        config = LoraConfig(r=4, task_type="CAUSAL_LM", target_modules=["q_proj"], **how)
        model = get_peft_model(base, config)
        for weight in model.parameters():
            weight.data += 0.05 * weight.requires_grad * torch.randn_like(weight)
        model.save_pretrained(f"{folder}/peft{len(off)}")
        off.append(greatest(ours(txgen, folder, ids, "--model", folder, "--adapter", f"{folder}/peft{len(off)}"),
                            logits(model.eval(), ids)))
    check(max(off) <= 5e-6 and off == [x for x in off if x >= 0], f"{name}: logits of adapters differ by {off}")
    print(f"{name}: logits of adapters {off}")


def main():
    for name, config in (("llama", LlamaConfig(vocab_size=97, **FAMILY)),
                         ("qwen2", Qwen2Config(vocab_size=97, tie_word_embeddings=True, **FAMILY))):
        with tempfile.TemporaryDirectory() as folder:
            compare(name, *sys.argv[1:], folder, config)
    return status()


if __name__ == "__main__":
    sys.exit(main())
