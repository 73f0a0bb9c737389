# SPDX-License-Identifier: Apache-2.0
"""Compares training with transformers' Trainer: the same weights, blocks, order, options. Compares the learning
rates of every scheduler, epochs, losses, evaluations, and the keys of trainer_state.json.

    trainer.py TXTRAIN DEVICE      exit status 77: transformers is not installed, or there is no such device
"""
import json
import math
import os
import sys
import tempfile

from oracle import check, need_device, read_json, run, status

import accelerate  # noqa: F401 (the Trainer needs it)
import torch
from transformers import (AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config,
                          Trainer, TrainingArguments)

STEPS, BATCH, ACCUMULATION, BLOCK, EVAL_BATCH = 60, 3, 2, 24, 4
TOLERANCE = 1e-4
COMMON = dict(max_steps=STEPS, per_device_train_batch_size=BATCH, gradient_accumulation_steps=ACCUMULATION,
              per_device_eval_batch_size=EVAL_BATCH, learning_rate=2e-3, weight_decay=0.1, adam_beta2=0.99,
              max_grad_norm=0.5, logging_steps=7, eval_strategy="steps", eval_steps=20, save_strategy="no", seed=3)
SCHEDULERS = [("linear", 5, None), ("cosine", 7, None), ("constant", 5, None), ("constant_with_warmup", 9, None),
              ("polynomial", 4, {"power": 2.0}), ("warmup_stable_decay", 6, {"num_decay_steps": 20}),
              ("reduce_lr_on_plateau", 5, {"patience": 0, "factor": 0.5, "threshold": 0.5}),
              ("greedy", 0, {"patience": 0, "factor": 0.5, "min_lr": 1e-5, "threshold": 0.01})]
FAMILY = dict(vocab_size=257, max_position_embeddings=32, hidden_size=36, intermediate_size=55, num_hidden_layers=2,
              num_attention_heads=6, num_key_value_heads=2, bos_token_id=256, eos_token_id=256)
MODELS = {
    "gpt2": GPT2Config(vocab_size=257, n_positions=32, n_embd=36, n_layer=2, n_head=3, embd_pdrop=0.0, attn_pdrop=0.0,
                       resid_pdrop=0.0, bos_token_id=256, eos_token_id=256),
    "llama": LlamaConfig(**FAMILY, attention_bias=True),
    "mistral": MistralConfig(**FAMILY, head_dim=8),
    "qwen2": Qwen2Config(**FAMILY, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**FAMILY, head_dim=8),
}


def write_texts(folder):
    """Lines that a small model can learn; their number of blocks leaves a partial batch and a short last step."""
    for name, lines in (("train", 173), ("valid", 31)):
        with open(f"{folder}/{name}.txt", "w", encoding="utf-8") as file:
            for i in range(lines):
                file.write(f"{name} {i}: the {('cat', 'dog', 'bird')[i * i % 3]} saw {i % 7} fish\n")


