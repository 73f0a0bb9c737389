# SPDX-License-Identifier: Apache-2.0
"""Writes bert_golden.h: results of transformers, in double precision, for a BERT whose weights follow from a formula.

    bert_golden.py > bert_golden.h

Element i of parameter p, in TX's order, is 0.2 sin(0.7 i + p). Weights of norms are greater by 1."""
import sys

import torch
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

BATCH, BLOCK, LABELS = 3, 7, 3
CONFIG = BertConfig(vocab_size=23, hidden_size=15, num_hidden_layers=2, num_attention_heads=3, intermediate_size=19,
                    max_position_embeddings=9, num_labels=LABELS, hidden_dropout_prob=0.0,
                    attention_probs_dropout_prob=0.0, attn_implementation="eager")


def names(kind):
    part = "attention.self."
    yield from ("bert.embeddings." + name for name in (
        "word_embeddings.weight", "position_embeddings.weight", "token_type_embeddings.weight", "LayerNorm.weight",
        "LayerNorm.bias"))
    for layer in range(CONFIG.num_hidden_layers):
        for name in (part + "query|key|value", "attention.output.dense", "attention.output.LayerNorm",
                     "intermediate.dense", "output.dense", "output.LayerNorm"):
            yield f"bert.encoder.layer.{layer}.{name}.weight"
            yield f"bert.encoder.layer.{layer}.{name}.bias"
    if kind is BertForSequenceClassification:
        yield from (f"{name}.{half}" for name in ("bert.pooler.dense", "classifier") for half in ("weight", "bias"))
    else:
        yield from (f"cls.predictions.transform.{name}.{half}" for name in ("dense", "LayerNorm")
                    for half in ("weight", "bias"))
        yield "cls.predictions.bias"


def parts(name):
    before, found, after = name.partition("query|key|value")
    return [before + one + after for one in ("query", "key", "value")] if found else [name]


def compute(kind, labels):
    model = kind(CONFIG).double().train()
    params = dict(model.named_parameters())
    assert sorted(part for name in names(kind) for part in parts(name)) == sorted(params)
    with torch.no_grad():
        for p, name in enumerate(names(kind)):
            group = [params[part] for part in parts(name)]
            values = 0.2 * torch.sin(0.7 * torch.arange(sum(g.numel() for g in group), dtype=torch.double) + p)
            for g, piece in zip(group, values.split([g.numel() for g in group])):
                g.copy_(piece.view_as(g) + (1.0 if name.endswith("LayerNorm.weight") else 0.0))
    place = torch.arange(BATCH * BLOCK).view(BATCH, BLOCK)
    lengths = torch.tensor([7, 1, 4])
    mask = (torch.arange(BLOCK) < lengths[:, None]).long()
    out = model(input_ids=1 + place * 5 % 22, token_type_ids=place % 3 // 2, attention_mask=mask, labels=labels)
    out.loss.backward()
    norms = [sum(params[part].grad.square().sum() for part in parts(name)).sqrt().item() for name in names(kind)]
    real = out.logits if kind is BertForSequenceClassification else out.logits[mask.bool()][:, ::11]
    return real.detach().flatten().tolist(), norms, out.loss.item()


def show(name, values):
    print(f"static const double {name}[] = {{")
    for i in range(0, len(values), 6):
        print("    " + " ".join(f"{value:.9g}," for value in values[i:i + 6]))
    print("};")


place = torch.arange(BATCH * BLOCK).view(BATCH, BLOCK)
inside = torch.arange(BLOCK) < torch.tensor([7, 1, 4])[:, None]
print(f"""/* SPDX-License-Identifier: Apache-2.0
 * Made by bert_golden.py: logits, the norm of each parameter's gradient, and the loss. */
/* clang-format off */""")
for title, kind, labels in (("classifier", BertForSequenceClassification, torch.tensor([2, 0, 1])),
                            ("masked", BertForMaskedLM, torch.where(inside & (place % 2 == 0), place % 23, -100))):
    logits, gradients, loss = compute(kind, labels)
    show(f"{title}_logits", logits)
    show(f"{title}_gradients", gradients)
    print(f"static const double {title}_loss = {loss:.9g};")
print("/* clang-format on */")
sys.exit(0)
