# SPDX-License-Identifier: Apache-2.0
"""Random texts of grammars are valid: of 1,000 random schemas by jsonschema, of regular expressions by Python's re, of
grammars by expressions that mean the same. What cannot be enforced is refused, and hostile input ends soon.

    follow.py FOLLOW TOKENIZERS [SCHEMAS]      exit status 77: no jsonschema
"""
import datetime
import json
import os
import random
import re
import subprocess
import sys
import tempfile

import oracle

import jsonschema

CHECKER = jsonschema.FormatChecker()
CHECKER.checks("time", ValueError)(lambda text: datetime.time.fromisoformat(text.replace("Z", "+00:00")) is not None)
CHECKER.checks("date-time", ValueError)(lambda text: datetime.datetime.fromisoformat(text.replace("Z", "+00:00")) is not None)
SEEDS = 3
NAMES = ["a", "b", "ab", "name", "\u00e9t\u00e9", "x y", "quote\"d", "\U0001f600", "id", "value", "title", "default"]
FORMATS = ["date", "time", "date-time", "uuid", "email", "ipv4"]
PATTERNS = ["^[a-z]{2,5}$", "\\d+", "^(foo|bar)+-[0-9]{2}$", "^[^\"\\\\]*$", "x.y", "^\\w+@\\w+\\.com$", "^[\u00e0-\u00ff]{1,3}$",
            "a|^b|c$", "^\\S+ \\S+$", "[\\n\\t\"]", "^\\$[0-9]+(\\.[0-9]{2})?$", "^$", "(?:ab?){3}", "^[^\\d\\s]{3}$", "\\u00e9"]
EXPRESSIONS = PATTERNS + ["[a-c]*?x", "a{,2}b", "(?P<year>[12]\\d{3})-(0[1-9]|1[0-2])", "\\d{3}\\.\\d{3}", "\\W\\D\\S",
                          "yes|no|", "(a|b)*abb", "[]x]+", "[a\\-z]", "(([a-z]*)*)*!", "(a?){0,100}b", "(x+x+)+y", "\\x41\\u0042",
                          "\\{\"a\": [0-9]\\}", "[\\w-]+\\.(com|org)", ".{3}", "\U0001f600{2}"]
