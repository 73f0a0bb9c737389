#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/train/smoothing_golden.h: the loss of transformers' LabelSmoother and its gradient (needs torch, transformers).

    python3 tests/train/smoothing_golden.py > tests/train/smoothing_golden.h
"""
import torch
import transformers
from transformers.trainer_pt_utils import LabelSmoother

ROWS, VOCAB, EPSILON = 6, 11, 0.15
generator = torch.Generator().manual_seed(3)
logits = (4 * torch.randn(ROWS, VOCAB, generator=generator)).requires_grad_()
labels = torch.tensor([3, -100, 0, 10, 7, -100])
loss = LabelSmoother(epsilon=EPSILON)({"logits": logits}, labels)
loss.backward()


def row(values):
    return ", ".join(f"{float(v)!r}f" for v in values)


print("/* SPDX-License-Identifier: Apache-2.0")
print(f" * Loss and gradient of transformers {transformers.__version__}'s LabelSmoother, written by")
print(" * tests/train/smoothing_golden.py. */")
print("/* clang-format off */")
print(f"enum {{ ROWS = {ROWS}, VOCAB = {VOCAB}, LABELS = {int((labels >= 0).sum())} }};")
print(f"static const float epsilon = {EPSILON}f, wanted_loss = {float(loss)!r}f;")
print(f"static const int32_t labels[ROWS] = {{{', '.join(str(int(v)) for v in labels)}}};")
for name, values in (("logits", logits.detach()), ("wanted_gradient", logits.grad)):
    print(f"static const float {name}[ROWS * VOCAB] = {{")
    for line in values:
        print(f"    {row(line)},")
    print("};")
