# SPDX-License-Identifier: Apache-2.0
"""Trains small encoders for multiple choice by txtrain, and by transformers on the same rows, as run_swag.py does.
Compares 20 losses, and in the saved folder the predictions and the accuracy.

    choice.py TXTRAIN [DEVICE]      exit status 77: something is missing
"""
import json
import math
import os
import random
import shutil
import sys
import tempfile

from oracle import DATA, check, log_of, read_json, run, skip, status

import torch
import transformers
from transformers import PreTrainedTokenizerFast

torch.set_num_threads(1)
TOKENIZER = os.path.join(DATA, "tokenizers", "bert-base-uncased-tokenizer.json")
MRPC = os.path.join(DATA, "glue", "MRPC", "dev_408.tsv")
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

if not os.path.exists(TOKENIZER) or not os.path.exists(MRPC):
    skip(f"no tokenizer or no MRPC in {DATA}")


def rows_of(count):
    with open(MRPC, encoding="utf-8") as file:
        texts = [line.rstrip("\n").split("\t") for line in file][1:count + 1]
    random.seed(2)
    rows = []
    for row in texts:
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


def train_here(model, optimizer, rows, samples, tokenizer):
    losses, at = [], 0
    for _ in range(STEPS):
        size = min(BATCH, sum(e == samples[at][0] for e, _ in samples[at:at + BATCH]))
        loss = model(**batch_of([rows[n] for _, n in samples[at:at + size]], tokenizer)).loss
        at += size
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def compare(work, program, device, family, rows, dev):
    start, head, end, order, train, held = (os.path.join(work, family + name) for name in (
        "start", "head", "end", "order", "train.jsonl", "dev.jsonl"))
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
    for name, part in ((train, rows), (held, dev)):
        with open(name, "w", encoding="utf-8") as file:
            file.write("".join(json.dumps(row) + "\n" for row in part))
    given = dict(train_file=train, validation_file=held, max_seq_length=BLOCK, device=device, seed=SEED,
                 save_strategy="no", do_train=True, threads=1)
    # The first run only makes the head, so that both begin with the same weights.
    done = run(program, task_name="multiple_choice", model_name_or_path=start, max_steps=1, learning_rate=0,
               output_dir=head, **given)
    check(done.returncode == 0, f"{family}: {done.stderr.strip()}")
    done = run(program, model_name_or_path=head, do_eval=True, do_predict=True, test_file=held, max_steps=STEPS,
               per_device_train_batch_size=BATCH, learning_rate=0.05 if plain else RATE, lr_scheduler_type="constant",
               dump_order=order, output_dir=end, optim="sgd" if plain else None, **given)
    check(done.returncode == 0, f"{family}: {done.stderr.strip()}")
    if done.returncode:
        return
    got = log_of(end)[:STEPS]
    with open(order, encoding="utf-8") as file:
        samples = [tuple(map(int, line.split())) for line in file]
    model, info = kind.from_pretrained(head, output_loading_info=True)
    # transformers makes a pooler for ELECTRA-like bodies only if the class has one.
    check(not info["missing_keys"] and not info["unexpected_keys"], f"{family}: transformers loads it with {info}")
    # The loss does not depend on a bias that is added to all endings, so its gradient is rounding noise, which Adam
    # makes a step of full size. DistilBERT's ReLU turns such a step into another loss.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05) if plain else torch.optim.AdamW(
        model.parameters(), lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    want = train_here(model.train(), optimizer, rows, samples, tokenizer)
    worst = max(abs(a - b) for a, b in zip(got, want)) if len(got) == STEPS else math.inf
    check(worst <= 1e-5, f"{family}: losses differ by {worst}: {[a - b for a, b in zip(got, want)]}")
    trained = kind.from_pretrained(end).eval()
    batch = batch_of(dev, tokenizer)
    with torch.no_grad():
        out = trained(**batch)
    guess = out.logits.argmax(-1)
    accuracy = (guess == batch["labels"]).double().mean().item()
    results = read_json(end, "eval_results.json")
    check(abs(results["eval_accuracy"] - accuracy) <= 1e-12, f"{family}: {results['eval_accuracy']}, {accuracy}")
    check(abs(results["eval_loss"] - out.loss.item()) <= 1e-5, f"{family}: {results['eval_loss']}, {out.loss.item()}")
    with open(os.path.join(end, "predict_results.txt"), encoding="utf-8") as file:
        lines = [int(line.split("\t")[1]) for line in file.read().splitlines()[1:]]
    check(lines == guess.tolist(), f"{family}: the predictions differ")
    print(f"{family}: {STEPS} losses from {got[0]:.4f} to {got[-1]:.4f} within {worst:.1e}, accuracy {accuracy:.4f}")


def main():
    program, device = sys.argv[1], (sys.argv[2:] or ["cpu"])[0]
    rows = rows_of(90)
    with tempfile.TemporaryDirectory() as work:
        for family in FAMILIES:
            compare(work, program, device, family, rows[:40], rows[40:])
    return status()


sys.exit(main())
