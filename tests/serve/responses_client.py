# SPDX-License-Identifier: Apache-2.0
"""/v1/responses of txserve with the openai package as its client: texts, thoughts and tool calls, whole and streamed;
prompts equal those of chats, which other tests compare with transformers; schemas; refused requests.

    responses_client.py TXSERVE MODEL
"""
import json
import os
import sys
import tempfile

import oracle

import openai
import pydantic

from server import Server
import tape
import tools_cases as cases

program, folder = sys.argv[1], sys.argv[2]
check = oracle.check
TOOLS = [{"type": "function", **tool["function"]} for tool in cases.TOOLS]
SMALL = {"name": "send", "parameters": {"type": "object"}}
RENDERED = """{% if tools %}TOOLS {{ tools | tojson }}
{% endif %}{% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}{{ m.content }}
{% if m.role == 'assistant' %}[END]{% endif %}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}{% endfor -%}
{% if add_generation_prompt %}assistant: {% endif %}"""
CALL = {"id": "c1", "type": "function", "function": {"name": "send", "arguments": '{"n": 7}'}}
OTHER = {"id": "c2", "type": "function", "function": {"name": "send", "arguments": '{"n": 8}'}}


def item_call(call):
    return {"type": "function_call", "call_id": call["id"], **call["function"], "id": "fc_1", "status": "completed"}


def connect(server):
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
    return client, client.models.list().data[0].id


def seen(response):
    """The items of an answer: thoughts, texts and calls."""
    return [("reasoning", "".join(c.text for c in i.content)) if i.type == "reasoning" else
            ("message", "".join(c.text for c in i.content)) if i.type == "message" else (i.name, i.arguments)
            for i in response.output]


def check_events(events, whole, what):
    """Events are numbered; items begin, grow and end in order; their parts are those of the answer."""
    kinds = [e.type for e in events]
    check([e.sequence_number for e in events] == list(range(len(events))), f"{what}: numbers of events")
    check(kinds[:2] == ["response.created", "response.in_progress"] and
          kinds[-1] == f"response.{whole.status}" and not events[0].response.output, f"{what}: ends of {kinds}")
    output = events[-1].response.output
    items, texts = [], []
    for event in events[2:-1]:
        name = event.type.removeprefix("response.")
        if name == "output_item.added":
            check(event.output_index == len(items) and event.item.status == "in_progress", f"{what}: {event}")
            items.append(event.item)
            texts.append("")
        else:
            check(event.output_index == len(items) - 1, f"{what}: the index of {event}")
        if name.endswith(".delta"):
            texts[-1] += event.delta
        if name == "content_part.done":
            check(event.part.text == texts[-1], f"{what}: {event}")
        if name.endswith("_text.done") or name == "function_call_arguments.done":
            check((event.arguments if "call" in name else event.text) == texts[-1], f"{what}: {event}, {texts[-1]!r}")
        if name == "output_item.done":
            check(event.item == output[len(items) - 1] and event.item.id == items[-1].id, f"{what}: {event}")
        else:
            check(getattr(event, "item_id", items[-1].id) == items[-1].id, f"{what}: the id of {event}")
    check(texts == [text for _, text in seen(whole)] and seen(events[-1].response) == seen(whole), f"{what}: {texts}")
    check(kinds.count("response.output_item.done") == len(items) == len(whole.output), f"{what}: each item ends")
    counted, expected = ({**r.usage.model_dump(), "input_tokens_details": None} for r in (events[-1].response, whole))
    check(counted == expected, f"{what}: usage {counted}, {expected}")


class Tape:
    """Requests whose prompts have a wanted number of tokens."""
    def __init__(self, server):
        self.client, self.name = connect(server)

    def ask(self, start, items=(), **how):
        def body(text):
            return {"model": self.name, "temperature": 0, "input": [{"role": "user", "content": text}, *items], **how}
        size = self.client.responses.create(**{**body(""), "max_output_tokens": 1}).usage.input_tokens
        self.body = body("x" * (start - size))
        return self.client.responses.create(**self.body)

    def stream(self):
        return list(self.client.responses.create(**self.body, stream=True))


