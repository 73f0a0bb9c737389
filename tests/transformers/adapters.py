# SPDX-License-Identifier: Apache-2.0
"""Compares txgen with peft on adapters of many kinds, which peft makes: the logits of the adapted and of the merged
model are those of peft, or the adapter is refused with the name of the key.

    adapters.py TXGEN TXCHECK      exit status 77: peft is not installed
"""
import inspect
import json
import os
import sys
import tempfile

from oracle import check, run, status

os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
import torch
from peft import (IA3Config, LoHaConfig, LoKrConfig, LoraConfig, PeftModel, VeraConfig, get_peft_model)
from peft.tuners.lora import layer as lora_layer
from peft.tuners.lora.config import CordaConfig
from peft.tuners.lora.corda import preprocess_corda
from peft.utils import loftq_utils
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen2Config

LOGITS = 5e-6
FAMILY = dict(vocab_size=199, max_position_embeddings=32, hidden_size=36, intermediate_size=55, num_hidden_layers=3,
              num_attention_heads=6, num_key_value_heads=2, bos_token_id=1, eos_token_id=2)
MODELS = {
    "llama": LlamaConfig(**FAMILY, attention_bias=True, mlp_bias=True),
    "qwen2": Qwen2Config(**FAMILY, tie_word_embeddings=True),
    "gpt2": GPT2Config(vocab_size=199, n_positions=32, n_embd=36, n_layer=3, n_head=3, bos_token_id=1, eos_token_id=2),
}
QV = ["q_proj", "v_proj"]
# Model, arguments of LoraConfig, and the word of the refusal if there is one.
CASES = [
    ("llama", dict(target_modules=QV, rank_pattern={"v_proj": 2, r"layers\.1\..*q_proj": 6}), None),
    ("llama", dict(target_modules="all-linear", alpha_pattern={"layers.0.self_attn.q_proj": 3, "mlp.up_proj": 32}),
     None),
    ("llama", dict(target_modules=r".*\.(0|2)\.self_attn\.(q|k)_proj"), None),
    ("llama", dict(target_modules=QV + ["up_proj"], layers_to_transform=[0, 2]), None),
    ("llama", dict(target_modules=QV, layers_to_transform=1, layers_pattern="layers"), None),
    ("gpt2", dict(target_modules=["c_attn"], layers_to_transform=[1], fan_in_fan_out=True, rank_pattern={"c_attn": 2}),
     None),
    ("llama", dict(target_modules=QV, exclude_modules=["layers.0.self_attn.q_proj", "1.self_attn.v_proj"]), None),
    ("llama", dict(target_modules="all-linear", exclude_modules=r".*\.mlp\..*"), None),
    ("llama", dict(target_modules=QV, bias="all"), None),
    ("llama", dict(target_modules=QV + ["down_proj"], bias="lora_only"), None),
    ("qwen2", dict(target_modules=["q_proj", "o_proj"], bias="lora_only"), None),
    ("gpt2", dict(target_modules=["c_attn", "mlp.c_proj"], bias="all"), None),
    ("llama", dict(target_modules=["q_proj", "lm_head"]), None),
    ("llama", dict(target_modules=["q_proj", "embed_tokens"]), None),
    ("llama", dict(target_modules=["q_proj", "embed_tokens", "lm_head"], use_dora=True), None),
    ("llama", dict(target_modules=["q_proj"], modules_to_save=["lm_head", "embed_tokens", "norm"]), None),
    ("qwen2", dict(target_modules=["q_proj", "lm_head"]), None),
    ("qwen2", dict(target_modules=["q_proj", "embed_tokens"]), None),
    ("qwen2", dict(target_modules=["q_proj", "embed_tokens"], ensure_weight_tying=True), None),
    ("qwen2", dict(target_modules=["q_proj", "lm_head"], ensure_weight_tying=True), None),
    ("qwen2", dict(target_modules=["q_proj"], modules_to_save=["lm_head"]), None),
    ("qwen2", dict(target_modules=["q_proj"], modules_to_save=["embed_tokens"]), None),
    ("qwen2", dict(target_modules=["q_proj"], modules_to_save=["embed_tokens"], ensure_weight_tying=True), None),
    ("gpt2", dict(target_modules=["c_attn", "lm_head"]), "tie_word_embeddings"),
    ("gpt2", dict(target_modules=["c_attn", "wte"]), "tie_word_embeddings"),
    ("gpt2", dict(target_modules=["c_attn", "wpe"]), "wpe"),
    ("llama", dict(target_modules=QV + ["up_proj", "down_proj"], init_lora_weights="pissa"), None),
    ("llama", dict(target_modules=QV, init_lora_weights="pissa", use_dora=True), None),
    ("gpt2", dict(target_modules="all-linear", init_lora_weights="pissa", use_rslora=True), None),
    ("llama", dict(target_modules=QV + ["up_proj", "down_proj"], init_lora_weights="olora"), None),
    ("llama", dict(target_modules=QV, init_lora_weights="pissa_niter_4"), "init_lora_weights"),
    ("llama", dict(target_modules=QV + ["up_proj", "down_proj"], init_lora_weights="loftq", loftq_config={
        "loftq_bits": 4, "loftq_iter": 1}), None),
    ("llama", dict(target_modules=QV, init_lora_weights="loftq", use_dora=True, loftq_config={
        "loftq_bits": 4, "loftq_iter": 1}), None),
    ("llama", dict(target_modules=QV, init_lora_weights="loftq", loftq_config={
        "loftq_bits": 4, "loftq_iter": 2}), "loftq_config"),
    ("llama", dict(target_modules=QV, init_lora_weights="loftq", loftq_config={
        "loftq_bits": 8, "loftq_iter": 1}), "loftq_config"),
    ("llama", dict(target_modules=QV, init_lora_weights="orthogonal", use_rslora=True, alpha_pattern={"v_proj": 5}),
     None),
    ("llama", dict(target_modules=QV, init_lora_weights="gaussian", use_dora=True, rank_pattern={"v_proj": 2}), None),
    ("llama", dict(target_modules=QV, trainable_token_indices=[28, 5, 198, 35, 42, 49, 0]), None),
    ("llama", dict(target_modules=["q_proj", "lm_head"],
                   trainable_token_indices={"embed_tokens": list(range(28, 60))}), None),
    ("llama", dict(target_modules=QV, trainable_token_indices={"embed_tokens": [21, 35], "lm_head": [56, 3, 28]}), None),
    ("qwen2", dict(target_modules=QV, trainable_token_indices=[21, 35, 3, 28]), None),
    ("qwen2", dict(target_modules=QV, trainable_token_indices={"embed_tokens": [35, 36], "lm_head": [35, 36]}), None),
    ("qwen2", dict(target_modules=QV, trainable_token_indices={"embed_tokens": [21, 5], "lm_head": [56, 3, 28]}), None),
    ("qwen2", dict(target_modules=QV, trainable_token_indices={"lm_head": [56, 3, 21]}), None),
    ("gpt2", dict(target_modules=["c_attn"], trainable_token_indices=[21, 35, 3, 28]), None),
    ("gpt2", dict(target_modules=["c_attn"], trainable_token_indices={"lm_head": [21, 35]}), "tie_word_embeddings"),
    ("gpt2", dict(target_modules=["c_attn"], trainable_token_indices={"wpe": [21, 3]}), "trainable_token_indices"),
    ("llama", dict(target_modules=QV, target_parameters=["mlp.up_proj.weight"]), "target parameter mlp.up_proj.weight"),
    ("llama", dict(target_modules=QV, lora_bias=True), "lora_bias"),
]
OTHERS = [LoHaConfig(target_modules=QV), LoKrConfig(target_modules=QV),
          IA3Config(target_modules=QV, feedforward_modules=[]), VeraConfig(target_modules=["q_proj"])]
