# SPDX-License-Identifier: Apache-2.0
"""Parses answers that published chat templates render, as models write them: thoughts, texts and tool calls come back
equal, whatever the pieces in which the text arrives. The templates are those of tests/jinja/templates, TRL's, and of
families whose templates have other licences the parts that write calls (SHAPES).

    check_answers.py PARSE_ANSWERS
"""
import glob
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

from oracle import check, status

import trl
from transformers.utils.chat_template_utils import _compile_jinja_template

PROGRAM = sys.argv[1]
HERE = os.path.dirname(os.path.abspath(__file__))
FOLDERS = (os.path.join(HERE, "..", "jinja", "templates"), os.path.join(os.path.dirname(trl.__file__), "chat_templates"))

HEAD = ("{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}{% else %}<|assistant|>"
        "{% if m.content %}{{ m.content }}{% endif %}")
FOOT = "{% endif %}</s>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
LIST = ("[{% for c in m.tool_calls %}{{ '{' }}\"name\": \"{{ c.function.name }}\", \"arguments\": "
        "{{ c.function.arguments | tojson }}{{ '}' }}{% if not loop.last %}, {% endif %}{% endfor %}]")
NO_TEXT = HEAD.replace("{% if m.content %}", "{% if m.content and not m.tool_calls %}")
SHAPES = {
    "granite-3": HEAD + "{% if m.tool_calls %}<|tool_call|>" + LIST + "{% endif %}" + FOOT,
    "phi-4-mini": HEAD + "{% if m.tool_calls %}<|tool_call|>" + LIST + "<|/tool_call|>{% endif %}" + FOOT,
    "nemotron-nano-2": HEAD + "{% if m.tool_calls %}<TOOLCALL>" + LIST + "</TOOLCALL>{% endif %}" + FOOT,
    "command-r7b": NO_TEXT + """{% if m.tool_calls %}<|START_THINKING|>{{ m.reasoning_content }}<|END_THINKING|><|START_ACTION|>[
{% for c in m.tool_calls %}    {"tool_call_id": "{{ loop.index0 }}", "tool_name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}{% if not loop.last %},
{% endif %}{% endfor %}
]<|END_ACTION|>{% endif %}""" + FOOT,
    "command-r": HEAD + """{% if m.tool_calls %}Action: ```json
[
{% for c in m.tool_calls %}    {
        "tool_name": "{{ c.function.name }}",
        "parameters": {{ c.function.arguments | tojson(indent=4) }}
    }{% if not loop.last %},
{% endif %}{% endfor %}]```{% endif %}""" + FOOT,
    "deepseek-v3-0324": HEAD + """{% if m.tool_calls %}<｜tool▁calls▁begin｜>{% for c in m.tool_calls %}{{ '<｜tool▁call▁begin｜>' + c.type + '<｜tool▁sep｜>' + c.function.name + '\\n' + '```json' + '\\n' + c.function.arguments | tojson + '\\n' + '```' + '<｜tool▁call▁end｜>' }}{% if not loop.last %}{{ '\\n' }}{% endif %}{% endfor %}<｜tool▁calls▁end｜>{% endif %}""" + FOOT,
    "llama-3.3": NO_TEXT + """{% for c in m.tool_calls or [] %}{{- '{"name": "' + c.function.name + '", ' }}{{- '"parameters": ' }}{{- c.function.arguments | tojson }}{{- "}" }}{% if not loop.last %}; {% endif %}{% endfor %}""" + FOOT,
    "llama-3.3-python": HEAD + """{% for c in m.tool_calls or [] %}<|python_tag|>{{- '{"name": "' + c.function.name + '", ' }}{{- '"parameters": ' }}{{- c.function.arguments | tojson }}{{- "}" }}{% endfor %}""" + FOOT,
}
ENDS = re.compile(r"(<\|im_end\|>|</s>|<\|eot_id\|>|<\|eom_id\|>|<｜end▁of▁sentence｜>|<｜Assistant｜>|<\|end_of_text\|>|"
                  r"<\|call\|>|<\|observation\|>|<seed:eos>|<end_of_sentence>|\[e~\[|<\|end\|>|<\|END_OF_TURN_TOKEN\|>|"
                  r"<\|tool_response>|<turn\|>|\n)+$")

PROPERTIES = {"city": {"type": "string", "description": "c"}, "n": {"type": "integer", "description": "n"},
              "deep": {"type": "object", "description": "o"}, "list": {"type": "array", "description": "l"},
              "on": {"type": "boolean", "description": "b"}, "x": {"type": "number", "description": "x"}}
TOOLS = [{"type": "function", "function": {"name": name, "description": "d", "parameters": {
    "type": "object", "properties": PROPERTIES, "required": ["city"]}}} for name in ("get_weather", "send-mail_2")]
