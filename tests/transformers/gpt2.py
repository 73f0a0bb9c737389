# SPDX-License-Identifier: Apache-2.0
"""Compares GPT-2 with transformers. Each reads the folders that the other writes, logits agree for every
configuration key that changes them, tokenizers give the same tokens, and the byte-level tokenizer gives the bytes.

    gpt2.py MODEL_LOGITS [DEVICE]      exit status 77: transformers is not installed
"""
import json
import os
import random
import sys
import tempfile

from oracle import check, run, status

import torch
from safetensors.torch import load_file, save_file
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, GPT2TokenizerFast

ROWS, LENGTH = 2, 24
BASE = dict(vocab_size=300, n_positions=32, n_embd=48, n_layer=3, n_head=4, bos_token_id=256, eos_token_id=256,
            attn_implementation="eager")
VARIANTS = {
    "defaults": {},
    "n_inner": dict(n_inner=100),
    "gelu": dict(activation_function="gelu"),
    "gelu_pytorch_tanh": dict(activation_function="gelu_pytorch_tanh"),
    "gelu_fast": dict(activation_function="gelu_fast"),
    "gelu_python": dict(activation_function="gelu_python"),
    "gelu_python_tanh": dict(activation_function="gelu_python_tanh"),
    "gelu_accurate": dict(activation_function="gelu_accurate"),
    "silu": dict(activation_function="silu"),
    "unscaled attention": dict(scale_attn_weights=False),
    "scaled by layer": dict(scale_attn_by_inverse_layer_idx=True),
    "reordered": dict(reorder_and_upcast_attn=True),
    "epsilon": dict(layer_norm_epsilon=1e-2),
    "one head, odd width": dict(n_embd=37, n_head=1, vocab_size=257),
}


