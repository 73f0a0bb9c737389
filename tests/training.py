# SPDX-License-Identifier: Apache-2.0
"""The frame of comparisons of tasks: txtrain and PyTorch train one model on the same rows. Import it after oracle."""
import json
import math
import os
import sys

from oracle import DATA, check, fit, log_of, read_json, run, skip

MRPC = os.path.join(DATA, "glue", "MRPC", "dev_408.tsv")


def tokenizer_file(name):
    return os.path.join(DATA, "tokenizers", name)


def need(*paths):
    """Skips the test if data are missing."""
    for path in (MRPC, *paths):
        if not os.path.exists(path):
            skip(f"no {path}")


def mrpc():
    """Columns of the rows of MRPC: label, two ids, and two texts."""
    with open(MRPC, encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t") for line in file][1:]


def write_rows(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def adamw(model, rate):
    import torch
    return torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)


def descend(model, folder, *, block, batch, steps, rate):
    """Steps of SGD on the blocks of bytes of folder/text.txt, in the order that txtrain dumped to folder/order: their
    losses, and norms of all gradients."""
    import torch
    with open(f"{folder}/text.txt", "rb") as file:
        ids = torch.tensor(list(file.read()))
    rows = ids[:len(ids) // block * block].reshape(-1, block)
    with open(f"{folder}/order", encoding="utf-8") as file:
        order = [int(line.split()[1]) for line in file]
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.SGD(weights, lr=rate)
    losses, norms = [], []
    for step in range(steps):
        chosen = rows[order[step * batch:(step + 1) * batch]]
        optimizer.zero_grad()
        loss = model(input_ids=chosen, labels=chosen).loss
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.stack([w.grad.double().norm() for w in weights]).norm().item())
        optimizer.step()
    return losses, norms


class Training:
    """A comparison called `name`, in folder `work`. Further options are txtrain's."""

    def __init__(self, program, name, work, *, steps, batch, rate, **given):
        self.program, self.name, self.work = program, name, work
        self.steps, self.batch, self.rate = steps, batch, rate
        self.given = dict(do_train=True, save_strategy="no", threads=1, **given)
        self.losses = self.samples = None

    def path(self, part):
        return os.path.join(self.work, f"{self.name}-{part}".replace(" ", "-"))

    def rows(self, train, held):
        """Writes the rows of both files."""
        for split, rows in (("train", train), ("validation", held)):
            self.given[f"{split}_file"] = self.path(f"{split}.jsonl")
            write_rows(self.given[f"{split}_file"], rows)

    def run(self, part, **options):
        """A run of txtrain. Returns its folder."""
        done = run(self.program, output_dir=self.path(part), **dict(self.given, **options))
        if done.returncode:
            sys.exit(f"FAIL: {self.name}: {done.stderr.strip()}")
        return self.path(part)

    def head(self, start, **options):
        """A folder with a new head, so that both programs begin with the same weights."""
        return self.run("head", model_name_or_path=start, max_steps=1, learning_rate=0, **options)

    def train(self, start, **options):
        """Trains and evaluates. Returns the folder."""
        end = self.run("end", **dict(
            dict(model_name_or_path=start, do_eval=True, max_steps=self.steps, learning_rate=self.rate,
                 per_device_train_batch_size=self.batch, lr_scheduler_type="constant", dump_order=self.path("order")),
            **options))
        self.losses = log_of(end)[:self.steps]
        with open(self.path("order"), encoding="utf-8") as file:
            self.samples = [tuple(map(int, line.split())) for line in file]
        return end

    def batches(self):
        """Epochs and numbers of the samples of each step. A batch does not reach into the next epoch."""
        at = 0
        for _ in range(self.steps):
            size = min(self.batch, sum(e == self.samples[at][0] for e, _ in self.samples[at:at + self.batch]))
            yield self.samples[at:at + size]
            at += size

    def compare(self, model, loss_of, most, optimizer=None, learns=True):
        """Trains the model in PyTorch, and compares the losses. `loss_of` takes the samples of a step."""
        batches = list(self.batches())
        want = fit(optimizer or adamw(model, self.rate), self.steps, lambda step: loss_of(batches[step]))
        got = self.losses
        worst = max(abs(a - b) for a, b in zip(got, want)) if len(got) == self.steps else math.inf
        check(worst <= most, f"{self.name}: losses differ by {worst}: {[a - b for a, b in zip(got, want)]}")
        check(not learns or got[-1] < got[0], f"{self.name}: nothing is learnt: {got}")
        return f"{self.name}: {self.steps} losses from {got[0]:.4f} to {got[-1]:.4f} within {worst:.1e}"

    def results(self, far=1e-12, loss_far=1e-5, **values):
        """Compares results of the evaluation: eval_loss as loss=..., others by their names without eval_."""
        results = read_json(self.path("end"), "eval_results.json")
        for name, value in values.items():
            most = loss_far if name == "loss" else far
            check(abs(results[f"eval_{name}"] - value) <= most,
                  f"{self.name}: eval_{name} {results[f'eval_{name}']}, wanted {value}")
        return results

    def predictions(self):
        with open(os.path.join(self.path("end"), "predict_results.txt"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        check(lines[0] == "index\tprediction" and [line.split("\t")[0] for line in lines[1:]] ==
              [str(i) for i in range(len(lines) - 1)], f"{self.name}: the file of predictions has other lines")
        return [line.split("\t", 1)[1] for line in lines[1:]]


def loads(kind, folder, name, unexpected_only=False):
    """The model of a folder in transformers, which must have no missing or additional weights."""
    model, info = kind.from_pretrained(folder, output_loading_info=True)
    keys = ("missing_keys", "unexpected_keys") if unexpected_only else info
    check(not any(info[key] for key in keys), f"{name}: transformers loads {folder} with {info}")
    return model
