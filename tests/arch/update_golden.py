# SPDX-License-Identifier: Apache-2.0
"""Writes update_golden.h: updates of small models by transformers' Adafactor and torch.optim.Muon, in double precision.
The weights follow from a formula.

    update_golden.py > update_golden.h

Element i of a tensor of the file is 0.2 sin(0.7 i + s), s the sum of the bytes of its name. Weights of norms are
greater by 1. Each model has a row for each tensor, in the order of their names. A row describes the change by three
updates (GPT-2: one): its norm and its product with cos(1.3 i), by Adafactor and by Muon."""
import torch
from torch.optim import _muon
from transformers import (Adafactor, AutoModelForCausalLM, BertConfig, BertForMaskedLM, GPT2Config, LlamaConfig,
                          MixtralConfig, Qwen2Config, Qwen2MoeConfig, Qwen3Config)

BATCH, BLOCK, RATE, DECAY = 2, 7, 0.02, 0.1
FAMILY = dict(vocab_size=23, max_position_embeddings=9, hidden_size=16, intermediate_size=18, num_hidden_layers=1,
              num_attention_heads=4, num_key_value_heads=2, bos_token_id=1, eos_token_id=2, attn_implementation="eager")
EXPERTS = dict(num_experts_per_tok=2, experts_implementation="eager")
MODELS = {
    "llama": LlamaConfig(**FAMILY),
    "qwen2": Qwen2Config(**FAMILY, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**FAMILY, head_dim=6),
    "bert": BertConfig(vocab_size=23, hidden_size=15, num_hidden_layers=1, num_attention_heads=3, intermediate_size=19,
                       max_position_embeddings=9, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                       attn_implementation="eager"),
    "gpt2": GPT2Config(vocab_size=23, n_positions=9, n_embd=12, n_layer=1, n_head=2, embd_pdrop=0.0, attn_pdrop=0.0,
                       resid_pdrop=0.0, bos_token_id=1, eos_token_id=2, attn_implementation="eager"),
    "mixtral": MixtralConfig(**FAMILY, **EXPERTS, num_local_experts=3),
    "qwen2_moe": Qwen2MoeConfig(**FAMILY, **EXPERTS, num_experts=3, moe_intermediate_size=10,
                                shared_expert_intermediate_size=14),
}


class Wide:
    """torch, except that Muon's iteration is in double precision."""
    bfloat16 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


_muon.torch = Wide()


def file_tensors(model):
    """The tensors of the files, as views of the model's parameters and their gradients, by name. transformers packs the
    experts when it has read them."""
    names = ("w1", "w3", "w2") if model.config.model_type == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    place = "block_sparse_moe" if model.config.model_type == "mixtral" else "mlp"
    for name, p in model.named_parameters():
        if ".experts." not in name:
            if model.config.model_type == "mixtral":
                name = name.replace(".mlp.gate.", ".block_sparse_moe.gate.")
            yield name, p.data, p.grad
            continue
        layer = name.split(".mlp.")[0]
        for e in range(len(p)):
            parts = ((names[2], slice(None)),) if "down" in name else (
                (names[0], slice(p.shape[1] // 2)), (names[1], slice(p.shape[1] // 2, None)))
            for part, rows in parts:
                yield f"{layer}.{place}.experts.{e}.{part}.weight", p.data[e, rows], p.grad[e, rows]


def start(model):
    with torch.no_grad():
        for name, p, _ in file_tensors(model):
            i = torch.arange(p.numel(), dtype=torch.double)
            norm = ("norm" in name or "Norm" in name or "ln_" in name) and name.endswith("weight")
            p.copy_((0.2 * torch.sin(0.7 * i + sum(name.encode())) + norm).view_as(p))


def backward(model):
    place = torch.arange(BATCH * BLOCK).view(BATCH, BLOCK)
    logits = model(input_ids=1 + place * 5 % 22).logits
    model.zero_grad()
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), (place * 7 + 3).flatten() % 23).backward()


def is_hidden(name, p):
    """Returns whether Muon updates p: matrices except embeddings, heads and routers."""
    return p.dim() == 2 and any(f"{stack}." in name
                                for stack in ("layers", "layer", "h")) and not name.endswith(".gate.weight")


def optimizers(kind, tensors):
    def groups(names):
        return [{"params": [tensors[n] for n in names if (tensors[n].dim() > 1) == matrix],
                 "weight_decay": DECAY * matrix}
                for matrix in (True, False)]

    if kind == "adafactor":
        return [Adafactor(groups(tensors), lr=RATE, scale_parameter=False, relative_step=False)]
    hidden = [n for n, p in tensors.items() if is_hidden(n, p)]
    rest = [n for n in tensors if n not in hidden]
    return [torch.optim.Muon([tensors[n] for n in hidden], lr=RATE, weight_decay=DECAY, momentum=0.95, nesterov=True),
            torch.optim.AdamW(groups(rest), lr=RATE)]


def updates(config, kind):
    """Norm and product by name."""
    model = (BertForMaskedLM(config) if config.model_type == "bert"
             else AutoModelForCausalLM.from_config(config)).double()
    backward(model)
    start(model)
    tensors = {name: torch.nn.Parameter(p) for name, p, _ in file_tensors(model)}  # share the memory of the model's
    before = {name: p.detach().clone() for name, p in tensors.items()}
    chosen = optimizers(kind, tensors)
    # The gradient of the biases of keys is 0 except for roundings, which Adafactor scales up. In GPT-2 they are of one
    # tensor with others, whose second update then depends on them.
    for _ in range(1 if config.model_type == "gpt2" else 3):
        backward(model)
        for name, _, gradient in file_tensors(model):
            tensors[name].grad = gradient
        for one in chosen:
            one.step()
    changes = {name: (p.detach() - before[name]).flatten() for name, p in tensors.items()}
    return {name: [change.norm().item(),
                   (change * torch.cos(1.3 * torch.arange(len(change), dtype=torch.double))).sum().item()]
            for name, change in changes.items()}


def main():
    print("""/* SPDX-License-Identifier: Apache-2.0
 * Made by update_golden.py: by how much optimizers change the tensors of files. */
/* clang-format off */""")
    for model, config in MODELS.items():
        adafactor, muon = updates(config, "adafactor"), updates(config, "muon")
        print(f"static const double updates_{model}[][4] = {{")
        for name in sorted(adafactor):
            if not name.endswith(("key.bias", "c_attn.bias")):
                print("    {" + ", ".join(f"{x:.9g}" for x in adafactor[name] + muon[name]) + "},")
        print("};")
    print("/* clang-format on */")


if __name__ == "__main__":
    main()
