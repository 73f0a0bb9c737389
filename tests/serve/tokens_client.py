# SPDX-License-Identifier: Apache-2.0
"""/tokenize and /detokenize of txserve, in vLLM's and llama.cpp's forms, compared with transformers.

    tokens_client.py TXSERVE MODEL
"""
import sys

import oracle

from transformers import AutoTokenizer

from server import Server

program, folder = sys.argv[1], sys.argv[2]
check = oracle.check
TEXTS = ["Once upon a time", "", "  two  blanks ", "<s>Tom</s> é 日本 \U0001f600", "line\n" * 2000]
SAID = [{"role": "system", "content": "Tell stories."}, {"role": "user", "content": "Once <s> upon"}]
CHATML = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def test_texts(server, tokenizer):
    for text in TEXTS:
        for special in (True, False):
            want = tokenizer(text, add_special_tokens=special).input_ids
            body = {"model": name, "prompt": text, "add_special_tokens": special, "return_token_strs": False}
            status, got = server.send("POST", "/tokenize", body)
            check((status, got) == (200, {"count": len(want), "max_model_len": context, "tokens": want}),
                  f"{text[:30]!r} with add_special_tokens {special}: {str(got)[:200]}")
            got = server.send("POST", "/tokenize", {"content": text, "add_special": special})[1]
            check(got["tokens"] == want, f"{text[:30]!r} as content")
        plain = tokenizer(text, add_special_tokens=False).input_ids
        check(server.send("POST", "/tokenize", {"content": text})[1]["tokens"] == plain, "content has no special token")
        check(server.send("POST", "/tokenize", {"prompt": text})[1]["tokens"] == tokenizer(text).input_ids, "a prompt has")
        check(server.send("POST", "/detokenize", {"tokens": plain}) ==
              (200, dict.fromkeys(("prompt", "content"), tokenizer.decode(plain))), f"{text[:30]!r} back")
    split = server.send("POST", "/tokenize", {"content": "<s>", "parse_special": False})[1]["tokens"]
    check(tokenizer.bos_token_id not in split and len(split) > 1, f"a special token as text: {split}")


def test_chat(server, tokenizer):
    for asks in (True, False):
        text = tokenizer.apply_chat_template(SAID, chat_template=CHATML, tokenize=False, add_generation_prompt=asks)
        split = server.send("POST", "/tokenize", {"content": text, "parse_special": False})[1]["tokens"]  # <s> is text
        status, got = server.send("POST", "/tokenize", {"messages": SAID, "add_generation_prompt": asks,
                                                        "add_special_tokens": False})
        check(status == 200 and got["tokens"] == split, f"messages, add_generation_prompt {asks}: {got}")
        decoded = server.send("POST", "/detokenize", {"tokens": got["tokens"]})[1]["prompt"]
        check(decoded.strip() == text.strip(), f"messages back: {decoded!r}")
    chat = server.send("POST", "/v1/chat/completions", {"messages": SAID, "max_tokens": 1})[1]["usage"]["prompt_tokens"]
    check(server.send("POST", "/tokenize", {"messages": SAID})[1]["count"] == chat, "as many as a chat counts")


def test_refused(server, size):
    for path, words, body in (
            ("/tokenize", "prompt", {}), ("/tokenize", "prompt", {"prompt": 5}), ("/tokenize", "prompt", {"prompt": ["a"]}),
            ("/tokenize", "unknown key", {"prompt": "a", "content": "a"}), ("/tokenize", "content", {"content": {}}),
            ("/tokenize", "unknown key", {"messages": SAID, "prompt": "a"}), ("/tokenize", "messages", {"messages": 5}),
            ("/tokenize", "messages", {"messages": []}), ("/tokenize", "not supported", {"content": "a", "with_pieces": True}),
            ("/tokenize", "not supported", {"messages": SAID, "add_special_tokens": True}),
            ("/tokenize", "add_special", {"content": "a", "add_special": "yes"}),
            ("/tokenize", "does not exist", {"prompt": "a", "model": "other"}),
            ("/tokenize", "unknown key", {"prompt": "a", "max_tokens": 5}),
            ("/detokenize", "tokens", {}), ("/detokenize", "tokens", {"tokens": "a"}),
            ("/detokenize", "tokens", {"tokens": [size]}), ("/detokenize", "tokens", {"tokens": [-1]}),
            ("/detokenize", "tokens", {"tokens": [2**40]}), ("/detokenize", "tokens", {"tokens": [1.5]}),
            ("/detokenize", "tokens", {"tokens": [[1]]}), ("/detokenize", "unknown key", {"tokens": [1], "prompt": "a"})):
        status, got = server.send("POST", path, body)
        check(status in (400, 404) and words in got["error"]["message"], f"{path} {body}: {got}")
    check(server.send("GET", "/tokenize")[0] == 405, "GET")
    many = server.send("POST", "/detokenize", {"tokens": [5] * 200000})
    check(many[0] == 200 and len(many[1]["content"]) > 100, "200,000 tokens")
    zero = hugging_face.convert_tokens_to_ids("<0x00>")
    check(server.send("POST", "/detokenize", {"tokens": [zero]})[1]["content"] == "\0", "a byte of zero")
    check(server.send("POST", "/detokenize", {"tokens": []})[1] == {"prompt": "", "content": ""}, "no tokens")


with Server(program, folder, "--chat_template", "chatml") as server:
    hugging_face = AutoTokenizer.from_pretrained(folder)
    model = server.send("GET", "/v1/models")[1]["data"][0]
    name, context = model["id"], model["max_model_len"]
    test_texts(server, hugging_face)
    test_chat(server, hugging_face)
    test_refused(server, len(hugging_face))
    check(server.complete("Once", 3)[0] == 200 and server.end() == 0, "the server goes on, and ends")
sys.exit(oracle.status())
