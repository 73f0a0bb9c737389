# SPDX-License-Identifier: Apache-2.0
"""Trains small encoders for multiple choice by txtrain, and by transformers on the same rows, as run_swag.py does.
Compares 20 losses, and in the saved folder the predictions and the accuracy.

    choice.py TXTRAIN [DEVICE]      exit status 77: something is missing
"""
import json
import os
import random
import shutil
import sys
import tempfile

from oracle import check, status
from training import Training, adamw, loads, mrpc, need, tokenizer_file

import torch
import transformers
from transformers import PreTrainedTokenizerFast

torch.set_num_threads(1)
TOKENIZER = tokenizer_file("bert-base-uncased-tokenizer.json")
BLOCK, BATCH, STEPS, SEED, RATE, ENDINGS = 40, 3, 20, 5, 1e-3, 4
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
         "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SMALL = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "dropout": 0.0, "attention_dropout": 0.0,
         "seq_classif_dropout": 0.0}
MODERN = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
FAMILIES = {"Bert": SIZES, "Roberta": SIZES, "DistilBert": SMALL,
            "Electra": dict(SIZES, embedding_size=16, summary_last_dropout=0.0),
            "DebertaV2": dict(SIZES, relative_attention=True, position_buckets=16, norm_rel_ebd="layer_norm",
                              share_att_key=True, pos_att_type="p2c|c2p", position_biased_input=False),
            "ModernBert": dict(MODERN, local_attention=16, pad_token_id=0, classifier_pooling="mean")}

need(TOKENIZER)


def rows_of(count):
    random.seed(2)
    rows = []
    for row in mrpc()[:count]:
        words = row[4].split()
        right = random.randrange(ENDINGS)
        endings = [" ".join(random.sample(words[3:], len(words) - 3)) for _ in range(ENDINGS)]
        endings[right] = " ".join(words[3:])
        rows.append(dict({"sent1": row[3], "sent2": " ".join(words[:3]), "label": right},
                         **{f"ending{i}": ending for i, ending in enumerate(endings)}))
    return rows


def batch_of(rows, tokenizer):
    first = [row["sent1"] for row in rows for _ in range(ENDINGS)]
    second = [f"{row['sent2']} {row[f'ending{i}']}" for row in rows for i in range(ENDINGS)]
    batch = tokenizer(first, second, truncation=True, max_length=BLOCK, padding="max_length", return_tensors="pt")
    batch = {key: values.view(len(rows), ENDINGS, -1) for key, values in batch.items()}
    return dict(batch, labels=torch.tensor([row["label"] for row in rows]))


def compare(work, program, device, family, rows, dev):
    t = Training(program, family, work, steps=STEPS, batch=BATCH, rate=RATE, max_seq_length=BLOCK, device=device,
                 seed=SEED)
    start = t.path("start")
    names = ["input_ids", "attention_mask"] + (["token_type_ids"] if family in ("Bert", "Electra") else [])
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=TOKENIZER, pad_token="[PAD]", model_input_names=names)
    plain = family == "DistilBert"
    kind = getattr(transformers, family + "ForMultipleChoice")
    torch.manual_seed(0)
    config = getattr(transformers, family + "Config")(vocab_size=len(tokenizer), max_position_embeddings=BLOCK + 8,
                                                      initializer_range=0.1, **FAMILIES[family])
    if family == "Roberta":  # TX always passes token types; the tokenizer of RoBERTa has only type 0
        config.type_vocab_size = 1
        with open(TOKENIZER, encoding="utf-8") as file:
            text = json.load(file)
        for item in text["post_processor"]["pair"]:
            next(iter(item.values()))["type_id"] = 0
        path = os.path.join(work, "roberta.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(text, file)
    getattr(transformers, family + "Model")(config).save_pretrained(start)
    shutil.copy(path if family == "Roberta" else TOKENIZER, os.path.join(start, "tokenizer.json"))
    t.rows(rows, dev)
    head = t.head(start, task_name="multiple_choice")
    end = t.train(head, do_predict=True, test_file=t.given["validation_file"],
                  **(dict(learning_rate=0.05, optim="sgd") if plain else {}))
    # transformers makes a pooler for ELECTRA-like bodies only if the class has one.
    model = loads(kind, head, family, unexpected_only=True).train()
    # The loss does not depend on a bias that is added to all endings, so its gradient is rounding noise, which Adam
    # makes a step of full size. DistilBERT's ReLU turns such a step into another loss.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05) if plain else adamw(model, RATE)
    said = t.compare(model, lambda part: model(**batch_of([rows[n] for _, n in part], tokenizer)).loss, 1e-5, optimizer,
                     learns=False)
    trained = kind.from_pretrained(end).eval()
    batch = batch_of(dev, tokenizer)
    with torch.no_grad():
        out = trained(**batch)
    guess = out.logits.argmax(-1)
    accuracy = (guess == batch["labels"]).double().mean().item()
    t.results(accuracy=accuracy, loss=out.loss.item())
    check([int(line) for line in t.predictions()] == guess.tolist(), f"{family}: the predictions differ")
    print(f"{said}, accuracy {accuracy:.4f}")


def main():
    program, device = sys.argv[1], (sys.argv[2:] or ["cpu"])[0]
    rows = rows_of(90)
    with tempfile.TemporaryDirectory() as work:
        for family in FAMILIES:
            compare(work, program, device, family, rows[:40], rows[40:])
    return status()


sys.exit(main())
