# SPDX-License-Identifier: Apache-2.0
"""Compares the tokens that TX draws with the probabilities of transformers' processors and warpers, in the order in which
generate() uses them, and with OpenAI's penalties and XTC, which transformers does not have.

    warpers.py DRAWS      DRAWS: the program draws.c; exit status 77: no transformers
"""
import random
import sys

import oracle

import torch
from transformers.generation import logits_process as processors

TOKENS, COUNT, PROMPT, RANDOM = 60, 40000, 5, 40


def probabilities(scores, before, s):
    """The probabilities of the tokens, and those with XTC."""
    ids = torch.tensor([before])
    if "repetition_penalty" in s:
        scores = processors.RepetitionPenaltyLogitsProcessor(s["repetition_penalty"])(ids, scores)
    counts = torch.bincount(ids[0, PROMPT:], minlength=TOKENS)[None]
    scores = scores - counts * s.get("frequency_penalty", 0) - (counts > 0) * s.get("presence_penalty", 0)
    for name, warper in (("temperature", processors.TemperatureLogitsWarper), ("top_k", processors.TopKLogitsWarper),
                         ("top_p", processors.TopPLogitsWarper), ("min_p", processors.MinPLogitsWarper),
                         ("typical_p", processors.TypicalLogitsWarper)):
        if name in s:
            scores = warper(s[name])(ids, scores)
    plain = scores.softmax(-1)[0]
    over = plain >= s.get("xtc_threshold", 0.1)
    left = plain.masked_fill(over & (plain > plain[over].min()), 0) if over.sum() > 1 else plain
    chance = s.get("xtc_probability", 0)
    return plain * (1 - chance) + left / left.sum() * chance


def check(program, seed, settings):
    lines = oracle.run(program, str(COUNT), str(seed), str(TOKENS), *(f"{n}={v}" for n, v in settings.items())).stdout
    logits, before, counts = ([float(x) for x in line.split()] for line in lines.splitlines())
    p = probabilities(torch.tensor([logits], dtype=torch.float64), [int(i) for i in before], settings)
    for token in range(TOKENS):
        expected = COUNT * float(p[token])
        off, allowed = abs(counts[token] - expected), 5 * (expected * (1 - float(p[token]))) ** 0.5
        oracle.check(off <= allowed, f"{settings}: token {token}: {counts[token]:.0f} draws, expected {expected:.1f}")


def main(program):
    rng = random.Random(4)
    values = {"repetition_penalty": (0.7, 1.8), "presence_penalty": (-2, 2), "frequency_penalty": (-1, 1),
              "temperature": (0.4, 2.5), "top_k": (1, 40), "top_p": (0.05, 1), "min_p": (0, 0.3), "typical_p": (0.1, 1),
              "xtc_probability": (0.2, 1), "xtc_threshold": (0.02, 0.3)}
    cases = [{name: rng.uniform(*values[name])} for name in values]
    cases += [{name: rng.uniform(*values[name]) for name in values if rng.random() < 0.5} for _ in range(RANDOM)]
    for seed, case in enumerate(cases):
        check(program, seed + 1, {n: round(v) if n == "top_k" else round(v, 3) for n, v in case.items()})


main(sys.argv[1])
sys.exit(oracle.status())
