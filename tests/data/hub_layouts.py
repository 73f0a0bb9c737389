# SPDX-License-Identifier: Apache-2.0
"""Datasets as the Hub lays them out: hub_layouts.py TXTRAIN. Each is trained from its Parquet shards and from the same
rows as JSON lines; the weights must be equal to the byte."""
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    print("skipped: no pyarrow")
    sys.exit(77)

random.seed(5)
TXTRAIN = sys.argv[1]
WORDS = "a the cat dog sat ran on under mat sun good bad very".split()
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 257, "n_positions": 128, "n_embd": 32,
        "n_layer": 1, "n_head": 2}
BERT = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "vocab_size": 0, "hidden_size": 32,
        "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64,
        "type_vocab_size": 2}


def text(least=3):
    return " ".join(random.choices(WORDS, k=random.randrange(least, 20)))


def talk(role, content):
    return lambda: [{role: "user", content: text()}, {role: "assistant", content: text()}]


def sharegpt():
    return [{"from": "human", "value": text()}, {"from": "gpt", "value": text()}]


def rows(count, **columns):
    return [{name: make() for name, make in columns.items()} for _ in range(count)]


def write(folder, names, rows_of, **options):
    """Divides rows over Parquet files."""
    for i, name in enumerate(names):
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        first, end = (n * len(rows_of) // len(names) for n in (i, i + 1))
        pq.write_table(pa.Table.from_pylist(rows_of[first:end]), path, **options)


def shards(stem, count):
    return [f"{stem}-{i:05d}-of-{count:05d}.parquet" for i in range(count)]


def label():
    return random.randrange(2)


def sides():
    prompt = {"role": "user", "content": text()}
    return {side: [prompt, {"role": "assistant", "content": text()}] for side in ("chosen", "rejected")}


CHAT = ["--chat_template", "chatml", "--max_seq_length", "96"]
# name: rows, train files, validation files, model, options
LAYOUTS = {
    "wikitext": (rows(60, text=lambda: random.choice(["", " = Title = \n", text() + "\n"])),
                 shards("wikitext-2-raw-v1/train", 2), shards("wikitext-2-raw-v1/validation", 1), "gpt2", []),
    "imdb": (rows(40, text=text, label=label), shards("plain_text/train", 1), shards("plain_text/test", 1), "bert",
             ["--label_column_name", "label"]),
    "ag_news": (rows(40, text=text, label=lambda: random.randrange(4)), shards("data/train", 3),
                shards("data/validation", 1), "bert", ["--label_column_name", "label"]),
    "glue": (rows(40, sentence1=text, sentence2=text, label=label, idx=label), shards("mrpc/train", 1),
             shards("mrpc/validation", 1), "bert", ["--task_name", "mrpc"]),
    "alpaca": (rows(30, instruction=text, input=lambda: random.choice(["", text()]), output=text, text=text),
               ["data/train-00000-of-00001-a09b74b3ef9c3b56.parquet"], [], "gpt2", CHAT),
    "ultrachat": (rows(30, prompt_id=text, messages=talk("role", "content")), shards("data/train_sft", 2),
                  shards("data/validation", 1), "gpt2", CHAT),
    "sharegpt": (rows(30, conversations=sharegpt), ["train/0000.parquet", "train/0001.parquet"], [], "gpt2", CHAT),
    "dolly": (rows(30, instruction=text, context=lambda: random.choice(["", text()]), response=text, category=text),
              ["databricks-dolly-15k.parquet"], [], "gpt2", CHAT),
    "ultrafeedback": ([{"prompt": pair["chosen"][0]["content"], "prompt_id": text(), **pair, "score_chosen": 1.5}
                       for pair in (sides() for _ in range(20))], shards("data/train", 2), shards("data/test", 1),
                      "tuned", ["--task_name", "dpo", *CHAT]),
    "reviews": (rows(40, title=text, body=text, stars=label), shards("data/train", 1), shards("data/validation", 1),
                "bert", ["--text_column_names", "title,body", "--text_column_delimiter", " - ", "--label_column_name",
                         "stars"]),
}


def mapped(row, options):
    """A row as the JSON lines of the comparison have it."""
    if "title,body" not in options:
        return row
    return {"text": row["title"] + " - " + row["body"], "label": row["stars"]}


def run(*arguments, fails=False):
    result = subprocess.run([TXTRAIN, *arguments], capture_output=True, check=False, text=True)
    if (result.returncode != 0) != fails:
        sys.exit(f"txtrain {' '.join(arguments)}: status {result.returncode}: {result.stderr}{result.stdout}")
    return result.stderr + result.stdout


def train(out, model, options, data):
    run("--output_dir", out, "--do_train", "--max_steps", "3", "--per_device_train_batch_size", "2", "--threads", "1",
        "--report_to", "none", "--save_strategy", "no", *(("--config_name", model) if os.path.isfile(model) else
                                                          ("--model_name_or_path", model)), *options, *data)
    with open(os.path.join(out, "model.safetensors"), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def make_bert(folder):
    """A base encoder with a vocabulary of the words."""
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "-"] + WORDS
    os.makedirs(folder)
    ids = {token: i for i, token in enumerate(vocab)}
    special = [{"id": ids[t], "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True} for t in vocab[:5]]

    def piece(name, kind):
        return {"SpecialToken" if name in ids else "Sequence": {"id": name, "type_id": kind}}

    tokenizer = {
        "version": "1.0", "added_tokens": special,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing", "single": [piece("[CLS]", 0), piece("A", 0), piece("[SEP]", 0)],
            "pair": [piece("[CLS]", 0), piece("A", 0), piece("[SEP]", 0), piece("B", 1), piece("[SEP]", 1)],
            "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in ("[CLS]", "[SEP]")}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": ids},
    }
    with open(os.path.join(folder, "tokenizer.json"), "w") as file:
        json.dump(tokenizer, file)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({**BERT, "vocab_size": len(vocab)}, file)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
        json.dump({"pad_token": "[PAD]", "mask_token": "[MASK]", "cls_token": "[CLS]", "sep_token": "[SEP]",
                   "unk_token": "[UNK]"}, file)


def save_to_disk(folder, table, count):
    """As a DatasetDict of the library datasets is saved."""
    for split, of in (("train", table), ("validation", table[:10])):
        parts = count if split == "train" else 1
        os.makedirs(os.path.join(folder, split))
        for i in range(parts):
            part = pa.Table.from_pylist(of[i * len(of) // parts:(i + 1) * len(of) // parts])
            name = os.path.join(folder, split, f"data-{i:05d}-of-{parts:05d}.arrow")
            with pa.ipc.new_stream(name, part.schema) as writer:
                writer.write_table(part, max_chunksize=7)
        for name in ("dataset_info.json", "state.json"):
            with open(os.path.join(folder, split, name), "w") as file:
                json.dump({"features": {}}, file)
    with open(os.path.join(folder, "dataset_dict.json"), "w") as file:
        json.dump({"splits": ["train", "validation"]}, file)


def compare(work, name):
    table, train_files, validation, model, options = LAYOUTS[name]
    folder, lines = os.path.join(work, name), os.path.join(work, name + ".jsonl")
    write(folder, train_files, table, row_group_size=7)
    if validation:
        write(folder, validation, table[:10])
    with open(lines, "w") as file:
        for row in table:
            file.write(json.dumps(mapped(row, options)) + "\n")
    plain = [o for o in options if o not in ("--text_column_names", "title,body", "--text_column_delimiter", " - ")]
    plain = ["label" if o == "stars" else o for o in plain]
    path = folder + "/mrpc" if name == "glue" else folder
    save_to_disk(folder + ".saved", table, len(train_files))
    mine = train(os.path.join(work, name + ".1"), os.path.join(work, model), options, ["--dataset_name", path])
    jsonl = train(os.path.join(work, name + ".2"), os.path.join(work, model), plain, ["--train_file", lines])
    arrow = train(os.path.join(work, name + ".3"), os.path.join(work, model), options,
                  ["--dataset_name", folder + ".saved"])
    return [f"{name}: the weights of {kind} differ from those of the JSON lines"
            for kind, weights in (("Parquet", mine), ("Arrow", arrow)) if weights != jsonl]


def several(work):
    """Several files, patterns, and datasets that are mixed."""
    model = os.path.join(work, "gpt2")
    for name in "ab":
        with open(os.path.join(work, name + ".txt"), "w") as file:
            file.write("\n".join(f"{name} {text()}" for _ in range(300)))
    with open(os.path.join(work, "both.txt"), "w") as file:
        file.write(open(os.path.join(work, "a.txt")).read() + "\n" + open(os.path.join(work, "b.txt")).read())
    block = ["--block_size", "64"]
    both = train(os.path.join(work, "t1"), model, block, ["--train_file", os.path.join(work, "both.txt")])
    ways = [[os.path.join(work, "a.txt"), os.path.join(work, "b.txt")], [os.path.join(work, "[ab].txt")],
            [os.path.join(work, "a.txt") + "," + os.path.join(work, "b.txt")],
            [os.path.join(work, "a.txt"), "--train_file", os.path.join(work, "b.txt")]]
    faults = [f"several files: {way}" for i, way in enumerate(ways)
              if train(os.path.join(work, f"t1{i}"), model, block, ["--train_file", *way]) != both]
    datasets = os.path.join(work, "x") + "," + os.path.join(work, "y")
    for name, count in (("x", 100), ("y", 1000)):
        write(os.path.join(work, name), ["train.parquet"], [{"text": f"{name}{i}", "kept": 1} for i in range(count)])
    for strategy, least, most in (("first_exhausted", 150, 260), ("all_exhausted", 1800, 2300)):
        out = os.path.join(work, strategy)
        train(out, model, [*block, "--interleave_probabilities", "0.5,0.5", "--stopping_strategy", strategy],
              ["--dataset_name", datasets])
        made = [f for f in os.listdir(os.path.join(out, "cache")) if f.endswith(".jsonl")]
        mixed = [json.loads(line)["text"] for line in open(os.path.join(out, "cache", made[0]))]
        share = sum(t.startswith("x") for t in mixed) / len(mixed)
        if not (least <= len(mixed) <= most and 0.4 <= share <= 0.6):
            faults.append(f"{strategy}: {len(mixed)} rows, {share} of x")
    return faults


def encodings(work):
    """Files in other encodings are refused, and converted by --encoding."""
    faults = []
    lines = [f"Größe {i}: café naïve {text()}" for i in range(200)]
    contents = {".txt": "".join(line + "\n" for line in lines),
                ".jsonl": "".join(json.dumps({"text": line}, ensure_ascii=False) + "\n" for line in lines),
                ".csv": "text,label\n" + "".join(f"{line},1\n{line} so,0\n" for line in lines)}
    for ending, content in contents.items():
        model = os.path.join(work, "bert" if ending == ".csv" else "gpt2")
        size = ["--max_seq_length", "32"] if ending == ".csv" else ["--block_size", "64"]
        path = os.path.join(work, "encoded" + ending)
        out = os.path.join(work, "encoded")
        wanted = None
        for encoding in ("utf-8", "latin-1", "cp1252", "utf-16", "utf-16-be", "utf-32", "gb18030"):
            with open(path, "w", encoding=encoding, newline="") as file:
                file.write(content)
            data = ["--overwrite_output_dir", "--train_file", path]
            named = [*size, "--encoding", encoding]
            made = train(out, model, named if wanted else size, data)
            wanted = wanted or made
            if made != wanted:
                faults.append(f"{ending} in {encoding}: other weights")
            if encoding in ("latin-1", "utf-16"):
                said = run("--model_name_or_path" if ending == ".csv" else "--config_name", model, *size, "--do_train",
                           "--output_dir", out, *data, fails=True)
                if not re.search(f"encoded{ending}: text in .*--encoding {encoding}", said, re.IGNORECASE):
                    faults.append(f"{ending} in {encoding}: {said}")
    for encoding, words in (("ascii", "byte 3 is invalid in ascii"), ("klingon", "iconv has no such encoding")):
        with open(path, "w", encoding="utf-8") as file:
            file.write("größer\n")
        said = run("--config_name", os.path.join(work, "gpt2"), "--do_train", "--output_dir", out,
                   "--overwrite_output_dir", "--train_file", path, "--encoding", encoding, fails=True)
        if words not in said:
            faults.append(f"{encoding}: {said}")
    return faults


def packed(work):
    """Compressed files give the weights of their contents. Damaged ones are refused."""
    faults = []
    model, out, size = os.path.join(work, "gpt2"), os.path.join(work, "packed"), ["--block_size", "64"]
    lines = [text() for _ in range(20000)]
    halves = [lines[:9000], lines[9000:]]
    for ending, form in ((".txt", "%s\n"), (".jsonl", '{"text": "%s"}\n')):
        contents = ["".join(form % line for line in half).encode() for half in halves]
        folder = os.path.join(work, "packed" + ending)
        os.makedirs(folder)
        plain = os.path.join(work, "plain" + ending)
        with open(plain, "wb") as file:
            file.write(b"".join(contents))
        wanted = train(out, model, size, ["--overwrite_output_dir", "--train_file", plain])
        for kind, codec in ((".gz", "gzip"), (".zst", "zstd")):
            path = os.path.join(folder, "train" + ending + kind)
            for mode, content in zip(("wb", "ab"), contents):  # two members, as appended logs have
                with open(path, mode) as file, pa.CompressedOutputStream(file, codec) as stream:
                    stream.write(content)
            for data in (["--train_file", path], ["--dataset_name", folder]):
                if train(out, model, size, ["--overwrite_output_dir", *data]) != wanted:
                    faults.append(f"{path}: other weights")
            with open(path, "rb") as file:
                whole = file.read()
            half = len(whole) * 3 // 4
            for damage, bad in (("cut off", whole[:half]), ("damaged: ", whole[:half] + b"\xff" * 99 + whole[half:]),
                                ("cut off" if kind == ".zst" else "not compressed by gzip", b"")):
                with open(path, "wb") as file:
                    file.write(bad)
                said = run("--config_name", model, "--do_train", "--output_dir", out, "--overwrite_output_dir", *size,
                           "--train_file", path, fails=True)
                if f"{path}: {damage}" not in said or said.count("\n") != 1:
                    faults.append(f"{path}, {damage}: {said}")
            os.remove(path)
    return faults


def planned(work):
    """Plans a run on Parquet data without an output folder."""
    os.environ["TX_HOME"] = os.path.join(work, "home")
    said = run("--config_name", os.path.join(work, "gpt2"), "--do_train", "--dry_run", "--block_size", "16",
               "--dataset_name", os.path.join(work, "wikitext"))
    return [] if "wikitext-2-raw-v1" in said else [f"a dry run: {said}"]


def refusals(work):
    faults = []
    for words, arguments in (
            ("no column body; there are text, label", ["--text_column_name", "body", "--dataset_name",
                                                       os.path.join(work, "imdb")]),
            ("several configurations: choose one of p, q", ["--dataset_name", os.path.join(work, "many")]),
            ("shard 1 of 3 of train is missing", ["--dataset_name", os.path.join(work, "hole")]),
            ("one probability for each", ["--interleave_probabilities", "1",
                                          "--dataset_name", os.path.join(work, "imdb")]),
            ("b*.txt: no such file", ["--train_file", os.path.join(work, "nothing-b*.txt")])):
        for name in ("many/p/train-00000-of-00001.parquet", "many/q/train-00000-of-00001.parquet",
                     "hole/train-00000-of-00003.parquet", "hole/train-00002-of-00003.parquet"):
            write(work, [name], [{"text": "a"}])
        said = run("--config_name", os.path.join(work, "gpt2"), "--do_train",
                   "--output_dir", os.path.join(work, "refused"), *arguments, fails=True)
        if words not in said or said.count("\n") != 1:
            faults.append(f"{words}: {said}")
    return faults


def main():
    with tempfile.TemporaryDirectory() as work:
        make_bert(os.path.join(work, "bert0"))
        with open(os.path.join(work, "gpt2"), "w") as file:
            json.dump(GPT2, file)
        os.rename(os.path.join(work, "gpt2"), os.path.join(work, "gpt2.json"))
        os.symlink("gpt2.json", os.path.join(work, "gpt2"))
        with open(os.path.join(work, "lines.txt"), "w") as file:
            file.write("\n".join(text() for _ in range(50)))
        run("--config_name", os.path.join(work, "bert0", "config.json"), "--tokenizer_name",
            os.path.join(work, "bert0"), "--do_train", "--max_steps", "1", "--train_file",
            os.path.join(work, "lines.txt"), "--output_dir", os.path.join(work, "bert"),
            "--save_strategy", "no", "--report_to", "none", "--max_seq_length", "32")
        train(os.path.join(work, "tuned"), os.path.join(work, "gpt2"), ["--block_size", "32"],
              ["--train_file", os.path.join(work, "lines.txt")])
        faults = sum((compare(work, name) for name in LAYOUTS), []) + several(work) + planned(work) + refusals(work)
        faults += encodings(work) + packed(work)
    print("\n".join(faults) or f"{len(LAYOUTS)} layouts agree with JSON lines")
    return 1 if faults else 0


sys.exit(main())
