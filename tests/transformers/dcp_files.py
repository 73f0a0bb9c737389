# SPDX-License-Identifier: Apache-2.0
"""Distributed checkpoints of PyTorch: written by ranks of FSDP, tensor parallelism and both, in fp32 and bf16, read by
txconvert and txgen; written by txconvert, read by PyTorch on another number of ranks. Every tensor is equal to the
byte. Files that are damaged or hold something else are refused, and nothing in them runs.

    dcp_files.py TXCONVERT TXCHECK TXGEN     exit status 77: transformers is not installed
"""
import os
import pickle
import shutil
import sys
import tempfile

from oracle import check, run, status

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import AutoModelForCausalLM, LlamaConfig


def join(rank, ranks, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)


def split(model, how, ranks):
    """The model as ranks have it: "fsdp", "tp", or "both" on 2 x 2 ranks."""
    tp = {"fsdp": 1, "tp": ranks, "both": 2}[how]
    mesh = init_device_mesh("cpu", (ranks // tp, tp), mesh_dim_names=("dp", "tp"))
    for block in model.model.layers:
        if tp > 1:
            parallelize_module(block, mesh["tp"], {
                "self_attn.q_proj": ColwiseParallel(), "self_attn.o_proj": RowwiseParallel(),
                "mlp.gate_proj": ColwiseParallel(), "mlp.down_proj": RowwiseParallel()})
        if how != "tp":
            fully_shard(block, mesh=mesh["dp"])
    if how != "tp":
        fully_shard(model, mesh=mesh["dp"])


def save(rank, ranks, store, base, folder, how, kind, nested):
    join(rank, ranks, store)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=kind)
    split(model, how, ranks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    weights, states = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": states, "step": 7} if nested else weights, checkpoint_id=folder)
    dist.destroy_process_group()


def load(rank, ranks, store, base, folder, how, kind):
    join(rank, ranks, store)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=kind)
    expected = {n: t.clone() for n, t in model.state_dict().items()}
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    split(model, how, ranks)
    state = model.state_dict()
    dcp.load({"model": state}, checkpoint_id=folder)
    for name, t in state.items():
        t = t.full_tensor() if hasattr(t, "full_tensor") else t
        assert torch.equal(t, expected[name]), f"{how}, {ranks} ranks: {name} differs"
    dist.destroy_process_group()


def ranks_do(function, ranks, parent, *arguments):
    store = os.path.join(parent, "store")
    if os.path.exists(store):
        os.remove(store)
    mp.start_processes(function, (ranks, store, *arguments), ranks, start_method="spawn")


def same(what, tensors, expected):
    check(tensors.keys() == expected.keys(), f"{what}: names {tensors.keys() ^ expected.keys()}")
    for name in expected:
        t, e = tensors[name], expected[name]
        check(t.dtype == e.dtype and t.shape == e.shape and torch.equal(t, e), f"{what}: {name} differs")


def read(parent, base, state, txconvert, txgen):
    for ranks, how, kind, nested in ((2, "fsdp", torch.float32, True), (3, "fsdp", torch.bfloat16, True),
                                     (3, "fsdp", torch.float32, False), (2, "tp", torch.bfloat16, True),
                                     (4, "both", torch.float32, True)):
        what = f"{how}, {ranks} ranks, {kind}"
        folder, out = (os.path.join(parent, f"{how}{ranks}{str(kind)[6:]}{nested}{x}") for x in ("", ".out"))
        ranks_do(save, ranks, parent, base, folder, how, kind, nested)
        done = run(txconvert, folder, "--to", out)
        check(done.returncode == 0 and "no config.json" in done.stderr, f"{what}: {done.stderr}")
        same(what, load_file(os.path.join(out, "model.safetensors")), {n: t.to(kind) for n, t in state.items()})
        for name in ("config.json", "generation_config.json"):
            shutil.copy(os.path.join(base, name), folder)
        texts = [run(txgen, "--model", at, "--ids", "3 1 4 1 5", "-n", "8", "--temperature", "0")
                 for at in ((folder, base) if kind == torch.float32 else (folder,))]
        check(all(t.returncode == 0 and t.stdout == texts[0].stdout for t in texts), f"{what}: {texts}")
        if not nested:
            good = folder  # has only weights
    return good


def written(parent, base, state, txconvert):
    half = os.path.join(parent, "half")
    AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16).save_pretrained(half)
    for shards, source, kind in ((1, base, torch.float32), (2, base, torch.float32), (3, half, torch.bfloat16)):
        folder, back = (os.path.join(parent, f"dcp{shards}{x}") for x in ("", ".back"))
        done = run(txconvert, source, "--to", folder, "--shards", str(shards))
        check(done.returncode == 0 and os.path.exists(os.path.join(folder, f"__{shards - 1}_0.distcp")),
              f"{shards} shards: {done.stderr}")
        check(os.path.exists(os.path.join(folder, "config.json")), f"{shards} shards: no config.json")
        for ranks, how in ((2, "fsdp"), (3, "fsdp"), (2, "tp")):
            ranks_do(load, ranks, parent, source, folder, how, kind)
        one = os.path.join(parent, "one.pt")
        dcp_to_torch_save(folder, one)
        expected = {n: t.to(kind) for n, t in state.items()}
        same(f"{shards} shards, torch", torch.load(one, weights_only=True)["model"], expected)
        done = run(txconvert, folder, "--to", back)
        check(done.returncode == 0, f"{shards} shards, back: {done.stderr}")
        same(f"{shards} shards, back", load_file(os.path.join(back, "model.safetensors")), expected)
        check(run(txconvert, source, "--to", folder, "--shards", "2").returncode == 1, "a checkpoint was replaced")


