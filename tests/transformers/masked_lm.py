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

from oracle import DATA, check, log_of, read_json, run, skip, status

import torch
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

TOKENIZER = os.path.join(DATA, "tokenizers", "bert-base-uncased-tokenizer.json")
MRPC = os.path.join(DATA, "glue", "MRPC", "dev_408.tsv")
BLOCK, BATCH, STEPS, LINES, SEED, RATE, SHARE = 32, 4, 30, 90, 11, 3e-3, 0.15

if not os.path.exists(TOKENIZER) or not os.path.exists(MRPC):
    skip(f"no tokenizer or no MRPC in {DATA}")

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
    start, end, order = (os.path.join(work, name) for name in ("start", f"end{by_line}", "order"))
    text, dev = os.path.join(work, "text.txt"), os.path.join(work, "dev.txt")
    done = run(program, model_name_or_path=start, train_file=text, validation_file=dev, do_train=True, do_eval=True,
               line_by_line=str(by_line).lower(), max_seq_length=BLOCK, max_steps=STEPS,
               per_device_train_batch_size=BATCH,
               learning_rate=RATE, seed=SEED, lr_scheduler_type="constant", save_strategy="no", dump_order=order,
               device=device,
               output_dir=end)
    check(done.returncode == 0, f"by line {by_line}: {done.stderr.strip()}")
    if done.returncode:
        return
    got = log_of(end)[:STEPS]
    with open(order, encoding="utf-8") as file:
        samples = [tuple(map(int, line.split())) for line in file]
    rows, model = rows_of(text, by_line, tokenizer), BertForMaskedLM.from_pretrained(start)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    worst, at = 0.0, 0
    for step in range(STEPS):
        epoch = samples[at][0]
        size = min(BATCH, sum(e == epoch for e, _ in samples[at:at + BATCH]))
        loss = model(**batch_of(rows, samples[at:at + size], tokenizer)).loss
        at += size
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        worst = max(worst, abs(loss.item() - got[step]) if step < len(got) else math.inf)
    check(len(got) == STEPS and worst <= 1e-4, f"by line {by_line}: losses differ by {worst}")
    check(got[-1] < got[0], f"by line {by_line}: nothing is learnt")
    trained, info = BertForMaskedLM.from_pretrained(end, output_loading_info=True)
    check(not any(info.values()), f"by line {by_line}: transformers loads the folder with {info}")
    rows = rows_of(dev, by_line, tokenizer)
    with torch.no_grad():
        wanted = trained.eval()(**batch_of(rows, [(0, i) for i in range(len(rows))], tokenizer)).loss.item()
    results = read_json(end, "eval_results.json")
    check(abs(results["eval_loss"] - wanted) <= 1e-5,
          f"by line {by_line}: eval_loss {results['eval_loss']}, transformers' {wanted}")
    check(abs(results["perplexity"] / math.exp(wanted) - 1) <= 1e-4,
          f"by line {by_line}: perplexity {results['perplexity']}")
    print(f"{device}, by line {by_line}: {STEPS} losses from {got[0]:.4f} to {got[-1]:.4f} within {worst:.1e}, "
          f"eval_loss within "
          f"{abs(results['eval_loss'] - wanted):.1e}")


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
        with open(MRPC, encoding="utf-8") as file:
            lines = [line.rstrip("\n").split("\t")[3] for line in file][1:]
        for name, part in (("text.txt", lines[:LINES]), ("dev.txt", lines[LINES:LINES + 30])):
            with open(os.path.join(work, name), "w", encoding="utf-8") as file:
                file.write("".join(line + "\n" + "\n" * (i % 10 == 0) for i, line in enumerate(part)))
        for by_line in (False, True):
            compare(program, device, by_line, work, tokenizer)
    return status()


sys.exit(main())
