# SPDX-License-Identifier: Apache-2.0
"""Compares the parts of tokenizers with Hugging Face's: normalizers, pre-tokenizers, models, decoders, post-processors.

    check_pipeline.py TXTOK [TEXTS [SEED]]     many random texts through txtok; exit status 77: no tokenizers library
    check_pipeline.py --write FILE             writes texts with their ids, the decoded texts, and a model's inputs for
                                               one and two texts, for test_pipeline.c; made with tokenizers 0.23.3
"""
import json
import os
import random
import sys
import tempfile
import unicodedata

from oracle import txtok

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

RANDOM = random.Random(1)
CORPUS = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, "
    "it was the epoch of belief, it was the epoch of incredulity, it was the season of Light, it was the season of "
    "Darkness, it was the spring of hope, it was the winter of despair, we had everything before us, we had nothing "
    "before us, we were all going direct to Heaven, we were all going direct the other way. na\u00efve caf\u00e9, "
    "d\u00e9j\u00e0 vu; 1775 and 42! \u65e5\u672c \u0394\u03b5\u03bb\u03c4\u03b1 ")
WORDS = ["the", "The", "best", " times", "wisdom", "don't", " n't", " 's", ".", ",", "!", "?", "...", "-", "_", "$",
         "  ",
         " ", "   ", "\t", "\n", "\u00a0", "\u3000", "\u2028", "\u00e9", "e\u0301", "caf\u00e9", "na\u00efve", "\u00c5",
         "\u212b", "\ufb01", "\u0130", "\u00df", "\u03a3", "\u1e9b\u0323", "q\u0307\u0323", "\u1100\u1161\u11a8",
         "\uac01",
         "\u65e5\u672c", "\u4e2d", "\U00020000", "123", "4", "\u0663", "\u00bd", "\u2167", "\u2581", "\u2581\u2581",
         "##",
         "##s", "\0", "\ufffd", "\u00ad", "\u200b", "\x07", "\U0001f600", "\u0903", "\u20dd", "[MASK]", "<s>", "<new>",
         "<NEW>", "caf\u00c9!", "<0x41>", "\u3002", "\u00bf", "\u0394\u03b5\u03bb", "a" * 101]


def trained(model, trainer, pre_tokenizer):
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator([CORPUS], trainer)
    tokenizer.normalizer = None
    return json.loads(tokenizer.to_str())


def bases():
    """The models, each as the tokenizer.json of a tokenizer without other parts."""
    special = ["<unk>", "<s>", "[MASK]"]
    metaspace = pre_tokenizers.Metaspace()
    options = dict(vocab_size=260, special_tokens=special, show_progress=False)
    plain = trained(models.BPE(unk_token="<unk>"), trainers.BpeTrainer(**options), metaspace)
    fallback = trained(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True),
                       trainers.BpeTrainer(**dict(options, vocab_size=500,
                                                  special_tokens=special + [f"<0x{i:02X}>" for i in range(256)])),
                       metaspace)
    fallback["added_tokens"] = fallback["added_tokens"][:3]
    piece = trained(models.WordPiece(unk_token="<unk>"), trainers.WordPieceTrainer(**options),
                    pre_tokenizers.BertPreTokenizer())
    letters = trained(models.BPE(), trainers.BpeTrainer(**dict(options, vocab_size=400,
                                                               initial_alphabet=pre_tokenizers.ByteLevel.alphabet())),
                      pre_tokenizers.ByteLevel(add_prefix_space=False))
    ends = trained(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"),
                   trainers.BpeTrainer(end_of_word_suffix="</w>", **options), pre_tokenizers.BertPreTokenizer())
    affixes = dict(continuing_subword_prefix="##", end_of_word_suffix="</w>")
    inner = trained(models.BPE(unk_token="<unk>", fuse_unk=True, **affixes), trainers.BpeTrainer(**options, **affixes),
                    pre_tokenizers.BertPreTokenizer())
    lettered = trained(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"), trainers.BpeTrainer(
        end_of_word_suffix="</w>", **dict(options, vocab_size=450,
                                          initial_alphabet=pre_tokenizers.ByteLevel.alphabet())),
                       pre_tokenizers.ByteLevel(add_prefix_space=False))
    for letter in sorted(pre_tokenizers.ByteLevel.alphabet()):  # as in CLIP's vocabulary, no byte is unknown
        lettered["model"]["vocab"].setdefault(letter + "</w>", len(lettered["model"]["vocab"]))
    for base in (plain, fallback, piece, letters, ends, inner, lettered):
        base["pre_tokenizer"] = base["decoder"] = None
    fused = json.loads(json.dumps(plain))
    fused["model"]["fuse_unk"] = True
    silent = json.loads(json.dumps(plain))
    silent["model"]["unk_token"] = None
    some = json.loads(json.dumps(fallback))  # not every byte has a token
    del some["model"]["vocab"]["<0xE6>"], some["model"]["vocab"]["<0x0A>"]
    ids = {word: new for new, (word, _) in enumerate(sorted(some["model"]["vocab"].items(), key=lambda item: item[1]))}
    some["model"]["vocab"] = ids
    return {"plain": plain, "fused": fused, "silent": silent, "fallback": fallback, "some": some, "piece": piece,
            "letters": letters, "ends": ends, "inner": inner, "letters_ends": lettered, "letters_alone": letters}


