# SPDX-License-Identifier: Apache-2.0
"""APOLLO of the package apollo_torch with TX's random projections (op PROJECTION in api/optimizers/ops.def)."""
import math

import torch

SITE, WORD = 0xFFFFFFFE, 0xFFFFFFFF


def philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10 (Salmon et al., 2011)."""
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 & WORD, p0 >> 32 ^ c3 ^ k1, p0 & WORD
        k0, k1 = k0 + 0x9E3779B9 & WORD, k1 + 0xBB67AE85 & WORD
    return c0, c1, c2, c3


def site_of(name, tensor=0):
    """The key of tensor number `tensor` of parameter `name`: FNV-1a."""
    value = 0xCBF29CE484222325
    for byte in name.encode() + tensor.to_bytes(4, "little"):
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return (value ^ value >> 32) & WORD


def projection(rows, rank, site, number, seed=0):
    """TX's projection `number` (from 0) for a tensor: [rows, rank] in double precision."""
    out = torch.empty(rows, rank, dtype=torch.double)
    key1 = seed >> 32 ^ number * 0x85EBCA6B & WORD
    for row in range(rows):
        for column in range(rank):
            draw = philox(column // 4, row, site, SITE, seed & WORD, key1)
            u, v = (((word >> 9) + 0.5) / 2 ** 23 for word in draw[column & 2:(column & 2) + 2])
            size = math.sqrt(-2 * math.log(u) / rank)
            out[row, column] = size * (math.sin if column & 1 else math.cos)(2 * math.pi * v)
    return out


def apollo(parameters, seed=0, **options):
    """The package's optimizer with TX's projections. `parameters` has groups of matrices with their keys in `sites`.
    Seeds of the package count the parameters of all groups from 1."""
    from apollo_torch import APOLLOAdamW
    from apollo_torch.random_projector import GradientProjector

    sites, numbers = {}, {}
    for group in parameters:
        for p, site in zip(group["params"], group.pop("sites", [None] * len(group["params"]))):
            sites[len(sites) + 1] = site

    class Projector(GradientProjector):
        def update_ortho_matrix(self, full_rank_grad, proj_type):
            number = numbers[self.seed] = numbers.get(self.seed, -1) + 1
            left = proj_type == "left"
            matrix = projection(full_rank_grad.shape[0 if left else 1], self.rank, sites[self.seed], number, seed)
            self.ortho_matrix = (matrix if left else matrix.t()).to(full_rank_grad.dtype)

    class Optimizer(APOLLOAdamW):
        def _initialize_projector(self, group, state):
            return Projector(group["rank"], update_proj_gap=group["update_proj_gap"], scale=group["scale"],
                             proj_type=group["proj_type"], seed=state["seed"])

    return Optimizer(parameters, **options)
