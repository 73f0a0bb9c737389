# SPDX-License-Identifier: Apache-2.0
"""Trains a small BERT on masked words with txtrain, and the same model with transformers. The rows are the same,
tokenized and joined as in run_mlm, and masked by the same random numbers. Compares 30 losses, the loss of an
evaluation, and a folder that transformers loads.

    masked_lm.py TXTRAIN [DEVICE]      exit status 77: something is missing
"""
import math
import os
import shutil
import sys
import tempfile

from oracle import check, status
from training import Training, loads, mrpc, need, tokenizer_file

import torch
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

TOKENIZER = tokenizer_file("bert-base-uncased-tokenizer.json")
BLOCK, BATCH, STEPS, LINES, SEED, RATE, SHARE = 32, 4, 30, 90, 11, 3e-3, 0.15

need(TOKENIZER)

GOLDEN, WORD = 0x9E3779B97F4A7C15, (1 << 64) - 1


def mix(x):
    """splitmix64."""
    x = (x + GOLDEN) & WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def draw(key):
    return (mix(key & WORD) >> 11) * 2.0 ** -53


def hide(ids, number, epoch, tokenizer):
    """A row's ids with some hidden, and its labels."""
    around = {tokenizer.cls_token_id, tokenizer.sep_token_id}
    row, hidden, labels = mix(mix(mix(SEED) ^ epoch) ^ number), list(ids), [-100] * len(ids)
    words = [t for t, token in enumerate(ids) if token not in around]
    chosen = [t for t in words if draw(mix(row ^ t)) < SHARE] or [words[int(draw(row) * len(words))]]
    for t in chosen:
        key, labels[t] = mix(row ^ t), ids[t]
        how = draw(key + 1)
        hidden[t] = (tokenizer.mask_token_id if how < 0.8
                     else int(draw(key + 2) * len(tokenizer)) if how < 0.9 else ids[t])
    return hidden, labels


def rows_of(path, by_line, tokenizer):
    """As run_mlm has them."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")[:-1]
    if by_line:
        return [tokenizer(line, truncation=True, max_length=BLOCK)["input_ids"] for line in lines if line.strip()]
    ids = [token for line in lines for token in tokenizer(line)["input_ids"]]
    return [ids[at:at + BLOCK] for at in range(0, len(ids) - BLOCK + 1, BLOCK)]


def batch_of(rows, samples, tokenizer):
    """`samples`: pairs of epoch and number."""
    made = [hide(rows[number], number, epoch, tokenizer) for epoch, number in samples]
    ids, labels = torch.zeros(len(made), BLOCK, dtype=torch.long), torch.full((len(made), BLOCK), -100)
    seen = torch.zeros(len(made), BLOCK, dtype=torch.long)
    for r, (hidden, wanted) in enumerate(made):
        ids[r, :len(hidden)] = torch.tensor(hidden)
        labels[r, :len(hidden)] = torch.tensor(wanted)
        seen[r, :len(hidden)] = 1
    return dict(input_ids=ids, attention_mask=seen, labels=labels)


def compare(program, device, by_line, work, tokenizer):
    name, start = f"{device}, by line {by_line}", os.path.join(work, "start")
    text, dev = os.path.join(work, "text.txt"), os.path.join(work, "dev.txt")
    t = Training(program, name, work, steps=STEPS, batch=BATCH, rate=RATE, train_file=text, validation_file=dev,
                 line_by_line=str(by_line).lower(), max_seq_length=BLOCK, seed=SEED, device=device)
    end = t.train(start)
    rows, model = rows_of(text, by_line, tokenizer), BertForMaskedLM.from_pretrained(start)
    said = t.compare(model, lambda part: model(**batch_of(rows, part, tokenizer)).loss, 1e-4)
    trained = loads(BertForMaskedLM, end, name)
    rows = rows_of(dev, by_line, tokenizer)
    with torch.no_grad():
        wanted = trained.eval()(**batch_of(rows, [(0, i) for i in range(len(rows))], tokenizer)).loss.item()
    results = t.results(loss=wanted)
    check(abs(results["perplexity"] / math.exp(wanted) - 1) <= 1e-4, f"{name}: perplexity {results['perplexity']}")
    print(f"{said}, eval_loss within {abs(results['eval_loss'] - wanted):.1e}")


def main():
    program, device = sys.argv[1], (sys.argv[2:] or ["cpu"])[0]
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=TOKENIZER, cls_token="[CLS]", sep_token="[SEP]",
                                        mask_token="[MASK]")
    with tempfile.TemporaryDirectory() as work:
        torch.manual_seed(0)
        BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2,
                                   num_attention_heads=4,
                                   intermediate_size=48, max_position_embeddings=BLOCK, hidden_dropout_prob=0.0,
                                   attention_probs_dropout_prob=0.0)).save_pretrained(os.path.join(work, "start"))
        shutil.copy(TOKENIZER, os.path.join(work, "start", "tokenizer.json"))
        lines = [row[3] for row in mrpc()]
        for name, part in (("text.txt", lines[:LINES]), ("dev.txt", lines[LINES:LINES + 30])):
            with open(os.path.join(work, name), "w", encoding="utf-8") as file:
                file.write("".join(line + "\n" + "\n" * (i % 10 == 0) for i, line in enumerate(part)))
        for by_line in (False, True):
            compare(program, device, by_line, work, tokenizer)
    return status()


sys.exit(main())
