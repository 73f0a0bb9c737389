# SPDX-License-Identifier: Apache-2.0
"""txserve with several adapters, compared with peft: eight adapters of different ranks, alphas and modules answer at once,
each with peft's tokens and log-probabilities; requests to the model get the bits of a server without adapters. Adapters
are loaded and unloaded while answers stream. Also wrong and hostile requests, and memory.

    adapters_client.py TXSERVE MODEL
"""
import concurrent.futures
import json
import os
import re
import shutil
import sys
import tempfile
import threading

import oracle

import peft
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from server import Server

program, folder = sys.argv[1], sys.argv[2]
check = oracle.check
LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
PROMPTS = ["Once upon a time", "Lily and Tom", "The little dog"]
NEW = 24
SETTINGS = [dict(r=1, lora_alpha=3, target_modules=["q_proj"]),
            dict(r=2, lora_alpha=2, target_modules=["v_proj", "o_proj"], use_rslora=True),
            dict(r=3, lora_alpha=4, target_modules="all-linear"),
            dict(r=4, lora_alpha=4, target_modules=["gate_proj", "down_proj"]),
            dict(r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
                 rank_pattern={"q_proj": 2}, alpha_pattern={"v_proj": 3}),
            dict(r=8, lora_alpha=8, target_modules=["up_proj"], layers_to_transform=[1, 3]),
            dict(r=5, lora_alpha=9, target_modules=["k_proj"]),
            dict(r=16, lora_alpha=16, target_modules=r".*\.[02]\..*(v|down)_proj")]
NAMES = [f"adapter-{i}" for i in range(len(SETTINGS))]


def make(work):
    """Saves the adapters, and some that the server refuses. Returns peft's model with all of them, in fp64."""
    torch.manual_seed(5)
    model = None
    for name, settings in zip(NAMES, SETTINGS):
        config = peft.LoraConfig(task_type="CAUSAL_LM", **settings)
        if model is None:
            model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(folder), config, name)
        else:
            model.add_adapter(name, config)
        with torch.no_grad():
            for key, value in model.named_parameters():
                if f"lora_B.{name}." in key:
                    value.normal_(0, 0.2)
    model.save_pretrained(work)
    for name, settings in dict(dora=dict(use_dora=True), norm=dict(modules_to_save=["norm"]), head=dict(
            target_modules=["lm_head"]), wide=dict(r=17)).items():
        config = peft.LoraConfig(**dict(dict(task_type="CAUSAL_LM", r=2, target_modules=["q_proj"]), **settings))
        base = AutoModelForCausalLM.from_pretrained(folder)
        peft.get_peft_model(base, config).save_pretrained(os.path.join(work, name))
    return model.eval().double()


def expected(model, tokenizer, name, prompt):
    """The new text and the log-probabilities of its tokens. Only `name` is active, or none."""
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    if name:
        model.set_adapter(name)

    def run():
        with torch.no_grad():
            whole = model.generate(input_ids=ids, max_new_tokens=NEW, do_sample=False, eos_token_id=None, pad_token_id=0)
            return whole, torch.log_softmax(model(whole).logits[0].double(), -1)
    if name:
        whole, logprobs = run()
    else:
        with model.disable_adapter():
            whole, logprobs = run()
    count = ids.shape[1]
    each = [logprobs[i - 1, whole[0, i]].item() for i in range(count, whole.shape[1])]
    text, begin = (tokenizer.decode(tokens[0], skip_special_tokens=True) for tokens in (whole, ids))
    return text[len(begin):], each


def ask(server, name, prompt, **more):
    status, answer = server.complete(prompt, NEW, model=name, logprobs=0, ignore_eos=False, **more)
    check(status == 200, f"{name}: {answer}")
    return answer


