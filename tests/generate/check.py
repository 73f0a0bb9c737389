# SPDX-License-Identifier: Apache-2.0
"""Compares txgen with transformers: greedy and beam search for prompts of unequal length as one batch, the logits of
sequences, and perplexity with a stride.

    check.py TXGEN MODELS DEVICE      MODELS: a folder of trained models to test in addition to random ones; exit status
                                      77: no transformers
"""
import json
import os
import random
import shutil
import sys
import tempfile

import oracle

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, LlamaConfig, MistralConfig

PROMPTS, NEW = 20, 40


def check(good, what):
    oracle.check(good, what)
    if good:
        print(f"ok   {what}")


def txgen(program, folder, device, *arguments):
    command = [program, "--model", folder, "--device", device, *arguments]
    done = oracle.run(*command)
    if done.returncode:
        sys.exit(f"{' '.join(command)[:300]}: {done.stderr}")
    return done.stdout


# Large enough that caches, chunks and padding matter.
RANDOM = {
    "gpt2": GPT2Config(vocab_size=1000, n_positions=400, n_embd=96, n_layer=3, n_head=6, bos_token_id=7,
                       eos_token_id=7),
    "llama": LlamaConfig(vocab_size=1000, max_position_embeddings=400, hidden_size=96, intermediate_size=200,
                         num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2, eos_token_id=7,
                         rope_parameters=dict(rope_type="llama3", rope_theta=1e4, factor=4.0, low_freq_factor=1.0,
                                              high_freq_factor=4.0, original_max_position_embeddings=64)),
    "mistral": MistralConfig(vocab_size=1000, max_position_embeddings=400, hidden_size=96, intermediate_size=200,
                             num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2, eos_token_id=7,
                             sliding_window=19),
}


