# SPDX-License-Identifier: Apache-2.0
"""Compares tokenizers of older files, tokenizer.model or vocab.txt alone, with those that transformers makes of them.

    check_older.py TXTOK [TEXTS [SEED]]      exit status 77: transformers is not installed

The models are written here, without sentencepiece, from vocabularies that tokenizers trains. If sentencepiece and
protobuf are there, transformers reads the files; otherwise it gets what they would return."""
import inspect
import json
import os
import random
import struct
import sys
import tempfile
from types import SimpleNamespace

from oracle import check, status, txtok

import check_families
import families

from tokenizers import models, trainers
from transformers import (AlbertTokenizer, BertTokenizer, DebertaV2Tokenizer, GemmaTokenizer, LlamaTokenizer,
                          MPNetTokenizer, T5Tokenizer, XLMRobertaTokenizer)
from transformers.convert_slow_tokenizer import (SLOW_TO_FAST_CONVERTERS, SentencePieceExtractor, SpmConverter)
from transformers.tokenization_utils_tokenizers import TokenizersBackend

try:
    import google.protobuf  # noqa: F401
    import sentencepiece
except ImportError:
    sentencepiece = None

TXTOK, TEXTS, RANDOM = sys.argv[1], check_families.TEXTS, check_families.RANDOM
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2
# Some versions of transformers ignore the space that SentencePiece puts before a text if no class is named.
PREFIXES = "legacy" in inspect.signature(SpmConverter.build_tokenizer_from_spm_proto).parameters


# ---- Models of SentencePiece -------------------------------------------------------------------------------------

def varint(value):
    value &= (1 << 64) - 1
    made = b""
    while value > 127:
        made, value = made + bytes([value & 127 | 128]), value >> 7
    return made + bytes([value])


def field(number, value):
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def model(pieces, trainer, normalizer):
    """The bytes of a model, and its fields as protobuf would return them."""
    data = b"".join(field(1, field(1, text) + field(2, float(score)) + (field(3, kind) if kind != NORMAL else b""))
                    for text, score, kind in pieces)
    numbers = dict(model_type=3, byte_fallback=35, unk_id=40, bos_id=41, eos_id=42, pad_id=43, unk_piece=45)
    data += field(2, field(4, 8000) + b"".join(field(numbers[key], value) for key, value in trainer.items()))
    numbers = dict(name=1, precompiled_charsmap=2, add_dummy_prefix=3, remove_extra_whitespaces=4, escape_whitespaces=5)
    data += field(3, b"".join(field(numbers[key], value) for key, value in normalizer.items()))
    data += field(5, field(3, 0)) + field(99, b"later")
    trainer = dict(dict(model_type=1, byte_fallback=False, unk_id=0, bos_id=1, eos_id=2, pad_id=-1, unk_piece="<unk>",
                        bos_piece="<s>", eos_piece="</s>"), **trainer)
    normalizer = dict(dict(precompiled_charsmap=b"", add_dummy_prefix=True, remove_extra_whitespaces=True,
                           escape_whitespaces=True), **normalizer)
    single = lambda score: struct.unpack("<f", struct.pack("<f", score))[0]
    proto = SimpleNamespace(trainer_spec=SimpleNamespace(**trainer), normalizer_spec=SimpleNamespace(**normalizer),
                            pieces=[SimpleNamespace(piece=text, score=single(score), type=kind)
                                    for text, score, kind in pieces])
    return data, proto


def theirs_of(cls, proto, folder, config):
    """What transformers makes of the model."""
    if sentencepiece:
        made = cls.from_pretrained(folder)
        return made.backend_tokenizer, made
    kwargs = {key: value for key, value in config.items() if key != "tokenizer_class"}
    kwargs = SentencePieceExtractor.extract(SimpleNamespace(proto=proto), cls.model, **kwargs)
    converter = SLOW_TO_FAST_CONVERTERS.get(cls.__name__)
    if hasattr(converter, "convert_from_spm"):
        kwargs = converter.convert_from_spm(**kwargs)
    if cls is TokenizersBackend:
        vocab = kwargs.pop("vocab")
        kwargs.pop("merges", None)
        user = {piece.piece for piece in proto.pieces if piece.type == USER}
        kwargs["additional_special_tokens"] = [t for t in kwargs["additional_special_tokens"] if str(t) not in user]
        kwargs["tokenizer_object"] = SpmConverter.build_tokenizer_from_spm_proto(
            proto=proto, vocab=vocab, **({"legacy": kwargs.get("legacy", True)} if PREFIXES else {}))
        for role, text in (("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", proto.trainer_spec.unk_piece)):
            kwargs.setdefault(role, text)
    made = cls(**kwargs)
    return made.backend_tokenizer, made


