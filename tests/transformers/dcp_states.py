# SPDX-License-Identifier: Apache-2.0
"""A run that goes from FSDP to TX and back with its optimizer. Ranks of FSDP train with AdamW and save a distributed
checkpoint. txconvert makes a checkpoint of a run of it, txtrain resumes, and its losses are those of torch. Then
txconvert makes a distributed checkpoint of TX's, and another number of ranks of FSDP goes on with torch's losses.

    dcp_states.py TXCONVERT TXTRAIN     exit status 77: transformers is not installed
"""
import json
import os
import sys
import tempfile

from oracle import check, run, status

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import load_file
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

SAVED, STEPS, BATCH, BLOCK, RATE, DECAY = 4, 5, 4, 24, 1e-3, 0.1
TEXT = b"".join(b"%d: the %s saw %d fish\n" % (i, (b"cat", b"dog", b"bird")[i * i % 3], i * 7 % 10) for i in range(99))
MODELS = {
    "llama": LlamaConfig(vocab_size=257, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
                         tie_word_embeddings=False),
    "gpt2": GPT2Config(vocab_size=257, n_embd=24, n_layer=2, n_head=4, n_positions=32, resid_pdrop=0.0, embd_pdrop=0.0,
                       attn_pdrop=0.0),
}


def prepare(rank, ranks, store, base):
    """The model and the optimizer of a rank. All ranks read the same rows."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    mesh = init_device_mesh("cpu", (ranks,))
    for block in model.model.layers if hasattr(model, "model") else model.transformer.h:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    torch.ones(1, requires_grad=True).sum().backward()  # dcp.load starts threads, after which autograd could not start
    parts = [[p for p in model.parameters() if (p.dim() > 1) == matrix] for matrix in (True, False)]
    return model, torch.optim.AdamW([{"params": parts[0], "weight_decay": DECAY},
                                     {"params": parts[1], "weight_decay": 0.0}], lr=RATE)


def train(model, optimizer, first, end):
    rows = torch.tensor(list(TEXT[:len(TEXT) // BLOCK * BLOCK])).view(-1, BLOCK)
    losses = []
    for step in range(first, end):
        ids = rows[step * BATCH:(step + 1) * BATCH]
        logits = model(input_ids=ids).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def end(rank, losses, results):
    if rank == 0:
        with open(results, "w") as out:
            json.dump(losses, out)
    dist.destroy_process_group()


def begin(rank, ranks, store, base, folder, results, name, flat):
    model, optimizer = prepare(rank, ranks, store, base)
    train(model, optimizer, 0, SAVED)
    weights, states = get_state_dict(model, optimizer,
                                     options=StateDictOptions(flatten_optimizer_state_dict=flat))
    dcp.save({"model": weights, name: states}, checkpoint_id=folder)
    end(rank, train(model, optimizer, SAVED, SAVED + 2 * STEPS), results)


def resume(rank, ranks, store, base, folder, results):
    model, optimizer = prepare(rank, ranks, store, base)
    weights, states = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": states}, checkpoint_id=folder,
             planner=DefaultLoadPlanner(allow_partial_load=True))
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=states)
    steps = {optimizer.state[p]["step"].item() for p in model.parameters()}
    assert steps == {SAVED + STEPS}, f"updates are {steps}"
    end(rank, train(model, optimizer, SAVED + STEPS, SAVED + 2 * STEPS), results)


def ranks_do(function, ranks, parent, *arguments):
    store, results = os.path.join(parent, "store"), os.path.join(parent, "losses")
    for path in (store, results):
        if os.path.exists(path):
            os.remove(path)
    base, folder, *rest = arguments
    mp.start_processes(function, (ranks, store, base, folder, results, *rest), ranks, start_method="spawn")
    with open(results) as f:
        return json.load(f)


def close(what, losses, expected):
    worst = max(abs(a - b) for a, b in zip(losses, expected))
    print(f"{what}: losses of {len(losses)} steps differ by {worst:.1e}", flush=True)
    check(len(losses) == len(expected) == STEPS and worst <= 1e-5, f"{what}: {losses}, torch has {expected}")


def tx_losses(out):
    with open(os.path.join(out, "log.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    return [line["loss"] for line in lines if "loss" in line and line.get("step", 0) > SAVED]


def round_trip(parent, txconvert, txtrain, name, ranks, others, states, flat):
    what = f"{name}, {ranks} ranks, \"{states}\""
    base, text = os.path.join(parent, name), os.path.join(parent, "text")
    at = os.path.join(parent, f"{name}{ranks}")
    folder, start, out, back = (os.path.join(at, x) for x in ("dcp", "start", "out", "back"))
    expected = ranks_do(begin, ranks, parent, base, folder, states, flat)
    for config in ("config.json", "generation_config.json"):
        with open(os.path.join(base, config)) as source, open(os.path.join(folder, config), "w") as to:
            to.write(source.read())
    done = run(txconvert, folder, "--to", start)
    check(done.returncode == 0 and not done.stderr.strip(), f"{what}: {done.stderr}")
    done = run(txtrain, model_name_or_path=start, resume_from_checkpoint=start, train_file=text, block_size=BLOCK,
               per_device_train_batch_size=BATCH, train_sampling_strategy="sequential", learning_rate=RATE,
               weight_decay=DECAY, lr_scheduler_type="constant", max_grad_norm=0, max_steps=SAVED + STEPS,
               logging_steps=1, save_steps=SAVED + STEPS, device="cpu", output_dir=out)
    check(done.returncode == 0, f"{what}: {done.stderr}")
    if done.returncode:
        return
    close(f"{what}, in TX", tx_losses(out), expected[:STEPS])
    saved = os.path.join(out, f"checkpoint-{SAVED + STEPS}")
    done = run(txconvert, saved, "--to", back, "--shards", str(ranks))
    check(done.returncode == 0 and not done.stderr.strip(), f"{what}, back: {done.stderr}")
    close(f"{what}, on {others} ranks of torch again", ranks_do(resume, others, parent, base, back), expected[STEPS:])
    again = os.path.join(at, "again")  # TX's states are the same after both ways
    done = run(txconvert, back, "--to", again)
    check(done.returncode == 0, f"{what}, again: {done.stderr}")
    ours, theirs = (load_file(os.path.join(x, "optimizer.safetensors")) for x in (saved, again))
    check(sum(t.numel() for t in ours.values()) == sum(t.numel() for t in theirs.values()), f"{what}: other states")
    check(all(torch.equal(ours[n], t) for n, t in theirs.items() if n in ours), f"{what}: states differ")


def only_weights(parent, txconvert, base):
    """Another optimizer, updates that differ, and a folder without config.json: the weights are converted."""
    model = AutoModelForCausalLM.from_pretrained(base)
    weights = model.state_dict()
    name = next(iter(weights))
    moments = {"exp_avg": torch.zeros_like(weights[name]), "exp_avg_sq": torch.zeros_like(weights[name])}
    cases = {"sgd": {name: {"momentum_buffer": moments["exp_avg"]}},
             "steps": {name: {**moments, "step": torch.tensor(1.0)}, "other": {"step": torch.tensor(2.0)}},
             "config": {name: {**moments, "step": torch.tensor(1.0)}}}
    for case, state in cases.items():
        folder, out = (os.path.join(parent, case + x) for x in ("", ".out"))
        dcp.save({"model": weights, "optimizer": {"state": state}}, checkpoint_id=folder, no_dist=True)
        if case != "config":
            model.config.save_pretrained(folder)
        done = run(txconvert, folder, "--to", out)
        message = "config.json" if case == "config" else "only the weights are converted"
        check(done.returncode == 0 and message in done.stderr, f"{case}: {done.stderr}")
        check(os.path.exists(os.path.join(out, "model.safetensors")), f"{case}: no weights")
        for file in ("optimizer.safetensors", "manifest.json", "run_state.json"):
            check(not os.path.exists(os.path.join(out, file)), f"{case}: {file} is there")


def main():
    txconvert, txtrain = sys.argv[1:3]
    os.environ["OMP_NUM_THREADS"] = "1"  # of the ranks
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as parent:
        with open(os.path.join(parent, "text"), "wb") as out:
            out.write(TEXT)
        for name, config in MODELS.items():
            AutoModelForCausalLM.from_config(config).save_pretrained(os.path.join(parent, name))
        for name, ranks, others, states, flat in (("llama", 2, 3, "optimizer", False), ("gpt2", 3, 2, "optim", False),
                                                  ("llama", 3, 2, "optimizer", True)):
            round_trip(parent, txconvert, txtrain, name, ranks, others, states, flat)
        only_weights(parent, txconvert, os.path.join(parent, "llama"))
    return status()


if __name__ == "__main__":
    sys.exit(main())
