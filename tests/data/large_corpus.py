# SPDX-License-Identifier: Apache-2.0
"""A corpus that is larger than the memory of the run: large_corpus.py TXTRAIN LAUNCHER [MEGABYTES].

Two corpora, one ten times the other, must train in the same resident size, both when they are tokenised and when their
tokens are read again. A run that is killed and resumed must end with the same bytes. Four ranks must read the rows of
one rank, and their order must be a permutation of the epoch."""
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

TXTRAIN, LAUNCHER = sys.argv[1:3]
LARGE = int(sys.argv[3] if len(sys.argv) > 3 else 3000) * 1000000
SLACK = 4 * 1024 * 1024  # bytes that the resident size of equal runs varies by
MODEL = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 257, "n_positions": 64, "n_embd": 32,
         "n_layer": 1, "n_head": 2}
failures = []


def check(good, what):
    if not good:
        failures.append(what)
        print("FAIL:", what)


def write_corpus(path, size):
    """Lines of words whose letters depend on their number, so that no two parts are equal."""
    with open(path, "w", encoding="ascii") as file:
        written, state = 0, 1
        while written < size:
            state = state * 6364136223846793005 % 2**64
            block = "".join(f"line {state >> (i % 40):x} of {written + i} says {i * state % 7919} again\n"
                            for i in range(20000))
            written += file.write(block)


def command(folder, corpus, *options, ranks=1):
    start = [] if ranks == 1 else [LAUNCHER, "-n", str(ranks)]
    named = "--model_name_or_path" in options or "--config_name" in options
    model = [] if named else ["--config_name", folder + "/model.json"]
    size = [] if "--max_seq_length" in options else ["--block_size", "64"]
    return [*start, TXTRAIN, *model, "--train_file", corpus, "--threads", "1", *size, "--seed", "3", "--report_to",
            "none", "--streaming", *options]


def resident(arguments):
    """Runs a command; returns its peak resident size in bytes."""
    child = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    check(status == 0, f"{' '.join(arguments)}: status {status}")
    return usage.ru_maxrss * 1024


