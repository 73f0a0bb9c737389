# SPDX-License-Identifier: Apache-2.0
"""Tool calls and thoughts of txserve with the openai package as its client, in the forms of published templates, streamed
and whole; a conversation of five turns with tools, whose prompts are those of transformers.

    tools_client.py TXSERVE
"""
import json
import os
import sys
import tempfile

import oracle

import openai
from transformers import AutoTokenizer

from server import Server
import tape
from tools_cases import BOTH, CASES, CHOICES, FOLDER, SPECIAL, TOOLS, hermes, value

check = oracle.check
TURNS = [hermes([("get_weather", {"city": f"City {i}"})]) for i in range(4)] + ["Done."]


class Chats:
    """A client whose prompts have a wanted number of tokens: the first message is padded."""
    def __init__(self, server):
        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
        self.name = self.client.models.list().data[0].id

    def ask(self, messages, start, **how):
        def pad(count):
            return [{**messages[0], "content": messages[0]["content"] + "x" * count}, *messages[1:]]
        how = {"tools": TOOLS, "max_tokens": 600, "temperature": 0, **how}
        probe = {k: v for k, v in how.items() if k not in ("stream", "stream_options", "max_tokens")}
        size = self.client.chat.completions.create(model=self.name, messages=pad(0), max_tokens=1, **probe).usage.prompt_tokens
        assert size <= start, f"the prompt has {size} tokens, more than {start}"
        self.messages = pad(start - size)
        return self.client.chat.completions.create(model=self.name, messages=self.messages, **how)


def joined(chunks):
    """The message of a stream: each call begins with its id, type and name, and its arguments follow."""
    content, thought, calls, reason, roles = "", "", [], None, 0
    for chunk in chunks:
        if not chunk.choices:
            continue
        delta = chunk.choices[0].delta
        reason = chunk.choices[0].finish_reason or reason
        roles += delta.role == "assistant"
        content += delta.content or ""
        thought += getattr(delta, "reasoning_content", None) or ""
        for call in delta.tool_calls or []:
            if call.id:
                check(call.index == len(calls) and call.type == "function" and call.function.arguments == "" and
                      len(delta.tool_calls) == 1, f"the first chunk of a call: {call}")
                calls.append([call.function.name, "", call.id, 0])
            else:
                check(call.index == len(calls) - 1 and not call.function.name, f"a chunk of arguments: {call}")
                calls[-1][1] += call.function.arguments
                calls[-1][3] += 1
    check(roles == 1, f"{roles} chunks have a role")
    return content, thought, calls, reason


def serve(folder, template, *arguments):
    return Server(sys.argv[1], folder, "--slots", "2", "--chat_template", os.path.join(FOLDER, template + ".jinja"), *arguments)


def test_cases(folder):
    for template in dict.fromkeys(case[0] for case in CASES):
        own = [case for case in CASES if case[0] == template]
        starts = tape.make(folder, [case[1] for case in own], SPECIAL)
        with serve(folder, template) as server:
            chats = Chats(server)
            for start, case in zip(starts, own):
                test_case(chats, start, case)


def test_case(chats, start, case):
    template, answer, content, thought, calls, reason = case
    said = [{"role": "user", "content": "Q"}]
    whole = chats.ask(said, start).choices[0]
    got = whole.message
    mine = [(c.function.name, value(c.function.arguments)) for c in got.tool_calls or []]
    seen = (got.content, getattr(got, "reasoning_content", None), mine, whole.finish_reason)
    check(seen == (content, thought, calls, reason), f"{template}: {answer!r}: {seen}")
    ids = [c.id for c in got.tool_calls or []]
    check(len(set(ids)) == len(ids), f"ids {ids}")
    stream = joined(list(chats.ask(said, start, stream=True)))
    parts = [(name, value(arguments)) for name, arguments, _, _ in stream[2]]
    check((stream[0] or None, stream[1] or None, parts, stream[3]) == (content or None, thought, calls, reason),
          f"{template}: {answer!r} streamed: {stream}")
    if "parameter" not in answer and "<arg_key" not in answer:
        check(all(count > 1 for _, _, _, count in stream[2]), f"{template}: arguments in pieces: {stream[2]}")