def state(part):
    return json.loads(part.__getstate__())


def parts():
    """(name, models, the parts that are not null)"""
    bert = lambda **options: state(normalizers.BertNormalizer(**options))
    replace = lambda pattern, content: {"type": "Replace", "pattern": pattern, "content": content}
    sequence = lambda key, *steps: {"type": "Sequence", key: list(steps)}
    texts = ("plain", "fused", "silent", "fallback", "some", "piece")
    for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"):
        yield name, ("plain", "letters"), {"normalizer": {"type": name}}
    for left, right in ((True, False), (False, True), (True, True)):
        yield f"Strip {left} {right}", ("plain", "letters"), {"normalizer": state(normalizers.Strip(left, right))}
    for pattern in ({"String": "e"}, {"String": "."}, {"Regex": "\\s+"}, {"Regex": "[aeiou]{2}"}):
        for content in ("", "oo", " "):
            yield f"Replace {pattern} {content!r}", ("plain", "letters"), {"normalizer": replace(pattern, content)}
    yield "Prepend", ("plain", "fallback", "letters"), {"normalizer": {"type": "Prepend", "prepend": "\u2581"}}
    yield "Sequence", ("plain", "letters"), {"normalizer": sequence(
        "normalizers", {"type": "NFD"}, sequence("normalizers", {"type": "Lowercase"}, {"type": "StripAccents"}),
        replace({"String": "the"}, "best"), {"type": "NFC"})}
    for lower in (False, True):
        for accents in (None, False, True):
            for clean in (False, True):
                yield f"Bert {lower} {accents} {clean}", ("piece", "letters"), {
                    "normalizer": bert(lowercase=lower, strip_accents=accents, clean_text=clean,
                                       handle_chinese_chars=clean or lower),
                    "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": state(decoders.WordPiece(cleanup=clean))}
    yield "nothing", texts, {}
    for name in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer"):
        yield name, texts, {"pre_tokenizer": {"type": name}}
    behaviors = ("isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous")
    for behavior in behaviors:
        yield f"Punctuation {behavior}", ("plain",
                                          "letters"), {"pre_tokenizer": state(pre_tokenizers.Punctuation(behavior))}
    for individual in (False, True):
        yield f"Digits {individual}", ("plain",), {"pre_tokenizer": state(pre_tokenizers.Digits(individual))}
    for scheme in ("always", "first", "never"):
        for split in (False, True):
            metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split}
            yield f"Metaspace {scheme} {split}", texts, {"pre_tokenizer": metaspace, "decoder": metaspace}
    yield "Metaspace after Punctuation", ("plain",), {"pre_tokenizer": sequence(
        "pretokenizers", state(pre_tokenizers.Punctuation()), state(pre_tokenizers.Metaspace(prepend_scheme="first")))}
    yield "two", ("plain",), {"pre_tokenizer": sequence("pretokenizers", {"type": "WhitespaceSplit"},
                                                        sequence("pretokenizers", state(pre_tokenizers.Punctuation()),
                                                                 state(pre_tokenizers.Digits(True))))}
    yield "Llama", ("fallback", "some"), {
        "normalizer": sequence("normalizers", {"type": "Prepend", "prepend": "\u2581"},
                               replace({"String": " "}, "\u2581")),
        "decoder": sequence("decoders", replace({"String": "\u2581"}, " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                            state(decoders.Strip(" ", 1, 0)))}
    yield "Strip", ("fallback",), {"decoder": sequence("decoders", state(decoders.Strip("t", 0, 1)),
                                                       state(decoders.Strip("e", 2, 0)))}
    yield "ByteFallback", ("fallback",), {"decoder": {"type": "ByteFallback"}}
    yield "Replace", ("fallback",), {"decoder": replace({"Regex": "[aeiou]t"}, "<>")}
    yield "WordPiece", ("piece",), {"pre_tokenizer": {"type": "Whitespace"},
                                    "decoder": state(decoders.WordPiece(cleanup=True))}
    single, pair = "<s> $A [MASK]", "<s> $A [MASK] $B:1 [MASK]:1"
    token = {"<s>": ("<s>", 1), "[MASK]": ("[MASK]", 2)}
    yield "Template", ("plain", "letters"), {"post_processor": state(processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=list(token.values())))}
    yield "Template B A", ("plain",), {"post_processor": sequence("processors", state(processors.ByteLevel()), state(
        processors.TemplateProcessing(single="$A:3 <s>:2", pair="$B:1 $A <s>", special_tokens=[token["<s>"]])))}
    bert_processor = state(processors.BertProcessing(token["[MASK]"], token["<s>"]))
    yield "BertProcessing", ("piece",), {"post_processor": bert_processor}
    roberta_processor = state(processors.RobertaProcessing(token["[MASK]"], token["<s>"]))
    yield "RobertaProcessing", ("letters",), {"post_processor": roberta_processor}
    for behavior in ("isolated", "removed"):
        yield f"and {behavior}", ("letters",), {"pre_tokenizer": state(pre_tokenizers.Split(
            Regex(r"[\p{L}&&[^\p{Han}]]+|[^\s&&[^a-z]]"), behavior))}
    yield "BPEDecoder", ("ends", "inner"), {"pre_tokenizer": {"type": "BertPreTokenizer"},
                                            "decoder": state(decoders.BPEDecoder(suffix="</w>"))}
    yield "affixes", ("ends", "inner", "letters_ends"), {"pre_tokenizer": {"type": "WhitespaceSplit"}}
    level = {"type": "ByteLevel"}
    for normalizer in (level, sequence("normalizers", {"type": "NFKC"}, level)):
        yield "letters", ("letters_alone",), {
            "normalizer": normalizer, "decoder": state(decoders.ByteLevel()),
            "pre_tokenizer": state(pre_tokenizers.Split(Regex("\u0120?[a-z]+|[0-9]"), "isolated"))}


def added(base):
    first = len(base["model"]["vocab"])
    for i, (content, changed) in enumerate([("<new>", dict(normalized=True)), ("caf\u00e9!", dict(normalized=True)),
                                            ("\u2581times", {}), ("Best of", dict(normalized=True))]):
        yield {"id": first + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
               "normalized": False, "special": False, **changed}


def cases():
    """(name, tokenizer.json)"""
    base = bases()
    for name, kinds, given in parts():
        for kind in kinds:
            one = json.loads(json.dumps(base[kind]))
            one.update(given)
            if kind in ("letters", "letters_ends"):
                level = state(pre_tokenizers.ByteLevel(add_prefix_space="Strip" in name))
                before = one["pre_tokenizer"]
                one["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [before, level]} if before else level
                one["decoder"] = state(decoders.ByteLevel())
            for more in (False, True):
                tokens = one["added_tokens"] + list(added(one) if more else [])
                yield f"{name}, {kind}{', added tokens' if more else ''}", dict(one, added_tokens=tokens)


def any_character():
    code = RANDOM.choice([RANDOM.randrange(1, 128), RANDOM.randrange(128, 0x3000), RANDOM.randrange(0x3000, 0xd800),
                          RANDOM.randrange(0xe000, 0x20000)])
    # Hugging Face's tables and TX's know different characters of later Unicode versions.
    return chr(code) if unicodedata.ucd_3_2_0.category(chr(code)) != "Cn" else ""


def any_text(words=12):
    if RANDOM.random() < .1:
        return "".join(any_character() for _ in range(RANDOM.randrange(1, words)))
    return "".join(RANDOM.choice(WORDS) if RANDOM.random() < .8 else " " for _ in range(RANDOM.randrange(0, words)))


def some_texts(theirs, count, words=12):
    """Returns texts and ids. Some texts make the library panic: a normalizer has moved an added token."""
    texts, ids = [], []
    while len(texts) < count:
        text = any_text(words)
        try:
            ids.append(theirs.encode(text, add_special_tokens=False).ids)
        except BaseException as error:  # pyo3's PanicException is no Exception
            if type(error).__name__ != "PanicException":
                raise
            continue
        texts.append(text)
    return texts, ids


def check(program, name, one, count):
    theirs = Tokenizer.from_str(json.dumps(one))
    texts, wanted = some_texts(theirs, count)
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
            json.dump(one, file)
        found = txtok(program, "encode", folder, [{"text": text} for text in texts])
        back = [line["text"] for line in txtok(program, "decode", folder, wanted)]
    failures = 0
    for text, ids, right, decoded in zip(texts, found, wanted, back):
        again = theirs.decode(right, skip_special_tokens=False)
        # The library decodes characters of added tokens as bytes' letters, and returns them normalized.
        if "added" in name and ("letters" in name or one["normalizer"]):
            again = decoded
        if ids != right:
            print(f"{name}: {text!r}: {ids}, expected {right}")
        elif decoded != again:
            print(f"{name}: {right}: {decoded!r}, expected {again!r}")
        failures += ids != right or decoded != again
    return failures


def given(theirs, first, second):
    encoded = theirs.encode(first, second) if second is not None else theirs.encode(first)
    return {"first": first, "second": second, "ids": encoded.ids, "types": encoded.type_ids}


def write(path):
    """A line about the file, one for each model's tokenizer, and the cases, which name theirs."""
    RANDOM.seed(7)
    long = WORDS.pop()
    base, line = bases(), lambda value: json.dumps(value, separators=(",", ":")) + "\n"
    with open(path, "w", encoding="utf-8") as file:
        file.write(line({"about": "SPDX-License-Identifier: Apache-2.0; written by check_pipeline.py"}))
        for name, one in base.items():
            file.write(line({"base": name, "tokenizer": one}))
        for number, (name, one) in enumerate(cases()):
            kind = name.split(", ")[1]
            if "added" in name and number % 8 != 1:
                continue
            theirs = Tokenizer.from_str(json.dumps(one))
            texts, ids = some_texts(theirs, 2, 8)
            if name == "nothing, piece":  # the longest word that is not unknown
                texts += [long, long[1:]]
                ids += [theirs.encode(text, add_special_tokens=False).ids for text in texts[2:]]
            case = {"name": name, "base": kind, "parts": {key: one[key] for key in one if one[key] != base[kind][key]},
                    "texts": [{"text": text, "ids": encoded} for text, encoded in zip(texts, ids)]}
            for text in case["texts"] if "added" not in name else []:
                text["decoded"] = theirs.decode(text["ids"], skip_special_tokens=False)
            if one["post_processor"] or name == "nothing, plain":
                case["given"] = [given(theirs, texts[0], None), given(theirs, texts[0], texts[1])]
            file.write(line(case))


def main():
    if sys.argv[1] == "--write":
        write(sys.argv[2])
        return
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    RANDOM.seed(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    failures = 0
    for name, one in cases():
        failures += check(sys.argv[1], name, one, count)
    print(f"{failures} failures")
    sys.exit(failures > 0)


main()
