# SPDX-License-Identifier: Apache-2.0
"""txserve with the openai package as its client, compared with transformers: greedy texts and log-probabilities of
completions and prompts; chats, streams, stop strings, seeds and errors.

    openai_client.py TXSERVE MODEL
"""
import json
import os
import sys
import tempfile

import oracle

import openai
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from server import Server

program, folder = sys.argv[1], sys.argv[2]
check = oracle.check
TEMPLATE = "chatml"
PROMPTS = ["Once upon a time", "Lily and Tom", "The little dog"]


class Reference:
    def __init__(self):
        self.model = AutoModelForCausalLM.from_pretrained(folder).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def greedy(self, prompt, most):
        """The new text and the log-probabilities of prompt and new tokens, from the second on."""
        ids = self.tokenizer(prompt, return_tensors="pt").input_ids
        with torch.no_grad():
            whole = self.model.generate(ids, max_new_tokens=most, do_sample=False, eos_token_id=None, pad_token_id=0)
            logprobs = torch.log_softmax(self.model(whole).logits[0].double(), -1)
        each = [logprobs[i, whole[0, i + 1]].item() for i in range(whole.shape[1] - 1)]
        text = self.tokenizer.decode(whole[0])
        return text[len(self.tokenizer.decode(ids[0])):], ids[0].tolist(), each


def near(got, want):
    return len(got) == len(want) and all(abs(a - b) <= 1e-4 for a, b in zip(got, want))


def test_completions(client, model, reference):
    answer = client.completions.create(model=model, prompt=PROMPTS, max_tokens=25, temperature=0, logprobs=3)
    check(len(answer.choices) == 3, "a choice for each prompt")
    for prompt, choice in zip(PROMPTS, answer.choices):
        text, ids, each = reference.greedy(prompt, 25)
        check(choice.text == text, f"{prompt}: {choice.text!r}, transformers {text!r}")
        check(near(choice.logprobs.token_logprobs, each[len(ids) - 1:]), f"{prompt}: log-probabilities")
        check(all(max(top.values()) == own and len(top) == 3 for top, own in
                  zip(choice.logprobs.top_logprobs, choice.logprobs.token_logprobs)), f"{prompt}: alternatives")
        echo = client.completions.create(model=model, prompt=ids, max_tokens=1, temperature=0, logprobs=0, echo=True)
        got = echo.choices[0].logprobs.token_logprobs
        check(got[0] is None and near(got[1:], each[:len(ids)]), f"{prompt}: echoed log-probabilities")
    long = (reference.tokenizer("Tom saw a big red ball in the park and he was happy. " * 12).input_ids)[:200]
    with torch.no_grad():
        logprobs = torch.log_softmax(reference.model(torch.tensor([long])).logits[0].double(), -1)
    want = [logprobs[i, long[i + 1]].item() for i in range(len(long) - 1)]
    got = client.completions.create(model=model, prompt=[long], max_tokens=0, logprobs=1, echo=True).choices[0]
    check(near(got.logprobs.token_logprobs[1:], want), "log-probabilities of 200 tokens without new ones")


def tokens_of(usage):
    """The tokens of an answer; how many were cached depends on the requests before."""
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens


def test_streams(client, model):
    for stop in (None, ["little", " was a"], "named L"):
        how = dict(model=model, prompt=PROMPTS[0], max_tokens=40, temperature=0, stop=stop)
        whole = client.completions.create(**how)
        parts = list(client.completions.create(**how, stream=True, stream_options={"include_usage": True}))
        text = "".join(p.choices[0].text for p in parts if p.choices)
        check(text == whole.choices[0].text, f"stop {stop}: {text!r} streamed, {whole.choices[0].text!r}")
        check(tokens_of(parts[-1].usage) == tokens_of(whole.usage), "usage of a stream")
        check(parts[-2].choices[0].finish_reason == whole.choices[0].finish_reason == ("stop" if stop else "length"),
              f"stop {stop}: finish_reason")
        check(not any(s in text for s in ([stop] if isinstance(stop, str) else stop or [])), "no stop string is shown")
    sampled = [client.completions.create(model=model, prompt="Once", max_tokens=30, temperature=1.2, n=3, seed=s)
               for s in (5, 5, 6)]
    texts = [[c.text for c in a.choices] for a in sampled]
    check(texts[0] == texts[1] != texts[2] and len(set(texts[0])) == 3, "the seed decides, and choices differ")