def weights(out):
    with open(out + "/model.safetensors", "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def losses(out):
    with open(out + "/log.jsonl", encoding="utf-8") as file:
        return [row["loss"] for row in map(json.loads, file) if "loss" in row]


def sizes(folder, corpora):
    taken = {}
    for name in ("first run", "second run"):
        for corpus in corpora:
            taken[name, corpus] = resident(command(
                folder, corpus, "--max_steps", "3", "--per_device_train_batch_size", "4", "--output_dir",
                corpus + ".out", "--overwrite_output_dir", "--save_strategy", "no"))
        small, large = (taken[name, corpus] for corpus in corpora)
        print(f"{name}: {small / 1e6:.1f} MB and {large / 1e6:.1f} MB resident", flush=True)
        check(large - small < SLACK, f"{name}: the resident size grows with the corpus: {small} and {large} bytes")


def killed(folder, corpus):
    """Kills a run after its first checkpoint, and resumes it."""
    out = corpus + ".out"
    steps = ["--max_steps", "4000", "--per_device_train_batch_size", "2", "--save_steps", "1000", "--output_dir", out,
             "--overwrite_output_dir"]
    resident(command(folder, corpus, *steps))
    whole = weights(out)
    with subprocess.Popen(command(folder, corpus, *steps), stdout=subprocess.DEVNULL) as child:
        newest = out + "/checkpoint-1000/model.safetensors"
        os.unlink(newest)
        while not os.path.exists(newest) and child.poll() is None:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
    check(child.returncode == -signal.SIGKILL, f"the run was not killed: status {child.returncode}")
    resident(command(folder, corpus, *steps[:-1], "--resume_from_checkpoint"))
    check(weights(out) == whole, "a resumed run ends with other weights")


def conversations(folder):
    """Instruction data and preferences, whose samples have an entry in memory, but not their tokens."""
    for name, options in (("prompt and completion", []), ("preferences", ["--task_name", "dpo"])):
        taken = []
        for samples in (LARGE // 20000, LARGE // 4000):
            path = folder + "/talk.jsonl"
            with open(path, "w", encoding="ascii") as file:
                for i in range(samples):
                    row = {"prompt": f"question {i} " * 2, "completion": f" the answer is {i * 7919 % 1000003}" * 9}
                    if options:
                        row = {"prompt": row["prompt"], "chosen": row["completion"], "rejected": " none" * 40}
                    file.write(json.dumps(row) + "\n")
            out = folder + "/talk"
            taken.append((samples, resident(command(
                folder, path, "--max_steps", "1", "--max_seq_length", "64", "--save_strategy", "no",
                "--per_device_train_batch_size", "2", "--output_dir", out, "--overwrite_output_dir",
                *(options and [*options, "--model_name_or_path", folder + "/small.txt.out"])))))
        (few, small), (many, large) = taken
        print(f"{name}: {few} samples in {small / 1e6:.1f} MB, {many} in {large / 1e6:.1f} MB", flush=True)
        check(large - small < 48 * (many - few) + 2 * SLACK, f"{name}: {large - small} bytes for {many - few} samples")


def labelled(folder):
    """Texts with labels and words with labels: the resident size, and a resumed run."""
    for name, kind in (("texts with labels", "Sequence"), ("words with labels", "Token")):
        path, out, model, taken = folder + "/labelled.jsonl", folder + "/labelled", folder + "/bert.json", []
        with open(model, "w", encoding="ascii") as file:
            json.dump({"model_type": "bert", "architectures": [f"BertFor{kind}Classification"], "vocab_size": 257,
                       "max_position_embeddings": 64, "hidden_size": 32, "num_hidden_layers": 1,
                       "num_attention_heads": 2, "intermediate_size": 64}, file)
        options = ["--config_name", model, "--max_seq_length", "64", "--per_device_train_batch_size", "2",
                   "--max_steps", "40", "--save_steps", "20", "--output_dir"]
        for rows in (LARGE // 100000, LARGE // 10000):
            with open(path, "w", encoding="ascii") as file:
                for i in range(rows):
                    words = [f"w{i * k % 9973}" for k in range(1, 150 + i % 50)]
                    row = {"text": " ".join(words), "label": "abc"[i % 3]}
                    if kind == "Token":
                        row = {"tokens": words, "ner_tags": ["OBI"[(i + k) % 3] for k in range(len(words))]}
                    file.write(json.dumps(row) + "\n")
            taken.append((rows, resident(command(folder, path, *options, out, "--overwrite_output_dir"))))
        (few, small), (many, large) = taken
        print(f"{name}: {few} rows in {small / 1e6:.1f} MB, {many} in {large / 1e6:.1f} MB", flush=True)
        # Up to four arrays of tokens have 4 MiB in memory each before they go to a file.
        check(large - small < 48 * (many - few) + 5 * SLACK, f"{name}: {large - small} bytes for {many - few} rows")
        again = f"{out}-{kind}"
        resident(command(folder, path, *options, again, "--resume_from_checkpoint", out + "/checkpoint-20"))
        check(weights(again) == weights(out), f"{name}: a resumed run ends with other weights")


def ranks(folder, corpus):
    """One rank and four: the same losses, and an order that is a permutation."""
    outs = {}
    for count in (1, 4):
        out = outs[count] = f"{corpus}.out"
        order = f"{folder}/order-{count}"
        subprocess.run(command(folder, corpus, "--max_steps", "40", "--logging_steps", "1", "--save_strategy", "no",
                               "--per_device_train_batch_size", str(4 // count), "--dump_order", order,
                               "--output_dir", out, "--overwrite_output_dir", ranks=count),
                       check=True, stdout=subprocess.DEVNULL)
        outs[count] = losses(out)
    check(max(abs(a - b) for a, b in zip(outs[1], outs[4], strict=True)) < 1e-4, "four ranks have other losses")
    orders = [open(f"{folder}/order-{count}", encoding="ascii").read() for count in (1, 4)]
    check(orders[0] == orders[1], "four ranks have another order")


def epoch(folder):
    """The order of a whole epoch of a small corpus."""
    corpus, order = folder + "/tiny.txt", folder + "/order"
    write_corpus(corpus, 2000000)
    subprocess.run(command(folder, corpus, "--num_train_epochs", "1", "--per_device_train_batch_size", "256",
                           "--save_strategy", "no", "--dump_order", order, "--output_dir", folder + "/tiny"),
                   check=True, stdout=subprocess.DEVNULL)
    rows = [int(line.split()[1]) for line in open(order, encoding="ascii")]
    check(sorted(rows) == list(range(len(rows))) and rows != sorted(rows), "the order is no permutation of the epoch")


def main():
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/model.json", "w", encoding="ascii") as file:
            json.dump(MODEL, file)
        corpora = [folder + "/small.txt", folder + "/large.txt"]
        for corpus, size in zip(corpora, (LARGE // 10, LARGE)):
            write_corpus(corpus, size)
        sizes(folder, corpora)
        killed(folder, corpora[0])
        epoch(folder)
        conversations(folder)
        labelled(folder)
        if LAUNCHER:
            ranks(folder, corpora[0])
    print("FAILED" if failures else "all agree")
    return 1 if failures else 0


sys.exit(main())
