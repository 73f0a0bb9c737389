#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Learns from the completions and rewards of golden.json by txtrain: losses, gradient norms, metrics and weights equal
those of TRL's GRPOTrainer and RLOOTrainer.

    rewards_golden.py TXTRAIN LAUNCHER DEVICE      exit status 77: the golden values or the device are absent
"""
import array
import json
import math
import os
import struct
import sys
import tempfile

from oracle import DATA, check, need_device, read_json, run, skip, status

FOLDER = os.path.join(DATA, "grpo")
TOLERANCE = 1e-5
# The ranks of TX have other rows than TRL's, and the greatest share is the mean of the ranks'. So on two ranks, means
# over tokens are those of one rank, whose micro-batches have the same rows.
OTHER_ON_RANKS = ("clip_ratio/low_min", "clip_ratio/high_max")
TOKEN_MEANS = ("kl", "entropy", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean")
# On OpenCL, a case of each form but entropy_quantile: there rounding, which differs between drivers, decides about a token
# at the quantile.
FEW = {"grpo_beta0.04", "dapo_high", "gspo", "cispo", "sapo", "rloo_beta0.05", "entropy_bonus", "vespo"}
RENAMED = {"use_bias_correction_kl": lambda value: str(value).lower()}


def load(path):
    """The tensors of a safetensors file of fp32."""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: array.array("f", data[slice(*tensor["data_offsets"])]) for name, tensor in header.items()}


def near(got, want):
    return abs(got - want) <= TOLERANCE * max(1.0, abs(want))


def options_of(golden, case):
    changed = dict(case["options"])
    rloo = changed.pop("trainer", None) == "rloo"
    all_options = {**golden["base_options"], **changed}
    for name in ("optim", "adam_epsilon", "weight_decay", "shuffle_dataset", "bf16", "use_cpu",
                 "gradient_checkpointing", "save_strategy", "report_to", "disable_tqdm"):
        del all_options[name]
    for name, change in RENAMED.items():
        if name in all_options:
            all_options[name] = change(all_options[name])
    return {"task_name": "rloo" if rloo else "grpo", **all_options}


def write_inputs(golden, work):
    with open(os.path.join(work, "prompts.jsonl"), "w", encoding="utf-8") as file:
        for prompt in golden["prompts"]:
            file.write(json.dumps({"prompt": prompt["text"]}) + "\n")
    with open(os.path.join(work, "rollouts.jsonl"), "w", encoding="utf-8") as file:
        for sample in golden["samples"]:
            rewards = dict(zip(("reward_a", "reward_b"), sample["rewards"]))
            file.write(json.dumps({"completion_ids": sample["completion_ids"], "rewards": rewards}) + "\n")


def compare_weights(name, case, folder):
    tensors = load(os.path.join(folder, "model.safetensors"))
    check(tensors.keys() == case["weights"].keys(), f"{name}: the names of the weights")
    for key, want in case["weights"].items():
        values = tensors[key]
        if isinstance(want, dict):
            check(near(sum(values), want["sum"]), f"{name}: {key}: sum {sum(values)}, not {want['sum']}")
            for got, first in zip(values, want["first"]):
                check(near(got, first), f"{name}: {key}: {got}, not {first}")
            want = want["norm"]
        norm = math.sqrt(sum(value * value for value in values))
        check(near(norm, want), f"{name}: {key}: norm {norm}, not {want}")


def compare(golden, name, start, device, work, suffix=""):
    case, folder = golden["cases"][name], os.path.join(work, name + suffix)
    done = run(*start, **options_of(golden, case), model_name_or_path=os.path.join(FOLDER, "model"),
               train_file=os.path.join(work, "prompts.jsonl"), rollout_file=os.path.join(work, "rollouts.jsonl"),
               max_seq_length=32, device=device, threads=1, save_strategy="no", output_dir=folder)
    check(done.returncode == 0, f"{name}: status {done.returncode}: {done.stderr}")
    if done.returncode:
        return
    rows = [row for row in read_json(folder, "trainer_state.json")["log_history"] if "loss" in row]
    check(len(rows) == len(case["steps"]), f"{name}: {len(rows)} steps")
    for step, (row, want) in enumerate(zip(rows, case["steps"]), 1):
        for key, value in want.items():
            if key in row or value is not None:
                check(near(row.get(key, math.nan), value),
                      f"{name}: step {step}: {key} {row.get(key)}, not {value}")
    compare_weights(name, case, folder)


def main(txtrain, launcher, device):
    if not os.path.exists(os.path.join(FOLDER, "golden.json")):
        skip(f"no {FOLDER}/golden.json")
    need_device(txtrain, device)
    golden = read_json(FOLDER, "golden.json")
    with tempfile.TemporaryDirectory() as work:
        write_inputs(golden, work)
        for name in golden["cases"]:
            if device == "cpu" or name in FEW:
                compare(golden, name, [txtrain], device, work)
        if launcher and device == "cpu":
            alone, golden = golden, read_json(FOLDER, "golden_2_ranks.json")
            for name, case in golden["cases"].items():
                for step, one in zip(case["steps"], alone["cases"][name]["steps"]):
                    step.update((key, one[key]) for key in TOKEN_MEANS if key in step and "bnpo" not in name)
                    for key in OTHER_ON_RANKS + (TOKEN_MEANS if "bnpo" in name else ()):
                        step.pop(key, None)
                compare(golden, name, [*launcher.split(), "-n", "2", txtrain], device, work, "_ranks")
    return status()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
