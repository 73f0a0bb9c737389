#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/train/schedule_golden.h: learning rates of transformers' get_scheduler (needs torch, transformers).

    python3 tests/train/schedule_golden.py > tests/train/schedule_golden.h
"""
import torch
import transformers

CASES = [  # (name here, name in transformers, peak, warm-up steps, total steps)
    ("LINEAR", "linear", 5e-5, 0, 7),
    ("LINEAR", "linear", 1e-3, 3, 10),
    ("LINEAR", "linear", 2e-4, 10, 10),
    ("COSINE", "cosine", 5e-5, 0, 9),
    ("COSINE", "cosine", 6e-4, 4, 12),
    ("CONSTANT", "constant", 3e-4, 0, 5),
    ("CONSTANT", "constant_with_warmup", 3e-4, 4, 8),
]


def main():
    print("/* SPDX-License-Identifier: Apache-2.0")
    print(f" * Rates of transformers {transformers.__version__}, written by tests/train/schedule_golden.py: kind, peak,")
    print(" * warm-up steps, total steps, step, rate. */")
    for kind, name, peak, warmup, total in CASES:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=peak)
        schedule = transformers.get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=total)
        for step in range(total + 2):
            print(f"X({kind}, {peak!r}, {warmup}, {total}, {step}, {schedule.get_last_lr()[0]!r})")
            optimizer.step()
            schedule.step()


main()
