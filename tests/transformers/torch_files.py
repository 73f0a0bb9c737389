# SPDX-License-Identifier: Apache-2.0
"""Weights that torch.save() wrote, in its archives and its older files, in shards, as views of one storage, as
parameters, in other types; adapters of peft in adapter_model.bin. Compared with the same tensors in safetensors. Files
that hold something else are refused, and nothing in them runs.

    torch_files.py MODEL_LOGITS TXCHECK TXGEN     exit status 77: transformers is not installed
"""
import collections
import json
import os
import pickle
import sys
import tempfile
import zipfile

from oracle import check, run, status

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, GPT2Config
from random_models import compare, ids_of, make_model

OLD = dict(_use_new_zipfile_serialization=False)


def folder_of(model, parent, name):
    folder = os.path.join(parent, name)
    model.config.save_pretrained(folder)
    return folder


def views(state):
    """The same tensors as views of one storage, and as parameters."""
    one = torch.cat([t.flatten() for t in state.values()])
    made, at = collections.OrderedDict(), 0
    for name, t in state.items():
        made[name] = torch.nn.Parameter(one[at:at + t.numel()].view(t.shape))
        at += t.numel()
    return made


def save_shards(state, folder):
    names, index = list(state), {}
    for i in range(3):
        file = f"pytorch_model-{i + 1:05}-of-00003.bin"
        torch.save({name: state[name] for name in names[i::3]}, os.path.join(folder, file))
        index.update({name: file for name in names[i::3]})
    with open(os.path.join(folder, "pytorch_model.bin.index.json"), "w") as out:
        json.dump({"metadata": {}, "weight_map": index}, out)


def accepted(model, parent, program):
    state = model.state_dict()
    forms = {
        "archive": (state, {}),
        "old": (state, OLD),
        "views": (views(state), {}),
        "old views": (views(state), OLD),
        "protocol 4": (dict(state), dict(pickle_protocol=4)),
        "double": ({n: t.double() for n, t in state.items()}, {}),
    }
    for name, (tensors, options) in forms.items():
        folder = folder_of(model, parent, name)
        torch.save(tensors, os.path.join(folder, "pytorch_model.bin"), **options)
        compare(name, model, folder, program, "cpu")
    save_shards(state, folder_of(model, parent, "shards"))
    compare("shards", model, os.path.join(parent, "shards"), program, "cpu")
    half = {n: t.bfloat16() for n, t in state.items()}
    torch.save(half, os.path.join(folder_of(model, parent, "bf16"), "pytorch_model.bin"))
    model.load_state_dict({n: t.float() for n, t in half.items()})
    compare("bf16", model, os.path.join(parent, "bf16"), program, "cpu")


class Trap:
    """Its pickle calls a function that makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def refused(model, parent, txcheck):
    state = model.state_dict()
    path, trap = os.path.join(parent, "pytorch_model.bin"), os.path.join(parent, "trap")
    name = "transformer.wpe.weight"

    def refuses(what, text):
        done = run(txcheck, "file", path)
        check(done.returncode == 1 and text in done.stderr + done.stdout, f"{what}: {done.stdout} {done.stderr}")
        check(not os.path.exists(trap), f"{what}: the trap has run")

    for old in ({}, OLD):
        torch.save({"model": state, "step": 3}, path, **old)
        refuses("nested", "model: it is not a tensor")
        torch.save({name: state[name].t()}, path, **old)
        refuses("transposed", "not stored in order")
        torch.save([state[name]], path, **old)
        refuses("a list", "no dictionary of tensors")
        torch.save({name: Trap(trap)}, path, **old)
        refuses("a trap", "it is not a tensor")
        torch.save(Trap(trap), path, **old)
        refuses("only a trap", "no dictionary of tensors")
        torch.save(state, path, **old)
        size = os.path.getsize(path)
        for cut in (size - 1, size - 200, size // 2, 1000, 16):
            with open(path, "r+b") as out:
                out.truncate(cut)
            done = run(txcheck, "file", path)
            check(done.returncode == 1, f"cut to {cut} of {size} bytes: {done.stdout} {done.stderr}")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("x/data.pkl", pickle.dumps({"a": 1}, 2) * 100)
    refuses("compressed", "compressed")
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("x/readme", "no weights")
    refuses("another archive", "no data.pkl")


def adapter(model, parent, txgen):
    from peft import LoraConfig, get_peft_model

    base = os.path.join(parent, "base")
    model.save_pretrained(base)
    made = get_peft_model(AutoModelForCausalLM.from_pretrained(base),
                          LoraConfig(r=3, target_modules=["c_attn"], fan_in_fan_out=True))
    with torch.no_grad():
        for n, p in made.named_parameters():
            if "lora_" in n:
                p.normal_()
    usual, older = os.path.join(parent, "usual"), os.path.join(parent, "older")
    made.save_pretrained(usual)
    made.save_pretrained(older)
    file = os.path.join(older, "adapter_model.safetensors")
    torch.save(load_file(file), os.path.join(older, "adapter_model.bin"))
    os.remove(file)
    ids = " ".join(map(str, ids_of(model)[0].tolist()))
    both = [run(txgen, "--adapter", folder, "--ids", ids, "-n", "8", "--temperature", "0")
            for folder in (usual, older)]
    check(both[0].returncode == 0 and both[0].stdout == both[1].stdout, f"adapter: {[b.stderr for b in both]}")


def main():
    program, txcheck, txgen = sys.argv[1:4]
    model = make_model(GPT2Config(vocab_size=300, n_positions=32, n_embd=24, n_layer=2, n_head=2, bos_token_id=1,
                                  eos_token_id=2))
    with tempfile.TemporaryDirectory() as parent:
        adapter(model, parent, txgen)
        refused(model, parent, txcheck)
        accepted(model, parent, program)
    return status()


sys.exit(main())
