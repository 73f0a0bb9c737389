# SPDX-License-Identifier: Apache-2.0
"""Compares GGUF files of encoders with the gguf package (names, values, keys), with the folders of
sentence-transformers that they were made from, and with llama.cpp: ids and embeddings. llama.cpp computes GELU by a
table of fp16 numbers. Each model is therefore compared twice: with weights of 0 before GELU, and with random ones.

    gguf_encoders.py TXCONVERT TXTOK TXGEN TXCHECK [NAME...]    exit status 77: gguf or sentence-transformers is not installed
"""
import json
import os
import sys
import tempfile

from oracle import DATA, check, read_json, run, skip, status

import gguf
import numpy as np
import tokenizers
import torch
import transformers
from gguf_llama import Model, bare_copy, llama_cpp, use_table_of_gelu
from gguf_tokenizers import byte_level, unigram
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from transformers import PreTrainedTokenizerFast

TXCONVERT, TXTOK, TXGEN, TXCHECK = sys.argv[1:5]
WORDS = os.path.join(DATA, "tokenizers", "bert-base-%s-tokenizer.json")
POSITIONS, PAD, EXACT, TABLE = 128, 3, 5e-6, 5e-4
SIZES = dict(hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96)
MODERN = dict(SIZES, local_attention=6, pad_token_id=3, cls_token_id=1, sep_token_id=0, bos_token_id=1,
              eos_token_id=0)
DISTIL = dict(dim=64, n_layers=3, n_heads=4, hidden_dim=96)
MODELS_OF = {"bytes": "gpt2", "modern": "gpt2", "unigram": "t5"}  # tokenizers that are not WordPiece
BEFORE_GELU = ("intermediate.dense.weight", "lin1.weight", "mlp.Wi.weight")
ROLES = dict(unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
TEXTS = ["The cat sat on the mat.", "caf\u00e9 \u4e2d\u6587 na\u00efve \u00c5NGSTR\u00d6M", "", "don't, 12345 (x)!",
         "  two  spaces\n\tand lines ", "unbelievable antidisestablishmentarianism [MASK] end", "\u4f60\u597d, Welt?"]
# name: the class of the model, its settings, tokenizer, pooling, whether embeddings are normalized
MODELS = {
    "bert": ("Bert", SIZES, "uncased", "mean", False),
    "bert, cls": ("Bert", SIZES, "uncased", "cls", True),
    "bert, last": ("Bert", SIZES, "uncased", "lasttoken", False),
    "bert, cased": ("Bert", dict(SIZES, layer_norm_eps=1e-5, type_vocab_size=3), "cased", "mean", True),
    "distilbert": ("DistilBert", DISTIL, "uncased", "mean", False),
    "xlm-roberta": ("XLMRoberta", dict(SIZES, pad_token_id=1, type_vocab_size=1), "unigram", "mean", True),
    "camembert": ("Camembert", dict(SIZES, pad_token_id=1, type_vocab_size=1), "unigram", "cls", False),
    "modernbert": ("ModernBert", MODERN, "modern", "cls", True),
    "modernbert, silu": ("ModernBert", dict(MODERN, hidden_activation="silu", global_attn_every_n_layers=2,
                                            norm_eps=1e-6), "modern", "mean", False),
    "nomic": ("NomicBert", dict(SIZES, rope_parameters=dict(rope_type="default", rope_theta=500.0)), "uncased", "mean",
              True),
    "roberta": ("Roberta", dict(SIZES, pad_token_id=PAD, type_vocab_size=1, layer_norm_eps=1e-5), "bytes", "cls", True),
}

if not os.path.exists(WORDS % "cased"):
    skip(f"no tokenizer in {DATA}")


def skipped(sizes):
    """The positions of padding, which only RoBERTa has."""
    return sizes["pad_token_id"] + 1 if "pad_token_id" in sizes and "local_attention" not in sizes else 0


def is_exact(sizes):
    """Models without GELU."""
    return "hidden_activation" in sizes or "rope_parameters" in sizes


def make_tokenizer(words):
    if words in ("cased", "uncased"):
        return PreTrainedTokenizerFast(tokenizer_file=WORDS % words, model_max_length=POSITIONS, **ROLES)
    if words == "unigram":
        return PreTrainedTokenizerFast(
            tokenizer_object=unigram(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], "<unk>", "<s>", "</s>"),
            model_max_length=POSITIONS, bos_token="<s>", cls_token="<s>", eos_token="</s>", sep_token="</s>",
            pad_token="<pad>", unk_token="<unk>", mask_token="<mask>")
    made, roles = byte_level("gpt2")
    begin, end = roles["bos_token"], roles["eos_token"]
    marks = [(end, made.token_to_id(end)), (begin, made.token_to_id(begin))]
    made.post_processor = tokenizers.processors.RobertaProcessing(*marks)
    if words == "modern":
        made.normalizer = tokenizers.normalizers.NFC()
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{begin} $A {end}", pair=f"{begin} $A {end} $B {end}", special_tokens=marks)
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=POSITIONS, cls_token=begin, sep_token=end,
                                   pad_token=made.id_to_token(PAD), **roles)


