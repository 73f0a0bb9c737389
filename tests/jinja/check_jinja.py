# SPDX-License-Identifier: Apache-2.0
"""Compares chat templates with transformers: the published ones of TRL and of the folder templates, and small ones for
each part of the language.

    check_jinja.py RENDER_LINES

Each template renders conversations with system prompts, tools, tool calls, reasoning, unusual characters and generation
prompts; the text, the error and the generation blocks are those of transformers."""
import glob
import json
import os
import random
import subprocess
import sys

import oracle  # noqa: F401 (skips the test if a package is missing)
import trl
from transformers.utils import chat_template_utils as hf

FOLDER = os.path.join(os.path.dirname(trl.__file__), "chat_templates")
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city\nnow", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "The \"city\""},
                                         "days": {"type": "integer", "enum": [1, 2], "default": 1},
                                         "units": {"type": ["string", "null"]}}, "required": ["city"]},
        "return": {"type": "number", "description": "degrees"}}},
    {"type": "function", "function": {"name": "add", "description": "Adds", "parameters": {
        "type": "object", "properties": {"x": {"type": "array", "items": {"type": "number"}},
                                         "o": {"type": "object", "properties": {"k": {"type": "boolean"}}}}}}},
]
TEXTS = ["Hello", "  spaces at both ends  ", "", "\u00fc\u4e2d\u6587 \U0001f600", "two\nlines\n",
         "<|im_end|> </s> [INST]",
         "a <think>because</think> b", "{{ 7 * 7 }} {% if %}", "it's \"quoted\" \\ \u2028", "tab\there", "1", "None"]


def conversation(draw, tools):
    """One random conversation of user and assistant turns."""
    messages = []
    if draw.random() < 0.5:
        messages.append({"role": draw.choice(["system", "system", "developer"]) if draw.random() < 0.2 else "system",
                         "content": draw.choice(TEXTS)})
    for turn in range(draw.randint(1, 4)):
        messages.append({"role": "user", "content": draw.choice(TEXTS)})
        answer = {"role": "assistant", "content": draw.choice(TEXTS)}
        if draw.random() < 0.2:
            answer["reasoning_content"] = draw.choice(TEXTS)
        if tools and draw.random() < 0.5:
            answer["tool_calls"] = [{"type": "function", "id": "call%d" % turn, "function": {
                "name": "get_weather", "arguments": {"city": draw.choice(TEXTS), "days": 2, "f": 0.5, "n": None,
                                                     "b": True}}}]
            if draw.random() < 0.5:
                answer["content"] = ""
            messages.append(answer)
            messages.append({"role": "tool", "name": "get_weather", "tool_call_id": "call%d" % turn,
                             "content": draw.choice(TEXTS)})
            answer = {"role": "assistant", "content": draw.choice(TEXTS)}
        messages.append(answer)
    if draw.random() < 0.3:
        messages.pop()
    return messages


def expected(template, said, given):
    """The text and the bytes of generation blocks, or None if the template raises."""
    said, given = json.loads(json.dumps(said)), dict(given)
    try:
        compiled = hf._compile_jinja_template(template)
        if "generation" in template:
            text, spans = hf._render_with_assistant_indices(
                compiled_template=compiled, messages=said["messages"], tools=said.get("tools"), documents=None,
                add_generation_prompt=given.pop("add_generation_prompt"), **given)
        else:
            text, spans = compiled.render(messages=said["messages"], tools=said.get("tools"), documents=None,
                                          **given), []
    except Exception as error:
        return None, None, error
    return text, spans, None


def marked(text, flags):
    """The spans of characters whose bytes have flag 2."""
    spans, at, inside = [], 0, False
    for index, letter in enumerate(text):
        now = int(flags[at]) & 2 != 0
        if now and not inside:
            spans.append([index, index])
        if now:
            spans[-1][1] = index + 1
        inside = now
        at += len(letter.encode())
    return [tuple(s) for s in spans]


def merged(spans):
    """Spans without empty ones, neighbours joined."""
    made = []
    for begin, end in spans:
        if begin == end:
            continue
        if made and made[-1][1] == begin:
            made[-1][1] = end
        else:
            made.append([begin, end])
    return [tuple(s) for s in made]