# Grammars, and expressions that mean the same.
GRAMMARS = [
    ('root ::= "yes" | "no"', "yes|no"),
    ('# a comment\nroot ::= item ("," item)* # more\nitem ::= [a-z]{2}\n', "[a-z]{2}(,[a-z]{2})*"),
    ('root ::= (\n  "a"\n  | "b"\n) tail\ntail ::= [0-9]+ "\\n"?', "[ab][0-9]+\\n?"),
    ('root  ::= "1. " move " " move "\\n" ([1-9] [0-9]? ". " move "\\n")+\nmove ::= [NBKQR]? [a-h] [1-8]',
     "1\\. [NBKQR]?[a-h][1-8] [NBKQR]?[a-h][1-8]\\n([1-9][0-9]?\\. [NBKQR]?[a-h][1-8]\\n)+"),
    ('root ::= [^\\]\\n] "\\x41" . "\\u00e9"', "[^\\]\\n]A[\\s\\S]\u00e9"),
    ('root ::= "" | "a" root', "a*"),
    ('root ::= a-b a_c\na-b ::= "x"{2,3}\na_c ::= "y"{2} | "z"{1,}', "x{2,3}(yy|z+)"),
]
REFUSED = [
    ("schema", {"type": "object", "properties": {"a": {"patternProperties": {}}}}, "#/properties/a: patternProperties"),
    ("schema", {"type": "array", "items": {"not": {}}}, "#/items: not"),
    ("schema", {"uniqueItems": True}, "uniqueItems"),
    ("schema", {"type": "number", "multipleOf": 3}, "multipleOf"),
    ("schema", {"type": "string", "format": "hostname"}, "format hostname"),
    ("schema", {"type": "strin"}, "there is no type strin"),
    ("schema", {"$ref": "#/$defs/a"}, "there is no such schema"),
    ("schema", {"$ref": "http://example.org/a"}, "there is no such schema"),
    ("schema", {"$ref": "#"}, "no finite text"),
    ("schema", {"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "refers to itself"),
    ("schema", {"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "no finite text"),
    ("schema", {"enum": []}, "no finite text"),
    ("schema", {"type": "integer", "minimum": 3, "maximum": 2}, "no finite text"),
    ("schema", {"type": "string", "pattern": "a", "minLength": 3}, "pattern is not supported next to"),
    ("schema", {"type": "string", "pattern": "(?=a)"}, "lookaround"),
    ("schema", {"type": "string", "minLength": 10 ** 9}, "at most 65536"),
    ("schema", {"type": "array", "minItems": 3, "maxItems": 2}, "below the smallest"),
    ("schema", {"enum": [1], "minimum": 0}, "minimum is not supported next to"),
    ("schema", {"if": {}}, "if is not supported"),
    ("schema", 3, "a schema is an object"),
    ("schema", {"allOf": [{"properties": {"a": {"type": "null"}}}, {"properties": {"a": {"type": "string"}}}]}, "allOf"),
    ("regex", "(a", "a group has no end"), ("regex", "a)", "unexpected )"), ("regex", "*a", "nothing to repeat"),
    ("regex", "a++", "possessive"), ("regex", "a(?<=b)", "lookaround"), ("regex", "\\1", "escape"), ("regex", "\\bx", "escape"),
    ("regex", "[b-a]", "order"), ("regex", "a{3,2}", "order"), ("regex", "a{99999}", "65536"), ("regex", "[a", "end"),
    ("regex", "a^b", "only supported at the ends"), ("regex", "\\ud800", "no character"), ("regex", "[^\\s\\S]", "no finite text"),
    ("gbnf", 'root ::= root "a" | "b"', "left recursion"), ("gbnf", 'a ::= "b"', "no rule root"), ("gbnf", "root ::= a", "a is not"),
    ("gbnf", 'root ::= "a', "unexpected end"), ("gbnf", "root = a", "expected a rule"), ("gbnf", 'root ::= "a" root', "no finite"),
    ("gbnf", 'root ::= "a"\nroot ::= "b"', "defined twice"), ("gbnf", 'root ::= ("a"', "no end"),
    ("choice", [], "expected an array"), ("choice", [3], "a choice"),
]
HOSTILE = [
    ("regex", "(" * 5000 + "a" + ")" * 5000), ("regex", "((((a{1,60000}){1,60000}){1,60000}){1,60000})b"),
    ("regex", "(a?){60000}(a?){60000}b"), ("regex", "((a{0,1000}b?){0,1000}){0,1000}c"), ("regex", "[" + "a" * 100000 + "]"),
    ("regex", "(.|.){1,30000}" * 20 + "x"), ("regex", "(a|aa|aaa|b?c?d?){0,60000}" * 30), ("regex", "x" * 200000),
    ("regex", "(" + "|".join("a" * n for n in range(1, 400)) + ")*"), ("regex", ".*" * 3000), ("regex", "(x+x+)+" * 2000),
    ("gbnf", "root ::= " + " | ".join(f"r{i}" for i in range(4000)) + "\n"
     + "\n".join(f'r{i} ::= r{i + 1}? "a"' for i in range(4000)) + '\nr4000 ::= "b"'),
    ("gbnf", "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(3000)) + '\nr3000 ::= "a"\nroot ::= r0'),
    ("gbnf", "\n".join(f"r{i} ::= r{i + 1} | r{i + 1}" for i in range(3000)) + '\nr3000 ::= "a"\nroot ::= r0'),
    ("gbnf", 'root ::= s\ns ::= s2 s | "a"\ns2 ::= s3*\ns3 ::= "" | s'),
    ("gbnf", 'root ::= "(" root ")" | "[" root "]" | "" | root2 root2\nroot2 ::= "(" root ")"'),
    ("schema", {"$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(900)}, "$ref": "#/$defs/d0"}),
    ("schema", {"$defs": {"a": {"type": "object", "properties": {n: {"$ref": "#/$defs/a"} for n in "abcdefghij"}}}, "$ref": "#/$defs/a"}),
    ("schema", {"$defs": {"a": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/a"}}] * 50}}, "$ref": "#/$defs/a"}),
    ("schema", {"enum": ["a" * n for n in range(600)]}), ("schema", {"enum": list(range(3000))}),
    ("schema", {"properties": {f"p{i}": {} for i in range(1000)}, "additionalProperties": True}),
    ("schema", {"properties": {"a": {"allOf": [{"$ref": "#"}, {"title": "t", "type": "object"}]}}}),
    ("schema", {"allOf": [{"$ref": "#"}]}), ("schema", {"allOf": [{"$ref": "#/allOf/0"}, {}]}),
    ("schema", {"type": "array", "minItems": 60000, "items": {"type": "array", "minItems": 60000, "items": {"minLength": 60000}}}),
]


# ---- Random schemas ---------------------------------------------------------------------------------------


def schema_of_type(rng, kind, depth):
    one = {"type": kind}
    if kind == "string":
        choice = rng.randrange(5)
        if choice == 0:
            one["minLength"] = rng.randrange(4)
            one["maxLength"] = one["minLength"] + rng.randrange(12)
        elif choice == 1:
            one["format"] = rng.choice(FORMATS)
        elif choice == 2:
            one["pattern"] = rng.choice(PATTERNS)
        elif choice == 3:
            one["maxLength"] = rng.randrange(30)
    elif kind in ("integer", "number") and rng.random() < 0.7:
        low = rng.choice([0, 1, -5, -1234, 17, 99, 100000, rng.randrange(-10 ** 6, 10 ** 6), 0.5, -2.5])
        if rng.random() < 0.8:
            one[rng.choice(["minimum", "exclusiveMinimum"])] = low
        if rng.random() < 0.8:
            one[rng.choice(["maximum", "exclusiveMaximum"])] = low + rng.choice([3, 10, 101, 5000, 10 ** 7])
    elif kind == "array":
        if rng.random() < 0.8:
            one["items"] = random_schema(rng, depth - 1)
        if rng.random() < 0.5:
            one["minItems"] = rng.randrange(3)
        if rng.random() < 0.5:
            one["maxItems"] = one.get("minItems", 0) + rng.randrange(4)
        if "minItems" not in one and "maxItems" not in one and rng.random() < 0.3:
            one["prefixItems"] = [random_schema(rng, depth - 1) for _ in range(rng.randrange(1, 3))]
            one.pop("items", None)
    elif kind == "object":
        names = rng.sample(NAMES, rng.randrange(5))
        if names or rng.random() < 0.7:
            one["properties"] = {name: random_schema(rng, depth - 1) for name in names}
        if rng.random() < 0.7:
            one["required"] = [name for name in names if rng.random() < 0.5]
        if rng.random() < 0.5:
            one["additionalProperties"] = rng.choice([True, False, random_schema(rng, depth - 1)])
        if one.get("additionalProperties") is not False and rng.random() < 0.1:
            one.setdefault("required", []).append("extra")
    return one


def random_schema(rng, depth):
    kinds = ["string", "integer", "number", "boolean", "null"] + ["array", "object"] * (2 if depth > 0 else 0)
    choice = rng.randrange(14)
    if choice == 0:
        return {"enum": rng.sample([1, "a", None, True, 2.5, "\u00e9\"\\", [1, {"a": []}], {"k": "v"}, -7, ""], rng.randrange(1, 5))}
    if choice == 1:
        return {"const": rng.choice(["x", 0, False, None, {"a": [1, 2]}, "\n\u2028"])}
    if choice == 2 and depth > 0:
        return {"anyOf": [random_schema(rng, depth - 1) for _ in range(rng.randrange(1, 4))], "description": "one of"}
    if choice == 3:
        return {"oneOf": [{"type": "string", "maxLength": 5}, {"type": "integer", "minimum": 0}, {"type": "null"}]}
    if choice == 4 and depth > 0:
        return {"$ref": rng.choice(["#/$defs/list", "#/$defs/tree", "#/$defs/a~1b~0"])}
    if choice == 5 and depth > 0:
        names = rng.sample(NAMES, 4)
        return {"allOf": [{"type": "object", "properties": {n: random_schema(rng, depth - 2)}, "required": [n]} for n in names[:2]],
                "properties": {names[2]: random_schema(rng, depth - 2)}, "title": "all"}
    if choice == 6:
        return {"type": rng.sample(["string", "integer", "null", "boolean", "number"], 2)}
    if choice == 7:
        return rng.choice([{}, True, {"title": "any"}, {"minimum": 3}, {"maxLength": 4}, {"required": ["id"]}])
    return schema_of_type(rng, rng.choice(kinds), depth)


def random_root(rng):
    root = random_schema(rng, 3)
    while not isinstance(root, dict):
        root = random_schema(rng, 3)
    root["$defs"] = {
        "list": {"type": "object", "properties": {"head": {"type": "integer"}, "tail": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/list"}]}},
                 "required": ["head", "tail"], "additionalProperties": False},
        "tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
        "a/b~": {"type": "string", "pattern": "^[ab]*$"}}
    return root


# ---- Checks -----------------------------------------------------------------------------------------------


def run(program, tokenizer, lines, *more):
    done = subprocess.run([program, tokenizer, *more], input="".join(json.dumps(line) + "\n" for line in lines), capture_output=True,
                          text=True, check=False, timeout=900)
    if done.returncode:
        sys.exit(f"FAIL: follow ended with {done.returncode}: {done.stderr[-2000:]}")
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    return answers[:-1], answers[-1], done.stderr.strip()


def valid(line, answer):
    """Returns a fault of a complete text, or None."""
    try:
        if line["kind"] == "schema":
            value = json.loads(answer["text"])
            if line["json"] is None:
                return None if isinstance(value, dict) else "no object"
            jsonschema.Draft202012Validator(line["json"], format_checker=CHECKER).validate(value)
        elif line["kind"] == "choice":
            return None if answer["text"] in line["json"] else "no choice"
        elif not re.fullmatch(line.get("same", line.get("text")), answer["text"]):
            return "does not match"
    except (ValueError, RecursionError, jsonschema.ValidationError) as error:
        return str(error)[:300]
    return None


def check_texts(name, lines, answers):
    ends = 0
    for line, answer in zip(lines, answers, strict=True):
        what = f"{name}: {json.dumps(line)[:600]}: {json.dumps(answer)[:400]}"
        if "error" in answer:
            oracle.check(False, what)
        elif answer["finish"] == "stop":
            ends += 1
            fault = valid(line, answer)
            oracle.check(fault is None, f"{what}: {fault}")
    oracle.check(ends > 0.8 * len(lines), f"{name}: only {ends} of {len(lines)} texts are complete")
    print(f"{name}: {ends} of {len(lines)} texts are complete and valid")


def sentencepiece(folder):
    """The files of a tokenizer with blanks as \u2581 and tokens of bytes."""
    vocab = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    vocab += ["\u2581", "\u2581\u2581", "\u2581\u2581\u2581\u2581", "\u2581{", "{\"", "\":", "\",", "\u2581\"", "},", "\"}", "\u00e9", "\u2581the", "]", "[["]
    vocab += [chr(c) for c in range(33, 127) if chr(c) not in vocab]
    tokenizer = {
        "version": "1.0", "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}, "pre_tokenizer": None,
        "added_tokens": [{"id": i, "content": vocab[i], "special": True, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False} for i in range(3)],
        "post_processor": None, "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                  "vocab": {token: i for i, token in enumerate(vocab)}, "merges": []}}
    path = os.path.join(folder, "tokenizer.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(tokenizer, file)
    return path


def larger(folder, path):
    """GPT-2's tokenizer with 100,000 more tokens."""
    with open(path, encoding="utf-8") as file:
        tokenizer = json.load(file)
    rng, vocab = random.Random(1), tokenizer["model"]["vocab"]
    words = [word for word in vocab if word.strip("\u0120").isalpha()]
    while len(vocab) < 150000:
        vocab.setdefault((rng.choice(words) + rng.choice(words).strip("\u0120"))[:200], len(vocab))
    path = os.path.join(folder, "larger.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(tokenizer, file)
    return path


def main(program, tokenizers, schemas="1000"):
    rng = random.Random(7)
    gpt2 = os.path.join(tokenizers, "gpt2-tokenizer.json")
    if not os.path.exists(gpt2):
        oracle.skip(f"no {gpt2}")
    lines = [{"kind": "schema", "json": random_root(rng), "limit": 400} for _ in range(int(schemas))]
    for line in lines:
        jsonschema.Draft202012Validator.check_schema(line["json"])
    lines = [dict(line, seed=100 * i + seed) for i, line in enumerate(lines) for seed in range(SEEDS)]
    answers, last, note = run(program, gpt2, lines)
    print(note, last)
    check_texts("schemas", lines, answers)
    others = [{"kind": "schema", "json": None, "limit": 400}] + [{"kind": "regex", "text": e} for e in EXPRESSIONS]
    others += [{"kind": "schema", "json": {"type": "number", "minimum": low, "maximum": low + 1}} for low in (-3, -1, 0, 2, 9, 99)]
    others += [{"kind": "gbnf", "text": g, "same": e} for g, e in GRAMMARS] + [{"kind": "choice", "json": ["a", "ab", "\u00e9\n", ""]}]
    joined = [("text", "<call>"), ("schema", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}),
              ("text", "</call>"), ("or", ""), ("text", "none")]
    others.append({"kind": "parts", "parts": [{"kind": k, "json" if k == "schema" else "text": v} for k, v in joined],
                   "same": "<call>\\s?\\s*\\{\\s*\"a\":\\s*-?\\d+\\s*\\}</call>|none"})
    others = [dict(line, seed=seed) for line in others for seed in range(20)]
    check_texts("others", others, run(program, gpt2, others)[0])
    refused = [{"kind": kind, "json" if kind in ("schema", "choice") else "text": value} for kind, value, _ in REFUSED]
    for answer, (kind, value, word) in zip(run(program, gpt2, refused)[0], REFUSED, strict=True):
        oracle.check(word in answer.get("error", ""), f"{kind} {value}: {answer}: expected {word}")
    hostile = [{"kind": kind, "json" if kind in ("schema", "choice") else "text": value, "limit": 60} for kind, value in HOSTILE]
    for line in hostile:
        answers, last, _ = run(program, gpt2, [line])
        slow = max(last["slowest"] / 1e6, answers[0].get("seconds", 0))
        print(f"hostile {str(line)[:60]}: {str(answers[0])[:120]}: {slow:.2f} s")
        oracle.check(slow < float(os.environ.get("TX_SLOW", "2")), f"hostile {str(line)[:100]}: {slow:.1f} s")
    with tempfile.TemporaryDirectory() as folder:
        part = lines[:300]
        check_texts("sentencepiece", part, run(program, sentencepiece(folder), part)[0])
        answers, last, note = run(program, larger(folder, gpt2), part)
        print(note, last)
        check_texts("150,000 tokens", part, answers)
    faults = [a for line, a in zip(part, run(program, gpt2, part, "mutate")[0], strict=True) if a.get("finish") == "stop" and valid(line, a)]
    oracle.check(len(faults) > 20, f"a wrong token is seen only {len(faults)} times")


main(*sys.argv[1:])
sys.exit(oracle.status())
