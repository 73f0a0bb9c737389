# SPDX-License-Identifier: Apache-2.0
"""Makes a model that writes given texts: a GPT-2 whose position decides the next token. A text begins at a position, to
which the prompt is padded."""
import json
import os

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

FIRST, GAP = 3400, 300  # tokens of the prompt before the first text, and more before each of the next


def tokens(special, pieces=()):
    """A tokenizer whose tokens are bytes. No text is encoded to the pieces."""
    vocabulary = {c: i for i, c in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), *pieces])}
    made = Tokenizer(models.BPE(vocabulary, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in ["</s>", *special]])
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="</s>", eos_token="</s>",
                                   clean_up_tokenization_spaces=False)


def make(folder, texts, special):
    """Saves the model. The texts contain special tokens as text. Returns the numbers of tokens of the prompts after
    which the model writes the texts."""
    tokenizer = tokens(special)
    tokenizer.save_pretrained(folder)
    tapes = [tokenizer(text + "</s>", add_special_tokens=False).input_ids for text in texts]
    size, width = len(tokenizer), len(tokenizer) + len(tokenizer) % 2
    starts, at = [], FIRST
    for tape in tapes:
        starts.append(at)
        at += len(tape) + GAP
    model = GPT2LMHeadModel(GPT2Config(vocab_size=size, n_positions=at + 640, n_embd=width, n_layer=1, n_head=1,
                                       bos_token_id=tokenizer.eos_token_id, eos_token_id=tokenizer.eos_token_id))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(1.0 if name.endswith("ln_f.weight") else 0.0)
        model.transformer.wte.weight.copy_(torch.eye(size, width))
        for start, tape in zip(starts, tapes):
            for i, token in enumerate(tape):
                model.transformer.wpe.weight[start + i - 1, token] = 100.0
    model.save_pretrained(folder)
    with open(os.path.join(folder, "generation_config.json"), "w") as file:
        json.dump({"eos_token_id": tokenizer.eos_token_id}, file)
    return starts


# ---- Scripts ----

MARKERS = "^~@&=+"  # of the texts; other parts of prompts do not have them


def cut(texts, taken):
    """Cuts texts into pieces of which none comes twice."""
    rows = []
    for text in texts:
        pieces = []
        while text:
            size = next((n for n in range(2, len(text) + 1) if text[:n] not in taken), 0)
            if not size:  # the rest of the text has been a piece before
                text = pieces.pop() + text
                taken.discard(text[:-1])
                size = len(text)
            pieces.append(text[:size])
            taken.add(text[:size])
            text = text[size:]
        rows.append(pieces)
    return rows


def script(folder, texts, special):
    """Saves a GPT-2 that writes text k after a prompt whose largest marker is number k, however long the prompt is. One
    head attends to that marker. Each piece of a text is a token of its own, so that the last one decides the next."""
    def spell(text):  # as the vocabulary does
        return "".join(token for token, _ in pre_tokenizers.ByteLevel(False, use_regex=False).pre_tokenize_str(text))

    pieces = [[spell(p) for p in row] for row in cut(texts, set())]
    tokenizer = tokens(special, [p for row in pieces for p in row])
    tokenizer.save_pretrained(folder)
    end, first = tokenizer.eos_token_id, len(tokenizer)
    width = first + len(texts) + (first + len(texts)) % 2
    ids = [tokenizer.convert_tokens_to_ids(row) for row in pieces]
    steps = [(a, b, 1000.0) for row in ids for a, b in zip(row, row[1:] + [end])]
    steps += [(first + k, row[0], 100.0) for k, row in enumerate(ids)]
    model = GPT2LMHeadModel(GPT2Config(vocab_size=width, n_positions=8192, n_embd=width, n_layer=1, n_head=1,
                                       n_inner=len(steps), bos_token_id=end, eos_token_id=end))
    block = model.transformer.h[0]
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(1.0 if ".ln_" in name and name.endswith("weight") else 0.0)
        model.transformer.ln_f.weight.fill_(10.0)
        model.transformer.wte.weight.copy_(torch.eye(width))
        block.attn.c_attn.bias[0] = 1.0
        block.attn.c_proj.weight.copy_(torch.eye(width))
        for k, marker in enumerate(MARKERS[:len(texts)]):
            at = tokenizer.convert_tokens_to_ids(marker)
            block.attn.c_attn.weight[at, width] = 60.0 * (k + 1)
            block.attn.c_attn.weight[at, 2 * width + first + k] = 3.0 / width ** 0.5
        for row, (token, after, weight) in enumerate(steps):
            block.mlp.c_fc.weight[token, row] = 1.0
            block.mlp.c_proj.weight[row, after] = weight
    model.save_pretrained(folder)
    with open(os.path.join(folder, "generation_config.json"), "w") as file:
        json.dump({"eos_token_id": end}, file)