def test_chat(client, model, reference):
    messages = [{"role": "system", "content": "Tell stories."},
                {"role": "user", "content": [{"type": "text", "text": text} for text in ("Once upon", " a time")]}]
    rendered = ("<|im_start|>system\nTell stories.<|im_end|>\n<|im_start|>user\nOnce upon a time<|im_end|>\n"
                "<|im_start|>assistant\n")
    want = client.completions.create(model=model, prompt=reference.tokenizer(rendered, add_special_tokens=False)
                                     .input_ids, max_tokens=20, temperature=0).choices[0].text
    how = dict(model=model, messages=messages, max_tokens=20, temperature=0, logprobs=True, top_logprobs=2)
    whole = client.chat.completions.create(**how).choices[0]
    got = whole.message
    check(got.content == want and got.role == "assistant", f"chat: {got.content!r}, expected {want!r}")
    entries = whole.logprobs.content
    check(len(entries) == 20 and all(len(e.top_logprobs) == 2 and e.top_logprobs[0].logprob == e.logprob
                                     for e in entries), "log-probabilities of a chat")
    check(b"".join(bytes(e.bytes) for e in entries).decode() == want, "bytes of its tokens")
    parts = list(client.chat.completions.create(**how, stream=True))
    check("".join(p.choices[0].delta.content or "" for p in parts) == want, "a chat as a stream")
    streamed = [e for p in parts if p.choices[0].logprobs for e in p.choices[0].logprobs.content]
    check([e.logprob for e in streamed] == [e.logprob for e in entries], "its log-probabilities")
    check(parts[0].choices[0].delta.role == "assistant" and parts[-1].choices[0].finish_reason == "length", "its ends")


CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": CITY}}]
RENDERED = """{% if tools %}TOOLS {{ tools | tojson }}
{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}{% if m.role == 'assistant' %}[END]{% endif %}
{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}{% endfor -%}
{% if add_generation_prompt %}assistant: {% endif %}"""


def test_tools(reference):
    """A template renders tools and the results of calls as transformers does."""
    call = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    said = [{"role": "user", "content": "The sky?"}, {"role": "assistant", "content": "Wait", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "sunny"}]
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "tools.jinja")
        with open(path, "w") as f:
            f.write(RENDERED)
        with Server(program, folder, "--chat_template", path) as server:
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
            name = client.models.list().data[0].id
            for messages, how in ((said[:1], {}), (said[:1], {"tools": TOOLS}), (said, {"tools": TOOLS})):
                got = client.chat.completions.create(model=name, messages=messages, max_tokens=8, temperature=0, **how)
                theirs = json.loads(json.dumps(messages).replace('"{}"', "{}"))  # arguments become objects
                ids = reference.tokenizer.apply_chat_template(theirs, chat_template=RENDERED, tokenize=True,
                                                              add_generation_prompt=True, return_dict=False, **how)
                want = client.completions.create(model=name, prompt=ids, max_tokens=8, temperature=0)
                check(got.usage.prompt_tokens == len(ids), f"{got.usage.prompt_tokens} tokens, expected {len(ids)}")
                check(got.choices[0].message.content == want.choices[0].text, "the answer with tools")


def test_errors(client, model):
    cases = [(openai.NotFoundError, "does not exist", dict(model="other", prompt="a")),
             (openai.BadRequestError, "max_tokens", dict(model=model, prompt="a", max_tokens=-1)),
             (openai.BadRequestError, "context", dict(model=model, prompt="a", max_tokens=4000)),
             (openai.BadRequestError, "vocabulary|prompt", dict(model=model, prompt=[5, 10**6])),
             (openai.BadRequestError, "is not supported", dict(model=model, prompt="a", extra_body={"mirostat": 2})),
             (openai.BadRequestError, "unknown key", dict(model=model, prompt="a", extra_body={"guided": 1})),
             (openai.BadRequestError, "stop_strings|empty", dict(model=model, prompt="a", stop=[""]))]
    for kind, words, how in cases:
        try:
            client.completions.create(**how)
            check(False, f"{how} is accepted")
        except openai.APIStatusError as error:
            check(isinstance(error, kind) and any(w in error.message for w in words.split("|")), f"{how}: {error}")
    check([m.id for m in client.models.list()] == [model], "the list of models")


with Server(program, folder, "--slots", "3", "--chat_template", TEMPLATE) as server:
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
    name, hugging_face = client.models.list().data[0].id, Reference()
    test_completions(client, name, hugging_face)
    test_streams(client, name)
    test_chat(client, name, hugging_face)
    test_errors(client, name)
test_tools(hugging_face)
sys.exit(oracle.status())
