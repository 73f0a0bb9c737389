#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT-2 and a small Llama on two ranks, by PyTorch (FSDP2 and DTensor over gloo) and by txtrain with its
splits, from the same weights on the same batches. Compares losses, gradient norms and the final weights.

    torch_ranks.py TXTRAIN LAUNCHER      exit status 77: torch or transformers are absent
"""
import json
import os
import sys
import tempfile

from oracle import log_of, read_json, run

import numpy as np
import torch
import torch.distributed as dist
import transformers
from safetensors.torch import load_file, save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

STEPS, RANKS, BATCH, BLOCK, VOCAB, RATE, MOST = 30, 2, 8, 32, 200, 3e-3, 0.5
NOTHING = dict(bos_token_id=0, eos_token_id=0)

transformers.utils.logging.disable_progress_bar()

MODELS = {
    "gpt2": transformers.GPT2Config(vocab_size=VOCAB, n_positions=BLOCK, n_embd=32, n_layer=2, n_head=4, embd_pdrop=0.0,
                                    attn_pdrop=0.0, resid_pdrop=0.0, initializer_range=0.2, **NOTHING),
    "llama": transformers.LlamaConfig(vocab_size=VOCAB, max_position_embeddings=BLOCK, hidden_size=32,
                                      intermediate_size=48,
                                      num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                      initializer_range=0.2, **NOTHING),
}
# Splits of PyTorch and of TX that are compared. A group that shares rows has the whole batch.
WAYS = {
    ("gpt2", "fsdp"): ["--zero_stage 3", "--zero_stage 2", "--pipeline_parallel 2", "--context_parallel 2"],
    ("llama", "fsdp"): ["--zero_stage 3", "--context_parallel 2"],
    ("llama", "tensor"): ["--tensor_parallel 2", "--pipeline_parallel 2"],
}


# ---- PyTorch ------------------------------------------------------------------------------------------------


def divide(model, way, mesh):
    """By blocks and as a whole, or the matrices of a Llama by columns and rows."""
    if way == "fsdp":
        for block in model.transformer.h if hasattr(model, "transformer") else model.model.layers:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    for layer in model.model.layers:
        columns = {name: ColwiseParallel() for name in (
            "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")}
        rows = {name: RowwiseParallel() for name in ("self_attn.o_proj", "mlp.down_proj")}
        parallelize_module(layer, mesh, columns | rows)
    return model


def whole(tensor):
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach()


def clip(model):
    """As clip_grad_norm_, of tensors that are divided in different ways."""
    norm = sum(whole(p.grad).double().square().sum() for p in model.parameters()).sqrt().item()
    for p in model.parameters():
        p.grad.mul_(min(1.0, MOST / (norm + 1e-6)))
    return norm


def train(rank, way, folder, tokens, out, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    model = divide(model, way, init_device_mesh("cpu", (RANKS,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    losses, norms = [], []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (STEPS - step) / STEPS
        rows = tokens[step * BATCH:(step + 1) * BATCH]
        rows = rows[rank::RANKS] if way == "fsdp" else rows
        logits = model(rows, use_cache=False).logits[:, :-1].reshape(-1, VOCAB)
        loss = torch.nn.functional.cross_entropy(logits, rows[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        norms.append(clip(model))
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / RANKS)
    weights = {name: whole(p).clone().contiguous() for name, p in model.named_parameters()}
    if rank == 0:
        save_file(weights, f"{out}.safetensors")
        with open(f"{out}.json", "w", encoding="utf-8") as file:
            json.dump({"loss": losses, "grad_norm": norms}, file)
    dist.destroy_process_group()


# ---- TX -----------------------------------------------------------------------------------------------------


def run_tx(txtrain, launcher, folder, work, split):
    rows = BATCH // RANKS if "zero" in split else BATCH
    done = run(
        launcher, "-n", str(RANKS), txtrain, *split.split(), model_name_or_path=folder, train_file=f"{work}/train.bin",
        output_dir=f"{work}/out", overwrite_output_dir=True, train_sampling_strategy="sequential", block_size=BLOCK,
        per_device_train_batch_size=rows, max_steps=STEPS, learning_rate=RATE, max_grad_norm=MOST, logging_steps=1,
        save_strategy="no", threads=1)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return ({key: log_of(f"{work}/out", key)[:STEPS] for key in ("loss", "grad_norm")},
            load_file(f"{work}/out/model.safetensors"))


def counting(name, weight):
    """Without the bias of keys, on which no score depends: its gradient is rounding, which AdamW makes steps of."""
    return torch.cat(weight.chunk(3)[::2]) if name.endswith("c_attn.bias") else weight


def compare(name, ours, theirs):
    """True where everything is close; NaN is not."""
    good = True
    for key, limit in (("loss", 2e-6), ("grad_norm", 1e-5)):
        errors = [abs(a - b) / abs(b) for a, b in zip(ours[0][key], theirs[0][key])]
        good = good and len(errors) == STEPS and all(e <= limit for e in errors)
        worst = max(errors, default=float('nan'))
        print(f"{name}: {key}: {len(errors)} steps, largest relative difference {worst:.1e}")
    pairs = [(counting(n, ours[1][n]), counting(n, w)) for n, w in theirs[1].items()]
    worst = max(((a - b).norm() / b.norm()).item() for a, b in pairs)
    print(f"{name}: weights at the end: largest relative difference {worst:.1e}")
    return good and worst <= 1e-5


def main():
    txtrain, launcher = sys.argv[1:3]
    bad = 0
    with tempfile.TemporaryDirectory() as work:
        torch.manual_seed(3)
        tokens = torch.randint(0, VOCAB, (STEPS * BATCH, BLOCK))
        np.asarray(tokens, dtype=np.uint16).tofile(f"{work}/train.bin")
        for number, ((kind, way), splits) in enumerate(WAYS.items()):
            folder, out = f"{work}/{kind}", f"{work}/{kind}-{way}"
            torch.manual_seed(1)
            transformers.AutoModelForCausalLM.from_config(MODELS[kind]).save_pretrained(folder)
            torch.multiprocessing.spawn(train, (way, folder, tokens, out, 29600 + os.getpid() % 300 + number), RANKS)
            theirs = read_json(f"{out}.json"), load_file(f"{out}.safetensors")
            for split in splits:
                bad += not compare(f"{kind}, {way} and {split}", run_tx(txtrain, launcher, folder, work, split), theirs)
    print("all good" if bad == 0 else f"{bad} ways differ")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