def test_crowd(work, model, tokenizer):
    words = [f"{name}={os.path.join(work, name)}" for name in NAMES]
    with Server(program, folder) as alone:
        base = os.path.basename(folder)
        plain = {prompt: ask(alone, base, prompt)["choices"] for prompt in PROMPTS}
    with Server(program, folder, "--slots", "9", "--lora", *words) as server:
        data = server.send("GET", "/v1/models")[1]["data"]
        check([m["id"] for m in data] == [base, *NAMES], f"the list of models: {data}")
        check([m["parent"] for m in data] == [None] + [base] * len(NAMES), f"their parents: {data}")
        status, one = server.send("GET", f"/v1/models/{NAMES[3]}")
        check(status == 200 and one["parent"] == base and one["max_model_len"] == 512, f"one model: {one}")
        asked = [(name, prompt) for prompt in PROMPTS for name in (base, *NAMES)]
        with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
            answers = list(pool.map(lambda a: ask(server, *a), asked))
        most, texts = 0.0, {}
        for (name, prompt), answer in zip(asked, answers):
            choice = answer["choices"][0]
            check(answer["model"] == name, f"the answer of {name} names {answer['model']}")
            text, each = expected(model, tokenizer, None if name == base else name, prompt)
            check(choice["text"] == text, f"{name}, {prompt}: {choice['text']!r}, peft {text!r}")
            most = max(most, *(abs(a - b) for a, b in zip(choice["logprobs"]["token_logprobs"], each)))
            check(name != base or answer["choices"] == plain[prompt], f"{prompt}: a server without adapters differs")
            texts.setdefault(prompt, set()).add(text)
        print(f"log-probabilities differ from peft's by at most {most:.1e}")
        check(most <= 2e-5, f"log-probabilities differ by {most}")
        check(all(len(t) >= 7 for t in texts.values()), f"adapters change the texts: {texts}")
        chat = dict(model=NAMES[2], temperature=0, max_tokens=4)
        status, answer = server.send("POST", "/v1/responses", dict(model=NAMES[2], input="hi", temperature=0,
                                                                   max_output_tokens=4))
        check(status == 400 or answer["model"] == NAMES[2], f"responses: {answer}")
        status, answer = server.send("POST", "/tokenize", dict(model=NAMES[2], prompt="hi"))
        check(status == 200, f"tokenize: {answer}")
        status, answer = server.send("POST", "/v1/completions", dict(chat, model="adapter", prompt="hi"))
        check(status == 404 and "does not exist" in answer["error"]["message"], f"an unknown model: {answer}")
        status, answer = server.send("POST", LOAD, dict(lora_name="x", lora_path=os.path.join(work, NAMES[0])))
        check(status == 403, f"loading is not allowed: {answer}")
        check(server.end() == 0, "the server ends with status 0")


def expect(server, path, body, want, words=""):
    status, answer = server.send("POST", path, body)
    text = answer if isinstance(answer, str) else answer["error"]["message"]
    check(status == want and words in text, f"{path} {str(body)[:100]}: {status} {text}, expected {want} {words}")


