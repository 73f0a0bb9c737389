# SPDX-License-Identifier: Apache-2.0
"""Trains a small BERT with lists of labels by txtrain, and by transformers on the same rows, as run_classification.py
does. Compares 30 losses (binary cross-entropy). In a folder of TX that transformers reads, compares predictions, loss,
F1 (micro) and the accuracy of whole lists, by scikit-learn or, without it, by their formulas.

    multi_label.py TXTRAIN [DEVICE]      exit status 77: something is missing
"""
import json
import math
import os
import shutil
import sys
import tempfile

from oracle import DATA, check, log_of, read_json, run, skip, status

import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

torch.set_num_threads(1)
TOKENIZER = os.path.join(DATA, "tokenizers", "bert-base-uncased-tokenizer.json")
MRPC = os.path.join(DATA, "glue", "MRPC", "dev_408.tsv")
BLOCK, BATCH, STEPS, SEED, RATE = 32, 4, 30, 11, 3e-3
LABELS = ["comma", "digit", "long", "name", "the"]

if not os.path.exists(TOKENIZER) or not os.path.exists(MRPC):
    skip(f"no tokenizer or no MRPC in {DATA}")


def labels_of(text):
    """Some of LABELS, in any order; often none."""
    words = text.split()
    has = {"the": "the" in words, "long": len(words) > 22, "comma": text.count(",") > 1,
           "digit": any(c.isdigit() for c in text), "name": words[0] in ("He", "She", "They")}
    return [label for label in reversed(LABELS) if has[label]]


def batch_of(rows, tokenizer):
    batch = tokenizer([text for text, _ in rows], truncation=True, max_length=BLOCK, padding="max_length",
                      return_tensors="pt")
    labels = torch.tensor([[float(label in has) for label in LABELS] for _, has in rows])
    return dict(batch, labels=labels)


def train_here(model, rows, samples, tokenizer):
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    losses, at = [], 0
    for _ in range(STEPS):
        epoch = samples[at][0]
        size = min(BATCH, sum(e == epoch for e, _ in samples[at:at + BATCH]))
        loss = model(**batch_of([rows[n] for _, n in samples[at:at + size]], tokenizer)).loss
        at += size
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def score(truth, guess):
    try:
        from sklearn.metrics import accuracy_score, f1_score
        return f1_score(truth, guess, average="micro"), accuracy_score(truth, guess), "scikit-learn"
    except ImportError:
        right = (truth * guess).sum().item()
        return (2 * right / (truth.sum() + guess.sum()).item(),
                (truth == guess).all(-1).double().mean().item(), "the formulas")


def main():
    program, device = sys.argv[1], (sys.argv[2:] or ["cpu"])[0]
    with open(MRPC, encoding="utf-8") as file:
        texts = [line.rstrip("\n").split("\t")[3] for line in file][1:]
    rows = [(text, labels_of(text)) for text in texts]
    rows, dev = rows[:90], rows[90:150]
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=TOKENIZER, pad_token="[PAD]")
    with tempfile.TemporaryDirectory() as work:
        start, head, end, order, train, held = (os.path.join(work, name) for name in (
            "start", "head", "end", "order", "train.jsonl", "dev.jsonl"))
        torch.manual_seed(0)
        BertModel(BertConfig(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                             intermediate_size=48, max_position_embeddings=BLOCK, hidden_dropout_prob=0.0,
                             attention_probs_dropout_prob=0.0)).save_pretrained(start)
        shutil.copy(TOKENIZER, os.path.join(start, "tokenizer.json"))
        for path, part in ((train, rows), (held, dev)):
            with open(path, "w", encoding="utf-8") as file:
                file.write("".join(json.dumps({"text": text, "label": labels}) + "\n" for text, labels in part))
        given = dict(train_file=train, validation_file=held, label_column_name="label", max_seq_length=BLOCK,
                     device=device, seed=SEED, save_strategy="no", do_train=True)
        # The first run only makes the head, so that both begin with the same weights.
        done = run(program, model_name_or_path=start, max_steps=1, learning_rate=0, output_dir=head, **given)
        check(done.returncode == 0, done.stderr.strip())
        done = run(program, model_name_or_path=head, do_eval=True, do_predict=True, test_file=held, max_steps=STEPS,
                   per_device_train_batch_size=BATCH, learning_rate=RATE, lr_scheduler_type="constant",
                   dump_order=order, output_dir=end, **given)
        check(done.returncode == 0, done.stderr.strip())
        if done.returncode:
            return status()
        got = log_of(end)[:STEPS]
        with open(order, encoding="utf-8") as file:
            samples = [tuple(map(int, line.split())) for line in file]
        model, info = BertForSequenceClassification.from_pretrained(head, output_loading_info=True)
        check(not any(info.values()) and list(model.config.id2label.values()) == LABELS
              and model.config.problem_type == "multi_label_classification",
              f"transformers loads the folder with {info}, {model.config.id2label}, {model.config.problem_type}")
        want = train_here(model.train(), rows, samples, tokenizer)
        worst = max(abs(a - b) for a, b in zip(got, want)) if len(got) == STEPS else math.inf
        check(worst <= 1e-4, f"losses differ by {worst}")
        check(got[-1] < got[0], "nothing is learnt")
        trained = BertForSequenceClassification.from_pretrained(end).eval()
        batch = batch_of(dev, tokenizer)
        with torch.no_grad():
            out = trained(**batch)
        truth, guess = batch["labels"].long(), (out.logits > 0).long()
        f1, accuracy, by = score(truth, guess)
        results = read_json(end, "eval_results.json")
        check(abs(results["eval_f1"] - f1) <= 1e-12 and abs(results["eval_accuracy"] - accuracy) <= 1e-12,
              f"F1 {results['eval_f1']}, accuracy {results['eval_accuracy']}; {by}: {f1}, {accuracy}")
        check(abs(results["eval_loss"] - out.loss.item()) <= 1e-5,
              f"eval_loss {results['eval_loss']}, transformers' {out.loss.item()}")
        check(0 < f1 < 1 and 0 < accuracy < 1, f"F1 {f1} and accuracy {accuracy} say little")
        with open(os.path.join(end, "predict_results.txt"), encoding="utf-8") as file:
            lines = [line.split("\t", 1)[1] for line in file.read().splitlines()[1:]]
        check([json.loads(line) for line in lines] == [[LABELS[i] for i in row.nonzero()[:, 0]] for row in guess],
              "the predictions differ")
        print(f"{device}: {STEPS} losses from {got[0]:.4f} to {got[-1]:.4f} within {worst:.1e}, F1 {f1:.4f} and "
              f"accuracy {accuracy:.4f} as {by} has them")
    return status()


sys.exit(main())
