# SPDX-License-Identifier: Apache-2.0
"""Tokenizers of published families, trained here, each with the parts that the family's tokenizer.json has."""
import functools
import json
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

MARK = "\u2581"
WORDS = 1500  # tokens of a trained vocabulary


# ---- SentencePiece's map of characters -----------------------------------------------------------------------------

def rules():
    """What sentencepiece's nmt_nfkc does to single characters and to a letter with an accent."""
    made = {}
    for code in range(1, 0x30000):
        text = chr(code)
        if not 0xD800 <= code < 0xE000 and unicodedata.normalize("NFKC", text) != text:
            made[text] = unicodedata.normalize("NFKC", text)
            pair = unicodedata.normalize("NFD", text)
            if len(pair) == 2 and code < 0x2000:
                made[pair] = made[text]
    for code in [*range(1, 9), 0xB, *range(0xE, 0x20), 0x7F, 0x8F, 0x9F]:
        made[chr(code)] = ""
    for code in [9, 10, 12, 13, 0x1680, *range(0x200B, 0x2010), 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD]:
        made[chr(code)] = " "
    return made


def double_array(keys):
    """The units of a trie of bytes and numbers, as darts-clone writes them."""
    tree = {}
    for key, value in keys.items():
        node = tree
        for byte in key:
            node = node.setdefault(byte, {})
        node[-1] = value
    units, free, used, bases = {0: 0}, 256, {0}, set()
    waiting = [(0, tree)]
    while waiting:
        at, node = waiting.pop()
        labels = [max(label, 0) for label in node]
        base = free
        while base in bases or any(base ^ label in used for label in labels):
            base += 1
        bases.add(base)
        while free in used:
            free += 1
        used.update(base ^ label for label in labels)
        offset = at ^ base
        assert offset < 1 << 21
        units[at] = units.get(at, 0) | offset << 10 | (256 if -1 in node else 0)
        for label, child in node.items():
            place = base ^ max(label, 0)
            units[place] = child | 1 << 31 if label < 0 else label
            if label >= 0:
                waiting.append((place, child))
    size = -(-(max(units) + 1) // 256) * 256
    return b"".join(units.get(i, 0).to_bytes(4, "little") for i in range(size))


@functools.cache
def charsmap():
    texts, places, keys = b"", {}, {}
    for key, value in sorted(rules().items()):
        if value not in places:
            places[value] = len(texts)
            texts += value.encode() + b"\0"
        keys[key.encode()] = places[value]
    trie = double_array(keys)
    return len(trie).to_bytes(4, "little") + trie + texts


# ---- Parts ---------------------------------------------------------------------------------------------------------

def train(corpus, model, trainer, normalizer=None, pre_tokenizer=None):
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator([corpus[i:i + 500] for i in range(0, len(corpus), 500)], trainer)
    return json.loads(tokenizer.to_str())["model"]


@functools.cache
def unigram(corpus, specials=("<pad>", "</s>", "<unk>"), unk="<unk>", size=WORDS, lower=False):
    """The vocabulary of a Unigram model: its special tokens come first."""
    normal = [normalizers.Nmt(), normalizers.NFKC()] + ([normalizers.Lowercase()] if lower else [])
    trainer = trainers.UnigramTrainer(vocab_size=size, special_tokens=list(specials), unk_token=unk,
                                      show_progress=False)
    made = train(corpus, models.Unigram(), trainer, normalizers.Sequence(normal))
    return made["vocab"]


def with_unigram(vocab, unk="<unk>", fallback=False):
    at = [token for token, _ in vocab].index(unk)
    return Tokenizer(models.Unigram([tuple(pair) for pair in vocab], at, fallback))


def assemble(tokenizer, normal=None, pre=None, decoder=None, post=None, added=()):
    tokenizer.normalizer = normalizers.Sequence(normal) if isinstance(normal, list) else normal
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(pre) if isinstance(pre, list) else pre
    tokenizer.decoder = decoders.Sequence(decoder) if isinstance(decoder, list) else decoder
    if post:
        single, pair, names = post
        tokenizer.post_processor = processors.TemplateProcessing(
            single=single, pair=pair, special_tokens=[(name, tokenizer.token_to_id(name)) for name in names])
    for token in added:
        if isinstance(token, AddedToken):
            tokenizer.add_tokens([token])
        else:
            tokenizer.add_special_tokens([token])
    return tokenizer


def mark(scheme="always", split=True):
    return pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme=scheme, split=split)


def unmark(scheme="always", split=True):
    return decoders.Metaspace(replacement=MARK, prepend_scheme=scheme, split=split)


def quotes():
    return [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]


def single_spaces(text=" "):
    return normalizers.Replace(Regex(" {2,}"), text)


