# SPDX-License-Identifier: Apache-2.0
"""Makes a model that writes given texts: a GPT-2 whose position decides the next token. A text begins at a position, to
which the prompt is padded."""
import json
import os

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

FIRST, GAP = 3400, 300  # tokens of the prompt before the first text, and more before each of the next


def make(folder, texts, special):
    """Saves the model. The texts contain special tokens as text. Returns the numbers of tokens of the prompts after
    which the model writes the texts."""
    made = Tokenizer(models.BPE({c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in ["</s>", *special]])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, bos_token="</s>", eos_token="</s>",
                                        clean_up_tokenization_spaces=False)
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
