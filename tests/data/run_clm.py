# SPDX-License-Identifier: Apache-2.0
"""TX's blocks against those of Hugging Face's datasets, made as transformers' run_clm makes them.

    run_clm.py BLOCKS-PROGRAM
"""
import json
import os
import subprocess
import sys
import tempfile

import oracle  # noqa: F401 (skips the test if a package is missing)

import datasets
import transformers

os.environ["HF_HUB_OFFLINE"] = "1"

# A byte-level BPE small enough to be written here: the bytes, some merges, one special token.
MERGES = ["t h", "th e", "Ġ the", "i n", "Ġ a", "e r", "o n", "Ċ Ċ", "Ġ Ġ", "ĠĠ ĠĠ"]
TEXT = "The order of the lines\n in another place, once\r\n\r\n\rmore: on and\ton\n\n\n    the end é日本 <|endoftext|> 12\n"


def byte_letters():
    """Returns the characters that represent the 256 bytes (as in OpenAI's encoder.py)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(len(rest))]


def write_tokenizer(folder):
    tokens = byte_letters() + ["".join(m.split()) for m in MERGES] + ["<|endoftext|>"]
    vocab = {t: i for i, t in enumerate(tokens)}
    with open(f"{folder}/vocab.json", "w") as f:
        json.dump(vocab, f)
    with open(f"{folder}/merges.txt", "w") as f:
        f.write("#version: 0.2\n" + "".join(m + "\n" for m in MERGES))
    tokenizer = transformers.GPT2TokenizerFast(f"{folder}/vocab.json", f"{folder}/merges.txt", model_max_length=1024)
    tokenizer.save_pretrained(folder)
    return tokenizer


def expected(file, kind, tokenizer, block, group, begin, end, cache):
    split = f"train[{begin}%:{end}%]"
    options = {"keep_linebreaks": True} if kind == "text" else {}
    raw = datasets.load_dataset(kind, data_files={"train": file}, split=split, cache_dir=cache, **options)
    tokens = raw.map(lambda rows: tokenizer(rows["text"]), batched=True, remove_columns=raw.column_names)

    def group_texts(rows):
        joined = {k: sum(rows[k], []) for k in rows}
        total = len(joined["input_ids"]) // block * block
        return {k: [v[i : i + block] for i in range(0, total, block)] for k, v in joined.items()}

    return list(tokens.map(group_texts, batched=True, batch_size=group)["input_ids"])


def main():
    program, wrong, compared = sys.argv[1], 0, 0
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = write_tokenizer(folder)
        text, lines = f"{folder}/a.txt", f"{folder}/a.jsonl"
        with open(text, "wb") as f:
            f.write("".join(f"{i} {TEXT[i % 7:]}" for i in range(700)).encode() + b"no end")
        with open(lines, "w") as f:
            for i in range(1501):
                f.write(json.dumps({"id": i, "text": TEXT[: i % 50] if i % 5 else ""}) + "\n")
        for file, kind in (text, "text"), (lines, "json"):
            for begin, end in (0, 100), (0, 5), (5, 100), (33, 67):
                for block, group in (8, 1000), (64, 1000), (16, 7):
                    want = expected(file, kind, tokenizer, block, group, begin, end, folder)
                    command = [program, folder, file, *map(str, (block, group, begin, end, 3))]
                    run = subprocess.run(command, capture_output=True, text=True)
                    found = [list(map(int, line.split())) for line in run.stdout.splitlines()]
                    compared += len(want)
                    if run.returncode or found != want:
                        wrong += 1
                        print(f"FAIL: {' '.join(command)}: {len(found)} blocks, expected {len(want)} {run.stderr}")
    print(f"{compared} blocks compared with datasets {datasets.__version__}")
    sys.exit(wrong > 0 or compared < 1000)


main()
