# SPDX-License-Identifier: Apache-2.0
"""Compares txtok with Hugging Face's tokenizers: the learned merges, and the ids of random texts under many
pre-tokenizers and added tokens.

    check_tokenizer.py TXTOK [TEXTS [SEED]]      exit status 77: tokenizers is not installed
"""
import glob
import json
import os
import random
import re
import sys
import tempfile
import unicodedata

from oracle import run, txtok

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

TXTOK = sys.argv[1]
TEXTS = int(sys.argv[2]) if len(sys.argv) > 2 else 60
RANDOM = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CORPUS = sorted(glob.glob(os.path.join(ROOT, "*.md")) + glob.glob(os.path.join(ROOT, "api", "*.c")))

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
          r"|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
WORDS = ["the", "cat", "Hello", " world", "'s", "'S", "'\u017f", "'ll", "'LL", "don't", "\u00e9!", "<x>",
         "<|endoftext|>", "<|endof", "  ", "   ", "\n", "\r\n", "\t", "a.b", "aaa", "123", "4567", "\u00bd", "\u0663",
         "\u2167", "\u65e5\u672c\u8a9e", "\u0645\u0631\u062d\u0628\u0627", "\u01c5", "\u02b0", "\u00e9", "\u00a0",
         "\u2003", "\u3000", "\u180e", "\u200b", "\u0085", "\u2028", "\x1c", "\x1f", "\0", "\U0001f600",
         "\U0001f1ea\U0001f1f8", "_", "-", "...", "/", "//\n", "\u0130", "\u00df", "\u212a", "\ufeff", "\u0300",
         "\u0903", "\ue000", "\uffff"]


def byte_level(prefix, regex):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def variants():
    yield "gpt2", byte_level(False, True), False
    yield "gpt2, prefix", byte_level(True, True), True
    yield "no expression", byte_level(True, False), True
    yield "llama3", sequence(split(LLAMA3), byte_level(False, False)), True
    yield "cl100k", sequence(split(CL100K, "Removed", True), byte_level(False, False)), True
    yield "o200k", sequence(split(O200K), byte_level(False, False)), True
    for individual in (False, True):
        digits = {"type": "Digits", "individual_digits": individual}
        yield f"digits {individual}", sequence(digits, byte_level(individual, True)), True
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            parts = [split(r"\s|a+", behavior, invert), byte_level(False, False)]
            yield f"split {behavior} {invert}", sequence(*parts), True
            parts = [split("a.b", behavior, invert, "String"), split(" ", behavior, invert, "String"),
                     byte_level(invert, True)]
            yield f"texts {behavior} {invert}", sequence(*parts), True


def added_tokens(first):
    flags = [("<x>", dict(lstrip=True, rstrip=True, special=True)), ("cat", dict(single_word=True, normalized=True)),
             ("<|endof", dict(normalized=True)), ("   ", {}),
             ("\u00e9!", dict(rstrip=True, normalized=True, special=True)),
             ("<x><x>", dict(lstrip=True, special=True)),
             ("\n", dict(single_word=True, lstrip=True, rstrip=True, normalized=True))]
    for i, (content, changed) in enumerate(flags):
        yield {"id": first + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
               "normalized": False, "special": False, **changed}


def any_character():
    code = RANDOM.choice([RANDOM.randrange(1, 128), RANDOM.randrange(128, 0x3000), RANDOM.randrange(0x3000, 0xd800),
                          RANDOM.randrange(0xe000, 0x20000)])
    # PCRE2 may not know characters that this Python's Unicode does not know.
    return chr(code) if unicodedata.category(chr(code)) != "Cn" else ""


def any_text(corpus):
    kind = RANDOM.random()
    if kind < .5:
        return "".join(RANDOM.choice(WORDS) if RANDOM.random() < .8 else RANDOM.choice(" \n\ta1.\u00e9'")
                       for _ in range(RANDOM.randrange(0, 14)))
    if kind < .6:
        return "".join(any_character() for _ in range(RANDOM.randrange(1, 30)))
    if kind < .7:
        return RANDOM.choice(" \na-'.") * RANDOM.randrange(1, 200) + RANDOM.choice(WORDS)
    if kind < .8:
        return "".join(RANDOM.choice("abc'sdmtrevl ") for _ in range(RANDOM.randrange(40, 120)))
    at = RANDOM.randrange(len(corpus) - 4000)
    if kind < .85:
        return re.sub(r"[^a-zA-Z]", "", corpus[at:at + RANDOM.randrange(1, 2000)])
    return corpus[at:at + RANDOM.randrange(1, 400)]


