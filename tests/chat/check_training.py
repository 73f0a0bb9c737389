# SPDX-License-Identifier: Apache-2.0
"""Compares txtrain on conversations with transformers: a small Llama with the same weights on the same rows. The
loss of the assistant's messages is computed by a published chat template and its own labels. The folder that txtrain
writes renders the same in transformers. Evaluations cover answers, packed and not.

    check_training.py TXTRAIN      exit status 77: something is missing
"""
import json
import os
import sys
import tempfile

from oracle import check, fit, log_of, read_json, run, status

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from published import CHATML

HERE = os.path.dirname(os.path.abspath(__file__))

STEPS, ROWS, LENGTH, RATE = 20, 3, 48, 2e-3


def conversations():
    words = "red blue green cat dog d\u00e9j\u00e0 \u65e5\u672c two three".split()
    for i in range(STEPS * ROWS):
        talk = []
        for turn in range(1 + i % 2):
            text = " ".join(words[(i * 5 + turn + k) % len(words)] for k in range(1 + (i + turn) % 4))
            talk += [{"role": "user", "content": "say " + text}, {"role": "assistant", "content": text}]
        yield talk


def sample(tokenizer, talk):
    """Ids and labels (not shifted) of a conversation, cut at its end."""
    text = tokenizer.apply_chat_template(talk, chat_template=CHATML, tokenize=False)
    spans = []
    for i, message in enumerate(talk):
        if message["role"] == "assistant":
            begin = len(tokenizer.apply_chat_template(talk[:i], chat_template=CHATML, tokenize=False,
                                                      add_generation_prompt=True))
            end = len(tokenizer.apply_chat_template(talk[:i + 1], chat_template=CHATML, tokenize=False))
            spans.append((begin, end - 1))
    made = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    labels = [i if any(a < end and b > begin for begin, end in spans) else -100
              for i, (a, b) in zip(made["input_ids"], made["offset_mapping"])]
    return made["input_ids"][:LENGTH], labels[:LENGTH]


def loss_of(model, samples):
    """Sum over the labels, and their number."""
    longest = max(len(ids) for ids, _ in samples)
    ids = torch.tensor([i + [0] * (longest - len(i)) for i, _ in samples])
    labels = torch.tensor([t + [-100] * (longest - len(t)) for _, t in samples])
    mask = torch.tensor([[1] * len(i) + [0] * (longest - len(i)) for i, _ in samples])
    logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100,
                                             reduction="sum"), (labels[:, 1:] != -100).sum()


def train(model, samples):
    def mean(step):
        total, count = loss_of(model, samples[step * ROWS:(step + 1) * ROWS])
        return total / count
    return fit(torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0), STEPS, mean)


def train_tx(folder, output, data, **options):
    """The losses, and that of the evaluation."""
    done = run(sys.argv[1], **dict(dict(
        model_name_or_path=folder, train_file=data, output_dir=output, max_length=LENGTH, disable_tqdm=True,
        save_strategy="no",
        per_device_train_batch_size=ROWS, max_steps=STEPS, learning_rate=RATE, lr_scheduler_type="constant",
        train_sampling_strategy="sequential", validation_file=data, overwrite_output_dir=True), **options))
    check(done.returncode == 0, done.stderr)
    return log_of(output), read_json(output, "eval_results.json")["eval_loss"]


def near(a, b, what, tolerance=1e-4):
    check(len(a) == len(b) and all(abs(x - y) < tolerance for x, y in zip(a, b)), f"{what}: {a} are not {b}")


def main():
    torch.manual_seed(3)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as output:
        tokenizer = AutoTokenizer.from_pretrained(HERE + "/golden")
        tokenizer.save_pretrained(folder)
        config = LlamaConfig(vocab_size=342, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
                             tie_word_embeddings=False)
        LlamaForCausalLM(config).save_pretrained(folder)
        data = folder + "/train.jsonl"
        with open(data, "w", encoding="utf-8") as file:
            for talk in conversations():
                file.write(json.dumps({"messages": talk}) + "\n")
        samples = [sample(tokenizer, talk) for talk in conversations()]
        check(any(len(ids) == LENGTH for ids, _ in samples), "no conversation is cut")
        model = AutoModelForCausalLM.from_pretrained(folder)
        ours, evaluated = train_tx(folder, output, data, chat_template="chatml")
        near(ours, train(model, samples), "losses of training")
        with torch.no_grad():
            total, count = loss_of(AutoModelForCausalLM.from_pretrained(output), samples)
        near([evaluated], [(total / count).item()], "eval_loss")
        saved = AutoTokenizer.from_pretrained(output)
        # As TRL's SFTTrainer sets them with eos_token="<|im_end|>".
        trained = AutoModelForCausalLM.from_pretrained(output)
        end = tokenizer.convert_tokens_to_ids("<|im_end|>")
        check(saved.eos_token == "<|im_end|>" and trained.config.eos_token_id == end and
              trained.generation_config.eos_token_id == [end, config.eos_token_id],
              f"ends: {saved.eos_token}, {trained.config.eos_token_id}, {trained.generation_config.eos_token_id}")
        for talk in conversations():
            check(saved.apply_chat_template(talk, return_dict=False, add_generation_prompt=True) ==
                  tokenizer.apply_chat_template(talk, chat_template=CHATML, return_dict=False,
                                                add_generation_prompt=True), f"the saved template: {talk}")
        # The template is known by the folder now; packed samples give the same.
        for packing in ("false", "true"):
            _, again = train_tx(output, output + "/again", data, do_eval=True, packing=packing, learning_rate=0,
                                do_train=True)
            near([again], [evaluated], f"eval_loss, packing {packing}", 1e-5)
        print(f"{STEPS} steps, {count} labels, eval_loss {evaluated}")
    return status()


if __name__ == "__main__":
    sys.exit(main())
