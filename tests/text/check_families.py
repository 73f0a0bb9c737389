# SPDX-License-Identifier: Apache-2.0
"""Compares the ids and texts of tokenizers of published families with those of Hugging Face's tokenizers.

    check_families.py TXTOK [TEXTS [SEED [FAMILY...]]]     exit status 77: tokenizers is not installed

The texts are those of gpt2.golden.jsonl in the test data, if it is there, and random ones."""
import glob
import json
import os
import random
import sys
import tempfile
import unicodedata

from oracle import DATA, check, status, txtok

import families

TXTOK = sys.argv[1]
TEXTS = int(sys.argv[2]) if len(sys.argv) > 2 else 600
RANDOM = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PARTS = ["the", " of", "The cat", " don't", " n't", ".", " ,", "!", "``quoted''", "  ", " ", "   ", "\t", "\n",
         "\r\n", "\n\n", "\u00a0", "\u3000", "\u2028", "\u00e9", "e\u0301", "caf\u00e9", "A\u030a", "\u212b",
         "\ufb01", "\u0130", "\u00df", "\u03a3", "q\u0307\u0323", "a\u20dd", "\u1100\u1161\u11a8", "\uac01",
         "\u65e5\u672c", "\u30fc\u30ab", "\u3072\u3089", "\u4e2d", "\U00020000", "123", "4", "\u0663", "\u00bd",
         "\u2167", "\u2581", "\u2581\u2581", "\0", "\ufffd", "\u00ad", "\u200b", "\u200d", "\x07", "\x7f",
         "\U0001f600", "\u0903", "\u0600" "7", "\u0915\u094d\u0937", "<unk>", "<s>", "</s>", "<mask>", "[MASK]",
         "<extra_id_7>", "<0x41>", "<h1>", "New York", "<user>", "\uff21\uff22", "\uff10", "\u2460", "\u3392",
         "\u0439", "\u041f\u0440\u0438\u0432\u0435\u0442", "\u0e44\u0e17\u0e22", "\u0e33", "\u1e9b\u0323", "\u01c5",
         "\ufeff", "zzz", "Q", "cat", "http://x.y/z?a=1"]


def any_text():
    kind = RANDOM.random()
    if kind < .1:
        return RANDOM.choice(" \na\u2581\u00e9\U0001f600") * RANDOM.randrange(1, 90) + RANDOM.choice(PARTS)
    if kind < .2:
        ranges = [(1, 0x250), (0x250, 0x2000), (0x3000, 0xD7A4)]
        text = [chr(RANDOM.randrange(*RANDOM.choice(ranges))) for _ in range(RANDOM.randrange(1, 30))]
        # Tables of Unicode differ in the characters that were added later.
        return "".join(character for character in text if unicodedata.ucd_3_2_0.category(character) != "Cn")
    return "".join(RANDOM.choice(PARTS) if RANDOM.random() < .8 else " " for _ in range(RANDOM.randrange(0, 14)))


def all_texts():
    golden = os.path.join(DATA, "tokenizers/gpt2.golden.jsonl")
    texts = [json.loads(line)["text"] for line in open(golden, encoding="utf-8")] if os.path.exists(golden) else []
    return texts + [any_text() for _ in range(max(TEXTS - len(texts), TEXTS // 2))]


def all_corpus():
    text = os.path.join(DATA, "text/wikitext2_valid.txt")
    paths = [text] if os.path.exists(text) else sorted(glob.glob(os.path.join(ROOT, "*.md")))
    return "".join(open(path, encoding="utf-8").read() for path in paths)[:400000]


def wanted_of(tokenizer, text):
    """The ids, or None if the library panics: an added token's place where a normalizer has changed the text."""
    try:
        return tokenizer.encode(text, add_special_tokens=False).ids
    except BaseException as error:  # pyo3's PanicException is no Exception
        if type(error).__name__ != "PanicException":
            raise
        return None


def compare(name, folder, tokenizer, texts):
    wanted = [wanted_of(tokenizer, text) for text in texts]
    pairs = [(text, ids) for text, ids in zip(texts, wanted) if ids is not None]
    found = txtok(TXTOK, "encode", folder, [{"text": text} for text, _ in pairs])
    back = [line["text"] for line in txtok(TXTOK, "decode", folder, [ids for _, ids in pairs])]
    other = decoded = 0
    for (text, ids), ours, again in zip(pairs, found, back):
        right = tokenizer.decode(ids, skip_special_tokens=False)
        other += ours != ids
        decoded += again != right
        if ours != ids and other < 4:
            print(f"{name}: {text!r}: {ours}, expected {ids} {[tokenizer.id_to_token(i) for i in ids]}")
        if again != right and decoded < 4:
            print(f"{name}: {ids}: {again!r}, expected {right!r}")
    check(len(pairs) >= .9 * len(texts) and len(found) == len(back) == len(pairs), f"{name}: too few texts")
    check(other == 0 and decoded == 0, f"{name}: {other} ids and {decoded} texts of {len(pairs)} differ")
    print(f"{name}: {len(pairs)} texts", flush=True)


def main():
    corpus, texts = all_corpus(), all_texts()
    chosen = sys.argv[4:]
    for family in families.all_families():
        if chosen and family.__name__ not in chosen:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tokenizer.json")
            family(corpus).save(path)
            compare(family.__name__, folder, families.Tokenizer.from_file(path), texts)
    sys.exit(status())


if __name__ == "__main__":
    main()
