# SPDX-License-Identifier: Apache-2.0
"""The openai package as a client of the txserve of roots_inside.sh: a text as txgen's, a stream, a chat, an error.

    roots_client.py URL
"""
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none")
model = client.models.list().data[0].id
prompt = "line 7: the cat"
with open("generated", encoding="utf-8") as f:
    want = f.read().rstrip("\n")
got = client.completions.create(model=model, prompt=prompt, max_tokens=20, temperature=0, logprobs=1).choices[0]
assert prompt + got.text == want, (got.text, want)
assert len(got.logprobs.token_logprobs) == 20, got.logprobs
parts = client.completions.create(model=model, prompt=prompt, max_tokens=20, temperature=0, stream=True)
assert "".join(p.choices[0].text for p in parts if p.choices) == got.text
said = [{"role": "user", "content": "the dog"}]
assert client.chat.completions.create(model=model, messages=said, max_tokens=4).usage.completion_tokens > 0
try:
    client.completions.create(model=model, prompt=prompt, max_tokens=20, extra_body={"mirostat": 2})
    sys.exit("a request with an unsupported key was answered")
except openai.BadRequestError as error:
    assert "mirostat" in str(error), error