IDS = torch.arange(3, 20)[None] * 7 % 199


SVD = torch.linalg.svd
# peft decomposes in fp32, which is too inexact for singular values that are close to each other.
torch.linalg.svd = lambda weight, **more: [part.float() for part in SVD(weight.double(), **more)]


# peft computes LoftQ on a GPU, with the same codes as on the CPU.
on_cpu = {}
exec(inspect.getsource(loftq_utils).replace('"cuda"', '"cpu"'), on_cpu)
lora_layer.loftq_init = on_cpu["loftq_init"]


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()


def make(folder, base, config):
    """Saves an adapter whose trained parameters have changed since it was made."""
    torch.manual_seed(3)
    model = get_peft_model(load(base), config)
    for name, weight in model.named_parameters():
        weight.data += 0.05 * weight.requires_grad * torch.randn_like(weight)
    model.save_pretrained(folder)


def logits(model):
    with torch.no_grad():
        return model(input_ids=IDS).logits


def convert(txgen, folder, base):
    """PiSSA and CorDA that peft converts to plain LoRA; CorDA as it is saved otherwise is refused."""
    def preprocess(model, config):
        preprocess_corda(model, config, run_model=lambda: model(input_ids=IDS))

    for kind, prepare in (("pissa", None), ("corda", preprocess)):
        torch.manual_seed(3)
        config = LoraConfig(r=4, lora_alpha=6, task_type="CAUSAL_LM", target_modules=QV, init_lora_weights=kind,
                            corda_config=CordaConfig() if prepare else None)
        model = load(base)
        if prepare:
            prepare(model, config)
        model = get_peft_model(model, config)
        model.save_pretrained(f"{folder}/{kind}/begin/first")
        for weight in model.parameters():
            weight.data += 0.05 * weight.requires_grad * torch.randn_like(weight)
        model.save_pretrained(f"{folder}/{kind}/a",
                              path_initial_model_for_weight_conversion=f"{folder}/{kind}/begin/first")
        compare(f"{kind}, converted", txgen, f"{folder}/{kind}", base, None)
        if prepare:
            model.save_pretrained(f"{folder}/unconverted/a")
            compare(f"{kind}, not converted", txgen, f"{folder}/unconverted", base, "init_lora_weights")


