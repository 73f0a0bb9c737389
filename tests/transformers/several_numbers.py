# SPDX-License-Identifier: Apache-2.0
"""Trains a small BERT on lists of three numbers by txtrain, and by transformers on the same rows (problem_type
regression, the mean squared error). Compares 20 losses; in a folder of TX that transformers reads, compares predictions
and the mean squared error, by scikit-learn.

    several_numbers.py TXTRAIN TXGEN [DEVICE]      exit status 77: something is missing
"""
import json
import math
import os
import shutil
import sys
import tempfile

from oracle import DATA, check, log_of, read_json, run, skip, status

import torch
from sklearn.metrics import mean_squared_error
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

torch.set_num_threads(1)
TOKENIZER = os.path.join(DATA, "tokenizers", "bert-base-uncased-tokenizer.json")
MRPC = os.path.join(DATA, "glue", "MRPC", "dev_408.tsv")
BLOCK, BATCH, STEPS, SEED, RATE = 32, 4, 20, 11, 1e-3

if not os.path.exists(TOKENIZER) or not os.path.exists(MRPC):
    skip(f"no tokenizer or no MRPC in {DATA}")


def batch_of(rows, tokenizer):
    batch = tokenizer([text for text, _ in rows], truncation=True, max_length=BLOCK, padding="max_length",
                      return_tensors="pt")
    return dict(batch, labels=torch.tensor([numbers for _, numbers in rows]))


def train_here(model, rows, samples, tokenizer):
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
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


def main():
    program, txgen, device = sys.argv[1], sys.argv[2], (sys.argv[3:] or ["cpu"])[0]
    with open(MRPC, encoding="utf-8") as file:
        texts = [line.rstrip("\n").split("\t")[3] for line in file][1:91]
    rows = [(t, [round(len(t) / 50, 2), float(t.count(",")), float(len(t.split()) % 3 - 1)]) for t in texts]
    rows, dev = rows[:50], rows[50:]
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
                file.write("".join(json.dumps({"text": text, "label": numbers}) + "\n" for text, numbers in part))
        given = dict(train_file=train, validation_file=held, label_column_name="label", max_seq_length=BLOCK,
                     device=device, seed=SEED, save_strategy="no", do_train=True, threads=1)
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
        check(not any(info.values()) and model.config.num_labels == 3 and model.config.problem_type == "regression",
              f"transformers loads the folder with {info}, {model.config.num_labels} {model.config.problem_type}")
        want = train_here(model.train(), rows, samples, tokenizer)
        worst = max(abs(a - b) for a, b in zip(got, want)) if len(got) == STEPS else math.inf
        check(worst <= 1e-5, f"losses differ by {worst}")
        check(got[-1] < got[0], "nothing is learnt")
        trained = BertForSequenceClassification.from_pretrained(end).eval()
        batch = batch_of(dev, tokenizer)
        with torch.no_grad():
            guess = trained(**batch).logits
        error = mean_squared_error(batch["labels"].numpy(), guess.numpy())
        results = read_json(end, "eval_results.json")
        check(abs(results["eval_mse"] - error) <= 1e-5 and abs(results["eval_loss"] - error) <= 1e-5,
              f"mse {results['eval_mse']}, loss {results['eval_loss']}; scikit-learn has {error}")
        with open(os.path.join(end, "predict_results.txt"), encoding="utf-8") as file:
            lines = [list(map(float, line.split("\t", 1)[1].split())) for line in file.read().splitlines()[1:]]
        check((torch.tensor(lines) - guess).abs().max() <= 6e-4, "the predictions differ")
        line = json.loads(run(txgen, classify=True, model=end, prompt=dev[0][0], device=device).stdout)
        far = max(abs(a - b) for a, b in zip(line["scores"].values(), guess[0].tolist()))
        check(far <= 1e-5, f"txgen's scores differ by {far}")
        print(f"{device}: {STEPS} losses from {got[0]:.4f} to {got[-1]:.4f} within {worst:.1e}, mse {error:.4f}")
    return status()


sys.exit(main())