SMALL = r"""
{{ [1, 2.5, 'a', none, true, {'k': (1,)}] }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 1e20 }} {{ 0.1 + 0.2 }} {{ 1.0 }} {{ 1e-7 }}
{{ 'abc'[1:] }}{{ 'abc'[-1] }}{{ 'abc'[::-1] }}{{ [1,2,3,4][1:3] }}{{ [1,2,3][::-2] }}{{ 'äöü'[1] }}{{ 'äöü' | length }}
{%- for i in range(3) %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.cycle('a', 'b') }}{% endfor %}
{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% else %}none{% endfor %}{% for x in [] %}x{% else %}empty{% endfor %}
{% for x in [1,2,3,4] if x is even %}{{ x }}{% if loop.last %}!{% endif %}{% endfor %}
{% macro f(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1, c=3) }}{{ f(b=1, a=2) }}
{% set ns = namespace(x=1, l=[]) %}{% for i in [1,2] %}{% set ns.x = ns.x + i %}{% set y = i %}{% endfor %}{{ ns.x }}{{ y is defined }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c %} block {{ a }} {% endset %}{{ c | trim }}|
{{ ' a b  c '.split() }}{{ 'a,b,,c'.split(',') }}{{ 'a,b,c'.split(',', 1) }}{{ 'a b c'.rsplit(' ', 1) }}{{ 'x'.join(['a','b']) }}
{{ 'Hello World'.upper() }}{{ 'HELLO'.lower() }}{{ 'hello world'.title() }}{{ 'hello wORLD' | title }}{{ 'hELLO' | capitalize }}
{{ 'aXbXc'.replace('X', '-', 1) }}{{ 'abc' | replace('b', 'B') }}{{ 'abcabc'.find('c') }}{{ 'abcabc'.rfind('c') }}{{ 'abc'.find('z') }}{{ 'aaa'.count('a') }}
{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'bc')) }}{{ '__a__'.strip('_') }}{{ '12'.isdigit() }}{{ 'a'.isalpha() }}{{ 'x'.zfill(3) }}
{{ {'b': 1, 'a': [1, {'c': none}], 'ü': 'ü"\n'} | tojson }}{{ {'b': 1, 'a': [1, {}]} | tojson(indent=2) }}{{ [1, 2] | tojson(separators=(',', ':')) }}{{ 'ü' | tojson(ensure_ascii=true) }}
{{ [3, 1, 2] | sort | join(', ') }}{{ ['b', 'A'] | sort }}{{ [1, 2] | sum }}{{ [1, 5, 2] | max }}{{ [[1, 2]] | first | last }}{{ {'b': 1, 'a': 2} | dictsort }}
{{ [{'n': 'x', 'v': 1}, {'n': 'y'}] | map(attribute='n') | list }}{{ ['a', 'b'] | map('upper') | join }}{{ [{'v': 1}, {'v': 2}] | selectattr('v', 'eq', 2) | list }}{{ [0, 1, 2] | select | list }}{{ [1, 2, 3] | reject('odd') | list }}
{{ 1 if false }}{{ 1 if true else 2 }}{{ x is defined }}{{ x | default('d') }}{{ '' | default('e', true) }}{{ none is none }}{{ x is undefined }}
{{ 1 < 2 < 3 }}{{ 1 in [1] }}{{ 'a' not in 'abc' }}{{ not 1 == 2 }}{{ 'a' ~ 1 ~ none }}{{ 'a' 'b' }}{{ 1 == 1.0 }}{{ true + 1 }}{{ 'ab' * 3 }}{{ [1] + [2] }}
{% raw %}{{ raw }}{% endraw %}{# comment #}
    {%- if true -%}   a   {%- endif -%}   b
    {% if true %}
  kept
    {% endif %}
  {%+ if true %}plus{% endif +%}
end
{% with a = 5 %}{{ a }}{% endwith %}{{ a }}{% filter upper %}low{{ a }}{% endfilter %}
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
{{ '%s and %d and %.2f' | format('a', 3, 1.5) }}{{ '%s' % 'x' }}{{ '{} {1} {n}'.replace('{1}', '') .format('a', n=2) }}{{ '5' | int + 1 }}{{ '2.5' | float }}{{ 2.567 | round(1) }}{{ 3 | round }}
{{ 'a\nb\n\nc' | indent(2) }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a b c' | wordcount }}{{ 'abc' | reverse }}{{ [1,1,2] | unique | list }}{{ (1, 2) }}{{ () }}{{ 'x' is string }}{{ {} is mapping }}{{ [] is iterable }}{{ 'a' is sequence }}
{{ messages[0].content }}{{ messages[0]['role'] }}{{ messages | length }}{{ messages[-1].get('nothing', 'other') }}{{ messages[0].nothing is defined }}
{{ 'a\tb\x41\u00e9' }}{{ "it's" }}{{ ["it's", 'say "x"', "b\\n\n"] }}{{ 'ab'.partition('b') }}{{ 'a\r\nb\nc'.splitlines() }}{{ 'prefix'.removeprefix('pre') }}
{{ loop is defined }}{% for a in [1, 2] %}{% for b in [3] %}{{ loop.depth }}{{ loop.index }}{% endfor %}{{ loop.index }}{{ loop.previtem }}{{ loop.nextitem }}{% endfor %}
{{ dict(a=1)['a'] }}{{ messages.nothing }}{{ messages[99] }}{{ {'items': 1}['items'] }}{{ 10 is divisibleby 5 }}{{ 3 is odd }}{{ 'A' is upper }}{{ 1 is sameas 1 }}{{ 5 is in [5] }}
{% macro wrap() %}<{{ caller() }}>{% endmacro %}{% call wrap() %}in{% endcall %}{{ [1, 2, 3] | last }}{{ 1 if 0 else 2 if 0 else 3 }}{{ -1 | abs }}{{ 5 .__class__ is defined }}
{% for a, b, c in [[1, 2, 3]] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% set a, b, c = 'xyz' %}{{ a }}{{ b }}{{ c }}
{% macro f(n) %}{% set ns = namespace(x='') %}{% for i in range(n) %}{% set ns.x = ns.x ~ i %}{% endfor %}{{ ns.x }}{% endmacro %}{{ ['a' ~ f(3), f(4), {'k': f(2)}, f(1) ~ 'b', [f(5)[f(2) | int:], f(3) if f(2) == '01']] }}
{% macro f(n) %}{% set s %}{{ n }}{% for i in 'ab' %}{{ i }}{% endfor %}{% endset %}{{ s }}{% endmacro %}{% for x in [f(1), f(2), f(3)] if f(x) != f('2ab') %}{{ loop.index }}{{ x }}{{ f(x) }}{{ loop.previtem }}{% endfor %}
{% macro f(n, d=namespace(x=n ~ 'd')) %}{% if n %}<{{ f(n - 1) }}{{ caller() if caller }}{{ d.x }}>{% endif %}{% endmacro %}{% call f(3) %}in{{ f(2) }}{% endcall %}{% filter replace(f(1), '!') | upper %}a{{ f(1) }}b{% endfilter %}
{% set ns = namespace(m=none) %}{% for i in range(3) %}{% set j = i ~ 'j' %}{% macro g() %}{{ j }}{% endmacro %}{% if i == 1 %}{% set ns.m = g %}{% endif %}{{ g() }}{% endfor %}{{ ns.m() }}
{% set ns = namespace(x='a', l=[], s=['', '']) %}{% for i in range(6000) %}{% set ns.x = ns.x + 'b' ~ i %}{% set ns.s = [ns.x, ns.x + 'c', ns.s[1][-9:]] %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.x | length }}{{ ns.s[0][-9:] }}{{ ns.s[1][-9:] }}{{ ns.s[2] }}{{ ns.l | sum }}
{{ nothing.at.all }}
{{ 'a' + 1 }}
{{ [1][0](2) }}
{{ 1 / 0 }}
{% for x in 5 %}{% endfor %}
{{ 1 < 'a' }}
{{ raise_exception('wrong: ' ~ 1) }}
{{ nothing() }}
{{ 'a<' | safe + 'b>&' }}{{ '"x' + 'y' | safe + "'" + '<' | escape }}{{ 'a' | safe ~ '<' }}{{ '<' | e + ('<' | safe) }}
{{ 'abc' | nofilter }}
{% if false %}{{ 'abc' | nofilter }}{{ 1 is notest }}{% endif %}{{ (nothing or none) | map('upper') | list }}{{ none | selectattr('a') | list }}{{ 0 | reject('odd') | list }}
{% unknown %}
{{ 'open
{% if true %}
"""