def random_model(config, folder):
    """Weights that give lively texts."""
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            is_gain = ("ln_" in name or "norm" in name) and name.endswith("weight")
            p.copy_(torch.randn_like(p) * 0.15 + (1.0 if is_gain else 0.0))
    # A token that the greedy texts hold now and then ends them.
    texts = theirs(model, prompts_of(config.vocab_size, 330), eos_token_id=None)
    counts = {i: sum(i in row[4:] and i not in row[:4] for row in texts) for row in texts for i in row}
    end = min(counts, key=lambda i: abs(counts[i] - PROMPTS // 3))
    check(3 <= counts[end] < PROMPTS, f"random: token {end} ends {counts[end]} of {PROMPTS} texts")
    config.eos_token_id = model.generation_config.eos_token_id = end
    model.save_pretrained(folder)
    return model


def prompts_of(vocab, longest):
    draw = random.Random(5)
    lengths = [1, 2, longest] + [draw.randrange(3, longest) for _ in range(PROMPTS - 3)]
    return [[draw.randrange(vocab - 1) for _ in range(length)] for length in lengths]


def theirs(model, prompts, **options):
    """New ids of each prompt, padded on the left to one batch."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    end = options.get("eos_token_id", model.generation_config.eos_token_id)
    pad = model.config.vocab_size - 1 if end is None else end
    with torch.no_grad():
        out = model.generate(ids, attention_mask=mask, max_new_tokens=NEW, pad_token_id=pad, do_sample=False, **options)
    rows = []
    for row in out[:, longest:].tolist():
        rows.append(row[:row.index(end) + 1] if end in row else row)
    return rows


def ours(program, folder, device, prompts, batch, *arguments):
    ids = [word for p in prompts for word in ("--ids", " ".join(map(str, p)))]
    out = txgen(program, folder, device, *ids, "--max_new_tokens", str(NEW), "--batch_size", str(batch),
                "--temperature", "0", *arguments)
    return [[int(word) for word in line.split()] for line in out.splitlines()]


def compare(what, want, got):
    check(len(want) == len(got), f"{what}: as many texts")
    wrong = [i for i, (a, b) in enumerate(zip(want, got)) if a != b]
    check(not wrong, f"{what}: {len(want) - len(wrong)} of {len(want)} texts are equal"
          + (f"; {wrong[0]}: {want[wrong[0]]} became {got[wrong[0]]}" if wrong else ""))


def check_texts(program, name, model, folder, device, longest):
    prompts = prompts_of(model.config.vocab_size, longest)
    greedy = theirs(model, prompts)
    compare(f"{name}, greedy, one batch", greedy, ours(program, folder, device, prompts, PROMPTS))
    compare(f"{name}, greedy, one by one", greedy, ours(program, folder, device, prompts[:6], 1) + greedy[6:])
    compare(f"{name}, repetition_penalty", theirs(model, prompts, repetition_penalty=1.3),
            ours(program, folder, device, prompts, 7, "--repetition_penalty", "1.3"))
    compare(f"{name}, min_new_tokens", theirs(model, prompts, min_new_tokens=20),
            ours(program, folder, device, prompts, 20, "--min_new_tokens", "20"))
    for early in (False, True, "never"):
        for penalty in (1.0, 2.0, -1.0) if early is False else (0.6,):
            few = prompts if early is False and penalty == 1.0 and device == "cpu" else prompts[:6]
            want = theirs(model, few, num_beams=4, early_stopping=early, length_penalty=penalty)
            got = ours(program, folder, device, few, len(few), "--num_beams", "4", "--early_stopping",
                       str(early).lower(), "--length_penalty", str(penalty))
            compare(f"{name}, 4 beams, early_stopping {early}, length_penalty {penalty}", want, got)


def check_ends(program, name, model, folder, device):
    """Several ids in config.json, and no generation_config.json."""
    prompts = prompts_of(model.config.vocab_size, 40)[2:6]
    texts = theirs(model, prompts, eos_token_id=None)
    ends = [model.config.eos_token_id, texts[0][9], texts[1][5], texts[2][20]]
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        os.remove(os.path.join(copy, "generation_config.json"))
        with open(os.path.join(copy, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        config["eos_token_id"] = ends
        with open(os.path.join(copy, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        loaded = AutoModelForCausalLM.from_pretrained(copy)
        want = []
        for prompt in prompts:
            with torch.no_grad():
                out = loaded.generate(torch.tensor([prompt]), max_new_tokens=NEW, do_sample=False, pad_token_id=0)
            want.append(out[0, len(prompt):].tolist())
        compare(f"{name}, ends {ends} in config.json", want, ours(program, copy, device, prompts, 4))


def check_perplexity(program, name, model, folder, device, text):
    """The windows of the guide "Perplexity of fixed-length models", each scored token with equal weight."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        input_ids = tokenizer(text, return_tensors="pt").input_ids
        for max_length, stride in ((64, 32), (100, 33), (128, 128), (16, 1)):
            nll_sum, n_tokens, prev_end_loc, seq_len = 0.0, 0, 0, input_ids.size(1)
            for begin_loc in range(0, seq_len, stride):
                end_loc = min(begin_loc + max_length, seq_len)
                trg_len = end_loc - prev_end_loc
                window = input_ids[:, begin_loc:end_loc]
                with torch.no_grad():
                    logits = model(window).logits[0, :-1]
                losses = torch.nn.functional.cross_entropy(logits, window[0, 1:], reduction="none")[-trg_len:]
                nll_sum += losses.double().sum().item()
                n_tokens += losses.numel()
                prev_end_loc = end_loc
                if end_loc == seq_len:
                    break
            want = nll_sum / n_tokens
            for batch in (1, 5):
                out = txgen(program, folder, device, "--perplexity", file.name, "--max_length", str(max_length),
                            "--stride", str(stride), "--batch_size", str(batch)).split()
                loss, tokens = float(out[3].rstrip(",")), int(out[4])
                check(abs(loss - want) <= 1e-5 * want and tokens == n_tokens,
                      f"{name}, perplexity {max_length}/{stride}, batch {batch}: loss {loss} of {tokens}, "
                      f"guide {want:.6f} of {n_tokens}")


def check_logits(program, name, model, folder, device):
    ids = prompts_of(model.config.vocab_size, 90)[2]
    with tempfile.TemporaryDirectory() as out, torch.no_grad():
        path = os.path.join(out, "logits.safetensors")
        txgen(program, folder, device, "--ids", " ".join(map(str, ids)), "--logits", path)
        got, want = load_file(path)["logits"], model.double()(torch.tensor([ids])).logits
        model.float()
        worst = ((got - want).abs().max() / want.abs().max()).item()
        check(worst <= 1e-5, f"{name}, logits: worst difference {worst:.2e}")


def main():
    program, models, device = sys.argv[1:4]
    torch.set_num_threads(2)
    for name, config in RANDOM.items():
        with tempfile.TemporaryDirectory() as made:
            model = random_model(config, made)
            check_texts(program, f"random {name}", model, made, device, 330)
            check_logits(program, f"random {name}", model, made, device)
            check_ends(program, f"random {name}", model, made, device)
    for name in ("tiny_gpt2_bytes", "stories260K"):
        folder = os.path.join(models, name)
        if os.path.isdir(folder):
            model = AutoModelForCausalLM.from_pretrained(folder).eval()
            check_texts(program, name, model, folder, device, 80)
            check_logits(program, name, model, folder, device)
            check_perplexity(program, name, model, folder, device, "The perplexity of it.\nROMEO: what? " * 14)
    sys.exit(oracle.status())


main()