def make_model(changes):
    """A model whose logits depend on every parameter."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(**{**BASE, **changes})).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * 0.2 + (1.0 if "ln_" in name and name.endswith("weight") else 0.0))
    return model


def compare(name, model, folder, program, device, shard_bytes=0):
    """Runs TX on `folder`, and compares its logits and its saved folder with the model."""
    with tempfile.TemporaryDirectory() as out:
        done = run(program, folder, out, device, str(shard_bytes))
        check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
        if done.returncode:
            return
        vocab = model.config.vocab_size
        ids = torch.tensor([[(b * 101 + t * 37) % vocab for t in range(LENGTH)] for b in range(ROWS)])
        with torch.no_grad():
            # With this option transformers' attention works only in fp32.
            wide = model if model.config.reorder_and_upcast_attn else model.double()
            want = wide(ids).logits.double()
        model.float()
        got = load_file(os.path.join(out, "logits.safetensors"))["logits"].double()
        error = ((got - want).abs().max() / want.abs().max()).item()
        check(error <= 1e-5, f"{name}: logits differ by {error}")
        shards = [f for f in os.listdir(out) if f.startswith("model-")]
        check(bool(shards) == bool(shard_bytes), f"{name}: shards {shards}")
        back, info = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
        check(back.dtype == torch.float32, f"{name}: loaded as {back.dtype}")
        with torch.no_grad():
            error = ((back.eval()(ids).logits.double() - got).abs().max() / got.abs().max()).item()
        check(error <= 1e-5, f"{name}: logits of what TX saved differ by {error}")
        check(not any(info.values()), f"{name}: loading what TX saved: {info}")
        ours, theirs = back.state_dict(), model.state_dict()
        check(set(ours) == set(theirs) and all(torch.equal(ours[k], theirs[k]) for k in ours),
              f"{name}: weights differ")
        keys = ["vocab_size", "n_inner", "activation_function", "scale_attn_weights", "layer_norm_epsilon",
                "resid_pdrop"]
        check(all(getattr(back.config, k) == getattr(model.config, k) for k in keys), f"{name}: configurations differ")
        if name == "defaults":
            check_tokenizer(out)
        print(f"{name}: largest relative difference {error:.1e}")


def check_tokenizer(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    random.seed(1)
    texts = ["", "a", " a  b\n\n\tc ", "é漢字😀\u0000\x7f\u00a0\u2028", "don't I'll 123!!!", "\r\n", " ,.  ' s", "\ufeffx"]
    for _ in range(200):
        pick = lambda: random.choice([random.randrange(32, 127), random.randrange(0x800), 9, 10, 32, 0x3000, 0x1F600])
        texts.append("".join(chr(pick()) for _ in range(random.randrange(40))))
    for text in texts:
        ids = tokenizer.encode(text)
        check(ids == list(text.encode()), f"tokenizer: {text!r} gives {ids}")
        check(tokenizer.decode(ids) == text, f"tokenizer: {text!r} does not come back")
    check(tokenizer.encode("a<|endoftext|>b") == [97, 256, 98], "tokenizer: <|endoftext|> is not 256")


def compare_tokenizers(folder, program, device):
    """Reads a tokenizer of transformers by TX and back, from tokenizer.json, and from vocab.json with merges.txt."""
    texts = ["the cat sat on the mat, the dog didn't!", "  two  blanks\n\ttabs", "a<|endoftext|>b", "é漢字😀 123 4567", ""]
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(texts * 5, vocab_size=290, min_frequency=2, special_tokens=["<|endoftext|>"])
    make_model({}).save_pretrained(folder)
    for form in ("tokenizer.json", "pair"):
        for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
            if os.path.exists(os.path.join(folder, file)):
                os.remove(os.path.join(folder, file))
        trained.save_model(folder)
        theirs = GPT2TokenizerFast.from_pretrained(folder)
        if form == "tokenizer.json":
            theirs.save_pretrained(folder)
            os.remove(os.path.join(folder, "vocab.json"))
            os.remove(os.path.join(folder, "merges.txt"))
        with tempfile.TemporaryDirectory() as out:
            done = run(program, folder, out, device)
            check(done.returncode == 0, f"tokenizer, {form}: {done.stderr.strip()}")
            if done.returncode:
                continue
            ours = AutoTokenizer.from_pretrained(out)
            for text in texts:
                check(ours.encode(text) == theirs.encode(text), f"tokenizer, {form}: {text!r} differs")
            check(len(ours) == len(theirs) and ours.eos_token == theirs.eos_token, f"tokenizer, {form}: sizes differ")
        print(f"tokenizer, {form}: the same tokens")


def second_names(folder):
    """Keys of config.json by the second names that transformers takes, and keys of no effect."""
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        config = json.load(file)
    names = dict(n_embd="hidden_size", n_positions="max_position_embeddings", n_head="num_attention_heads",
                 n_layer="num_hidden_layers")
    config = {names.get(key, key): value for key, value in config.items()} | dict(n_ctx=7, summary_type="first")
    with open(path, "w") as file:
        json.dump(config, file)


def published_form(model, folder):
    """The same weights as the published gpt2 stores them: no prefix, mask buffers."""
    path = os.path.join(folder, "model.safetensors")
    state = {k.removeprefix("transformer."): v for k, v in load_file(path).items()}
    for layer in range(model.config.n_layer):
        state[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 32, 32)
    save_file(state, path, metadata={"format": "pt"})


def main():
    program, device = sys.argv[1], (sys.argv[2:] or ["cpu"])[0]
    for name, changes in VARIANTS.items():
        with tempfile.TemporaryDirectory() as folder:
            model = make_model(changes)
            model.save_pretrained(folder)
            compare(name, model, folder, program, device)
    model = make_model({})
    for change in (published_form, second_names):
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            check(os.path.exists(os.path.join(folder, "generation_config.json")), "no generation_config.json was made")
            if change is published_form:
                published_form(model, folder)
            else:
                second_names(folder)
            compare(change.__name__, model, folder, program, device)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        made = make_model({}).to(dtype)
        for size, shard_bytes in (("50GB", 0), ("50KB", 40000)):
            with tempfile.TemporaryDirectory() as folder:
                made.save_pretrained(folder, max_shard_size=size)
                sharded = os.path.exists(os.path.join(folder, "model.safetensors.index.json"))
                check(sharded == bool(shard_bytes), f"{dtype} at {size}: sharded {sharded}")
                single = make_model({}).to(dtype).float()
                compare(f"{dtype}, shards of {size}", single, folder, program, device, shard_bytes)
    with tempfile.TemporaryDirectory() as folder:
        compare_tokenizers(folder, program, device)
    return status()


sys.exit(main())
