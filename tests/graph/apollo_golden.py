# SPDX-License-Identifier: Apache-2.0
"""Prints the rows of APOLLO in test_optimizer_vectors.c: four numbers after 20 updates by the package apollo_torch in
double precision, with TX's projections of key 1.

    apollo_golden.py      needs apollo_torch"""
import torch

from projection import apollo

START = [1.0, -0.5, 0.25, 2.0]
GRADIENTS = [[0.1, -0.2, 0.3, -0.4], [0.3, 0.1, -0.2, 0.05], [-0.25, 0.5, 0.1, 0.2]]
ROWS = [((2, 2), dict(rank=2, scale=1.0, scale_type="channel", update_proj_gap=3), {}),
        ((1, 4), dict(rank=3, scale=4.0, scale_type="channel", update_proj_gap=200), {"scale_front": True}),
        ((4, 1), dict(rank=1, scale=128.0, scale_type="tensor", update_proj_gap=200), {}),
        ((2, 2), dict(rank=1, scale=2.0, scale_type="channel", update_proj_gap=1), {"disable_nl": True})]

for shape, settings, options in ROWS:
    p = torch.nn.Parameter(torch.tensor(START, dtype=torch.double).view(shape))
    group = {"params": [p], "sites": [1], "proj": "random", "proj_type": "std", "weight_decay": 0.1, **settings}
    optimizer = apollo([group], lr=0.01, betas=(0.9, 0.999), eps=1e-8, **options)
    for step in range(20):
        p.grad = torch.tensor(GRADIENTS[step % 3], dtype=torch.double).view(shape)
        optimizer.step()
    print(shape, settings, options, ", ".join(f"{x:.9g}" for x in p.detach().flatten().tolist()))
