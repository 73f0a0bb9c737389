# SPDX-License-Identifier: Apache-2.0
"""Compares the speed of encoding with Hugging Face's tokenizers, on one thread each and in turns.

usage: bench_tokenizer.py TXTOK TOKENIZER_DIR TEXT... [--megabytes 100] [--turns 4] [--lines]

Makes one part for each turn from the files, in which each repetition has other numbers and names. Encodes each part
with both, by `txtok count`, its start included, and by Tokenizer.encode_batch_fast. A part is one text, or with
--lines one text a line (for txtok as JSON Lines, the parsing included). The counts must agree. Measures processor
time, since other processes may use the machine."""
import argparse
import json
import os
import re
import resource
import subprocess
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402


def vary(text, seed):
    """The text with its numbers and some of its words changed."""
    text = re.sub(r"\d+", lambda m: str((int(m[0][:9]) + 7919 * seed) % 10 ** len(m[0][:9])), text)
    return re.sub(r"\b[A-Z][a-z]{3,}\b", lambda m: m[0][:-1] + chr(97 + (ord(m[0][-1]) + seed) % 26), text)


def clocks():
    """Time that has passed, and processor time of this process and of its children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(one.ru_utime + one.ru_stime for one in used)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("txtok")
    parser.add_argument("tokenizer")
    parser.add_argument("text", nargs="+")
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--lines", action="store_true")
    args = parser.parse_args()
    source = "".join(open(path, encoding="utf-8").read() for path in args.text)
    theirs = Tokenizer.from_file(os.path.join(args.tokenizer, "tokenizer.json"))
    seed, total, passed, used = 0, 0, [0.0, 0.0], [0.0, 0.0]
    for turn in range(args.turns):
        part = ""
        while len(part) < args.megabytes * 1_000_000 // args.turns:
            part += vary(source, seed) if seed else source
            seed += 1
        part = part[: args.megabytes * 1_000_000 // args.turns]
        texts = part.splitlines(keepends=True) if args.lines else [part]
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="") as file:
            file.writelines(json.dumps({"text": text}) + "\n" if args.lines else text for text in texts)
            file.flush()
            for which in (turn % 2, 1 - turn % 2):
                start = clocks()
                if which == 0:
                    command = [args.txtok, "count", "--tokenizer", args.tokenizer, file.name]
                    command += ["--jsonl"] if args.lines else []
                    ours = int(subprocess.run(command, check=True, capture_output=True).stdout)
                else:
                    count = sum(len(one.ids) for one in theirs.encode_batch_fast(texts, add_special_tokens=False))
                end = clocks()
                passed[which] += end[0] - start[0]
                used[which] += end[1] - start[1]
        assert ours == count, (ours, count)
        total += len(part.encode())
    print(f"{total / 1e6:.0f} MB        passed           processor")
    for i, name in enumerate(("txtok", "tokenizers")):
        print(f"{name:12}{total / passed[i] / 1e6:7.1f} MB/s {total / used[i] / 1e6:9.1f} MB/s")
    print(f"ratio       {passed[1] / passed[0]:7.1f}      {used[1] / used[0]:9.1f}")


main()
