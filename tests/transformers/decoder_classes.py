# SPDX-License-Identifier: Apache-2.0
"""Trains classifiers of decoders with txtrain and with PyTorch, from the same weights and texts. Compares loss and
gradient norm of each step, and the loss and the logits of transformers on the saved folder with TX's evaluation and
with txgen --classify.

    decoder_classes.py TXTRAIN TXGEN DEVICE      exit status 77: transformers is not installed, or there is no device"""
import json
import sys
import tempfile

from oracle import check, need_device, read_json, run, status

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

STEPS, BATCH, RATE, LABELS = 12, 4, 1e-3, 3
KINDS = ("GPT2", "Llama", "Mistral", "Qwen2", "Qwen3")


def make_tokenizer(folder, pads_with_end):
    letters = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = Tokenizer(models.BPE(vocab=letters, merges=[]))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.add_special_tokens(["</s>", "<pad>"])
    pad = "</s>" if pads_with_end else "<pad>"
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", pad_token=pad).save_pretrained(folder)


def make_model(folder, kind, pad, labels, head=True):
    torch.manual_seed(1)
    sizes = dict(vocab_size=258, initializer_range=0.1, bos_token_id=256, eos_token_id=256, pad_token_id=pad,
                 num_labels=labels)
    if kind == "GPT2":
        config = transformers.GPT2Config(n_positions=64, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0,
                                         attn_pdrop=0, **sizes)
    else:
        config = getattr(transformers, f"{kind}Config")(
            max_position_embeddings=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, **(dict(head_dim=16) if kind == "Qwen3" else {}), **sizes)
    name = "ForSequenceClassification" if head else "LMHeadModel" if kind == "GPT2" else "ForCausalLM"
    getattr(transformers, f"{kind}{name}")(config).save_pretrained(folder)


def texts(first, count, ends):
    """Texts of different lengths; every third one ends with the token that is also the padding, if `ends`."""
    words = ("cat", "dog", "bird", "a fish")
    return [(" ".join(words[(i + j) % 4] for j in range(1 + i % 5)) + ("</s>" if ends and i % 3 == 0 else ""),
             (i * 7 + i // 3) % LABELS) for i in range(first, first + count)]


def write_lines(path, rows, number):
    with open(path, "w", encoding="utf-8") as file:
        for text, label in rows:
            file.write(json.dumps({"text": text, "label": label / 2 if number else f"kind {label}"}) + "\n")


def encode(tokenizer, rows, number):
    batch = tokenizer([text for text, _ in rows], return_tensors="pt", padding=True)
    batch.pop("token_type_ids", None)
    labels = torch.tensor([label / 2 if number else label for _, label in rows])
    return dict(batch, labels=labels)


def by_torch(folder, rows, number):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    losses, norms = [], []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - step / STEPS)
        loss = model(**encode(tokenizer, rows[step * BATCH:(step + 1) * BATCH], number)).loss
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, norms


def by_tx(program, device, work, model, **options):
    out = f"{work}/out"
    done = run(program, task_name="classification", model_name_or_path=model, train_file=f"{work}/train.jsonl",
               validation_file=f"{work}/held.jsonl", test_file=f"{work}/held.jsonl", do_train=True, do_eval=True,
               do_predict=True, overwrite_output_dir=True, train_sampling_strategy="sequential", threads=1,
               device=device, per_device_train_batch_size=BATCH, max_steps=STEPS, learning_rate=RATE,
               max_seq_length=40, output_dir=out, **options)
    if done.returncode:
        sys.exit(f"FAIL: {done.stderr}")
    with open(f"{out}/log.jsonl", encoding="utf-8") as file:
        steps = [row for row in map(json.loads, file) if "loss" in row]
    with open(f"{out}/predict_results.txt", encoding="utf-8") as file:
        predicted = [line.rstrip("\n").split("\t")[1] for line in file][1:]
    return out, steps, read_json(out, "eval_results.json"), predicted


def far(got, want):
    return max(abs(a - b) / max(0.1, abs(b)) for a, b in zip(got, want, strict=True))


def classify(generator, device, folder, held):
    """The scores of texts by txgen."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text, _ in held)
        file.flush()
        done = run(generator, model=folder, classify=True, prompts=file.name, device=device, threads=1)
    if done.returncode:
        sys.exit(f"FAIL: {done.stderr}")
    rows = map(json.loads, done.stdout.splitlines())
    return torch.tensor([list(row["scores"].values()) if "scores" in row else [row["score"]] for row in rows])


def check_saved(name, folder, held, number, evaluated, predicted, scores):
    """transformers computes the same from the saved folder."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        output = model(**encode(tokenizer, held, number))
    loss = abs(evaluated["eval_loss"] - float(output.loss)) / float(output.loss)
    own = [f"{value:.3f}" if number else model.config.id2label[best]
           for value, best in zip(output.logits[:, 0].tolist(), output.logits.argmax(-1).tolist())]
    if not number:
        wanted = output.logits.softmax(-1)
    else:  # transformers' pipelines take one label without a problem_type as a probability
        named = read_json(folder, "config.json").get("problem_type")
        wanted = output.logits if named else output.logits.sigmoid()
    check(float((scores - wanted).abs().max()) <= 1e-5, f"{name}: txgen --classify gives other scores")
    check(loss <= 1e-5 and own == predicted, f"{name}: transformers reads other logits from the saved folder")
    return loss


def main():
    program, generator, device = sys.argv[1:4]
    need_device(program, device)
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    cases = [(kind, False, False) for kind in KINDS] + [("GPT2", True, False), ("Llama", True, True)]
    for kind, ends, number in cases:
        name = kind + (", the padding ends texts" if ends else "") + (", regression" if number else "")
        with tempfile.TemporaryDirectory() as work:
            model = f"{work}/model"
            make_model(model, kind, 256 if ends else 257, 1 if number else LABELS)
            make_tokenizer(model, ends)
            rows, held = texts(0, STEPS * BATCH, ends), texts(500, 16, ends)
            write_lines(f"{work}/train.jsonl", rows, number)
            write_lines(f"{work}/held.jsonl", held, number)
            losses, norms = by_torch(model, rows, number)
            out, steps, evaluated, predicted = by_tx(program, device, work, model)
            loss, norm = far([s["loss"] for s in steps], losses), far([s["grad_norm"] for s in steps], norms)
            check(loss <= 1e-5 and norm <= 1e-5, f"{name} is not as PyTorch's")
            saved = check_saved(name, out, held, number, evaluated, predicted, classify(generator, device, out, held))
            print(f"{name}: loss differs by {loss:.1e}, gradient norm by {norm:.1e}, evaluation by {saved:.1e}",
                  flush=True)
            # A language model gets a new head, whose padding is the tokenizer's.
            make_model(model, kind, None, 2, head=False)
            out, _, evaluated, predicted = by_tx(program, device, work, model)
            config = read_json(out, "config.json")
            check(config["architectures"] == [f"{kind}ForSequenceClassification"] and
                  config["pad_token_id"] == (256 if ends else 257), f"{name}: the configuration of a new head")
            check_saved(f"{name}, new head", out, held, number, evaluated, predicted,
                        classify(generator, device, out, held))
    return status()


if __name__ == "__main__":
    sys.exit(main())