def test_cases(work):
    for template in ("Qwen-Qwen3-0.6B", "openai-gpt-oss-120b", "Qwen-Qwen2.5-7B-Instruct"):
        own = [case for case in cases.CASES if case[0] == template]
        starts = tape.make(work, [case[1] for case in own], cases.SPECIAL)
        with Server(program, work, "--slots", "2", "--chat_template", os.path.join(cases.FOLDER, template + ".jinja")) as server:
            chats = Tape(server)
            for start, (_, answer, content, thought, calls, reason) in zip(starts, own):
                got = chats.ask(start, tools=TOOLS)
                want = [("reasoning", thought)] * bool(thought) + [("message", content)] * bool(content)
                mine = seen(got)
                check(mine[:len(want)] == want, f"{template}: {answer!r}: {mine}")
                rest = [(name, cases.value(text)) for name, text in mine[len(want):]]
                check(rest == calls and got.status == "completed", f"{template}: calls {rest}, {got.status}")
                check(got.output[-1].status == ("incomplete" if reason.startswith("mal") else "completed"), f"{got}")
                details = got.usage.output_tokens_details.reasoning_tokens
                least = len((thought or "").encode())  # the tokens are bytes; those of the marks may count
                check(max(least - 2, 0) <= details <= least + 12 * bool(thought), f"{template}: {details} tokens of {thought!r}")
                check_events(chats.stream(), got, f"{template}: {answer!r}")
                with chats.client.responses.stream(**chats.body) as stream:  # joins the events
                    stream.until_done()
                    final = stream.get_final_response()
                check(seen(final) == mine, f"{template}: the joined events: {final}")
            if template.startswith("Qwen-Qwen3"):
                got = chats.ask(starts[0], tools=TOOLS, parallel_tool_calls=False)
                check([i.type for i in got.output] == ["reasoning", "function_call"], f"one call: {got}")
                got = chats.ask(starts[0], tools=TOOLS, max_output_tokens=5)
                check((got.status, got.incomplete_details.reason, got.output[-1].status) ==
                      ("incomplete", "max_output_tokens", "incomplete"), f"cut off: {got}")
                test_turn(chats, starts[0])