def bpe_pieces(corpus, head, users=()):
    """Pieces of a BPE model in SentencePiece's order: special ones, bytes, merges, characters."""
    trainer = trainers.BpeTrainer(vocab_size=families.WORDS, show_progress=False)
    base = families.train(corpus, models.BPE(), trainer, families.normalizers.Replace(" ", families.MARK),
                          families.pre_tokenizers.Split(families.MARK, "merged_with_next"))
    seen = {text for text, _, _ in head} | set(users)
    merged = [text for text in dict.fromkeys("".join(pair) for pair in base["merges"]) if text not in seen]
    single = [text for text in base["vocab"] if len(text) == 1 and text not in seen]
    pieces = list(head) + [(text, 0.0, USER) for text in users]
    pieces += [(text, 0.0, BYTE) for text in families.BYTES]
    return pieces + [(text, -float(i), NORMAL) for i, text in enumerate(merged + single)]


def unigram_pieces(corpus, head, users=()):
    seen = {text for text, _, _ in head} | set(users)
    pieces = list(head) + [(text, 0.0, USER) for text in users]
    return pieces + [(text, score, NORMAL) for text, score in families.unigram(corpus) if text not in seen and score]


HEAD = (("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL))
USERS = ("New York", "<user>", "(a+b)", "  ")


def spm_cases(corpus):
    """(name, class, pieces, trainer, normalizer, configuration)"""
    charsmap = dict(name="nmt_nfkc", precompiled_charsmap=families.charsmap())
    plain = dict(name="identity", remove_extra_whitespaces=False)
    bpe = dict(model_type=BPE, byte_fallback=True)
    yield "unigram", TokenizersBackend, unigram_pieces(corpus, HEAD), {}, charsmap, {}
    yield "unigram of users", TokenizersBackend, unigram_pieces(corpus, HEAD, USERS), {}, charsmap, {
        "add_bos_token": True}
    yield "unigram, not legacy", TokenizersBackend, unigram_pieces(corpus, HEAD), {}, charsmap, {"legacy": False}
    yield "unigram, no prefix", TokenizersBackend, unigram_pieces(corpus, HEAD), {}, dict(
        plain, add_dummy_prefix=False), {"add_eos_token": True}
    yield "unigram of bytes", TokenizersBackend, unigram_pieces(
        corpus, HEAD + tuple((text, 0.0, BYTE) for text in families.BYTES)), dict(byte_fallback=True), charsmap, {}
    yield "bpe", TokenizersBackend, bpe_pieces(corpus, HEAD), bpe, charsmap, {}
    yield "bpe of users", TokenizersBackend, bpe_pieces(corpus, HEAD, USERS[:3]), bpe, plain, {}
    yield "llama", LlamaTokenizer, bpe_pieces(corpus, HEAD), bpe, plain, {"add_bos_token": True}
    yield "llama, legacy", LlamaTokenizer, bpe_pieces(corpus, HEAD, USERS[:2]), bpe, plain, {"legacy": True}
    yield "llama, no prefix", LlamaTokenizer, bpe_pieces(corpus, HEAD), bpe, plain, {"add_prefix_space": False}
    yield "gemma", GemmaTokenizer, bpe_pieces(corpus, (
        ("<pad>", 0.0, CONTROL), ("<eos>", 0.0, CONTROL), ("<bos>", 0.0, CONTROL), ("<unk>", 0.0, UNKNOWN)),
        ("<mask>", "<start_of_turn>", "\n\n", "<h1>")), dict(bpe, unk_id=3, bos_id=2, eos_id=1), plain, {
            "add_bos_token": True}
    yield "t5", T5Tokenizer, unigram_pieces(corpus, (
        ("<pad>", 0.0, CONTROL), ("</s>", 0.0, CONTROL), ("<unk>", 0.0, UNKNOWN))), dict(
            unk_id=2, bos_id=-1, eos_id=1, pad_id=0), charsmap, {}
    yield "xlm-roberta", XLMRobertaTokenizer, unigram_pieces(corpus, HEAD), {}, charsmap, {}
    yield "albert", AlbertTokenizer, unigram_pieces(corpus, (
        ("<pad>", 0.0, CONTROL), ("<unk>", 0.0, UNKNOWN), ("[CLS]", 0.0, CONTROL), ("[SEP]", 0.0, CONTROL),
        ("[MASK]", 0.0, CONTROL))), dict(unk_id=1, bos_id=2, eos_id=3, pad_id=0), charsmap, {}


    head = (("[PAD]", 0.0, CONTROL), ("[CLS]", 0.0, CONTROL), ("[SEP]", 0.0, CONTROL), ("[UNK]", 0.0, UNKNOWN))
    for config in ({}, {"do_lower_case": True, "split_by_punct": True}):
        yield f"deberta-v3 {config}", DebertaV2Tokenizer, unigram_pieces(corpus, head), dict(
            unk_id=3, unk_piece="[UNK]", bos_id=1, eos_id=2), charsmap, config


# ---- Comparisons ---------------------------------------------------------------------------------------------------

def write(folder, name, data):
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def compare(name, folder, backend, made, texts):
    check_families.compare(name, folder, backend, texts)
    wanted = made(texts)["input_ids"]
    found = txtok(TXTOK, "encode", folder, [{"text": text} for text in texts], "--add_special_tokens")
    check(found == wanted, f"{name}: {sum(a != b for a, b in zip(found, wanted))} texts with special tokens differ")
    pairs = list(zip(texts[:60], texts[60:120]))
    wanted = made([a for a, _ in pairs], [b for _, b in pairs])["input_ids"]
    found = txtok(TXTOK, "encode", folder, [{"text": a, "text_pair": b} for a, b in pairs])
    check(found == wanted, f"{name}: {sum(a != b for a, b in zip(found, wanted))} pairs differ")


def check_spm(corpus, texts):
    for name, cls, pieces, trainer, normalizer, config in spm_cases(corpus):
        if cls is TokenizersBackend and not PREFIXES and normalizer.get("add_dummy_prefix", True):
            print(f"{name}: skipped, this transformers does not put a space before a text")
            continue
        data, proto = model(pieces, trainer, normalizer)
        with tempfile.TemporaryDirectory() as folder:
            file = "tokenizer.model" if trainer.get("model_type") == BPE or cls is TokenizersBackend else "spiece.model"
            file = "sentencepiece.bpe.model" if cls is XLMRobertaTokenizer else file
            file = "spm.model" if cls is DebertaV2Tokenizer else file
            write(folder, file, data)
            if cls is DebertaV2Tokenizer:  # the published folder names no class
                write(folder, "config.json", b'{"model_type": "deberta-v2"}')
            elif cls is not TokenizersBackend:
                config = dict(config, tokenizer_class=cls.__name__)
            write(folder, "tokenizer_config.json", json.dumps(config).encode())
            backend, made = theirs_of(cls, proto, folder, config)
            compare(f"{file}, {name}", folder, families.Tokenizer.from_str(backend.to_str()), made, texts)


def check_vocab(corpus, texts):
    trainer = trainers.WordPieceTrainer(vocab_size=families.WORDS, show_progress=False, special_tokens=[
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<pad>", "<mask>"])
    base = families.train(corpus, models.WordPiece(unk_token="[UNK]"), trainer, None,
                          families.pre_tokenizers.BertPreTokenizer())
    words = sorted(base["vocab"], key=base["vocab"].get)
    for cls, config in ((BertTokenizer, {}), (BertTokenizer, {"do_lower_case": False, "strip_accents": True}),
                        (BertTokenizer, {"tokenize_chinese_chars": False, "mask_token": "<mask>"}),
                        (MPNetTokenizer, {"tokenizer_class": "MPNetTokenizer"})):
        with tempfile.TemporaryDirectory() as folder:
            write(folder, "vocab.txt", "".join(word + "\n" for word in words).encode())
            write(folder, "tokenizer_config.json", json.dumps(config).encode())
            made = cls.from_pretrained(folder)
            compare(f"vocab.txt, {cls.__name__} {config}", folder, made.backend_tokenizer, made, texts)


def main():
    corpus, texts = check_families.all_corpus(), check_families.all_texts()
    check_vocab(corpus, texts)
    check_spm(corpus, texts)
    sys.exit(status())


if __name__ == "__main__":
    main()
