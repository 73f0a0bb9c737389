# SPDX-License-Identifier: Apache-2.0
"""Compares adapters that txconvert combines with those of peft's add_weighted_adapter: A, B and the logits. DARE draws
other random values, so their fraction and scale are compared.

    combine.py TXCONVERT TXGEN      exit status 77: peft is not installed
"""
import os
import sys
import tempfile

from oracle import check, run, status

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig

CONFIG = LlamaConfig(vocab_size=99, max_position_embeddings=32, hidden_size=36, intermediate_size=55,
                     num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2)
TARGETS = [["q_proj", "v_proj"], ["q_proj", "down_proj"], ["q_proj", "v_proj"]]
WEIGHTS = [0.7, -0.4, 1.3]
# Type, arguments of peft, options of txconvert, and whether all adapters have the same rank.
CASES = [
    ("linear", {}, (), True),
    ("cat", {}, (), False),
    ("svd", dict(svd_rank=5), ("--svd_rank", "5"), False),
    ("svd", {}, (), False),
    ("ties", dict(density=0.4), ("--density", "0.4"), True),
    ("ties", dict(density=0.7, majority_sign_method="frequency"),
     ("--density", "0.7", "--majority_sign_method", "frequency"), True),
    ("magnitude_prune", dict(density=0.3), ("--density", "0.3"), True),
    ("dare_linear", dict(density=1.0), ("--density", "1"), True),
    ("dare_ties", dict(density=1.0), ("--density", "1"), True),
]
IDS = torch.arange(3, 20)[None]
SVD = torch.linalg.svd
# In fp32, singular values that are close to each other are too inexact.
torch.linalg.svd = lambda weight, full_matrices=True, driver=None: [
    part.float() for part in SVD(weight.double(), full_matrices)]


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def make(folder):
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(CONFIG).save_pretrained(f"{folder}/model")
    for same in (True, False):
        for i, targets in enumerate(TARGETS):
            config = LoraConfig(r=4 if same else 3 + i, lora_alpha=6 + i, target_modules=targets, use_rslora=i == 1,
                                task_type="CAUSAL_LM")
            model = get_peft_model(load(f"{folder}/model"), config)
            for weight in model.parameters():
                weight.data += 0.1 * weight.requires_grad * torch.randn_like(weight)
            model.save_pretrained(f"{folder}/{same}{i}")


def greatest(a, b):
    return (a - b).abs().max().item()


def combine(program, folder, out, same, kind, *more):
    done = run(program, *(f"{folder}/{same}{i}" for i in range(3)), "--to", out, "--weights",
               ",".join(map(str, WEIGHTS)), "--combination_type", kind, *more)
    check(done.returncode == 0, f"{kind}: {done.stderr}")


def compare(programs, folder, number, kind, arguments, options, same):
    model = PeftModel.from_pretrained(load(f"{folder}/model"), f"{folder}/{same}0", adapter_name="0")
    for i in (1, 2):
        model.load_adapter(f"{folder}/{same}{i}", adapter_name=str(i))
    model.add_weighted_adapter(["0", "1", "2"], WEIGHTS, "sum", combination_type=kind, **arguments)
    # peft keeps the first adapter's scaling by the root of the rank, which is none here.
    model.set_adapter("sum")
    with torch.no_grad():
        wanted = model.eval()(input_ids=IDS).logits
    out = f"{folder}/out{number}"
    combine(programs[0], folder, out, same, kind, *options)
    loaded = PeftModel.from_pretrained(load(f"{folder}/model"), out).eval()
    with torch.no_grad():
        theirs = greatest(loaded(input_ids=IDS).logits, wanted)
    done = run(programs[1], "--model", f"{folder}/model", "--adapter", out, "--ids",
               " ".join(map(str, IDS[0].tolist())), "--logits", f"{folder}/logits")
    check(done.returncode == 0, done.stderr)
    ours = greatest(load_file(f"{folder}/logits")["logits"], wanted)
    check(theirs <= 5e-6 and ours <= 5e-6, f"{kind} {arguments}: logits differ by {theirs} in peft, {ours} in txgen")
    print(f"{kind} {arguments}: logits {theirs:.1e}, {ours:.1e}")
    if kind in ("linear", "cat", "svd") and not options:
        compare_at_once(programs[1], folder, kind, same, wanted)


def compare_at_once(txgen, folder, kind, same, wanted):
    """txgen combines adapters itself, and leaves no temporary files."""
    adapters = [f"{folder}/{same}{i}" for i in range(3)]
    adapt = ("env", f"TMPDIR={folder}/temporary", txgen, "--model", f"{folder}/model", "--adapter", *adapters, "--ids",
             " ".join(map(str, IDS[0].tolist())), "--logits", f"{folder}/logits", "--adapter_weights")
    os.makedirs(f"{folder}/temporary", exist_ok=True)
    done = run(*adapt, ",".join(map(str, WEIGHTS)), "--combination_type", kind)
    check(done.returncode == 0, done.stderr)
    ours = greatest(load_file(f"{folder}/logits")["logits"], wanted)
    check(ours <= 5e-6 and not os.listdir(f"{folder}/temporary"), f"{kind}: logits of txgen with all differ by {ours}")
    for given in ("0.5,1", "1,x,1", "1,1,1,1", "1,1,nan"):
        done, says = run(*adapt, given), "nan is not a number" if "nan" in given else "give 3 numbers"
        check(done.returncode and says in done.stderr, f"{given}: {done.stderr}")
    check(not os.listdir(f"{folder}/temporary"), "temporary files are left")
    print(f"{kind} in txgen: logits {ours:.1e}")


def compare_dare(program, folder):
    """Each kept value is the sum of those of the adapters, divided by the density."""
    combine(program, folder, f"{folder}/all", True, "dare_linear", "--density", "1")
    whole = load_file(f"{folder}/all/adapter_model.safetensors")
    name = next(key for key in whole if "down_proj.lora_A" in key)  # only one adapter has it
    kept = []
    for seed in range(20):
        combine(program, folder, f"{folder}/dare{seed}", True, "dare_linear", "--density", "0.6", "--seed", str(seed))
        value = load_file(f"{folder}/dare{seed}/adapter_model.safetensors")[name]
        is_kept = value != 0
        kept.append(is_kept.float().mean().item())
        off = greatest(value[is_kept] * 0.6, whole[name][is_kept])
        check(off <= 1e-6, f"dare: kept values differ by {off}")
    mean, spread = sum(kept) / len(kept), (0.6 * 0.4 / (20 * whole[name].numel())) ** 0.5
    check(abs(mean - 0.6) <= 4 * spread and len(set(kept)) > 1, f"dare keeps {mean}, not 0.6 +- {spread}")
    print(f"dare: keeps {mean:.4f} of 0.6 +- {spread:.4f}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        make(folder)
        for number, case in enumerate(CASES):
            compare(sys.argv[1:], folder, number, *case)
        compare_dare(sys.argv[1], folder)
        done = run(sys.argv[1], f"{folder}/False0", f"{folder}/False1", "--to", f"{folder}/none")
        check(done.returncode == 1 and "different ranks" in done.stderr, f"ranks: {done.stderr}")
    return status()


if __name__ == "__main__":
    sys.exit(main())