def test_turn(chats, start):
    """The items of an answer go back, with the results of its calls: the prompt is that of the chat."""
    got = chats.ask(start, tools=TOOLS)
    items = [i.model_dump(exclude_none=True) for i in got.output]
    calls = [i for i in got.output if i.type == "function_call"]
    items += [{"type": "function_call_output", "call_id": c.call_id, "output": "Fine."} for c in calls]
    answer = {"role": "assistant", "content": "", "reasoning_content": got.output[0].content[0].text, "tool_calls": [
        {"id": c.call_id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in calls]}
    said = [*chats.body["input"], answer, *({"role": "tool", "tool_call_id": c.call_id, "content": "Fine."} for c in calls)]
    one = chats.client.responses.create(model=chats.name, input=[*chats.body["input"], *items], tools=TOOLS, max_output_tokens=1)
    two = chats.client.chat.completions.create(model=chats.name, messages=said, tools=cases.TOOLS, max_tokens=1)
    check(len(calls) == 2 and one.usage.input_tokens == two.usage.prompt_tokens, f"the second turn: {one.usage}, {two.usage}")


def test_required(work):
    """A model that writes noise calls the tool that a request names."""
    tape.make(work, ["x"], cases.SPECIAL)
    with Server(program, work, "--chat_template", os.path.join(cases.FOLDER, "Qwen-Qwen2.5-7B-Instruct.jinja")) as server:
        client, name = connect(server)
        tools = [{"type": "function", **tool["function"]} for tool in cases.CHOICES]
        for seed in range(4):
            how = dict(model=name, input="Q", tools=tools, temperature=1.5, extra_body={"seed": seed},
                       tool_choice={"type": "function", "name": "send"})
            got = client.responses.create(**how)
            data = json.loads(got.output[0].arguments)
            check(len(got.output) == 1 and got.output[0].name == "send" and 0 <= data["n"] <= 99, f"a required call: {got}")
            check_events(list(client.responses.create(**how, stream=True)), got, "a required call")


def test_prompts(client, name):
    """Equal prompts have equal texts and numbers of tokens."""
    user = {"role": "user", "content": "Once upon"}
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    answer = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [
        {"type": "output_text", "text": "Yes.", "annotations": []}]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "sunny"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "sunny"}
    for asked, messages in (
            ({"input": "Once upon"}, [user]), ({"input": [user]}, [user]),
            ({"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Once upon"}]}]}, [user]),
            ({"input": "Once upon", "instructions": "Tell."}, [{"role": "system", "content": "Tell."}, user]),
            ({"input": [{"role": "developer", "content": "Tell."}, user]}, [{"role": "developer", "content": "Tell."}, user]),
            ({"input": [user, answer, user]}, [user, {"role": "assistant", "content": "Yes."}, user]),
            ({"input": [user, thought, answer, user]},
             [user, {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}, user]),
            ({"input": [user, {**thought, "content": None}, answer, user]}, [user, {"role": "assistant", "content": "Yes."}, user]),
            ({"input": [user, item_call(CALL), item_call(OTHER), output]},
             [user, {"role": "assistant", "content": None, "tool_calls": [CALL, OTHER]}, result]),
            ({"input": [user, thought, answer, item_call(CALL), {**output, "output": [{"type": "input_text", "text": "sunny"}]}]},
             [user, {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm.", "tool_calls": [CALL]}, result])):
        for tools in (False, True):
            one = client.responses.create(model=name, temperature=0, max_output_tokens=12, **asked,
                                          **({"tools": [{"type": "function", **SMALL}]} if tools else {}))
            two = client.chat.completions.create(model=name, temperature=0, max_tokens=12, messages=messages,
                                                 **({"tools": [{"type": "function", "function": SMALL}]} if tools else {}))
            check((one.output_text, one.usage.input_tokens) == (two.choices[0].message.content, two.usage.prompt_tokens),
                  f"{asked}: {one.output_text!r} {one.usage}, {two.choices[0].message.content!r} {two.usage}")
            check(one.usage.output_tokens == 12 and one.status == "incomplete" and one.store is False and
                  one.instructions == asked.get("instructions") and len(one.tools) == tools, f"{asked}: {one}")
    how = dict(model=name, input="Once upon", temperature=0, max_output_tokens=12)
    check_events(list(client.responses.create(**how, stream=True)), client.responses.create(**how), "a text")
    one = [client.responses.create(**{**how, "temperature": 1.1}, extra_body={"seed": s}).output_text for s in (3, 3, 4)]
    check(one[0] == one[1] != one[2], f"seeds: {one}")


class Sky(pydantic.BaseModel):
    city: str = pydantic.Field(pattern="^[a-z]{1,9}$")
    warm: bool


def test_schema(client, name):
    got = client.responses.parse(model=name, input="The sky?", text_format=Sky, max_output_tokens=200)
    check(isinstance(got.output_parsed, Sky), f"a schema: {got.output_text}")
    got = client.responses.create(model=name, input="Q", text={"format": {"type": "json_object"}}, temperature=0,
                                  extra_body={"max_tokens": 30})
    check(got.output_text.lstrip().startswith("{"), f"an object: {got.output_text}")


def test_refused(server, name):
    call = item_call(CALL)
    for words, body in (
            ("input", {}), ("input", {"input": 5}), ("no messages", {"input": []}), ("item 1", {"input": [5]}),
            ("previous_response_id is not supported", {"input": "a", "previous_response_id": "resp_1"}),
            ("store is not supported", {"input": "a", "store": True}), ("type web_search", {"input": "a", "tools": [
                {"type": "web_search"}]}), ("input_image", {"input": [{"role": "user", "content": [
                    {"type": "input_image", "image_url": "x"}]}]}), ("type put", {"input": [
                        {"role": "user", "content": [{"type": "put", "text": "x"}]}]}),
            ("item_reference", {"input": [{"type": "item_reference", "id": "x"}]}), ("role", {"input": [{"content": "a"}]}),
            ("content", {"input": [{"role": "user"}]}), ("content", {"input": [{"role": "user", "content": [5]}]}),
            ("call_id", {"input": [{**call, "call_id": 5}]}), ("arguments", {"input": [{**call, "arguments": {}}]}),
            ("output", {"input": [call, {"type": "function_call_output", "call_id": "c1"}]}),
            ("max_output_tokens", {"input": "a", "max_output_tokens": 0}), ("tool 1", {"input": "a", "tools": [5]}),
            ("tools", {"input": "a", "tools": 5}), ("name", {"input": "a", "tools": [{"type": "function"}]}),
            ("tool_choice", {"input": "a", "tool_choice": {"type": "allowed_tools"}}),
            ("tool_choice", {"input": "a", "tool_choice": "required"}), ("text", {"input": "a", "text": "json"}),
            ("text", {"input": "a", "text": {"format": 5}}), ("schema", {"input": "a", "text": {"format": {
                "type": "json_schema", "name": "x"}}}), ("reasoning.summary", {"input": "a", "reasoning": {"summary": "concise"}}),
            ("reasoning.context", {"input": "a", "reasoning": {"context": "all_turns"}}),
            ("reasoning.budget: unknown key", {"input": "a", "reasoning": {"budget": 5}}),
            ("reasoning_effort", {"input": "a", "reasoning": {"effort": "high"}}), ("text.verbosity", {"input": "a", "text": {"verbosity": "low"}}),
            ("text.format.root: unknown key", {"input": "a", "text": {"format": {"type": "text", "root": 1}}}),
            ("include is not supported", {"input": "a", "include": ["message.output_text.logprobs"]}),
            ("stream_options.include_obfuscation", {"input": "a", "stream_options": {"include_obfuscation": True}}),
            ("text.format: unknown key", {"input": "a", "text.format": {}}), ("tool_choice.mode", {"input": "a", "tool_choice": {"mode": "auto"}}),
            ("instructions", {"input": "a", "instructions": []}), ("unknown key", {"input": "a", "messages": []}),
            ("unknown key", {"input": "a", "n": 2}), ("background", {"input": "a", "background": True}),
            ("temperature", {"input": "a", "temperature": "hot"}), ("content", {"input": [{"type": "reasoning", "content": "x"}]}),
            ("does not exist", {"input": "a", "model": "other"}), ("context", {"input": "a", "max_output_tokens": 10**6})):
        status, got = server.send("POST", "/v1/responses", body)
        check(status in (400, 404) and words in got["error"]["message"], f"{words}: {str(got)[:300]}")
    status, got = server.send("POST", "/v1/responses", {"model": name, "input": "a", "store": False, "include": [],
                                                        "max_output_tokens": 2, "truncation": "disabled", "metadata": {"a": "b"},
                                                        "reasoning": {"effort": None, "summary": "auto"}})
    check(status == 200 and got["metadata"] == {"a": "b"}, f"keys without an effect: {got}")
    for body in ({"include": ["reasoning.encrypted_content"]}, {"text": {"verbosity": "medium"}}, {"reasoning": {"effort": "medium"}},
                 {"stream_options": {"include_obfuscation": False}}, {"prompt_cache_options": {"mode": "implicit"}}):
        status, got = server.send("POST", "/v1/responses", {"input": "a", "max_output_tokens": 2, **body})
        check(status == 200, f"{body}: {got}")
    check(server.send("GET", "/v1/responses/resp_1")[0] == 404, "no answer is stored")


with tempfile.TemporaryDirectory() as work:
    path = os.path.join(work, "all.jinja")
    with open(path, "w") as f:
        f.write(RENDERED)
    with Server(program, folder, "--chat_template", path) as server:
        client, name = connect(server)
        test_prompts(client, name)
        test_schema(client, name)
        test_refused(server, name)
        check(server.end() == 0, "the server ends")
    test_cases(work)
    test_required(work)
sys.exit(oracle.status())