def make_model(folder, kind, sizes, words, mode, normalize, flat):
    """A folder of sentence-transformers. With `flat` the inputs of GELU are the same for all texts."""
    tokenizer = make_tokenizer(words)
    base = os.path.join(folder, "base")
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(
        vocab_size=len(tokenizer), max_position_embeddings=POSITIONS + skipped(sizes), **sizes)).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * 0.2 + (1.0 if "norm" in name.lower() and "bias" not in name else 0.0))
            if flat and any(part in name for part in BEFORE_GELU):
                p.zero_()
    model.save_pretrained(base)
    tokenizer.save_pretrained(base)
    if words == "cased":
        settings = read_json(base, "tokenizer_config.json")
        with open(os.path.join(base, "tokenizer_config.json"), "w", encoding="utf-8") as file:
            json.dump(dict(settings, tokenizer_class="BertTokenizer", do_lower_case=False), file)
    parts = [modules.Transformer(base), modules.Pooling(64, pooling_mode=mode)] + [modules.Normalize()] * normalize
    source = os.path.join(folder, "source")
    SentenceTransformer(modules=parts, device="cpu").save(source)
    return source


def embeddings(name, path):
    """The embeddings of the texts by txgen."""
    prompts = path + ".jsonl"
    with open(prompts, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in TEXTS)
    done = run(TXGEN, embed=True, model=path, prompts=prompts)
    check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
    return np.array([json.loads(line)["embedding"] for line in done.stdout.splitlines()])


def compare_file(name, path, source, sizes, words):
    """Names, types and values of tensors, and keys, as llama.cpp's convert script chooses them."""
    reader, modern = gguf.GGUFReader(path), "local_attention" in sizes
    nomic = "rope_parameters" in sizes
    arch = gguf.MODEL_ARCH.MODERN_BERT if modern else gguf.MODEL_ARCH.NOMIC_BERT if nomic else gguf.MODEL_ARCH.BERT
    names = gguf.get_tensor_name_map(arch, 3)
    state = {names.get_name(k, (".weight", ".bias")): v
             for k, v in load_file(os.path.join(source, "model.safetensors")).items() if not k.startswith("pooler.")}
    if not modern and not nomic:
        state["position_embd.weight"] = state["position_embd.weight"][skipped(sizes):]
    has = {t.name: t for t in reader.tensors}
    check(set(has) == set(state), f"{name}: tensors {sorted(set(has) ^ set(state))}")
    for tensor in set(has) & set(state):
        check(np.array_equal(has[tensor].data, state[tensor]), f"{name}: {tensor} has other values")
        check(has[tensor].tensor_type == gguf.GGMLQuantizationType.F32, f"{name}: {tensor} has another type")
    keys = {key: field.contents() for key, field in reader.fields.items()}
    arch = gguf.MODEL_ARCH_NAMES[arch]
    want = {"general.architecture": arch, f"{arch}.attention.causal": False, f"{arch}.context_length": POSITIONS,
            f"{arch}.embedding_length": 64, f"{arch}.feed_forward_length": 96, f"{arch}.block_count": 3,
            f"{arch}.attention.head_count": 4, "tokenizer.ggml.model": MODELS_OF.get(words, "bert")}
    if modern:
        want.update({f"{arch}.attention.sliding_window": 6, f"{arch}.rope.freq_base": 160000,
                     f"{arch}.attention.sliding_window_pattern": sizes.get("global_attn_every_n_layers", 3),
                     f"{arch}.rope.freq_base_swa": 10000,
                     f"{arch}.hidden_activation": sizes.get("hidden_activation", "gelu"),
                     f"{arch}.attention.layer_norm_epsilon": np.float32(sizes.get("norm_eps", 1e-5)),
                     "tokenizer.ggml.pre": arch, "tokenizer.ggml.add_sep_token": True})
    else:
        want.update({f"{arch}.rope.freq_base": 500} if nomic else {})
        want["tokenizer.ggml.token_type_count"] = sizes.get("type_vocab_size", 1 if "dim" in sizes else 2)
    odd = {key: keys.get(key) for key, value in want.items() if keys.get(key) != value}
    check(not odd, f"{name}: {odd}")
    return keys