BYTES = tuple(f"<0x{i:02X}>" for i in range(256))


# ---- Families ------------------------------------------------------------------------------------------------------

def t5(corpus):
    vocab = unigram(corpus) + [[f"<extra_id_{i}>", 0.0] for i in range(99, -1, -1)]
    return assemble(with_unigram(vocab), normalizers.Precompiled(charsmap()),
                    [pre_tokenizers.WhitespaceSplit(), mark()], unmark(),
                    ("$A </s>", "$A </s> $B </s>", ["</s>"]),
                    ["</s>", "<unk>", "<pad>"] + [f"<extra_id_{i}>" for i in range(100)])


def mt5(corpus):
    return assemble(with_unigram(unigram(corpus)),
                    [normalizers.Precompiled(charsmap()), normalizers.Strip(False, True), single_spaces(MARK)],
                    mark(), unmark(),
                    ("$A </s>", "$A </s> $B </s>", ["</s>"]), ["</s>", "<unk>", "<pad>"])


def xlm_roberta(corpus):
    vocab = unigram(corpus, ("<s>", "<pad>", "</s>", "<unk>")) + [["<mask>", 0.0]]
    return assemble(with_unigram(vocab), normalizers.Precompiled(charsmap()),
                    [pre_tokenizers.WhitespaceSplit(), mark()], unmark(),
                    ("<s> $A </s>", "<s> $A </s> </s> $B </s>", ["<s>", "</s>"]),
                    ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, normalized=True, special=True)])


