# SPDX-License-Identifier: Apache-2.0
"""Answers with tool calls and thoughts in the forms of published templates, and their parts. Used by tools_client.py and
responses_client.py."""
import json
import os

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "jinja", "templates")
TOOLS = [{"type": "function", "function": {"name": name, "description": "d", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "c"},
                                     "n": {"type": "integer", "description": "n"}}, "required": ["city"]}}}
         for name in ("get_weather", "send")]
CITY, NUMBER = {"city": "Pa\"ris é 日本 </tool_call>"}, {"n": 7}
BOTH = [("get_weather", CITY), ("send", NUMBER)]
PLAIN = [("get_weather", {"city": "Paris é"}), ("send", NUMBER)]


def hermes(calls):
    return "\n".join('<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>' % (n, json.dumps(a, ensure_ascii=False))
                     for n, a in calls)


def coder(calls):
    return "\n".join("<tool_call>\n<function=%s>\n%s</function>\n</tool_call>" % (n, "".join(
        f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in a.items())) for n, a in calls)


def glm(calls):
    return "\n".join("<tool_call>%s\n%s</tool_call>" % (n, "".join(
        f"<arg_key>{k}</arg_key>\n<arg_value>{v}</arg_value>\n" for k, v in a.items())) for n, a in calls)


def mistral(calls):
    return "".join(f"[TOOL_CALLS]{n}[ARGS]{json.dumps(a)}" for n, a in calls)


def deepseek(calls):
    return "\n\n<｜DSML｜function_calls>\n" + "".join('<｜DSML｜invoke name="%s">\n%s</｜DSML｜invoke>\n' % (n, "".join(
        f'<｜DSML｜parameter name="{k}" string="{"true" if isinstance(v, str) else "false"}">{v}</｜DSML｜parameter>\n'
        for k, v in a.items())) for n, a in calls) + "</｜DSML｜function_calls>"


def kimi(calls):
    return "<|tool_calls_section_begin|>" + "".join(
        f"<|tool_call_begin|>functions.{n}:{i}<|tool_call_argument_begin|>{json.dumps(a)}<|tool_call_end|>"
        for i, (n, a) in enumerate(calls)) + "<|tool_calls_section_end|>"


def gpt(calls):
    return "<|start|>assistant".join(f"<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{json.dumps(a)}"
                                     for n, a in calls)


GPT_THOUGHT = "<|channel|>analysis<|message|>Think é.<|end|><|start|>assistant"
# template, answer, content, thought, calls, reason
CASES = [
    ("Qwen-Qwen2.5-7B-Instruct", "Let me see.\n" + hermes(BOTH), "Let me see.", None, BOTH, "tool_calls"),
    ("Qwen-Qwen2.5-7B-Instruct", "No <tool_cal", "No <tool_cal", None, [], "stop"),
    ("Qwen-Qwen2.5-7B-Instruct", '<tool_call>\n{"name": "send", "arguments": {"n": x}}\n</tool_call>', None, None,
     [("send", '{"n": x}')], "malformed_tool_call"),
    ("Qwen-Qwen3-0.6B", "<think>\nThink é.\n</think>\n\n" + hermes(BOTH), None, "Think é.", BOTH, "tool_calls"),
    ("Qwen-Qwen3-0.6B", "<think>\nThink é.\n</think>\n\nText.", "Text.", "Think é.", [], "stop"),
    ("Qwen3.5-4B", "Think é.\n</think>\n\n" + coder(PLAIN), None, "Think é.", PLAIN, "tool_calls"),
    ("GLM-4.6", "\n<think>Think é.</think>\n" + glm(PLAIN) + "<|observation|>", None, "Think é.", PLAIN, "tool_calls"),
    ("GLM-4.6", "\n<think>Think é.</think>\nText.<|user|>", "Text.", "Think é.", [], "stop"),
    ("Mistral-Small-3.2-24B-Instruct-2506", mistral(BOTH), None, None, BOTH, "tool_calls"),
    ("deepseek-ai-DeepSeek-V3.2", "Text." + deepseek(BOTH), "Text.", None, BOTH, "tool_calls"),
    ("moonshotai-Kimi-K2", kimi(BOTH), None, None, BOTH, "tool_calls"),
    ("openai-gpt-oss-120b", GPT_THOUGHT + gpt(BOTH[:1]) + "<|call|>", None, "Think é.", BOTH[:1], "tool_calls"),
    ("openai-gpt-oss-120b", GPT_THOUGHT + "<|channel|>final<|message|>Text.<|return|>", "Text.", "Think é.", [], "stop"),
]
# The marks that are special tokens in the published tokenizers.
SPECIAL = ["<|im_start|>", "<|im_end|>", "[TOOL_CALLS]", "[ARGS]", "[INST]", "[/INST]", "｜DSML｜", "<｜User｜>",
           "<｜Assistant｜>", "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
           "<|tool_calls_section_end|>", "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>", "<|call|>",
           "<|return|>", "<|user|>", "<|assistant|>", "<|observation|>"]
CHOICES = [{"type": "function", "function": {"name": name, "description": "d", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "c", "enum": ["Paris", "Rome \"é\""]},
                                     "n": {"type": "integer", "description": "n", "minimum": 0, "maximum": 99}},
    "required": ["city", "n"], "additionalProperties": False}}} for name in ("get_weather", "send")]


def value(arguments):
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
