#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/train/schedule_golden.h: learning rates of transformers' get_scheduler (needs torch, transformers).

    python3 tests/train/schedule_golden.py > tests/train/schedule_golden.h
"""
import json
import textwrap

import torch
import transformers

CASES = [  # (name here, name in transformers, peak, warm-up steps, total steps, lr_scheduler_kwargs)
    ("LINEAR", "linear", 5e-5, 0, 7, None),
    ("LINEAR", "linear", 1e-3, 3, 10, None),
    ("LINEAR", "linear", 2e-4, 10, 10, None),
    ("COSINE", "cosine", 5e-5, 0, 9, None),
    ("COSINE", "cosine", 6e-4, 4, 12, None),
    ("COSINE", "cosine", 6e-4, 2, 12, {"num_cycles": 1.25}),
    ("CONSTANT", "constant", 3e-4, 3, 5, None),
    ("CONSTANT_WITH_WARMUP", "constant_with_warmup", 3e-4, 4, 8, None),
    ("POLYNOMIAL", "polynomial", 1e-3, 2, 9, None),
    ("POLYNOMIAL", "polynomial", 1e-3, 0, 9, {"power": 2.5, "lr_end": 1e-5}),
    ("WSD", "warmup_stable_decay", 1e-3, 3, 14, {"num_decay_steps": 5}),
    ("WSD", "warmup_stable_decay", 1e-3, 2, 14, {"num_decay_steps": 4, "min_lr_ratio": 0.1, "decay_type": "linear"}),
    ("WSD", "warmup_stable_decay", 1e-3, 0, 9, {"num_decay_steps": 6, "decay_type": "1-sqrt"}),
    ("WSD", "warmup_stable_decay", 1e-3, 4, 14, {"num_decay_steps": 4, "num_stable_steps": 3, "warmup_type": "cosine"}),
    ("WSD", "warmup_stable_decay", 1e-3, 4, 9, {"num_decay_steps": 2, "warmup_type": "1-sqrt", "min_lr_ratio": 0.2}),
    ("COSINE_WITH_RESTARTS", "cosine_with_restarts", 1e-3, 2, 11, None),
    ("COSINE_WITH_RESTARTS", "cosine_with_restarts", 1e-3, 0, 12, {"num_cycles": 3}),
    ("COSINE_WITH_MIN_LR", "cosine_with_min_lr", 1e-3, 3, 11, {"min_lr": 1e-4}),
    ("COSINE_WITH_MIN_LR", "cosine_with_min_lr", 1e-3, 0, 9, {"min_lr_rate": 0.25, "num_cycles": 0.75}),
    ("COSINE_WARMUP_MIN_LR", "cosine_warmup_with_min_lr", 1e-3, 3, 11, {"min_lr_rate": 0.1}),
    ("COSINE_WARMUP_MIN_LR", "cosine_warmup_with_min_lr", 1e-3, 4, 11, {"min_lr": 2e-4, "warmup_lr_rate": 0.3}),
    ("INVERSE_SQRT", "inverse_sqrt", 1e-3, 4, 12, None),
    ("INVERSE_SQRT", "inverse_sqrt", 1e-3, 0, 7, None),
    ("INVERSE_SQRT", "inverse_sqrt", 1e-3, 3, 9, {"timescale": 5}),
]

METRICS = [4.0, 3.0, 2.5, 2.5, 2.6, 2.4999, 2.7, 2.8, 2.9, 3.0, 2.2, 2.1, 2.0, 1.9, 1.8, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0,
           1.0, 0.5]
ADAPTIVE = [
    ("REDUCE_ON_PLATEAU", "reduce_lr_on_plateau", 1e-3, {"patience": 1}),
    ("REDUCE_ON_PLATEAU", "reduce_lr_on_plateau", 1e-3, {"patience": 0, "factor": 0.5, "cooldown": 2, "min_lr": 2e-4}),
    ("REDUCE_ON_PLATEAU", "reduce_lr_on_plateau", 1e-3, {"patience": 0, "factor": 0.5, "mode": "max", "threshold": 0.3,
                                                        "threshold_mode": "abs"}),
    ("REDUCE_ON_PLATEAU", "reduce_lr_on_plateau", 1e-3, {"patience": 0, "factor": 0.01, "eps": 1e-5}),
    ("REDUCE_ON_PLATEAU", "reduce_lr_on_plateau", 1e-3, {"patience": 2, "mode": "max"}),
    ("GREEDY", "greedy", 1e-2, {"patience": 1}),
    ("GREEDY", "greedy", 1e-4, {"patience": 0, "factor": 0.5}),
    ("GREEDY", "greedy", 1e-2, {"patience": 0, "factor": 0.5, "min_lr": 1e-3, "max_lr": 0.03, "warmup": 1,
                                "cooldown": 1}),
    ("GREEDY", "greedy", 1e-2, {"patience": 0, "factor": 0.1, "reset_start": 2}),
    ("GREEDY", "greedy", 1e-2, {"patience": 0, "factor": 0.1, "reset_start": 2, "cooldown": 1, "warmup": 1}),
    ("GREEDY", "greedy", 1e-2, {"patience": 1, "factor": 0.5, "mode": "max", "threshold": 0.1,
                                "threshold_mode": "rel"}),
]


def adaptive():
    """Rates after each of METRICS."""
    for kind, name, peak, kwargs in ADAPTIVE:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=peak)
        schedule = transformers.get_scheduler(name, optimizer, scheduler_specific_kwargs=kwargs)
        rates = []
        for metric in METRICS:
            schedule.step(metric)
            rates.append(repr(optimizer.param_groups[0]["lr"]))
        text = json.dumps(json.dumps(kwargs, separators=(",", ":")))
        row = f"ADAPTIVE({kind}, {peak!r}, {text}, {', '.join(rates)})"
        print("\n".join(textwrap.wrap(row, 116, subsequent_indent="  ", break_on_hyphens=False,
                                      break_long_words=False)))


def main():
    print("/* SPDX-License-Identifier: Apache-2.0")
    version = transformers.__version__
    print(f" * Rates of transformers {version}, written by tests/train/schedule_golden.py: kind, peak,")
    print(" * warm-up steps, total steps, lr_scheduler_kwargs, the rates of all these steps and of two more. */")
    print("/* clang-format off */")
    for kind, name, peak, warmup, total, kwargs in CASES:
        text = "NULL" if kwargs is None else json.dumps(json.dumps(kwargs))
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=peak)
        schedule = transformers.get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=total,
                                              scheduler_specific_kwargs=kwargs)
        rates = []
        for _ in range(total + 2):
            rates.append(repr(schedule.get_last_lr()[0]))
            optimizer.step()
            schedule.step()
        row = f"X({kind}, {peak!r}, {warmup}, {total}, {text}, {', '.join(rates)})"
        print("\n".join(textwrap.wrap(row, 116, subsequent_indent="  ", break_on_hyphens=False,
                                      break_long_words=False)))
    print("\n".join(textwrap.wrap(f"METRICS({', '.join(map(repr, METRICS))})", 116, subsequent_indent="  ")))
    adaptive()


main()
