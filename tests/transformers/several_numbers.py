# SPDX-License-Identifier: Apache-2.0
"""Trains a small BERT on lists of three numbers by txtrain, and by transformers on the same rows (problem_type
regression, the mean squared error). Compares 20 losses; in a folder of TX that transformers reads, compares predictions
and the mean squared error, by scikit-learn.

    several_numbers.py TXTRAIN TXGEN [DEVICE]      exit status 77: something is missing
"""
import json
import shutil
import sys
import tempfile

from oracle import check, run, status
from training import Training, loads, mrpc, need, tokenizer_file

import torch
from sklearn.metrics import mean_squared_error
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

torch.set_num_threads(1)
TOKENIZER = tokenizer_file("bert-base-uncased-tokenizer.json")
BLOCK, BATCH, STEPS, SEED, RATE = 32, 4, 20, 11, 1e-3

need(TOKENIZER)


def batch_of(rows, tokenizer):
    batch = tokenizer([text for text, _ in rows], truncation=True, max_length=BLOCK, padding="max_length",
                      return_tensors="pt")
    return dict(batch, labels=torch.tensor([numbers for _, numbers in rows]))


def main():
    program, txgen, device = sys.argv[1], sys.argv[2], (sys.argv[3:] or ["cpu"])[0]
    texts = [row[3] for row in mrpc()[:90]]
    rows = [(t, [round(len(t) / 50, 2), float(t.count(",")), float(len(t.split()) % 3 - 1)]) for t in texts]
    rows, dev = rows[:50], rows[50:]
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
        t.rows(*([{"text": text, "label": numbers} for text, numbers in part] for part in (rows, dev)))
        head = t.head(start)
        end = t.train(head, do_predict=True, test_file=t.given["validation_file"])
        model = loads(BertForSequenceClassification, head, device).train()
        check(model.config.num_labels == 3 and model.config.problem_type == "regression",
              f"transformers loads the folder with {model.config.num_labels} {model.config.problem_type}")
        said = t.compare(model, lambda part: model(**batch_of([rows[n] for _, n in part], tokenizer)).loss, 1e-5)
        trained = BertForSequenceClassification.from_pretrained(end).eval()
        batch = batch_of(dev, tokenizer)
        with torch.no_grad():
            guess = trained(**batch).logits
        error = mean_squared_error(batch["labels"].numpy(), guess.numpy())
        t.results(far=1e-5, mse=error, loss=error)
        lines = [list(map(float, line.split())) for line in t.predictions()]
        check((torch.tensor(lines) - guess).abs().max() <= 6e-4, "the predictions differ")
        line = json.loads(run(txgen, classify=True, model=end, prompt=dev[0][0], device=device).stdout)
        far = max(abs(a - b) for a, b in zip(line["scores"].values(), guess[0].tolist()))
        check(far <= 1e-5, f"txgen's scores differ by {far}")
        print(f"{said}, mse {error:.4f}")
    return status()


sys.exit(main())