def cases():
    said = {"messages": [{"role": "user", "content": "Hi \u00fc"}, {"role": "assistant", "content": "Yes"}]}
    lines = SMALL.strip("\n").split("\n")
    block = lines.index("    {%- if true -%}   a   {%- endif -%}   b")
    whole = "\n".join(lines[block:block + 6])
    for template in lines[:block] + [whole] + lines[block + 6:]:
        yield "small", template, said, {"add_generation_prompt": False, **TOKENS}
    files = sorted(glob.glob(os.path.join(FOLDER, "*.jinja")))
    files += sorted(glob.glob(os.path.join(os.path.dirname(__file__), "templates", "*.jinja")))
    assert len(files) > 40, "TRL has no templates in %s" % FOLDER
    for path in files:
        draw = random.Random(os.path.basename(path))
        with open(path, newline="") as f:
            template = f.read()
        for k in range(200):
            tools = TOOLS if draw.random() < 0.4 else None
            said = {"messages": conversation(draw, tools), "tools": tools}
            given = {"add_generation_prompt": draw.random() < 0.5, **TOKENS}
            if draw.random() < 0.3:
                given["enable_thinking"] = draw.random() < 0.5
            yield os.path.basename(path), template, said, given


def main():
    todo = list(cases())
    lines = "".join(json.dumps({"template": t, "said": s, "given": g}) + "\n" for _, t, s, g in todo)
    done = subprocess.run([sys.argv[1]], input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout.decode()
    answers = [json.loads(line) for line in done.split("\n")[:-1]]
    assert len(answers) == len(todo), "render_lines stopped after %d of %d" % (len(answers), len(todo))
    wrong = {}
    texts = 0
    for (name, template, said, given), answer in zip(todo, answers):
        text, spans, error = expected(template, said, given)
        texts += text is not None
        if text is None:
            good = "error" in answer
        else:
            good = answer.get("text") == text and merged(spans) == marked(text, answer["flags"])
        if not good:
            wrong.setdefault(name, []).append((template, said, text, error, answer))
    for name, list_ in wrong.items():
        template, said, text, error, answer = list_[0]
        print("%s: %d differ; the first:\n  template %r\n  messages %s\n  transformers %r %r\n  TX %r" % (
            name, len(list_), template[:200], json.dumps(said["messages"])[:600], text, error,
            answer.get("text", answer.get("error"))))
    print("%d renderings, %d with text, %d templates differ" % (len(todo), texts, len(wrong)))
    sys.exit(1 if wrong else 0)


main()
