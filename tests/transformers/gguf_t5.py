# SPDX-License-Identifier: Apache-2.0
"""Compares GGUF files of T5, T5 1.1 and mT5 with the gguf package (names, values, keys), with the folders that they
were made from, and with llama.cpp: ids, and logits of the decoder.

    gguf_t5.py TXCONVERT TXTOK TXGEN TXCHECK      exit status 77: gguf or transformers is not installed
"""
import os
import sys
import tempfile

from oracle import check, run, status

import gguf
import numpy as np
import torch
from gguf_llama import Model, bare_copy, check_refused, llama_cpp, use_table_of_gelu
from gguf_tokenizers import unigram
from safetensors.numpy import load_file
from transformers import (AutoTokenizer, MT5ForConditionalGeneration, PreTrainedTokenizerFast,
                          T5ForConditionalGeneration)

TXCONVERT, TXTOK, TXGEN, TXCHECK = sys.argv[1:5]
TOKENIZER = unigram(["<pad>", "</s>", "<unk>"], "<unk>", None, "</s>")
VOCAB = TOKENIZER.get_vocab_size() + 3
BASE = dict(vocab_size=VOCAB, d_model=64, d_kv=24, d_ff=96, num_layers=3, num_heads=2, decoder_start_token_id=0)
GATED = dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False)
MODELS = {
    "T5": (T5ForConditionalGeneration, {}),
    "T5, two decoder layers": (T5ForConditionalGeneration, dict(num_decoder_layers=2, decoder_start_token_id=3,
                                                                relative_attention_num_buckets=16)),
    "T5 1.1": (T5ForConditionalGeneration, GATED),
    "mT5": (MT5ForConditionalGeneration, dict(GATED, num_decoder_layers=1, layer_norm_epsilon=1e-5)),
}
EXACT, TABLE = 1e-5, 2e-3
written = []
SOURCE, BEGUN = "the cat sat on the mat, caf\u00e9 \u4e2d  12345 numbers ", [7, 15, 3, 20, 11, 9]


def make_model(folder, kind, changes):
    torch.manual_seed(0)
    model = kind(kind.config_class(**{**BASE, **changes})).eval()
    if "tie_word_embeddings" in changes:
        model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.shared.weight))
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * 0.1 + (1.0 if "layer_norm" in name else 0.0))
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=TOKENIZER, pad_token="<pad>", eos_token="</s>",
                            unk_token="<unk>").save_pretrained(folder)
    return model


def compare_file(name, path, folder, model):
    reader, config = gguf.GGUFReader(path), model.config
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.T5, 4)
    state = {names.get_name(k, (".weight",)): v for k, v in load_file(os.path.join(folder, "model.safetensors")).items()
             if "embed_tokens" not in k}
    has = {t.name: t for t in reader.tensors}
    check(set(has) == set(state), f"{name}: tensors {sorted(set(has) ^ set(state))}")
    for tensor in set(has) & set(state):
        check(np.array_equal(has[tensor].data, state[tensor]), f"{name}: {tensor} has other values")
    want = {"general.architecture": "t5", "t5.attention.key_length": 24, "t5.context_length": 512, "t5.block_count": 3,
            "t5.decoder_block_count": config.num_decoder_layers,
            "t5.decoder_start_token_id": config.decoder_start_token_id,
            "t5.attention.relative_buckets_count": config.relative_attention_num_buckets, "tokenizer.ggml.model": "t5",
            "tokenizer.ggml.add_eos_token": True, "tokenizer.ggml.add_bos_token": False,
            "tokenizer.ggml.remove_extra_whitespaces": True}
    keys = {key: reader.fields[key].contents() if key in reader.fields else None for key in want}
    check(keys == want, f"{name}: {keys}, not {want}")


def compare_llama(name, path, folder, model, changes):
    if llama_cpp is None:
        return float("nan")
    ids = AutoTokenizer.from_pretrained(folder)(SOURCE)["input_ids"]
    read, begun = Model(name, path), [model.config.decoder_start_token_id] + BEGUN
    check(read.tokenize(SOURCE) == ids, f"{name}: ids of llama.cpp: {read.tokenize(SOURCE)}, not {ids}")
    check(llama_cpp.llama_model_decoder_start_token(read.model) == begun[0], f"{name}: another first token")
    got = read.logits(begun, VOCAB, ids)
    if "tie_word_embeddings" not in changes:  # llama.cpp does not scale the states before a tied output head
        got *= model.config.d_model ** -0.5
    use_table_of_gelu(model)
    with torch.no_grad():
        want = model(input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([begun])).logits[0].numpy()
    read.free()
    return np.abs(got - want).max() / np.abs(want).max()


def say(model):
    done = run(TXGEN, model=model, prompt=SOURCE, max_new_tokens=20, min_new_tokens=9, temperature=0)
    check(done.returncode == 0, done.stderr.strip())
    return done.stdout


def compare(name, kind, changes):
    with tempfile.TemporaryDirectory() as work:
        folder, path, bare, back, again = (os.path.join(work, n) for n in ("folder", "model.gguf", "bare.gguf", "back",
                                                                           "again"))
        model = make_model(folder, kind, changes)
        done = run(TXCONVERT, folder, to=path)
        check(done.returncode == 0 and ("times as large" in done.stderr) == ("tie_word_embeddings" not in changes),
              f"{name}: {done.returncode} {done.stderr.strip()}")
        compare_file(name, path, folder, model)
        done = run(TXCHECK, "file", path)
        check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
        bare_copy(path, bare)
        for source, to in ((path, back), (bare, again)):
            done = run(TXCONVERT, source, to=to)
            check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
            want, got = (load_file(os.path.join(at, "model.safetensors")) for at in (folder, to))
            check(set(want) - {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"} == set(got) and
                  all(np.array_equal(want[k], got[k]) for k in got), f"{name}: other weights come back")
            with torch.no_grad():
                ids = AutoTokenizer.from_pretrained(to)(SOURCE, return_tensors="pt")["input_ids"]
                check(ids.tolist()[0] == AutoTokenizer.from_pretrained(folder)(SOURCE)["input_ids"],
                      f"{name}: ids of the folder that comes back: {ids}")
                logits = [m(input_ids=ids, decoder_input_ids=torch.tensor([BEGUN])).logits for m in
                          (model, T5ForConditionalGeneration.from_pretrained(to))]
            check((logits[0] - logits[1]).abs().max() < 1e-5, f"{name}: other logits of the folder that comes back")
        said = say(folder)
        written.append(said.strip())
        check(said == say(path) == say(bare), f"{name}: txgen writes another text")
        error = compare_llama(name, path, folder, model, changes)
        check(not error > (EXACT if changes.get("feed_forward_proj") is None else TABLE),
              f"{name}: logits of llama.cpp differ by {error}")
        print(f"{name}: llama.cpp {error:.1e}")


def refuse(name, words, **changes):
    with tempfile.TemporaryDirectory() as work:
        make_model(work, T5ForConditionalGeneration, changes)
        check_refused(name, TXCONVERT, work, words)


for row, settings in MODELS.items():
    compare(row, *settings)
check(any(written), "txgen writes nothing")
refuse("silu", "feed_forward_proj", feed_forward_proj="gated-silu")
refuse("more decoder layers", "num_decoder_layers", num_decoder_layers=4)
refuse("near positions", "relative_attention_max_distance", relative_attention_max_distance=64)
sys.exit(status())
