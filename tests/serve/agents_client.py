# SPDX-License-Identifier: Apache-2.0
"""txserve with the openai package and agent libraries, in the forms of their own examples: loops of five turns with tools,
streamed and whole, structured answers, over chats and responses. A script of texts is the model.

    agents_client.py TXSERVE
"""
import asyncio
import json
import os
import sys
import tempfile

import oracle

import openai
import pydantic
import agents
import pydantic_ai
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from server import Server
import tape
from tools_cases import FOLDER, SPECIAL, hermes

check = oracle.check
M = tape.MARKERS
CITIES = ["Oslo", "Rome", "Lima", "Kyoto"]
CALLS = [[("get_weather", {"city": city})] for city in CITIES]
END = "It is warm in Kyoto."
ASKED = f"Where is it warm? {M[0]}"
seen = []  # the cities that a run has asked for
loop = asyncio.Runner()  # clients of the libraries keep connections, which belong to a loop


def weather(city):
    """The weather of a city, with the marker of the next text."""
    seen.append(city)
    return f"{len(seen)} degrees in {city} {M[len(seen)]}"


class Weather(pydantic.BaseModel):
    city: str
    degrees: int


def run(what, work):
    """Runs a part of the test, and records the exception that ends it."""
    seen.clear()
    try:
        return loop.run(work()) if asyncio.iscoroutinefunction(work) else work()
    except Exception as error:  # a library has an error of its own for each fault of an answer
        check(False, f"{what}: {type(error).__name__}: {str(error)[:600]}")
        return None


def check_run(what, answer):
    check(seen == CITIES and answer == END, f"{what}: {seen}, {answer!r}")


# ---- The openai package ------------------------------------------------------------------------------------------

def chat_loop(client, name, stream):
    """The loop of OpenAI's guide to function calls; a stream is read by the package's helper."""
    messages, tools = [{"role": "user", "content": ASKED}], [openai.pydantic_function_tool(City, name="get_weather")]
    for _ in range(len(CITIES) + 1):
        how = dict(model=name, messages=messages, tools=tools)
        if stream:
            with client.chat.completions.stream(**how, stream_options={"include_usage": True}) as events:
                kinds = {event.type for event in events}
            done = events.get_final_completion()
            check(done.usage.completion_tokens > 5 and ({"tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"}
                  <= kinds or "content.delta" in kinds), f"events {kinds}, {done.usage}")
        else:
            done = client.chat.completions.parse(**how)
        message = done.choices[0].message
        messages.append(message)
        for call in message.tool_calls or []:
            city = call.function.parsed_arguments
            messages.append({"role": "tool", "tool_call_id": call.id, "content": weather(city.city)})
    return message.content


class City(pydantic.BaseModel):
    """The weather of a city"""
    city: str


def responses_loop(client, name, stream):
    items, tools = [{"role": "user", "content": ASKED}], [{
        "type": "function", "name": "get_weather", "strict": True, "parameters": openai.pydantic_function_tool(City)["function"]["parameters"]}]
    for _ in range(len(CITIES) + 1):
        how = dict(model=name, input=items, tools=tools, store=False)
        if stream:
            with client.responses.stream(**how) as events:
                events.until_done()
                done = events.get_final_response()
        else:
            done = client.responses.create(**how)
        items += done.output
        for call in done.output:
            if call.type == "function_call":
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": weather(json.loads(call.arguments)["city"])})
    return done.output_text


def test_openai(client, name):
    for talk in chat_loop, responses_loop:
        for stream in False, True:
            what = f"openai, {talk.__name__}, {'streamed' if stream else 'whole'}"
            check_run(what, run(what, lambda: talk(client, name, stream)))
    asked = [{"role": "user", "content": f"Weather? {M[5]}"}]
    got = run("openai, parse", lambda: client.chat.completions.parse(model=name, messages=asked, response_format=Weather))
    check(got and got.choices[0].message.parsed == WEATHER, f"a parsed chat: {got}")
    got = run("openai, responses.parse", lambda: client.responses.parse(model=name, input=asked, text_format=Weather))
    check(got and got.output_parsed == WEATHER, f"a parsed response: {got}")


# ---- openai-agents -----------------------------------------------------------------------------------------------

def agent_models(base, name):
    client = openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0)
    return agents.OpenAIChatCompletionsModel(name, client), agents.OpenAIResponsesModel(name, client)