def check_training(folder, size, least, files):
    """The same vocabulary and merges as BpeTrainer's; transformers loads the folder."""
    done = run(TXTOK, "train", *files, tokenizer=folder, vocab_size=size, min_frequency=least)
    assert done.returncode == 0, done.stderr
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.train(files, trainers.BpeTrainer(vocab_size=size, min_frequency=least, special_tokens=["<|endoftext|>"],
                                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                            show_progress=False))
    wanted = json.loads(theirs.to_str())["model"]
    found = json.load(open(os.path.join(folder, "tokenizer.json"), encoding="utf-8"))["model"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in wanted["merges"]]
    assert found["vocab"] == wanted["vocab"], f"{folder}: another vocabulary"
    assert [tuple(m.split(" ")) for m in found["merges"]] == merges, f"{folder}: other merges"
    ours, text = AutoTokenizer.from_pretrained(folder), open(files[0], encoding="utf-8").read()
    assert ours(text)["input_ids"] == theirs.encode(text).ids, f"{folder}: other ids"
    assert ours.decode(ours(text)["input_ids"]) == text, f"{folder}: another text"
    print(f"trained: {len(merges)} merges")


def check_variant(folder, base, corpus, name, pre_tokenizer, added, ignore_merges):
    one = dict(base, pre_tokenizer=pre_tokenizer, model=dict(base["model"], ignore_merges=ignore_merges))
    if added:
        first = len(base["model"]["vocab"])
        known = base["model"]["vocab"]
        more = [token for token in added_tokens(first) if token["content"] not in known]
        one["added_tokens"] = base["added_tokens"] + [dict(token, id=first + i) for i, token in enumerate(more)]
    path = os.path.join(folder, "tokenizer.json")
    json.dump(one, open(path, "w", encoding="utf-8"))
    theirs = Tokenizer.from_file(path)
    for split_special in (False, True):
        theirs.encode_special_tokens = split_special
        texts = [any_text(corpus) for _ in range(TEXTS)]
        options = ["--split_special_tokens"] if split_special else []
        found = txtok(TXTOK, "encode", folder, [{"text": text} for text in texts], *options)
        assert len(found) == len(texts)
        for text, ids in zip(texts, found):
            wanted = theirs.encode(text, add_special_tokens=False).ids
            assert ids == wanted, f"{name}: {text!r}: {ids}, expected {wanted}"
        if "Removed" not in name and not pre_tokenizer.get("add_prefix_space"):
            back = [line["text"] for line in txtok(TXTOK, "decode", folder, found)]
            wanted = theirs.decode_batch(found, skip_special_tokens=False) if not added else back
            assert back == wanted, f"{name}: texts differ"
    print(f"{name}: {2 * TEXTS} texts")


def main():
    corpus = "".join(open(path, encoding="utf-8").read() for path in CORPUS)
    with tempfile.TemporaryDirectory() as work:
        trained = os.path.join(work, "trained")
        check_training(trained, 2000, 2, CORPUS)
        check_training(os.path.join(work, "all"), 20000, 1, CORPUS[:3])
        runs = os.path.join(work, "runs.txt")
        with open(runs, "w", encoding="utf-8") as file:
            for n in range(1, 200):
                file.write(" " * (n * 7 % 31) + "=" * n + "a" * (n * 13 % 17) + "ab" * (n * 5 % 23) + "\n")
        check_training(os.path.join(work, "of runs"), 400, 1, [runs])
        gpt2 = os.path.join(os.environ.get("TX_TEST_DATA", os.path.join(ROOT, "../shared/data")),
                            "tokenizers/gpt2-tokenizer.json")
        if not os.path.exists(gpt2):
            gpt2 = os.path.join(trained, "tokenizer.json")
        base = json.load(open(gpt2, encoding="utf-8"))
        for name, pre_tokenizer, added in variants():
            for ignore_merges in (False, True) if name in ("gpt2", "llama3") else (False,):
                check_variant(work, base, corpus, name, pre_tokenizer, added, ignore_merges)


main()
