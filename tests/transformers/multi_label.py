# SPDX-License-Identifier: Apache-2.0
"""Trains a small BERT with lists of labels by txtrain, and by transformers on the same rows, as run_classification.py
does. Compares 30 losses (binary cross-entropy). In a folder of TX that transformers reads, compares predictions, loss,
F1 (micro) and the accuracy of whole lists, by scikit-learn or, without it, by their formulas.

    multi_label.py TXTRAIN [DEVICE]      exit status 77: something is missing
"""
import json
import shutil
import sys
import tempfile

from oracle import check, status
from training import Training, loads, mrpc, need, tokenizer_file

import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

torch.set_num_threads(1)
TOKENIZER = tokenizer_file("bert-base-uncased-tokenizer.json")
BLOCK, BATCH, STEPS, SEED, RATE = 32, 4, 30, 11, 3e-3
LABELS = ["comma", "digit", "long", "name", "the"]

need(TOKENIZER)


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
    rows = [(row[3], labels_of(row[3])) for row in mrpc()]
    rows, dev = rows[:90], rows[90:150]
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=TOKENIZER, pad_token="[PAD]")
    with tempfile.TemporaryDirectory() as work:
        t = Training(program, device, work, steps=STEPS, batch=BATCH, rate=RATE, label_column_name="label",
                     max_seq_length=BLOCK, device=device, seed=SEED)
        start = t.path("start")
        torch.manual_seed(0)
        BertModel(BertConfig(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                             intermediate_size=48, max_position_embeddings=BLOCK, hidden_dropout_prob=0.0,
                             attention_probs_dropout_prob=0.0)).save_pretrained(start)
        shutil.copy(TOKENIZER, f"{start}/tokenizer.json")
        t.rows(*([{"text": text, "label": labels} for text, labels in part] for part in (rows, dev)))
        head = t.head(start)
        end = t.train(head, do_predict=True, test_file=t.given["validation_file"])
        model = loads(BertForSequenceClassification, head, device).train()
        check(list(model.config.id2label.values()) == LABELS
              and model.config.problem_type == "multi_label_classification",
              f"transformers loads the folder with {model.config.id2label}, {model.config.problem_type}")
        said = t.compare(model, lambda part: model(**batch_of([rows[n] for _, n in part], tokenizer)).loss, 1e-4)
        trained = BertForSequenceClassification.from_pretrained(end).eval()
        batch = batch_of(dev, tokenizer)
        with torch.no_grad():
            out = trained(**batch)
        truth, guess = batch["labels"].long(), (out.logits > 0).long()
        f1, accuracy, by = score(truth, guess)
        t.results(f1=f1, accuracy=accuracy, loss=out.loss.item())
        check(0 < f1 < 1 and 0 < accuracy < 1, f"F1 {f1} and accuracy {accuracy} say little")
        check([json.loads(line) for line in t.predictions()] == [[LABELS[i] for i in row.nonzero()[:, 0]]
                                                                 for row in guess], "the predictions differ")
        print(f"{said}, F1 {f1:.4f} and accuracy {accuracy:.4f} as {by} has them")
    return status()


sys.exit(main())
