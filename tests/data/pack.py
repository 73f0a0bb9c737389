# SPDX-License-Identifier: Apache-2.0
"""Corpora that are tokenised before a run: pack.py TXTOK TXTRAIN.

`txtok pack` writes the file of tokens that a training run would write: the same bytes, whatever the size of its parts.
A process that is killed leaves its parts to the next one, and two processes share the parts. A run on the same files
then reads these tokens and writes none of its own."""
import glob
import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

TXTOK, TXTRAIN = sys.argv[1:3]
MODEL = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 300, "n_positions": 32, "n_embd": 16,
         "n_layer": 1, "n_head": 2}
failures = []


def check(good, what):
    if not good:
        failures.append(what)
        print("FAIL:", what)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def pack(folder, home, *arguments):
    """Starts txtok pack with a home of its own."""
    return subprocess.Popen([TXTOK, "pack", "--tokenizer", folder + "/tokenizer", "--preprocessing_num_workers", "1",
                             *arguments], env={**os.environ, "TX_HOME": folder + "/" + home, "TX_PROGRESS": "0"},
                            stdout=subprocess.PIPE, text=True)


def finish(child):
    text = child.communicate()[0]
    check(child.returncode == 0, f"{child.args}: status {child.returncode}")
    return text


def tokens(folder):
    """The contents of all files of tokens in a folder, and that there is nothing unfinished."""
    left = [name for name in os.listdir(folder) if ".part-" in name or ".lengths." in name]
    check(not left, f"{folder}: left {left}")
    return [read(path) for path in sorted(glob.glob(folder + "/tokens-*.cache"))]


def train(folder, home, out, *arguments):
    subprocess.run([TXTRAIN, "--config_name", folder + "/model.json", "--tokenizer_name", folder + "/tokenizer",
                    "--block_size", "32", "--per_device_train_batch_size", "2", "--max_steps", "4", "--logging_steps",
                    "1", "--threads", "1", "--report_to", "none", "--save_strategy", "no", "--output_dir", out,
                    "--overwrite_output_dir", *arguments], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "TX_HOME": folder + "/" + home})
    return read(out + "/model.safetensors")


def parts_and_processes(folder, corpus):
    """One part, many parts, a process that is killed, and two processes at a time."""
    wanted = finish(pack(folder, "one", corpus))
    one = tokens(folder + "/one/cache")
    check(len(one) == 1, "one corpus has another number of files")
    check(finish(pack(folder, "many", corpus, "--part_bytes", "100000")) == wanted, "parts have other tokens")
    check(tokens(folder + "/many/cache") == one, "parts make another file")
    child = pack(folder, "killed", corpus, "--part_bytes", "20000")
    first = folder + "/killed/cache/*.part-20000-3"
    while not glob.glob(first) and child.poll() is None:
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    made = {path: os.stat(path).st_mtime_ns for path in glob.glob(folder + "/killed/cache/*.part-20000-*[0-9]")}
    check(child.returncode == -signal.SIGKILL and made, "the process was not killed between its parts")
    damaged = min(made)
    with open(damaged, "r+b") as file:
        file.write(b"damaged")
    check(finish(pack(folder, "killed", corpus, "--part_bytes", "20000")) == wanted, "resumed: other tokens")
    check(tokens(folder + "/killed/cache") == one, "resumed: another file")
    both = [pack(folder, "two", corpus, "--part_bytes", "20000") for _ in range(2)]
    check([finish(child) for child in both] == [wanted] * 2, "two processes: other tokens")
    check(tokens(folder + "/two/cache") == one, "two processes: another file")


def training(folder, corpus):
    """A run reads the tokens that were packed, and learns what a run without them learns."""
    alone = train(folder, "nothing", folder + "/alone", "--train_file", corpus)
    check(tokens(folder + "/alone/cache") == tokens(folder + "/one/cache"), "training makes another file of tokens")
    check(train(folder, "one", folder + "/packed", "--train_file", corpus) == alone, "packed: other weights")
    check(not tokens(folder + "/packed/cache"), "a run with packed tokens has tokens of its own")


def columns(folder):
    """Several files, whose columns have other names."""
    files = []
    for i in range(2):
        files.append(f"{folder}/rows-{i}.jsonl")
        with open(files[-1], "w", encoding="utf-8") as file:
            for k in range(200):
                file.write(json.dumps({"title": f"number {k}", "body": f"é{i} " * (k % 9)}) + "\n")
    options = ["--text_column_name", "title,body", "--text_column_delimiter", ": "]
    alone = train(folder, "nothing", folder + "/alone", "--train_file", ",".join(files), *options)
    finish(pack(folder, "columns", *files, *options))
    check(train(folder, "columns", folder + "/packed", "--train_file", ",".join(files), *options) == alone,
          "columns: other weights")
    left = [name for name in os.listdir(folder + "/packed/cache") if name != ".lock"]
    check(not left, f"columns: the run has {left} of its own")


def table(folder):
    """A compressed table, whose column is not named."""
    path = folder + "/table.csv.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("id,text\n" + "".join(f"{k},\"row {k}, é\"\n" for k in range(300)))
    alone = train(folder, "nothing", folder + "/alone", "--train_file", path)
    finish(pack(folder, "table", path))
    check(train(folder, "table", folder + "/packed", "--train_file", path) == alone, "table: other weights")
    left = tokens(folder + "/packed/cache")
    check(not left, "table: the run has tokens of its own")


def main():
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/model.json", "w", encoding="ascii") as file:
            json.dump(MODEL, file)
        corpus = folder + "/corpus.txt"
        with open(corpus, "w", encoding="utf-8") as file:
            file.write("\ufeff")
            for i in range(20000):
                file.write(f"line {i} says {i * 7919 % 1000003}, ünd {'more ' * (i % 7)}\n")
        subprocess.run([TXTOK, "train", "--tokenizer", folder + "/tokenizer", "--vocab_size", "300", corpus],
                       check=True, stdout=subprocess.DEVNULL)
        parts_and_processes(folder, corpus)
        training(folder, corpus)
        columns(folder)
        table(folder)
        child = pack(folder, "bad")
        child.communicate()
        check(child.returncode == 1, "no file: not refused")
    print("FAILED" if failures else "all agree")
    return 1 if failures else 0


sys.exit(main())