def test_options(folder):
    """Requests without tools, with one call at most, cut off, and a server that leaves thoughts in the content."""
    name, said = "Qwen-Qwen3-0.6B", [{"role": "user", "content": "Q"}]
    answer = CASES[3][1]
    start, = tape.make(folder, [answer], SPECIAL)
    with serve(folder, name) as server:
        chats = Chats(server)
        for how in ({"tools": openai.NOT_GIVEN}, {"tool_choice": "none"}):
            got = chats.ask(said, start, **how).choices[0]
            check((got.message.content, got.message.tool_calls, got.finish_reason) == (hermes(BOTH), None, "stop"),
                  f"{how}: {got}")
        got = chats.ask(said, start, parallel_tool_calls=False)
        check([c.function.name for c in got.choices[0].message.tool_calls] == ["get_weather"] and
              got.choices[0].finish_reason == "tool_calls" and got.usage.completion_tokens < len(answer.encode()) - 20,
              f"one call: {got}")
        check(server.metric("texts_cancelled_total") == 0, "a request that ends after its call is not cancelled")
        cut = chats.ask(said, start, max_tokens=80).choices[0]
        check(cut.finish_reason == "length" and cut.message.tool_calls, f"cut off: {cut}")
        for how in ({"tool_choice": "any"}, {"tool_choice": named("other")}, {"tool_choice": "required", "tools": []},
                    {"tool_choice": "required", "response_format": {"type": "json_object"}}):
            check("tool_choice" in refused(chats, said, **how), f"{how} is accepted")
    with serve(folder, name, "--reasoning_format", "none") as server:
        got = Chats(server).ask(said, start, tools=openai.NOT_GIVEN).choices[0].message
        check(got.content == answer and not hasattr(got, "reasoning_content"), f"reasoning_format none: {got}")


def named(name):
    return {"type": "function", "function": {"name": name}}


def refused(chats, said, **how):
    try:
        chats.client.chat.completions.create(model=chats.name, messages=said, **{"tools": TOOLS, **how})
    except openai.BadRequestError as error:
        return str(error)
    return ""


def test_required(folder):
    """A model that writes noise calls the tools that a request demands, also after a thought that the prompt begins."""
    said = [{"role": "user", "content": "Q"}]
    for template, alone in [("Qwen-Qwen2.5-7B-Instruct", False), ("Qwen-QwQ-32B", False),
                            ("Mistral-Small-3.2-24B-Instruct-2506", True), ("moonshotai-Kimi-K2", True),
                            ("openai-gpt-oss-120b", True), ("mistralai-Mistral-Nemo-Instruct-2407", False)]:
        tape.make(folder, ["x"], SPECIAL)
        with serve(folder, template) as server:
            chats, seen = Chats(server), set()
            for seed in range(8):
                choice = named("send") if seed % 2 or alone else "required"
                how = dict(model=chats.name, messages=said, tools=CHOICES, tool_choice=choice, seed=seed,
                           temperature=1.5, max_tokens=300)
                got = chats.client.chat.completions.create(**how).choices[0]
                call = got.message.tool_calls[0].function if got.message.tool_calls else None
                fine = call and got.finish_reason == "tool_calls" and not got.message.content
                data = json.loads(call.arguments) if fine else {}
                check(fine and list(data) == ["city", "n"] and data["city"] in ("Paris", 'Rome "é"') and
                      0 <= data["n"] <= 99, f"{template}: {got}")
                seen.add(call.name)
                stream = joined(list(chats.client.chat.completions.create(**how, stream=True)))
                check([(name, json.loads(text)) for name, text, _, _ in stream[2]] == [(call.name, data)],
                      f"{template} streamed: {stream}")
            check(seen == ({"send"} if alone else {"send", "get_weather"}), f"{template}: {seen}")
            check(not alone or "name the tool" in refused(chats, said, tool_choice="required"), f"{template}: any tool")
    with serve(folder, "GLM-4.6") as server:
        check("not JSON" in refused(Chats(server), said, tool_choice="required"), "calls that are not JSON")


def test_turns(folder):
    """An agent: each answer is a call, whose message goes back with a result. The prompts are those of transformers."""
    name = "Qwen-Qwen2.5-7B-Instruct"
    starts = tape.make(folder, TURNS, SPECIAL)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with open(os.path.join(FOLDER, name + ".jinja")) as file:
        template = file.read()
    with serve(folder, name) as server:
        chats, said = Chats(server), [{"role": "user", "content": "Q"}]
        for turn, start in enumerate(starts):
            got = chats.ask(said, start)
            message = got.choices[0].message
            theirs = [{**m, "tool_calls": [{**c, "function": {**c["function"], "arguments": json.loads(
                c["function"]["arguments"])}} for c in m["tool_calls"]]} if m.get("tool_calls") else m
                for m in chats.messages]
            ids = tokenizer.apply_chat_template(theirs, chat_template=template, tools=TOOLS, tokenize=True,
                                                add_generation_prompt=True, return_dict=False)
            check(got.usage.prompt_tokens == len(ids), f"turn {turn}: {got.usage.prompt_tokens} tokens, {len(ids)}")
            if turn == len(starts) - 1:
                check(message.content == "Done." and not message.tool_calls, f"the last turn: {message}")
                return
            check(message.tool_calls and json.loads(message.tool_calls[0].function.arguments) == {"city": f"City {turn}"},
                  f"turn {turn}: {message}")
            said += [{**message.model_dump(), "reasoning_content": "So."},
                     {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": f"{turn} degrees"}]


with tempfile.TemporaryDirectory() as work:
    test_cases(work)
    test_options(work)
    test_required(work)
    test_turns(work)
sys.exit(oracle.status())
