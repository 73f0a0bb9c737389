# SPDX-License-Identifier: Apache-2.0
"""The order of --group_by_length next to that of transformers' LengthGroupedSampler, for conversations and for texts
with labels. The sampler gets the shuffle that the same run has without grouping.

    grouping.py TXTRAIN      exit status 77: something is missing
"""
import json
import os
import random
import sys
import tempfile

from oracle import check, run, status

import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer, GPT2Config
from transformers.trainer_pt_utils import get_length_grouped_indices

TXTRAIN = sys.argv[1]
WORDS = "a the cat dog sat ran on under mat sun good bad very".split()


def orders(path):
    """The samples of each epoch."""
    epochs = {}
    with open(path, encoding="ascii") as file:
        for epoch, sample in (map(int, line.split()) for line in file):
            epochs.setdefault(epoch, []).append(sample)
    return epochs


def compare(name, folder, lengths, batch, accumulation, **options):
    dumped = []
    for grouped in (None, True):
        path = os.path.join(folder, f"order-{grouped}")
        done = run(TXTRAIN, do_train=True, num_train_epochs=2, per_device_train_batch_size=batch,
                   gradient_accumulation_steps=accumulation, threads=1, seed=5, save_strategy="no", report_to="none",
                   output_dir=os.path.join(folder, "out"), overwrite_output_dir=True, dump_order=path,
                   group_by_length=grouped, **options)
        check(done.returncode == 0, f"{name}: {done.stderr}")
        dumped.append(orders(path))
    for epoch in range(2):
        shuffle = torch.tensor(dumped[0][epoch])
        torch.randperm, kept = lambda count, generator: shuffle, torch.randperm
        expected = get_length_grouped_indices(lengths, batch * accumulation)
        torch.randperm = kept
        check(dumped[1][epoch] == expected, f"{name}, epoch {epoch}: another order")
        check(dumped[0][epoch] != expected, f"{name}, epoch {epoch}: the shuffle itself")
    check(dumped[1][0] != dumped[1][1], f"{name}: both epochs have one order")


def conversations(folder, count, batch, accumulation):
    rows = [{"prompt": "q", "completion": " " + "x" * random.randrange(1, 60)} for _ in range(count)]
    data = os.path.join(folder, "talk.jsonl")
    with open(data, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    model = os.path.join(folder, "gpt2.json")
    with open(model, "w", encoding="utf-8") as file:
        json.dump(GPT2Config(n_layer=1, n_head=1, n_embd=8, n_positions=128, vocab_size=257).to_dict(), file)
    compare(f"{count} conversations", folder, [len(row["completion"]) for row in rows], batch, accumulation,
            config_name=model, train_file=data, max_seq_length=100)


def labels(folder):
    rows = [{"text": " ".join(random.choices(WORDS, k=random.randrange(1, 30))), "label": i % 2} for i in range(150)]
    data, model = os.path.join(folder, "labels.jsonl"), os.path.join(folder, "bert")
    with open(data, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    config = BertConfig(vocab_size=len(WORDS) + 5, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
                        intermediate_size=8, max_position_embeddings=64)
    BertForSequenceClassification(config).save_pretrained(model)
    with open(os.path.join(folder, "vocab.txt"), "w", encoding="utf-8") as file:
        file.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    tokenizer = BertTokenizer(os.path.join(folder, "vocab.txt"))
    tokenizer.save_pretrained(model)
    compare("labels", folder, [len(tokenizer(row["text"])["input_ids"]) for row in rows], 4, 2, train_file=data,
            model_name_or_path=model, max_seq_length=64, pad_to_max_length="false", label_column_name="label")


random.seed(2)
with tempfile.TemporaryDirectory() as work:
    conversations(work, 500, 2, 1)  # groups of 50 batches
    conversations(work, 90, 4, 2)  # four groups
    conversations(work, 9, 4, 1)  # groups of one batch
    labels(work)
sys.exit(status())