class Trap:
    """Its pickle calls a function that makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def refused(parent, good, txcheck):
    metadata, trap = os.path.join(good, ".metadata"), os.path.join(parent, "trap")
    with open(metadata, "rb") as f:
        text = f.read()

    def refuses(what, data, message):
        with open(metadata, "wb") as out:
            out.write(data)
        done = run(txcheck, "file", metadata)
        check(done.returncode == 1 and message in done.stderr + done.stdout,
              f"{what}: {done.returncode} {done.stdout} {done.stderr}")
        check(not os.path.exists(trap), f"{what}: the trap has run")

    def changed(change):
        value = pickle.loads(text)
        change(value)
        return pickle.dumps(value)

    def every(field, **values):
        def change(value):
            for item in getattr(value, field).values():
                for name, of in values.items():
                    object.__setattr__(item, name, of)
        return changed(change)

    first = next(iter(pickle.loads(text).state_dict_metadata))
    refuses("a trap", pickle.dumps(Trap(trap)), "not the metadata")
    refuses("a trap as a table", changed(lambda v: setattr(v, "storage_data", Trap(trap))), "stored nowhere")
    refuses("another object", pickle.dumps({"a": 1}), "not the metadata")
    refuses("outside", every("storage_data", relative_path="../x"), "not the plain name")
    refuses("far", every("storage_data", offset=1 << 62), "cut off")
    refuses("elsewhere", every("storage_data", offset=1), "damaged")
    refuses("compressed", every("storage_data", transform_descriptors=["zip"]), "compressed")
    refuses("no part", changed(lambda v: v.storage_data.clear()), "stored nowhere")
    refuses("a hole", changed(lambda v: v.state_dict_metadata[first].chunks.pop()), "elements, its shape")
    refuses("another size", changed(lambda v: setattr(v.state_dict_metadata[first], "size", torch.Size([1 << 62, 8]))),
            "2^63")
    refuses("twice", changed(lambda v: v.planner_data.update({n: ("model", "x") for n in v.planner_data})), "twice")
    for cut in range(0, len(text), max(1, len(text) // 50)):
        refuses(f"cut to {cut}", text[:cut], "")
    with open(metadata, "wb") as out:
        out.write(text)
    check(run(txcheck, "file", metadata).returncode == 0, "the checkpoint itself is refused")
    data = os.path.join(good, "__0_0.distcp")
    size = os.path.getsize(data)
    for cut in (size - 1, size // 2, 100, 0):
        with open(data, "r+b") as out:
            out.truncate(cut)
        refuses(f"data cut to {cut}", text, "")


def main():
    txconvert, txcheck, txgen = sys.argv[1:4]
    os.environ["OMP_NUM_THREADS"] = "1"  # of the ranks
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=61, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False)
    with tempfile.TemporaryDirectory() as parent:
        base = os.path.join(parent, "base")
        model = AutoModelForCausalLM.from_config(config).bfloat16().float()  # exact in both types
        model.save_pretrained(base)
        state = model.state_dict()
        good = read(parent, base, state, txconvert, txgen)
        written(parent, base, state, txconvert)
        refused(parent, good, txcheck)
    return status()


if __name__ == "__main__":
    sys.exit(main())