def albert(corpus):
    vocab = unigram(corpus, ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"), lower=True)
    normal = quotes() + [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
                         normalizers.Precompiled(charsmap()), single_spaces()]
    return assemble(with_unigram(vocab), normal, [pre_tokenizers.WhitespaceSplit(), mark()],
                    unmark(),
                    ("[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", ["[CLS]", "[SEP]"]),
                    ["<pad>", "<unk>", "[CLS]", "[SEP]", AddedToken("[MASK]", lstrip=True, special=True)])


def xlnet(corpus):
    vocab = unigram(corpus, ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>"))
    normal = quotes() + [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Precompiled(charsmap()),
                         single_spaces()]
    return assemble(with_unigram(vocab), normal, mark(), unmark(),
                    ("$A:0 <sep>:0 <cls>:2", "$A:0 <sep>:0 $B:1 <sep>:1 <cls>:2", ["<sep>", "<cls>"]),
                    ["<unk>", "<cls>", "<sep>"])


def deberta(corpus):
    vocab = unigram(corpus, ("[PAD]", "[CLS]", "[SEP]", "[UNK]"), "[UNK]") + [["[MASK]", 0.0]]
    normal = [normalizers.Strip(), normalizers.Precompiled(charsmap()), single_spaces()]
    return assemble(with_unigram(vocab, "[UNK]"), normal,
                    [pre_tokenizers.Punctuation(), mark()], unmark(),
                    ("[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", ["[CLS]", "[SEP]"]),
                    ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"])


def nmt(corpus):
    """The tokenizer that tokenizers' SentencePieceUnigramTokenizer trains."""
    return assemble(with_unigram(unigram(corpus, ("<unk>",))),
                    [normalizers.Nmt(), normalizers.NFKC(), single_spaces(), normalizers.Lowercase()],
                    mark(), unmark())


def fallback(corpus):
    """Unigram with tokens of bytes, and the parts of Llama's tokenizer."""
    vocab = unigram(corpus, ("<unk>", "<s>", "</s>") + BYTES, size=WORDS + 256)
    normal = [normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]
    return assemble(with_unigram(vocab, fallback=True), normal, None,
                    [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)],
                    ("<s> $A", "<s> $A <s>:1 $B:1", ["<s>"]), ["<unk>", "<s>", "</s>"])


def sentencepiece(corpus):
    """The parts that transformers 5 makes for a tokenizer.model without a class."""
    normal = [normalizers.Precompiled(charsmap()), normalizers.Replace(Regex(r"\A +| +\z"), ""), single_spaces(),
              normalizers.Replace(" ", MARK), normalizers.Replace(Regex("\\A" + MARK), MARK + MARK)]
    pre = [mark("always", False), pre_tokenizers.Split(Regex("New York|<user>"), "isolated")]
    return assemble(with_unigram(unigram(corpus, ("<unk>", "<s>", "</s>"))), normal, pre,
                    [decoders.Replace(MARK, " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)], None, ["<s>", "</s>"])


def whole(corpus):
    """No word boundaries: a text is one word."""
    return assemble(with_unigram(unigram(corpus)), None, mark("never", False),
                    unmark("never", False), None, [AddedToken("cat", single_word=True)])


def scripts(corpus):
    return assemble(with_unigram(unigram(corpus)), [normalizers.NFKC(), normalizers.StripAccents()],
                    [pre_tokenizers.UnicodeScripts(), pre_tokenizers.Digits(True), mark()],
                    unmark())


def first(corpus):
    """A mark only at the beginning, after normalizers that may remove the first character."""
    normal = [normalizers.Nmt(), normalizers.StripAccents(), normalizers.Replace("an", "u"),
              normalizers.Replace("Q", ""), normalizers.Strip(), single_spaces(MARK)]
    return assemble(with_unigram(unigram(corpus)), normal, mark("first"), unmark("first"), None,
                    [AddedToken("cat", normalized=True)])


def spaces(corpus):
    """The parts of a tokenizer.model under legacy: false."""
    normal = [normalizers.Precompiled(charsmap()), normalizers.Replace(Regex(r"\A +| +\z"), ""), single_spaces(),
              normalizers.Replace(" ", MARK)]
    return assemble(with_unigram(unigram(corpus)), normal, mark("first", False), unmark("first"))


def gemma(corpus):
    options = dict(special_tokens=["<pad>", "<eos>", "<bos>", "<unk>", *BYTES], vocab_size=WORDS + 256,
                   show_progress=False)
    base = train(corpus, models.BPE(), trainers.BpeTrainer(**options), normalizers.Replace(" ", MARK),
                 pre_tokenizers.Split(MARK, "merged_with_next"))
    merges = [tuple(pair) for pair in base["merges"]]
    added = ("<start_of_turn>", "\n\n", "\n\n\n", MARK * 2, MARK * 3, "<h1>")
    tokenizer = Tokenizer(models.BPE(base["vocab"], merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    return assemble(tokenizer, normalizers.Replace(" ", MARK), pre_tokenizers.Split(" ", "merged_with_previous"),
                    [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()],
                    ("<bos> $A", "<bos> $A <bos>:1 $B:1", ["<bos>"]),
                    ["<pad>", "<eos>", "<bos>", "<unk>"] + [AddedToken(text, normalized=False) for text in added])


def deepseek(corpus):
    parts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in (
        "[\r\n]", "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0386-\u0556]+",
        "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", "\\s+$",
        "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+")]
    parts += [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False, use_regex=False)]
    trainer = trainers.BpeTrainer(vocab_size=WORDS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False, special_tokens=["<\uff5cbegin\u2581of\u2581sentence\uff5c>"])
    base = train(corpus, models.BPE(), trainer, None, pre_tokenizers.Sequence(parts))
    tokenizer = Tokenizer(models.BPE(base["vocab"], [tuple(pair) for pair in base["merges"]]))
    return assemble(tokenizer, [], parts, decoders.ByteLevel(), None, ["<\uff5cbegin\u2581of\u2581sentence\uff5c>"])


def falcon(corpus):
    """Steps after ByteLevel split its letters, and thus characters: a byte of a character may be a digit's letter."""
    parts = [pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(False), pre_tokenizers.Digits(False),
             pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]
    trainer = trainers.BpeTrainer(vocab_size=WORDS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False, special_tokens=[">>TITLE<<", "<|endoftext|>"])
    base = train(corpus, models.BPE(), trainer, None, pre_tokenizers.Sequence(parts))
    tokenizer = Tokenizer(models.BPE(base["vocab"], [tuple(pair) for pair in base["merges"]]))
    return assemble(tokenizer, [], parts, decoders.ByteLevel(), None, [">>TITLE<<", "<|endoftext|>"])


def lines(corpus):
    """Expressions with Ruby's anchors of lines and texts."""
    tokenizer = deepseek(corpus)
    parts = [pre_tokenizers.Split(Regex(pattern), behavior) for pattern, behavior in (
        ("^\\s*a", "isolated"), (" +$", "merged_with_previous"), ("\\n\\Z|\\A.|e$", "isolated"))]
    return assemble(tokenizer, [], parts + [pre_tokenizers.ByteLevel(False, use_regex=True)], decoders.ByteLevel())


def word_level(corpus):
    trainer = trainers.WordLevelTrainer(vocab_size=WORDS, special_tokens=["[UNK]", "[PAD]"], show_progress=False)
    base = train(corpus, models.WordLevel(unk_token="[UNK]"), trainer, None, pre_tokenizers.Whitespace())
    tokenizer = Tokenizer(models.WordLevel(base["vocab"], unk_token="[UNK]"))
    return assemble(tokenizer, [normalizers.NFC()], pre_tokenizers.Whitespace(), None, None, ["[UNK]", "[PAD]"])


def all_families():
    return [t5, mt5, xlm_roberta, albert, xlnet, deberta, nmt, fallback, sentencepiece, whole, gemma, deepseek, falcon,
            lines, word_level, scripts, first, spaces]
