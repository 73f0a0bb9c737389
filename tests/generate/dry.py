# SPDX-License-Identifier: Apache-2.0
"""Compares texts with DRY penalties with the published description, written out plainly: each token is the most likely
one after the penalties. txserve writes the texts of txgen.

    dry.py TXGEN TXSERVE MODEL
"""
import json
import os
import random
import sys
import tempfile

import oracle

from safetensors.numpy import load_file
from tokenizers import Tokenizer

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../serve"))
from server import Server  # noqa: E402

txgen, txserve, model = sys.argv[1:]
tokenizer = Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
NEW = 60
DEFAULT = ["\n", ":", "\"", "*"]


def text_of(token):
    word = tokenizer.id_to_token(token)
    if word.startswith("<0x") and word.endswith(">"):
        return bytes([int(word[3:5], 16)]).decode("latin-1")
    return word.replace("\u2581", " ")


WORDS = [text_of(i) for i in range(tokenizer.get_vocab_size())]


def tails(token, breakers):
    """The ids after this token that complete a breaker which begins in it."""
    found = []
    for b in breakers:
        if b in WORDS[token]:
            found.append([])
            continue
        for size in range(1, len(b)):
            if WORDS[token].endswith(b[:size]):
                found.append(tokenizer.encode(b[size:], add_special_tokens=False).ids[:20])
    return found


def after_breaker(ids, breakers):
    """How many of the last tokens follow the last breaker."""
    for i in range(len(ids) - 1, -1, -1):
        ends = [i + 1 + len(t) for t in tails(ids[i], breakers) if ids[i + 1:i + 1 + len(t)] == t]
        if ends:
            return len(ids) - max(ends)
    return len(ids)


def penalties(ids, s):
    """The penalty of each token that would continue a repetition."""
    ids = ids[-s["dry_penalty_last_n"]:]
    allowed, breakers = s["dry_allowed_length"], s["breakers"]
    limit = after_breaker(ids, breakers)
    result = {}
    if len(ids) <= allowed or limit < allowed:
        return result
    for at in range(1, len(ids)):  # the token that followed an earlier occurrence of the end
        length = 0
        while length < at and ids[at - 1 - length] == ids[len(ids) - 1 - length]:
            length += 1
        length = min(length, limit)
        if length >= allowed and [] not in tails(ids[at], breakers):
            penalty = s["dry_multiplier"] * s["dry_base"] ** (length - allowed)
            result[ids[at]] = max(result.get(ids[at], 0), penalty)
    return result


def check(ids, s, work):
    """Returns how often a penalty decided."""
    options = {n: v for n, v in s.items() if n != "breakers"}
    words = [w for b in s["breakers"] or ["none"] for w in ("--dry_sequence_breakers", b)]
    text = " ".join(map(str, ids))
    run = oracle.run(txgen, "--model", model, "--threads", "1", "--ids", text, "--max_new_tokens", str(NEW),
                     "--do_sample", "false", *(words if s["breakers"] != DEFAULT else ()), **options)
    oracle.check(run.returncode == 0, f"{s}: {run.stderr}")
    new = [int(i) for i in run.stdout.split()]
    path = os.path.join(work, "logits")
    oracle.succeed(txgen, "--model", model, "--threads", "1", "--ids", " ".join(map(str, ids + new)), "--logits", path)
    logits, decided, broken = load_file(path)["logits"][0], 0, 0
    for i, token in enumerate(new):
        before = ids + new[:i]
        scores = logits[len(before) - 1].astype("float64")
        plain = int(scores.argmax())
        free = penalties(before, {**s, "breakers": []})
        all_of = penalties(before, s)
        for t, penalty in all_of.items():
            scores[t] -= penalty
        oracle.check(scores[token] >= scores.max() - 1e-4, f"{s}: token {i}: {token}, expected {scores.argmax()}")
        decided += int(scores.argmax()) != plain
        broken += free != all_of
    return len(new), decided, broken


def test_random(work):
    rng = random.Random(3)
    tokens = decided = broken = 0
    usual = (" the", " a", " and", ".", ",", " to", "\n", " was", " she", ":", "\"")
    common = [i for i, w in enumerate(WORDS) if w in usual]
    for i in range(30):
        few = [rng.randrange(3, 512) for _ in range(4)] + common
        part = [rng.choice(few) for _ in range(rng.randrange(2, 9))]
        ids = [1] + [t for _ in range(rng.randrange(1, 9)) for t in part + [rng.choice(few)] * rng.randrange(2)]
        s = dict(dry_multiplier=round(rng.uniform(0.5, 15), 2), dry_base=round(rng.uniform(1, 3), 2),
                 dry_allowed_length=rng.randrange(0, 5), dry_penalty_last_n=rng.choice([3, 10, 64, 64, 500]),
                 breakers=rng.choice([DEFAULT, DEFAULT, [], ["the", ", a"], [" was", "e", "nd s"]]))
        if i == 0:  # llama.cpp's defaults
            s.update(dry_multiplier=0.8, dry_base=1.75, dry_allowed_length=2, dry_penalty_last_n=64, breakers=DEFAULT)
        got = check(ids[:100], s, work)
        tokens, decided, broken = tokens + got[0], decided + got[1], broken + got[2]
    print(f"{tokens} tokens: penalties decided {decided}, breakers changed the penalties of {broken}")
    oracle.check(decided > 50 and broken > 50, f"only {decided} and {broken} of {tokens} tokens test something")


def test_server():
    prompt = "Once upon a time, a cat and a cat and a cat"
    with Server(txserve, model) as server:
        for more in ({}, {"dry_sequence_breakers": [" and"]}, {"dry_sequence_breakers": []}, {"dry_base": 3}):
            words = [w for b in more.get("dry_sequence_breakers", ["-"]) or ["none"] if b != "-"
                     for w in ("--dry_sequence_breakers", b)]
            options = {"dry_multiplier": 2.5, "dry_allowed_length": 1}
            options.update((k, v) for k, v in more.items() if k == "dry_base")
            want = oracle.run(txgen, "--model", model, "--threads", "1", "--prompt", prompt, "--max_new_tokens",
                              str(NEW), "--do_sample", "false", *words, **options)
            status, answer = server.complete(prompt, NEW, **{**options, **more})
            oracle.check(status == 200 and prompt + answer["choices"][0]["text"] == want.stdout.rstrip("\n"),
                         f"{more}: {json.dumps(answer)}, txgen {want.stdout} {want.stderr}")
            status, answer = server.send("POST", "/v1/chat/completions", {"messages": [], **more, "dry_base": 0.5})
            oracle.check(status == 400, f"dry_base 0.5: {answer}")
        for bad in [""], ["a" * 41], "a", [1], ["a"] * 17:
            status, answer = server.complete(prompt, 2, dry_multiplier=1, dry_sequence_breakers=bad)
            oracle.check(status == 400 and "dry_sequence_breakers" in answer["error"]["message"], f"{bad}: {answer}")
        server.end()
    run = oracle.run(txgen, "--model", model, "--prompt", "a", "--dry_sequence_breaker", "b")
    oracle.check(run.returncode == 2 and "needs --dry_multiplier" in run.stderr, f"no multiplier: {run.stderr}")


with tempfile.TemporaryDirectory() as folder:
    test_random(folder)
test_server()
sys.exit(oracle.status())