TEXTS = ["Paris", "5\" } and {", "déjà 日本語 😀", "a \"b\" \\ \n c\ttab", "</tool_call><tool_call>{\"name\": \"x\"}", "[ARGS]{}[TOOL_CALLS]",
         "} ]} ```<｜tool▁call▁end｜>\n```", "<think>no</think>", "7", "null", "{\"a\": 1}", "", "<function=x>", "it's"]
PLAIN = ["Paris", "déjà 日本語 😀", "a \"b\" \\ c", "<think>no</think>", "7", "null", "{\"a\": 1}", "two\n\nlines", "<x> & {y}"]
KEYED = ("minimax:", "seed:", "<arg_key>", "<parameter=", "DSML", "tool_call_start")  # values without quotes


def cases(plain, draw):
    texts = PLAIN if plain else TEXTS
    for text in texts:
        yield "", "Think.", [("get_weather", {"city": text, "n": 3})]
    yield "Some text.", "Think\n\ntwice. é", [("get_weather", {"city": "A", "on": True}), ("send-mail_2", {})]
    yield "", "Think.", [("send-mail_2", {"deep": {"a": [1, 2.5, True, None, {"b": "c"}], "é": "ü"}, "list": [[], {}, "x"],
                                          "x": -0.5, "on": False})]
    for _ in range(4):
        yield "", "Think.", [(draw.choice(["get_weather", "send-mail_2"]), {"city": draw.choice(texts), "n": draw.randint(
            -10**9, 10**12), "list": [draw.choice(PLAIN[:2]), draw.random()]}) for _ in range(2)]


def render(template, messages, **how):
    return _compile_jinja_template(template).render(messages=messages, tools=TOOLS, bos_token="<s>", eos_token="</s>",
                                                    pad_token="<pad>", **how)


def rendered(template, content, thought, calls):
    """The prompt and the answer, or None if the template does not render the case."""
    for arguments in (lambda a: a, json.dumps):
        made = [{"id": f"functions.{name}:{i}" if "section_begin" in template else f"abcdef00{i}", "type": "function",
                 "function": {"name": name, "arguments": arguments(values)}} for i, (name, values) in enumerate(calls)]
        for text in [content] + ([None] if not content else []):
            said = [{"role": "user", "content": "Q?"},
                    {"role": "assistant", "content": text, "reasoning_content": thought, "thinking": thought,
                     "tool_calls": made}]
            try:
                prompt = render(template, said[:1], add_generation_prompt=True)
                whole = render(template, said, add_generation_prompt=False)
            except Exception:  # the template's own kinds
                continue
            asked, prompt = prompt, os.path.commonprefix([prompt, whole])
            if prompt.rfind("<") > prompt.rfind(">"):  # the prompt goes on with another mark
                prompt = prompt[:prompt.rfind("<")]
            answer = re.sub(r"^</think>\s*", "", ENDS.sub("", whole[len(prompt):]))  # the prompt's
            if "<｜Assistant｜>" not in answer and all(answer.count(name) >= [n for n, _ in calls].count(name)
                                                              for name, _ in calls) and "'None'" not in answer:
                return asked if asked.endswith("steps:\n") else prompt, answer  # Apriel's templates leave it out later
    return None


def pieces(answer, draw):
    yield [answer]
    yield list(answer)
    yield [answer[i:i + 2] for i in range(0, len(answer), 2)]
    cuts = sorted(draw.sample(range(1, len(answer)), min(9, len(answer) - 1)))
    yield [answer[a:b] for a, b in zip([0] + cuts, cuts + [len(answer)])]


def parse(template, lines):
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
        file.write("{%- set eos_token = '</s>' %}{%- set bos_token = '<s>' %}" + template)  # the tokenizer of bytes has another
        file.flush()
        done = subprocess.run([PROGRAM, file.name], input="".join(json.dumps(line) + "\n" for line in lines),
                              capture_output=True, text=True, check=False, timeout=300)
    return [json.loads(line) for line in done.stdout.splitlines()] if done.returncode == 0 else done.stderr


