#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT-2 from a larger one's logits, by PyTorch's formula and by txtrain, from the same weights on the
same batches. Compares the losses of all steps, and the evaluation without the teacher.

    torch_distillation.py TXTRAIN DEVICE      exit status 77: torch, transformers or the device are absent
"""
import sys
import tempfile

from oracle import fit, log_of, need_device, read_json, run

import numpy as np
import torch
import transformers
from safetensors.torch import load_file

STEPS, BATCH, BLOCK, VOCAB, RATE = 12, 4, 32, 200, 3e-3


def make_model(seed, layers, width, folder):
    torch.manual_seed(seed)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCAB, n_positions=BLOCK, n_embd=width, n_layer=layers, n_head=2, embd_pdrop=0.0, attn_pdrop=0.0,
        resid_pdrop=0.0, bos_token_id=0, eos_token_id=0, initializer_range=0.2))
    model.save_pretrained(folder)
    return model.eval()


def loss_of(student, teacher, tokens, temperature, alpha):
    """The labels' share, and T^2 KL(teacher || student), over the positions that have a label."""
    logits = student(tokens, use_cache=False).logits[:, :-1].reshape(-1, VOCAB)
    labels = tokens[:, 1:].reshape(-1)
    hard = torch.nn.functional.cross_entropy(logits, labels)
    if teacher is None:
        return hard
    with torch.no_grad():
        wanted = torch.log_softmax(teacher(tokens, use_cache=False).logits[:, :-1].reshape(-1, VOCAB) / temperature, -1)
    own = torch.log_softmax(logits / temperature, -1)
    soft = torch.nn.functional.kl_div(own, wanted, reduction="batchmean", log_target=True)
    return alpha * hard + (1 - alpha) * temperature ** 2 * soft


def train_torch(student, teacher, tokens, temperature, alpha):
    optimizer = torch.optim.AdamW(student.parameters(), lr=RATE, weight_decay=0.0)
    return fit(optimizer, STEPS, lambda step: loss_of(student, teacher, tokens[step * BATCH:(step + 1) * BATCH],
                                                      temperature, alpha), RATE)


def main():
    txtrain, device = sys.argv[1:3]
    need_device(txtrain, device)
    bad = 0
    with tempfile.TemporaryDirectory() as work:
        teacher = make_model(2, 3, 48, f"{work}/teacher")
        torch.manual_seed(3)
        tokens = torch.randint(0, VOCAB, (STEPS * BATCH, BLOCK))
        np.asarray(tokens, dtype=np.uint16).tofile(f"{work}/train.bin")
        for temperature, alpha in ((2.0, 0.5), (1.0, 0.0), (4.0, 0.9), (0.7, 0.3)):
            student = make_model(1, 2, 32, f"{work}/student")
            out = f"{work}/out"
            done = run(txtrain, model_name_or_path=f"{work}/student", teacher_model_name_or_path=f"{work}/teacher",
                       distill_temperature=temperature, distill_alpha=alpha, train_file=f"{work}/train.bin",
                       validation_file=f"{work}/train.bin", do_train=True, do_eval=True, output_dir=out,
                       overwrite_output_dir=True, train_sampling_strategy="sequential", block_size=BLOCK,
                       per_device_train_batch_size=BATCH, max_steps=STEPS, learning_rate=RATE, device=device,
                       profile=True)
            if done.returncode:
                print(done.stderr.strip())
                return 1
            want = train_torch(student, teacher, tokens, temperature, alpha)
            got = log_of(out)[:STEPS]
            error = max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(got, want))
            with torch.no_grad():
                plain = loss_of(student, None, tokens, 1, 1).item()
            off = abs(read_json(out, "eval_results.json")["eval_loss"] - plain)
            saved = set(load_file(f"{out}/model.safetensors")) == set(load_file(f"{work}/student/model.safetensors"))
            good = len(got) == STEPS and error <= 1e-5 and off <= 1e-5 and saved
            bad += not good
            print(f"{'ok  ' if good else 'FAIL'} T {temperature}, alpha {alpha}: "
                  f"{STEPS} losses differ by {error:.1e} at most, "
                  f"eval_loss by {off:.1e}; {'no' if saved else 'OTHER'} tensors besides the model's saved")
    return 1 if bad else 0


sys.exit(main())
