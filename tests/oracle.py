# SPDX-License-Identifier: Apache-2.0
"""Helpers of comparisons with other Python libraries. Import it before any of them: if one is missing, the script ends
with 77 (skipped). tests/python.sh puts this folder on the path."""
import json
import os
import subprocess
import sys

SKIPPED = 77
DATA = os.environ.get("TX_TEST_DATA") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../shared/data")
failures = []


def skip(why):
    print(f"skipped: {why}", flush=True)
    os._exit(SKIPPED)


def ended_by(kind, error, trace):
    if issubclass(kind, ImportError):
        skip(f"{error} (tests/transformers/requirements.txt names the versions; "
             "TX_PYTHON names a Python that has them)")
    sys.__excepthook__(kind, error, trace)


sys.excepthook = ended_by


def check(good, what):
    """Records a failed check; a NaN fails every check."""
    if not good:
        failures.append(what)
        print(f"FAIL: {what}")


def status():
    """Prints and returns the exit status."""
    print("FAILED" if failures else "all agree", flush=True)
    return 1 if failures else 0


def run(*command, **options):
    """Runs a program with --NAME VALUE for each option, --NAME for True, and nothing for None. The items of a list have
    commas between them."""
    for name, value in options.items():
        if isinstance(value, list):
            value = ",".join(map(str, value))
        if value is not None:
            command += (f"--{name}",) if value is True else (f"--{name}", str(value))
    return subprocess.run(command, capture_output=True, text=True, check=False)


def succeed(*command):
    """Runs a program that must succeed, and returns its output."""
    done = run(*command)
    if done.returncode:
        sys.exit(f"FAIL: {' '.join(command)}: {done.stderr}")
    return done.stdout


def txtok(program, command, folder, lines, *options):
    """Runs a command of txtok on JSON objects, one a line, and returns its results."""
    done = subprocess.run([program, command, "--jsonl", "--tokenizer", folder, *options],
                          input="".join(json.dumps(line) + "\n" for line in lines).encode(), capture_output=True,
                          check=False)
    if done.returncode:
        sys.exit(f"FAIL: txtok {command}: {done.stderr.decode()}")
    return [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]


def need_device(txtrain, device):
    if not any(line.startswith(device) for line in run(txtrain, "--list_devices").stdout.splitlines()):
        skip(f"no device {device}")


def read_json(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return json.load(file)


def log_of(folder, key="loss"):
    """The values of a key in a run's log."""
    with open(os.path.join(folder, "log.jsonl"), encoding="utf-8") as file:
        return [row[key] for row in map(json.loads, file) if key in row]


def fit(optimizer, steps, loss_of, rate=None):
    """Steps of PyTorch with gradients clipped to norm 1: their losses. A rate falls linearly to 0."""
    import torch
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    losses = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * (steps - step) / steps if rate else group["lr"]
        loss = loss_of(step)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def decayed(model, decay):
    """Groups of parameters as transformers' Trainer makes them: layer norms do not decay, nor do parameters whose names
    contain "bias" or a norm. Decay rates and skips of recurrent layers do not decay either (Mamba-2)."""
    import re
    import torch
    norms = {f"{n}.{k}" for n, m in model.named_modules() if isinstance(m, torch.nn.LayerNorm)
             for k, _ in m.named_parameters(recurse=False)}
    names = re.compile(r"bias|layernorm|rmsnorm|(^|\.)norm($|\.)|_norm($|\.)|(^|\.)(a_log|d)$")
    other = [n in norms or bool(names.search(n.lower())) for n, _ in model.named_parameters()]
    return [{"params": [p for p, o in zip(model.parameters(), other) if not o], "weight_decay": decay},
            {"params": [p for p, o in zip(model.parameters(), other) if o], "weight_decay": 0.0}]