def test_agents(base, name):
    agents.set_tracing_disabled(True)
    tool = agents.function_tool(weather, name_override="get_weather")

    async def stream(agent):
        result, pieces, kinds = agents.Runner.run_streamed(agent, ASKED), "", set()
        async for event in result.stream_events():
            kinds.add(getattr(event, "name", event.type))
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                pieces += event.data.delta
        check(pieces == END and {"tool_called", "tool_output", "message_output_created"} <= kinds, f"events {kinds}: {pieces!r}")
        return result.final_output

    for kind, model in zip(("chat", "responses"), agent_models(base, name)):
        def make(**how):
            return agents.Agent(name="Meteorologist", instructions="You know the weather.", model=model, **how)

        async def whole():
            return (await agents.Runner.run(make(tools=[tool]), ASKED)).final_output

        async def streamed():
            return await stream(make(tools=[tool]))

        async def once():
            how = agents.ModelSettings(parallel_tool_calls=False, temperature=0.5, max_tokens=600, store=False, include_usage=True)
            return (await agents.Runner.run(make(tools=[tool], model_settings=how), ASKED)).final_output

        async def structured():
            return (await agents.Runner.run(make(output_type=Weather), f"Weather? {M[5]}")).final_output

        for work in whole, streamed, once:
            what = f"openai-agents, {kind}, {work.__name__}"
            check_run(what, run(what, work))
        got = run(f"openai-agents, {kind}, structured", structured)
        check(got == WEATHER, f"openai-agents, {kind}: {got}")


# ---- pydantic-ai -------------------------------------------------------------------------------------------------

def test_pydantic_ai(base, name, tool_output):
    """With `tool_output` the library demands calls, and the last one is the answer."""
    for model in OpenAIChatModel, OpenAIResponsesModel:
        def make(**how):
            return pydantic_ai.Agent(model(name, provider=OpenAIProvider(base_url=base, api_key="none")), instructions="You know the weather.",
                                     **how)

        def with_tools(**how):
            return make(tools=[pydantic_ai.Tool(weather, name="get_weather")], **how)

        async def whole():
            return (await with_tools().run(ASKED)).output

        async def streamed():
            async with with_tools().run_stream(ASKED) as result:
                pieces = [text async for text in result.stream_text(delta=True, debounce_by=None)]
                check(len(pieces) > 1, f"pieces {pieces}")
                return "".join(pieces)

        async def native():
            return (await make(output_type=pydantic_ai.NativeOutput(Weather)).run(f"Weather? {M[5]}")).output

        async def by_tool():
            return (await with_tools(output_type=Weather).run(ASKED)).output

        async def by_streamed_tool():
            async with with_tools(output_type=Weather).run_stream(ASKED) as result:
                return [value async for value in result.stream_output(debounce_by=None)][-1]

        for work in () if tool_output else (whole, streamed):
            what = f"pydantic-ai, {model.__name__}, {work.__name__}"
            check_run(what, run(what, work))
        for work in (by_tool, by_streamed_tool) if tool_output else (native,):
            what = f"pydantic-ai, {model.__name__}, {work.__name__}"
            got = run(what, work)
            check(got == WEATHER and (not tool_output or seen == CITIES), f"{what}: {got}, {seen}")


WEATHER = Weather(city="Kyoto", degrees=4)
LAST = WEATHER.model_dump_json()
with tempfile.TemporaryDirectory() as work:
    path = os.path.join(FOLDER, "Qwen-Qwen2.5-7B-Instruct.jinja")
    tape.script(work, [*map(hermes, CALLS), END, json.dumps(json.loads(LAST))], SPECIAL)
    with Server(sys.argv[1], work, "--chat_template", path) as server:
        base = f"http://127.0.0.1:{server.port}/v1"
        client = openai.OpenAI(base_url=base, api_key="none", max_retries=0)
        name = client.models.list().data[0].id
        test_openai(client, name)
        test_agents(base, name)
        test_pydantic_ai(base, name, False)
    required = [json.dumps({"name": "get_weather", "arguments": {"city": city}}) for city in CITIES]
    required.append(json.dumps({"name": "final_result", "arguments": json.loads(LAST)}))
    tape.script(work, required, SPECIAL)
    with Server(sys.argv[1], work, "--chat_template", path) as server:
        test_pydantic_ai(f"http://127.0.0.1:{server.port}/v1", name, True)
loop.close()
sys.exit(oracle.status())
