# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers of the kinds that GGUF files can hold."""
import importlib.util
import json
import os

import tokenizers

VOCAB = 400
REGEX = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}%s|"
         " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
         "|\\s+(?!\\S)|\\s+")
DEEPSEEK = ("\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
            " ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
LEARNED = ["the cat sat on the mat and the dog didn't; 1234 numbers, two  spaces\nand lines " * 3,
           "caf\u00e9 hello world " * 5]


def byte_level(split):
    """A byte-level tokenizer that splits as one of those that llama.cpp has a name for."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=split == "llama3"))
    pre = tokenizers.pre_tokenizers
    if split == "gpt2":
        made.pre_tokenizer = pre.ByteLevel(add_prefix_space=False)
    elif split == "starcoder":
        made.pre_tokenizer = pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)])
    elif split == "falcon":
        made.pre_tokenizer = pre.Sequence([pre.Punctuation("contiguous"), pre.ByteLevel(add_prefix_space=False),
                                           pre.Digits(individual_digits=False),
                                           pre.Split(tokenizers.Regex("[0-9][0-9][0-9]"), "isolated")])
    elif split == "deepseek-v3":
        made.pre_tokenizer = pre.Sequence([*(pre.Split(tokenizers.Regex(regex), "isolated") for regex in DEEPSEEK),
                                           pre.ByteLevel(False, use_regex=False)])
    elif split == "bloom":
        regex = tokenizers.Regex(" ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+")
        made.pre_tokenizer = pre.Sequence([pre.Split(regex, "isolated"), pre.ByteLevel(False, use_regex=False)])
    else:
        regex = tokenizers.Regex(REGEX % ("{1,3}" if split in ("llama3", "dbrx") else ""))
        made.pre_tokenizer = pre.Sequence([pre.Split(regex, "isolated"), pre.ByteLevel(False, use_regex=False)])
    if split == "qwen2":
        made.normalizer = tokenizers.normalizers.NFC()
    made.decoder = tokenizers.decoders.ByteLevel()
    made.train_from_iterator(LEARNED, tokenizers.trainers.BpeTrainer(
        vocab_size=VOCAB - 10, special_tokens=["<|end|>", "<|begin|>"], show_progress=False,
        initial_alphabet=pre.ByteLevel.alphabet()))
    if split == "llama3":
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B", special_tokens=[("<|begin|>", 1)])
    return made, dict(eos_token="<|end|>", bos_token="<|begin|>")


def pieces():
    """A tokenizer of SentencePiece's kind: pieces merged by score, and bytes for unknown characters."""
    learned = tokenizers.Tokenizer(tokenizers.models.BPE())
    learned.normalizer = tokenizers.normalizers.Sequence([tokenizers.normalizers.Prepend("\u2581"),
                                                          tokenizers.normalizers.Replace(" ", "\u2581")])
    learned.train_from_iterator(LEARNED, tokenizers.trainers.BpeTrainer(vocab_size=120, show_progress=False))
    merges = [tuple(m) for m in json.loads(learned.to_str())["model"]["merges"]]
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    words += ["".join(m) for m in merges] + sorted({c for m in merges for c in "".join(m)})
    vocab = {w: i for i, w in enumerate(dict.fromkeys(words))}
    rank = {}
    for m in merges:
        rank.setdefault("".join(m), len(rank))
    every = [(rank[w], -len(w[:i]), w[:i], w[i:]) for w in rank for i in range(1, len(w)) if w[:i] in vocab
             and w[i:] in vocab]
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [(a, b) for _, _, a, b in sorted(every)],
                                                      unk_token="<unk>",
                                                      fuse_unk=True, byte_fallback=True))
    made.normalizer = learned.normalizer
    made.decoder = tokenizers.decoders.Sequence([tokenizers.decoders.Replace("\u2581", " "),
                                                 tokenizers.decoders.ByteFallback(),
                                                 tokenizers.decoders.Fuse(), tokenizers.decoders.Strip(" ", 1, 0)])
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    made.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                                   special_tokens=[("<s>", 1)])
    return made, dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def save_tokenizer(folder, kind):
    """Adds a tokenizer to a model's folder: "pieces", or how a byte-level one splits."""
    tokenizer, roles = pieces() if kind == "pieces" else byte_level(kind)
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
        json.dump(dict(tokenizer_class="PreTrainedTokenizerFast", chat_template="{{ messages }}", **roles), file)


def charsmap():
    """SentencePiece's map of characters, which tests/text makes."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../text/families.py")
    spec = importlib.util.spec_from_file_location("text_families", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.charsmap()


def unigram(specials, unk, begin, end):
    """A tokenizer as the classes of T5 and XLM-RoBERTa make it. `begin` and `end` are added to texts."""
    normal, pre = tokenizers.normalizers, tokenizers.pre_tokenizers
    made = tokenizers.Tokenizer(tokenizers.models.Unigram())
    made.normalizer = normal.Sequence([normal.Nmt(), normal.NFKC()])
    made.pre_tokenizer = pre.Sequence([pre.WhitespaceSplit(), pre.Metaspace(prepend_scheme="always")])
    made.train_from_iterator(LEARNED, tokenizers.trainers.UnigramTrainer(
        vocab_size=VOCAB - 10, special_tokens=specials, unk_token=unk, show_progress=False))
    made.normalizer = normal.Precompiled(charsmap())
    made.decoder = tokenizers.decoders.Metaspace(prepend_scheme="always")
    single = ([begin] if begin else []) + ["$A", end]
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single=single, pair=single + ([end] if begin else []) + ["$B", end],
        special_tokens=[(token, made.token_to_id(token)) for token in {begin, end} if token])
    return made