def resident(server):
    with open(f"/proc/{server.process.pid}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))


def test_loading(work, model, tokenizer):
    path = {name: os.path.join(work, name) for name in os.listdir(work)}
    first, second, third = NAMES[2], NAMES[4], NAMES[5]
    with Server(program, folder, "--slots", "3", "--lora_modules", f"{first}={path[first]}", "--enable-lora", "--max-loras",
                "3", "--max-lora-rank", "16", "--allow_runtime_lora_updating", "--lora_target_modules", "all-linear") as server:
        base = os.path.basename(folder)
        want = {name: ask(server, name, PROMPTS[0])["choices"] for name in (base, first)}
        streams, stop = [], threading.Event()

        def stream(name):
            while not stop.is_set():
                status, text = server.complete(PROMPTS[0], NEW, model=name, stream=True)
                parts = [json.loads(line[6:]) for line in text.split("\n\n") if line.startswith("data: {")]
                streams.append((name, status, "".join(p["choices"][0]["text"] for p in parts if p.get("choices"))))
        threads = [threading.Thread(target=stream, args=(name,)) for name in (base, first)]
        for t in threads:
            t.start()
        expect(server, LOAD, dict(lora_name="new", lora_path=path[second]), 200, "Success: LoRA adapter 'new' added")
        text, each = expected(model, tokenizer, second, PROMPTS[0])
        got = ask(server, "new", PROMPTS[0])["choices"][0]
        check(got["text"] == text and max(abs(a - b) for a, b in zip(got["logprobs"]["token_logprobs"], each)) < 2e-5,
              f"loaded while others stream: {got['text']!r}, peft {text!r}")
        expect(server, LOAD, dict(lora_name="new", lora_path=path[third]), 400, "load_inplace")
        expect(server, LOAD, dict(lora_name="new", lora_path=path[third], load_inplace=True), 200, "added")
        got, text = ask(server, "new", PROMPTS[0])["choices"][0]["text"], expected(model, tokenizer, third, PROMPTS[0])[0]
        check(got == text, f"replaced: {got!r}, peft {text!r}")
        expect(server, UNLOAD, dict(lora_name="new"), 200, "removed")
        expect(server, UNLOAD, dict(lora_name="new"), 404, "no such adapter")
        check(server.complete("a", 1, model="new")[0] == 404, "an unloaded adapter has no requests")
        for i in range(200):
            expect(server, LOAD, dict(lora_name=f"n{i % 3}", lora_path=path[NAMES[i % 8]]), 200)
            expect(server, UNLOAD, dict(lora_name=f"n{i % 3}"), 200)
            if i == 20:
                before = resident(server)
        grown = resident(server) - before
        check(grown < 4096, f"memory grew by {grown} KiB in 180 loadings")
        stop.set()
        for t in threads:
            t.join()
        check(len(streams) > 4 and all(s[1:] == (200, want[s[0]][0]["text"]) for s in streams),
              f"streams while adapters come and go: {[s for s in streams if s[2] != want[s[0]][0]['text']][:2]}")
        expect(server, LOAD, dict(lora_name="a", lora_path=path[second]), 200)
        expect(server, LOAD, dict(lora_name="b", lora_path=path[third]), 200)
        expect(server, LOAD, dict(lora_name="c", lora_path=path[third]), 400, "all 3 places")
        expect(server, UNLOAD, dict(lora_name="a", lora_int_id=None), 200)
        test_wrong(server, work, path)
        check(ask(server, first, PROMPTS[0])["choices"] == want[first], "the first adapter answers as before")
        check(server.end() == 0, "the server ends with status 0")


def test_wrong(server, work, path):
    base = os.path.basename(folder)
    other = os.path.join(work, "other")
    shutil.copytree(path[NAMES[0]], other)
    with open(os.path.join(other, "adapter_model.safetensors"), "wb") as f:
        f.write(b"\xff" * 64)
    larger = AutoModelForCausalLM.from_config(AutoModelForCausalLM.from_pretrained(folder).config.__class__(
        vocab_size=512, hidden_size=32, intermediate_size=48, num_hidden_layers=5, num_attention_heads=4))
    peft.get_peft_model(larger, peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"])).save_pretrained(
        os.path.join(work, "larger"))
    for body, want, words in [
            (dict(lora_name=base, lora_path=path[NAMES[0]]), 400, "name of the model"),
            (dict(lora_name=NAMES[2], lora_path=path[NAMES[0]]), 400, "has this name"),
            (dict(lora_name="x", lora_path="/nowhere"), 404, "holds no adapter"),
            (dict(lora_name="x", lora_path=work), 404, "holds no adapter"),
            (dict(lora_name="x", lora_path=path["wide"]), 400, "rank"),
            (dict(lora_name="x", lora_path=path["dora"]), 400, "use_dora"),
            (dict(lora_name="x", lora_path=path["norm"]), 400, "modules_to_save"),
            (dict(lora_name="x", lora_path=path["head"]), 400, "lm_head"),
            (dict(lora_name="x", lora_path=other), 400, "adapter_model.safetensors"),
            (dict(lora_name="x", lora_path=os.path.join(work, "larger")), 400, "lora_A"),
            (dict(lora_name="", lora_path=path[NAMES[0]]), 400, "name"),
            (dict(lora_name="n" * 5000, lora_path=path[NAMES[0]]), 400, "name"),
            (dict(lora_name="x", lora_path="/" * 100000), 404, ""), (dict(lora_name="x", lora_path=""), 404, ""),
            (dict(lora_name="x"), 400, "lora_path"), (dict(lora_path="x"), 400, "lora_name"), ({}, 400, "lora_name"),
            (dict(lora_name=5, lora_path="x"), 400, "lora_name"), (dict(lora_name="x", lora_path=[]), 400, "lora_path"),
            (dict(lora_name="x", lora_path={"a": 1}), 400, "lora_path"),
            (dict(lora_name="x", lora_path="x", load_inplace="yes"), 400, "load_inplace"),
            (dict(lora_name="x", lora_path="x", more=1), 400, "unknown key"), ("[]", 400, ""), ("{", 400, "")]:
        expect(server, LOAD, body, want, words)
    for body, want, words in [({}, 400, "lora_name"), (dict(lora_name=[]), 400, "lora_name"), (dict(lora_name=base), 404, "no such"),
                              (dict(lora_name="x"), 404, "no such"), ("null", 400, "")]:
        expect(server, UNLOAD, body, want, words)
    check(server.send("GET", LOAD)[0] == 405, "GET of a path for POST")


if not os.path.exists(folder):
    oracle.skip(f"no {folder}")
with tempfile.TemporaryDirectory() as scratch:
    theirs = make(scratch)
    test_crowd(scratch, theirs, AutoTokenizer.from_pretrained(folder))
    test_loading(scratch, theirs, AutoTokenizer.from_pretrained(folder))
sys.exit(oracle.status())
