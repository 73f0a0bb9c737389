#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains small models that are pruned at the start, by torch.nn.utils.prune and by txtrain, from the same weights on
the same batches. Compares the losses of all steps, the final zeros, and all other weights.

    torch_sparsity.py TXTRAIN DEVICE      exit status 77: torch, transformers or the device are absent
"""
import sys
import tempfile

from oracle import decayed, fit, log_of, need_device, run

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from torch.nn.utils import prune

STEPS, BATCH, BLOCK, VOCAB, RATE, DECAY = 30, 4, 16, 150, 3e-3, 0.1


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCAB, n_positions=BLOCK, n_embd=24, n_layer=2, n_head=2, n_inner=36, embd_pdrop=0.0, attn_pdrop=0.0,
        resid_pdrop=0.0, bos_token_id=0, eos_token_id=0, initializer_range=0.1))


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, max_position_embeddings=BLOCK, tie_word_embeddings=False, initializer_range=0.1))


def make_model(make, folder):
    torch.manual_seed(1)
    model = make()
    model.save_pretrained(folder)
    return model.eval()


def group_mask(weight, conv, kept, group):
    """Marks the `kept` largest of every `group` weights along the inputs, the first dimension of a Conv1D's weight."""
    rows = (weight.T if conv else weight).detach()
    least = rows.abs().reshape(-1, group).argsort(dim=1, stable=True)[:, :group - kept]
    mask = torch.ones(rows.numel() // group, group).scatter_(1, least, 0.0).reshape(rows.shape)
    return mask.T.contiguous() if conv else mask


def prune_model(model, structure, sparsity):
    """Prunes each linear layer of the blocks, and returns the pruned modules."""
    modules = []
    for name, module in model.named_modules():
        conv = isinstance(module, transformers.pytorch_utils.Conv1D)
        if not (conv or isinstance(module, torch.nn.Linear)) or name == "lm_head":
            continue
        if structure:
            kept, group = map(int, structure.split(":"))
            prune.custom_from_mask(module, "weight", group_mask(module.weight, conv, kept, group))
        else:
            prune.l1_unstructured(module, "weight", sparsity)
        modules.append((name, module))
    return modules


def train_torch(model, tokens, sgd):
    def loss_of(step):
        rows = tokens[step * BATCH:(step + 1) * BATCH]
        logits = model(rows, use_cache=False).logits[:, :-1].reshape(-1, VOCAB)
        return torch.nn.functional.cross_entropy(logits, rows[:, 1:].reshape(-1))
    groups = decayed(model, DECAY)
    return fit(torch.optim.SGD(groups, lr=RATE, momentum=0.9) if sgd else torch.optim.AdamW(groups, lr=RATE), STEPS,
               loss_of, RATE)


def compare(modules, saved):
    """Whether the same weights are 0, and how far the others are apart."""
    error, same = 0.0, True
    for name, module in modules:
        wanted, got = module.weight.detach(), saved[name + ".weight"]
        same &= bool(((wanted == 0) == (got == 0)).all())
        error = max(error, (wanted - got).abs().max().item())
    return same, error


def main():
    txtrain, device = sys.argv[1:3]
    need_device(txtrain, device)
    bad = 0
    with tempfile.TemporaryDirectory() as work:
        torch.manual_seed(3)
        tokens = torch.randint(0, VOCAB, (STEPS * BATCH, BLOCK))
        np.asarray(tokens, dtype=np.uint16).tofile(f"{work}/train.bin")
        for make, structure, sparsity, sgd in ((gpt2, "", 0.5, False), (gpt2, "2:4", 0, False), (llama, "", 0.7, False),
                                               (llama, "2:4", 0, True), (llama, "1:4", 0, False)):
            model = make_model(make, f"{work}/model")
            modules = prune_model(model, structure, sparsity)
            how = dict(mask_structure=structure) if structure else dict(sparsity=sparsity)
            if sgd:
                how.update(optim="sgd", optim_args="momentum=0.9")
            done = run(txtrain, model_name_or_path=f"{work}/model", train_file=f"{work}/train.bin",
                       output_dir=f"{work}/out",
                       overwrite_output_dir=True, train_sampling_strategy="sequential", block_size=BLOCK,
                       per_device_train_batch_size=BATCH, max_steps=STEPS, learning_rate=RATE, weight_decay=DECAY,
                       device=device,
                       **how)
            if done.returncode:
                print(done.stderr.strip())
                return 1
            want = train_torch(model, tokens, sgd)
            got = log_of(f"{work}/out")[:STEPS]
            error = max(abs(a - b) for a, b in zip(got, want))
            same, apart = compare(modules, load_file(f"{work}/out/model.safetensors"))
            good = len(got) == STEPS and error <= 1e-4 and same and apart <= 5e-4 and want[-1] < want[0]
            bad += not good
            print(f"{'ok  ' if good else 'FAIL'} {make.__name__} {how}: "
                  f"{STEPS} losses, {want[0]:.4f} -> {want[-1]:.4f}, differ by {error:.1e} at most; "
                  f"{'the same' if same else 'OTHER'} zeros, weights differ by {apart:.1e}")
    return 1 if bad else 0


sys.exit(main())