class Blocks(torch.utils.data.Dataset):
    """The bytes of a file, cut as run_clm's group_texts cuts."""

    def __init__(self, path):
        with open(path, "rb") as file:
            data = torch.tensor(list(file.read()))
        self.rows = data[:len(data) // BLOCK * BLOCK].reshape(-1, BLOCK)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class Replay(torch.utils.data.Sampler):
    """The order that txtrain wrote: a line a sample, epoch and block."""

    def __init__(self, path, size):
        self.size, self.epoch, self.order = size, -1, {}
        with open(path, encoding="utf-8") as file:
            for line in file:
                epoch, block = map(int, line.split())
                self.order.setdefault(epoch, []).append(block)

    def __len__(self):
        return self.size

    def __iter__(self):
        self.epoch += 1
        order = self.order[self.epoch]
        return iter(order + [0] * (self.size - len(order)))  # the last epoch ends early


class ReplayTrainer(Trainer):
    replay = None

    def _get_train_sampler(self, *_):
        return self.replay


def make_model(config, folder):
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def run_ours(program, device, folder, out, model, scheduler, warmup, settings):
    arguments = dict(COMMON, model_name_or_path=f"{folder}/{model}", train_file=f"{folder}/train.txt",
                     validation_file=f"{folder}/valid.txt", do_train=True, do_eval=True, output_dir=out,
                     block_size=BLOCK, lr_scheduler_type=scheduler, warmup_steps=warmup, dump_order=f"{out}.order",
                     device=device)
    if settings:
        arguments["lr_scheduler_kwargs"] = json.dumps(settings)
    with open(f"{out}.json", "w", encoding="utf-8") as file:
        json.dump(arguments, file)
    done = run(program, f"{out}.json")
    if done.returncode:
        sys.exit(f"FAIL: txtrain: {done.stderr}")


def run_theirs(folder, out, ours, model, scheduler, warmup, settings):
    model = AutoModelForCausalLM.from_pretrained(f"{folder}/{model}", attn_implementation="eager", dtype=torch.float32)
    # The Trainer recognizes a loss that shifts its labels by the name of the class, but not GPT-2's. It would count the
    # first token of each row as a label too, and divide by 24 instead of the 23 predicted tokens.
    model.loss_type = "ForCausalLM"
    arguments = TrainingArguments(**COMMON, output_dir=out, lr_scheduler_type=scheduler, warmup_steps=warmup,
                                  lr_scheduler_kwargs=settings, report_to="none", disable_tqdm=True, use_cpu=True)
    train, valid = Blocks(f"{folder}/train.txt"), Blocks(f"{folder}/valid.txt")
    trainer = ReplayTrainer(model=model, args=arguments, train_dataset=train, eval_dataset=valid)
    trainer.replay = Replay(f"{ours}.order", len(train))
    trainer.train()
    trainer.save_state()
    metrics = trainer.evaluate()
    check(len(train) % BATCH and math.ceil(len(train) / BATCH) % ACCUMULATION, "no partial batch, so nothing is tested")
    return math.exp(metrics["eval_loss"])


def near(a, b, tolerance):
    return a is not None and b is not None and abs(a - b) <= tolerance


def compare_entries(name, ours, theirs):
    where = f"{name}, step {theirs['step']}"
    check(ours["step"] == theirs["step"], f"{where}: ours is of step {ours['step']}")
    check(set(ours) == set(theirs), f"{where}: keys {sorted(ours)}, the Trainer's {sorted(theirs)}")
    check(near(ours["epoch"], theirs["epoch"], 1e-12), f"{where}: epoch {ours['epoch']} and {theirs['epoch']}")
    for key, tolerance in (("loss", TOLERANCE), ("eval_loss", TOLERANCE), ("train_loss", TOLERANCE),
                           ("learning_rate", 1e-12), ("total_flos", 0.5)):
        if key in theirs:
            check(near(ours.get(key), theirs[key], tolerance), f"{where}: {key} {ours.get(key)} and {theirs[key]}")
    if "grad_norm" in theirs:
        check(near(ours["grad_norm"] / theirs["grad_norm"], 1, 1e-2), f"{where}: grad_norm {ours['grad_norm']}, "
              f"{theirs['grad_norm']}")


def compare(name, out, reference, perplexity):
    ours, theirs = read_json(out, "trainer_state.json"), read_json(reference, "trainer_state.json")
    check(set(ours) == set(theirs), f"{name}: keys {sorted(set(ours) ^ set(theirs))} are not in both")
    for key in ("global_step", "max_steps", "num_train_epochs", "logging_steps", "eval_steps", "train_batch_size"):
        check(ours[key] == theirs[key], f"{name}: {key} {ours[key]} and {theirs[key]}")
    check(near(ours["epoch"], theirs["epoch"], 1e-12), f"{name}: epoch")
    log, reference_log = ours["log_history"], theirs["log_history"]
    check(len(log) == len(reference_log), f"{name}: {len(log)} entries, the Trainer has {len(reference_log)}")
    for a, b in zip(log, reference_log):
        compare_entries(name, a, b)
    losses = [entry["loss"] for entry in reference_log if "loss" in entry]
    check(losses[-1] < losses[0] - 0.5 or name.endswith("constant"), f"{name}: little was learned: {losses}")
    check(near(read_json(out, "eval_results.json")["perplexity"] / perplexity, 1, TOLERANCE), f"{name}: perplexity")
    worst = max(abs(a["loss"] - b["loss"]) for a, b in zip(log, reference_log) if "loss" in b)
    print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, within {worst:.2g}; perplexity {perplexity:.4f}")


def main():
    program, device = sys.argv[1:]
    need_device(program, device)
    with tempfile.TemporaryDirectory() as folder:
        write_texts(folder)
        for model, config in MODELS.items():
            make_model(config, f"{folder}/{model}")
        runs = [("gpt2", *row) for row in SCHEDULERS] + [(model, *SCHEDULERS[0]) for model in MODELS if model != "gpt2"]
        for run in runs:
            name = f"{run[0]}, {run[1]}"
            ours, theirs = f"{folder}/ours-{run[0]}-{run[1]}", f"{folder}/theirs-{run[0]}-{run[1]}"
            run_ours(program, device, folder, ours, *run)
            perplexity = run_theirs(folder, theirs, ours, *run)
            compare(name, ours, theirs, perplexity)
    os._exit(status())  # PyTorch's threads may outlive a plain exit


main()