def try_template(name, template, seed):
    """Returns the number of cases, each in all its pieces."""
    draw, lines, wants = random.Random(seed), [], []
    for content, thought, calls in cases(any(mark in template for mark in KEYED), draw):
        found = rendered(template, content, thought, calls)
        if not found:
            continue
        prompt, answer = found
        want = {"calls": [{"name": n, "arguments": a} for n, a in calls], "malformed": False,
                "content": content if content in answer else "", "thought": thought if thought in answer else ""}
        for parts in pieces(answer, draw):
            lines.append({"prompt": prompt, "answer": parts, "tools": TOOLS, "thoughts": True})
            wants.append(want)
    parsed = parse(template, lines) if lines else []
    if isinstance(parsed, str) and "no end of answers" in parsed:  # with their own tokenizers these have one
        parsed = parse(template + "{% if not add_generation_prompt %}</s>{% endif %}", lines)
    if isinstance(parsed, str):
        check(False, f"{name}: {parsed}")
        return 0
    for line, want, got in zip(lines, wants, parsed, strict=True):
        try:
            calls = [{"name": c["name"], "arguments": json.loads(c["arguments"])} for c in got["calls"]]
        except ValueError:
            calls = got["calls"]
        same = {**got, "calls": calls}
        for key in want:
            check(same[key] == want[key], f"{name}: {''.join(line['answer'])!r} in {len(line['answer'])} pieces: "
                                          f"{key} {same[key]!r} is not {want[key]!r}")
    return len(lines)


# Forms that TX lacks: their calls stay in the content.
LACKING = re.compile("GigaChat|gemma4|diffusion_gemma|functionary-medium-v3.2|muse_glimmer|MiniCPM5")


def test_templates():
    counted, forms = 0, 0
    for folder in FOLDERS:
        for path in sorted(glob.glob(os.path.join(folder, "*.jinja"))):
            if not LACKING.search(path):
                with open(path) as source:
                    found = try_template(os.path.basename(path), source.read(), 1)
                counted, forms = counted + found, forms + (found > 0)
    for name, source in SHAPES.items():
        found = try_template(name, source, 2)
        check(found, f"{name}: no case is rendered")
        counted += found
    print(f"{counted} answers of {forms} published templates and {len(SHAPES)} shapes")
    check(forms >= 30, f"only {forms} templates render calls")


def read(name):
    with open(os.path.join(FOLDERS[0], name + ".jinja")) as source:
        return source.read()


def one(template, answer, prompt="<|im_start|>assistant\n", tools=True, thoughts=True):
    got = parse(template, [{"prompt": prompt, "answer": answer if isinstance(answer, list) else list(answer),
                            "tools": TOOLS if tools else None, "thoughts": thoughts}])
    check(not isinstance(got, str), f"{answer[:80]!r}: {got}")
    return got[0]


def test_rules():
    """Half marks, answers without an end, text that is no call, and requests without tools."""
    hermes, thinking = read("Qwen-Qwen2.5-7B-Instruct"), read("Qwen-Qwen3-0.6B")
    mistral, gpt, llama = read("Mistral-Small-3.2-24B-Instruct-2506"), read("openai-gpt-oss-120b"), SHAPES["llama-3.3"]
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "A"}}\n</tool_call>'
    cut, invalid = '{"city": "A', '{"city": A}'
    rows = [  # template, answer, content, thought, arguments of calls, malformed
        (hermes, "a < b <tool", "a < b <tool", "", [], False),
        (hermes, "  a\n\n", "  a\n\n", "", [], False),
        (hermes, "<tool_call>no</tool_call> x", "<tool_call>no</tool_call> x", "", [], False),
        (hermes, '<tool_call>{"arguments": {}}', '<tool_call>{"arguments": {}}', "", [], False),
        (hermes, '<tool_call>{"name": "x"', '<tool_call>{"name": "x"', "", [], False),
        (hermes, call[:-12], "", "", ['{"city": "A"}'], False),
        (hermes, call[:-14], "", "", ['{"city": "A"}'], False),
        (hermes, "Text.\n\n" + call + "\n" + call + "\n", "Text.", "", ['{"city": "A"}'] * 2, False),
        (hermes, '<tool_call>{"arguments": {"n": 1}, "name": "x"}</tool_call>', "", "", ['{"n": 1}'], False),
        (hermes, '<tool_call>{"name": "x", "arguments": "{\\"n\\": 1}"}</tool_call>', "", "", ['{"n": 1}'], False),
        (hermes, '<tool_call>{"name": "x"}</tool_call>', "", "", ["{}"], False),
        (hermes, '<tool_call>{"name": "x", "arguments": ' + cut, "", "", [cut], True),
        (hermes, '<tool_call>{"name": "x", "arguments": ' + invalid + "}</tool_call>", "", "", [invalid], True),
        (hermes, "<think>a</think>b", "<think>a</think>b", "", [], False),
        (thinking, "<think>\na\n</think>\n\nb", "b", "a", [], False),
        (thinking, "<think>a</thin", "", "a</thin", [], False),
        (thinking, "\n<think>a</think>" + call, "", "a", ['{"city": "A"}'], False),
        (thinking, "b <think>a</think>", "b <think>a</think>", "", [], False),
        (llama, '{"name": "get_weather", "age": 7}', '{"name": "get_weather", "age": 7}', "", [], False),
        (llama, '{"name": "Bob", "parameters": {}}', '{"name": "Bob", "parameters": {}}', "", [], False),
        (llama, '{"name": "get_weather", "parameters": {"n": 1}}', "", "", ['{"n": 1}'], False),
        (mistral, [{"special": "[TOOL_CALLS]"}, "x", {"special": "[ARGS]"}, '{"n": ', "1}"], "", "", ['{"n": 1}'], False),
        (mistral, ["Hi", {"special": "[INST]"}, " there", {"special": "[TOOL_CALLS]"}, "x y"], "Hi therex y", "", [],
         False),
        (gpt, [{"special": "<|channel|>"}, "analysis", {"special": "<|message|>"}, "Think.", {"special": "<|end|>"},
               {"special": "<|start|>"}, "assistant", {"special": "<|channel|>"}, "commentary to=functions.x ",
               {"special": "<|constrain|>"}, "json", {"special": "<|message|>"}, '{"n": 1}', {"special": "<|call|>"}], "",
         "Think.", ['{"n": 1}'], False),
        (gpt, "<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>final<|message|>B", "B", "A", [], False),
    ]
    for template, answer, content, thought, arguments, malformed in rows:
        got = one(template, answer)
        check((got["content"], got["thought"], [c["arguments"] for c in got["calls"]], got["malformed"]) ==
              (content, thought, arguments, malformed), f"{answer!r}: {got}")
    check(one(hermes, call, tools=False)["content"] == call, "without tools a call is text")
    check(one(thinking, "<think>a</think>b", thoughts=False)["content"] == "<think>a</think>b", "thoughts as text")
    check(one(thinking, "a\n</think>\n\nb", prompt="<|im_start|>assistant\n<think>\n")["thought"] == "a", "an open thought")
    check(one(gpt, "<|channel|>commentary to=functions.x<|message|>{}", tools=False)["content"] == "{}", "gpt-oss, no tools")
    kimi = one(read("moonshotai-Kimi-K2"), "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:3"
               "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>")["calls"]
    check(kimi == [{"name": "f", "id": "functions.f:3", "arguments": "{}"}], f"Kimi's id: {kimi}")
    streamed = one(hermes, call.replace("A", "a" * 200))
    check(streamed["pieces"] > 200, f"arguments arrive in {streamed['pieces']} pieces")