def compare_tokens(name, keys, words):
    """Tokens of words begin with a mark instead of those inside words."""
    vocab = read_json(os.path.dirname(WORDS), os.path.basename(WORDS % words))
    special = {token["content"] for token in vocab["added_tokens"]}
    wanted = [word if word in special else word[2:] if word.startswith("##") else "\u2581" + word
              for word in sorted(vocab["model"]["vocab"], key=vocab["model"]["vocab"].get)]
    check(keys["tokenizer.ggml.tokens"] == wanted, f"{name}: other tokens")


def compare_llama(name, path, source, normalize, bound):
    if llama_cpp is None:
        return float("nan")
    model = Model(name, path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    reference, worst = SentenceTransformer(source, device="cpu"), 0
    use_table_of_gelu(reference)
    for text, want in zip(TEXTS, reference.encode(TEXTS)):
        ids = model.tokenize(text)
        check(ids == tokenizer(text)["input_ids"], f"{name}: ids of llama.cpp: {ids} of {text!r}")
        got = model.embed(ids, 64)
        got = got / np.linalg.norm(got) if normalize else got
        worst = max(worst, np.abs(got - want).max() / np.abs(want).max())
    check(worst <= bound, f"{name}: embeddings of llama.cpp differ by {worst}")
    model.free()
    return worst


def compare(name, kind, sizes, words, mode, normalize):
    with tempfile.TemporaryDirectory() as work:
        source = make_model(work, kind, sizes, words, mode, normalize, False)
        path, bare, back = (os.path.join(work, n) for n in ("model.gguf", "bare.gguf", "back"))
        done = run(TXCONVERT, source, to=path)
        check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
        if done.returncode:
            return
        keys = compare_file(name, path, source, sizes, words)
        if words not in MODELS_OF:
            compare_tokens(name, keys, words)
        here = embeddings(name, source)
        far = np.abs(SentenceTransformer(source, device="cpu").encode(TEXTS) - here).max()
        check(far <= 1e-5, f"{name}: sentence-transformers' embeddings differ by {far}")
        check(np.array_equal(embeddings(name, path), here), f"{name}: txgen's embeddings of the file differ")
        done = run(TXCHECK, "file", path)
        check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
        bare_copy(path, bare)
        made = embeddings(name, bare)
        made = made / np.linalg.norm(made, axis=1, keepdims=True) if normalize else made
        check(np.abs(made - here).max() <= 1e-6, f"{name}: embeddings of a bare file differ")
        done = run(TXCONVERT, path, to=back)
        check(done.returncode == 0, f"{name}, back: {done.stderr.strip()}")
        check(np.array_equal(embeddings(name, back), here), f"{name}: txgen's embeddings of the folder differ")
        far = np.abs(SentenceTransformer(back, device="cpu").encode(TEXTS) - here).max()
        check(far <= 1e-5, f"{name}: sentence-transformers' embeddings of the folder that comes back differ by {far}")
        check([type(p).__name__ for p in SentenceTransformer(back, device="cpu")] ==
              [type(p).__name__ for p in SentenceTransformer(source, device="cpu")], f"{name}: other modules")
        if "local_attention" in sizes:
            bare_copy(path, bare, ("modern-bert.rope.freq_base_swa",))
            done = run(TXCONVERT, bare, to=os.path.join(work, "none"))
            check(done.returncode == 1 and "has no modern-bert.rope.freq_base_swa" in done.stderr, done.stderr.strip())
        table = compare_llama(name, path, source, normalize, EXACT if is_exact(sizes) else TABLE)
        flat = os.path.join(work, "flat")
        source = make_model(flat, kind, sizes, words, mode, normalize, True)
        done = run(TXCONVERT, source, to=path)
        exact = compare_llama(name, path, source, normalize, EXACT)
        print(f"{name}: llama.cpp {exact:.1e}, with its table of GELU {table:.1e}")


def refuse(name, words, *model, mode="mean"):
    """A folder that GGUF files cannot hold is refused, and no file is left."""
    with tempfile.TemporaryDirectory() as work:
        source, path = make_model(work, *model, mode, False, False), os.path.join(work, "model.gguf")
        done = run(TXCONVERT, source, to=path)
        check(done.returncode == 1 and words in done.stderr and not os.path.exists(path),
              f"{name}: {done.returncode} {done.stderr.strip()}")


for row, settings in MODELS.items():
    if not sys.argv[5:] or row in sys.argv[5:]:
        compare(row, *settings)
refuse("relu", "hidden_act", "Bert", dict(SIZES, hidden_act="relu"), "uncased")
refuse("relu", "hidden_activation", "ModernBert", dict(MODERN, hidden_activation="relu"), "modern")
refuse("max", "pooling_mode", "Bert", SIZES, "uncased", mode="max")
refuse("electra", "not implemented", "Electra", SIZES, "uncased")
sys.exit(status())
