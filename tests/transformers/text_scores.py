# SPDX-License-Identifier: Apache-2.0
"""ROUGE, BLEU and stems of text_scores.c, compared with the packages rouge_score, sacrebleu and nltk.

    text_scores.py TEXT_SCORES      exit status 77: a package is missing
"""
import json
import os
import random
import re
import subprocess
import sys

from oracle import check, status

from nltk.stem.porter import PorterStemmer
from rouge_score import rouge_scorer
import sacrebleu

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
KINDS = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
PAIRS = [("", ""), ("", "a cat"), ("a cat", ""), ("...", "a cat"), ("the cat sat", "the cat sat"),
         ("The CAT, sat. On; the mat!", "the cat sat on the mat"), ("a a a a b", "a a b b b"),
         ("one two three four five", "five four three two one"), ("b c a b c", "a b c\nc b a"),
         ("first line\nthe second\n\nlast", "the second line\nlast of the first"),
         ("police killed the gunman\nthe gunman was shot", "the gunman police killed\nshot was the gunman"),
         ("3.14, 1,000 and 5-6; v2.0.", "3.14 , 1,000 and 5 - 6 ; v2.0 ."),
         ("a..b ,, c.. 1. .2 3-4-5", "a . . b 1. .2"),
         ("&quot;A&amp;lt;B&gt; <skipped>x&lt;", "\"A<B> x<"), ("well-\nknown\nfact -\n", "wellknown fact -"),
         ("caf\u00e9 na\u00efve \u212aelvin \u0130stanbul stra\u00dfe", "cafe naive kelvin istanbul strasse"),
         ("\u65e5\u672c\u8a9e\u3000\u3067\u3059\u3002 \u00a0x\u2003y\u2028z", "\u65e5\u672c\u8a9e x y z"),
         ("\U0001f600 smile \U0001f600.", "smile \U0001f600 ."),
         ("tab\tand\x0bvt\x1cfs\x85nel \x1f", "tab and vt fs nel"),
         ("x" * 3000, "x" * 3000), ("running runs ran easily fairly", "run running runner easy fair"),
         ("don't stop, 'quoted' text.", "do n't stop 'quoted' text"), ("e.g. U.S.A. Mr. Smith's", "e.g. USA mr smith")]


def random_pairs(words):
    draw = random.Random(7)
    marks = [*".,!?-\n '\"()&/1", "23", "4.5", "6,7", "\u00e9", "\u2014", "\u3000"]
    for i in range(600):
        size = draw.choice([1, 5, 20, 60, 300 if i % 50 == 0 else 9])
        text = [draw.choice(words if draw.random() < 0.8 else marks) for _ in range(size)]
        other = [draw.choice(words + marks) if draw.random() < 0.3 else t for t in text]
        if draw.random() < 0.5:
            at = draw.randrange(len(other))
            other = other[at:] + other[:at]
        join = draw.choice([" ", " ", ""])
        yield join.join(text), " ".join(other)


def answers(lines):
    done = subprocess.run([sys.argv[1]], input="".join(json.dumps(line) + "\n" for line in lines), capture_output=True,
                          text=True, check=True)
    return done.stdout.split("\n")[:-1]


def read_words():
    found = set()
    for folder in ("", "docs", "docs/guides", "docs/design", "docs/reference"):
        for name in os.listdir(os.path.join(ROOT, folder)):
            if name.endswith(".md"):
                with open(os.path.join(ROOT, folder, name), encoding="utf-8") as file:
                    found.update(re.findall("[A-Za-z]+", file.read()))
    return sorted(found)


def check_stems(words):
    """Words of the documents, each with all suffixes of the algorithm, and made-up ones."""
    draw, stemmer = random.Random(3), PorterStemmer()
    ends = ("s es ies sses ss ed eed ied ing y ational tional enci anci izer bli alli entli eli ousli ization ation "
            "ator alism iveness fulness ousness aliti iviti biliti fulli logi icate ative alize iciti ical ful ness al "
            "ance ence er ic able ible ant ement ment ent ion sion tion ou ism ate iti ous ive ize e l ll").split()
    stems = {w.lower() for w in words} | set("skies sky dying lying tying news innings inning outings outing cannings "
                                             "canning howe proceed exceed succeed".split())
    stems |= {"".join(draw.choice("aeiouybcdlst") for _ in range(draw.randrange(1, 8))) for _ in range(4000)}
    stems |= {"y" * n for n in (4, 5, 6, 50)} | {"abc123", "2nds", "3ies", "1000s"}
    tried = [w for w in sorted(stems | {s + e for s in sorted(stems)[::3] for e in ends}) if len(w) > 3]
    for word, stem in zip(tried, answers([[w] for w in tried])):
        check(stem == stemmer.stem(word), f"{word}: {stem}, not {stemmer.stem(word)}")
    print(f"{len(tried)} stems")


def check_scores(words):
    scorer = rouge_scorer.RougeScorer(KINDS, use_stemmer=True)
    pairs = PAIRS + list(random_pairs(words))
    worst, texts, references = 0.0, [], []
    for i, (pair, line) in enumerate(zip(pairs, answers(pairs))):
        got, want = [float(x) for x in line.split()], scorer.score(pair[1], pair[0])
        texts.append(pair[0])
        references.append(pair[1])
        values = [want[k].fmeasure for k in KINDS]
        values.append(sacrebleu.corpus_bleu(texts, [references]).score if i < 40 or i % 20 == 0 else got[4])
        errors = [abs(a - b) for a, b in zip(got, values)]
        check(all(e <= 1e-9 for e in errors), f"{pair}: {got}, not {values}")
        worst = max(worst, *errors)
        alone = sacrebleu.corpus_bleu([pair[0]], [[pair[1]]]).score
        one = float(answers([pair])[0].split()[4]) if i < 60 else alone
        check(abs(one - alone) <= 1e-9, f"{pair}: BLEU {one}, not {alone}")
    print(f"{len(pairs)} pairs, largest difference {worst:.2g}")


found = read_words()
check_stems(found)
check_scores(found)
sys.exit(status())
