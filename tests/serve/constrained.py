# SPDX-License-Identifier: Apache-2.0
"""Requests with schemas, expressions and grammars: answers are valid or cut at their limit, and what is wrong is refused.

    constrained.py TXSERVE MODEL
"""
import json
import re
import sys

from server import Server

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0,
          "maximum": 130}, "kind": {"enum": ["cat", "dog"]}}, "required": ["name", "age", "kind"], "additionalProperties": False}


def check(good, what):
    if not good:
        sys.exit(f"FAILED: {what}")


def texts(server, **more):
    status, answer = server.send("POST", "/v1/completions", {"prompt": "Once upon a time", "max_tokens": 150, "temperature": 1,
                                                             "seed": 3, "n": 8, **more})
    check(status == 200, f"{more}: {answer}")
    return [(c["text"], c["finish_reason"]) for c in answer["choices"]]


def is_person(text):
    value = json.loads(text)
    return list(value) == list(SCHEMA["properties"]) and 0 <= value["age"] <= 130 and value["kind"] in ("cat", "dog")


def main(program, model):
    cases = {"guided_regex": ("[a-z]{3,8} [0-9]{2}", lambda t: re.fullmatch("[a-z]{3,8} [0-9]{2}", t)),
             "guided_choice": (["yes", "no", "maybe"], lambda t: t in ("yes", "no", "maybe")),
             "grammar": ('root ::= ("ab" | "c"){3} "!"', lambda t: re.fullmatch("(ab|c){3}!", t)),
             "guided_json": (json.dumps(SCHEMA), is_person), "json_schema": (SCHEMA, is_person),
             "response_format": ({"type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA, "strict": True}}, is_person)}
    with Server(program, model, "--slots", "4", "--chat_template", "chatml") as s:
        for key, (value, fits) in cases.items():
            found = texts(s, **{key: value})
            check(all(end == "stop" and fits(text) for text, end in found), f"{key}: {found}")
            check(found == texts(s, **{key: value}), f"{key}: the same seed, the same texts")
            check(key in ("guided_choice", "grammar") or len(set(found)) > 1, f"{key}: all texts are alike: {found}")
        check(texts(s) != texts(s, response_format={"type": "json_object"}), "json_object changes texts")
        check(texts(s) == texts(s, response_format={"type": "text"}), "text changes none")
        found = texts(s, response_format={"type": "json_object"})
        check(all(end == "length" or isinstance(json.loads(text), dict) for text, end in found), f"json_object: {found}")
        found = texts(s, json_schema=SCHEMA, max_tokens=6)
        check(all(end == "length" for _, end in found), f"cut: {found}")
        check(all(t in ("yes", "no") for t, _ in texts(s, guided_choice=["yes", "no"], presence_penalty=2, repetition_penalty=1.5,
              top_p=0.5, min_p=0.1, logit_bias={"5": 100}, min_tokens=20)), "penalties and biases allow no other tokens")
        chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 150, "temperature": 1, "seed": 1}
        answer = s.send("POST", "/v1/chat/completions", {**chat, **{"response_format": cases["response_format"][0]}})[1]
        check(is_person(answer["choices"][0]["message"]["content"]), answer)
        stream = s.send("POST", "/v1/chat/completions", {**chat, "guided_json": SCHEMA, "stream": True})[1]
        parts = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
        check(is_person("".join(p["choices"][0]["delta"].get("content") or "" for p in parts)), stream)
        for body, word in (({"guided_json": {"type": "object", "properties": {"a": {"patternProperties": {}}}}},
                            "guided_json: schema #/properties/a: patternProperties"), ({"guided_regex": "(a"}, "guided_regex: "),
                           ({"guided_regex": "a", "grammar": "root ::= \"a\""}, "exclude"), ({"guided_json": "{"}, "guided_json"),
                           ({"response_format": {"type": "xml"}}, "response_format xml"), ({"guided_choice": []}, "guided_choice"),
                           ({"response_format": {"type": "json_schema"}}, "json_schema"), ({"grammar": 3}, "grammar"),
                           ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}, "has no schema")):
            status, answer = s.complete("a", **body)
            check(status == 400 and word in answer["error"]["message"], f"{body}: {status} {answer}")
        check(s.end() == 0, "the server ends")


main(*sys.argv[1:])
print("all agree")