def test_hostile():
    """Long, deep and endless answers end soon."""
    names = ["Qwen-Qwen2.5-7B-Instruct", "Qwen3-Coder", "deepseek-ai-DeepSeek-V3.1", "Mistral-Small-3.2-24B-Instruct-2506",
             "openai-gpt-oss-120b", "Qwen-Qwen3-0.6B", "MiniMax-M2", "moonshotai-Kimi-K2"]
    templates = [read(name) for name in names] + list(SHAPES.values())
    marks = sorted(set(re.findall(r"<[^ <>{}]{2,40}>|\[[A-Z_/]+\]", "".join(templates))))
    draw = random.Random(3)
    for template in templates:
        own = [m for m in marks if m in template] or marks
        words = own + ['{"name": "x", "arguments": {', '{"', "[", "{", '"', "\\", ": ", ",", "}", "x" * 50, "get_weather", "\n"]
        texts = [w * (1000000 // len(w)) for w in (own[0] + "{", "<tool_call>", '<tool_call>{"name": "x", "arguments": {"a": ',
                                                   "[TOOL_CALLS]", "{", '"', " ", own[-1])]
        texts += ["".join(draw.choice(words) for _ in range(n)) for n in [40] * 150 + [30000]]
        lines = [{"prompt": "", "answer": [text[i:i + size] for i in range(0, len(text), size)], "tools": TOOLS,
                  "thoughts": True} for text in texts for size in ([1, 7] if len(text) < 5000 else [1000])]
        begun = time.time()
        got = parse(template, lines)
        check(not isinstance(got, str), f"{template[:60]}: {got}")
        for a, b in zip(got[16::2], got[17:-1:2]):
            check({**a, "pieces": 0} == {**b, "pieces": 0} if a else False, f"{a} in other pieces is {b}")
        check(time.time() - begun < 60, f"{time.time() - begun:.0f} s for 10 MB")


def test_guide():
    """The guide names each form."""
    root = os.path.join(HERE, "..", "..")
    with open(os.path.join(root, "models/chat/forms.def")) as forms, open(os.path.join(root, "docs/guides/serve.md")) as guide:
        names, text = re.findall(r'^CALLS\("([^"]+)"', forms.read(), re.M), guide.read()
    check(len(names) > 20, "the names of the forms")
    for name in names:
        check(name in text, f"docs/guides/serve.md lacks {name}")


test_guide()
test_templates()
test_rules()
test_hostile()
sys.exit(status())