def compare(name, txgen, folder, base, key):
    command = (txgen, "--model", base, "--adapter", f"{folder}/a", "--threads", "1", "--ids",
               " ".join(map(str, IDS[0].tolist())), "--logits", f"{folder}/logits")
    done = run(*command)
    if key:
        check(done.returncode == 1 and key in done.stderr, f"{name}: {done.returncode} {done.stderr}, not {key}")
        return
    check(done.returncode == 0, f"{name}: {done.stderr}")
    if done.returncode:
        return
    done = run(sys.argv[2], "file", f"{folder}/a")
    check(done.returncode == 0, f"{name}: {done.stdout}")
    wanted = logits(PeftModel.from_pretrained(load(base), f"{folder}/a").eval())
    off = (load_file(f"{folder}/logits")["logits"] - wanted).abs().max().item()
    done = run(txgen, "--model", base, "--adapter", f"{folder}/a", "--save_merged", f"{folder}/merged")
    check(done.returncode == 0, f"{name}: {done.stderr}")
    merged = (logits(load(f"{folder}/merged")) - wanted).abs().max().item()
    check(off <= LOGITS and merged <= LOGITS, f"{name}: logits differ by {off}, those of the merged model by {merged}")
    print(f"{name}: logits {off:.1e}, merged {merged:.1e}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name, config in MODELS.items():
            torch.manual_seed(1)
            model = AutoModelForCausalLM.from_config(config)
            for weight in model.parameters():
                weight.data += 0.1 * torch.randn_like(weight)
            model.save_pretrained(f"{folder}/{name}")
        for number, (name, settings, key) in enumerate(CASES):
            config = LoraConfig(**dict(dict(r=4, lora_alpha=6, task_type="CAUSAL_LM"), **settings))
            place = f"{folder}/{number}"
            make(f"{place}/a", f"{folder}/{name}", config)
            compare(f"{name} {json.dumps(settings)}", sys.argv[1], place, f"{folder}/{name}", key)
        convert(sys.argv[1], folder, f"{folder}/llama")
        for config in OTHERS:
            make(f"{folder}/{config.peft_type}/a", f"{folder}/llama", config)
            compare(config.peft_type, sys.argv[1], f"{folder}/{config.peft_type}", f"{folder}/llama", "peft_type")
    return status()


if __name__ == "__main__":
    sys.exit(main())
