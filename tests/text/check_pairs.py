# SPDX-License-Identifier: Apache-2.0
"""Compares txtok with Hugging Face's tokenizers, on single texts, with special tokens, and on pairs. The vocabularies
are BERT's published ones, and RoBERTa's with GPT-2's words, as tokenizer.json and as vocab.json with merges.txt.

    check_pairs.py TXTOK      exit status 77: something is missing
"""
import json
import os
import sys
import tempfile

from oracle import DATA, skip, txtok

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

HARD = ["", " ", "Hello, World!", "d\u00e9j\u00e0 vu na\u00efve \u00c5ngstr\u00f6m", "\u65e5\u672c\u8a9e\u306e text",
        "don't won't it's", "[SEP] inside [CLS] and [MASK]ed", "a" * 150, "\u0130stanbul \u1e9e \ufb01",
        "x\u0000y\u200bz",
        "3.14 \u00bd \u20ac5,000.00", "\U0001f600 smile \U0001f1ea\U0001f1f8", "tab\tnew\nline\r\n", "\u0301 e\u0301",
        "unaffable ##able ## able", "\ufffd \ue000", "[UNK] [PAD]", "<mask> is it</s>, a <pad><s>",
        "\u00a0\u3000wide  spaces "]


def texts(data):
    for name in ("dev_408.tsv", "test_1725.tsv"):
        with open(os.path.join(data, "glue", "MRPC", name), encoding="utf-8") as file:
            for line in list(file)[1:]:
                fields = line.rstrip("\n").split("\t")
                yield fields[3], fields[4]
    for i, first in enumerate(HARD):
        yield first, HARD[i * 7 % len(HARD)]


def roberta(data):
    """As transformers makes RoBERTa's tokenizer, of GPT-2's words; and its vocab.json and merges.txt."""
    with open(os.path.join(data, "tokenizers", "gpt2-encoder.json"), encoding="utf-8") as file:
        words = [word for word in json.load(file) if word != "<|endoftext|>"]
    with open(os.path.join(data, "tokenizers", "gpt2-vocab.bpe"), encoding="utf-8") as file:
        merges = file.read()
    vocab = {word: i for i, word in enumerate(["<s>", "<pad>", "</s>", "<unk>"] + words + ["<mask>"])}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(line.split()) for line in merges.split("\n")[1:] if line]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, normalized=False, special=True)
                             for token in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")])
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, False)
    return made, json.dumps(vocab), merges


def compare(name, theirs, folder, program, pairs):
    failures = 0
    for what, lines, options, want in (
            ("texts", [{"text": a} for a, _ in pairs], [],
             [theirs.encode(a, add_special_tokens=False).ids for a, _ in pairs]),
            ("with special tokens", [{"text": a} for a, _ in pairs], ["--add_special_tokens"],
             [theirs.encode(a).ids for a, _ in pairs]),
            ("pairs", [{"text": a, "text_pair": b} for a, b in pairs], [],
             [theirs.encode(a, b).ids for a, b in pairs])):
        got = txtok(program, "encode", folder, lines, *options)
        bad = [i for i, (x, y) in enumerate(zip(got, want)) if x != y]
        failures += len(bad) + (len(got) != len(want))
        first = f"; first {pairs[bad[0]]}" if bad else ""
        print(f"{name}, {what}: {len(want) - len(bad)} of {len(want)} equal{first}")
    return failures


def write(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def main():
    program, data = sys.argv[1], DATA
    failures = 0
    if not all(os.path.exists(os.path.join(data, *path)) for path in
               (("glue", "MRPC"), ("tokenizers", "bert-base-cased-tokenizer.json"),
                ("tokenizers", "gpt2-encoder.json"))):
        skip(f"no MRPC or no tokenizers in {data}")
    pairs = list(texts(data))
    for name in ("bert-base-cased", "bert-base-uncased"):
        path = os.path.join(data, "tokenizers", name + "-tokenizer.json")
        theirs = Tokenizer.from_file(path)
        theirs.no_truncation()
        theirs.no_padding()
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(os.path.abspath(path), os.path.join(folder, "tokenizer.json"))
            failures += compare(name, theirs, folder, program, pairs)
    theirs, vocab, merges = roberta(data)
    with tempfile.TemporaryDirectory() as folder:
        write(folder, "tokenizer.json", theirs.to_str())
        failures += compare("RoBERTa", theirs, folder, program, pairs)
    with tempfile.TemporaryDirectory() as folder:
        write(folder, "vocab.json", vocab)
        write(folder, "merges.txt", merges)
        failures += compare("RoBERTa, vocab.json", theirs, folder, program, pairs)
    return 1 if failures else 0


sys.exit(main())
