#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks how TX is written: words.py [--show N] [--root ROOT] [FILE_OR_FOLDER...]

Reads comments and strings of sources and the prose of documents. It counts eight patterns that make a text hard to read,
sentences of more than 35 words, paragraphs of documents of more than 100 words, lines that are too wide, and how often
guides say "you". Without arguments it checks the whole tree and fails if a folder is over its limit."""
import os
import re
import sys

PATTERNS = {
    "what-clause": r"\b(?:[Ww]hat|[Ww]ho|[Ww]hose) (?:is|are|was|were|has|have|it|they|there|fits|runs|goes|a |the |each|ranks"
                   r"|lies|others|no |only|leaves|comes|does|stands|we)\b",
    "where=if": r"\bwhere (?:that|it|there|this|a |the |one|no |they|these|those|none|ranks|nothing|all)\b",
    "NULL: value": r"\b(?:NULL|0|-1|INVALID|TX_[A-Z]+): [a-z]",
    "behind/beside": r"\b(?:behind|beside|in front of)\b",
    "Of ...": r"(?:^|[.;:] )Of (?:a|an|the|many|those|these|what|each|its|whom|all|[A-Z0-9])",
    "in place of/but for": r"\b(?:in (?:the )?place of|but for)\b",
    "X alone": r"\b\w+ alone\b",
    "goes on/gets on": r"\b(?:goes?|gets?|going|gone) on\b",
}
# Hits of all patterns per 10,000 words.
LIMITS = {name: 10 for name in ("api", "backends", "comm", "models", "tools", "docs", "README.md", "CONTRIBUTING.md",
                                "CHANGELOG.md", "ARCHITECTURE.md", "BENCHMARKS.md")}
SENTENCE_WORDS = 35
PARAGRAPH_WORDS = 100
CODE_COLUMNS = 120
DOCUMENT_COLUMNS = 100
YOU_PER_THOUSAND = 5  # in docs/guides
CODE = (".c", ".h", ".cl", ".def", ".cpp")
SCRIPTS = (".sh", ".py", ".cmake")
SKIP = ("third_party", "/.git/", "/build", "/tests/data/")


def comment_blocks(lines):
    """Joins the lines of each run of # comments. An empty comment line ends a block."""
    block = []
    for line in lines:
        found = re.match(r"\s*#(?!!) ?(.*)$", line)
        if found and found.group(1).strip() and not found.group(1).startswith("SPDX"):
            block.append(found.group(1).strip())
        elif block:
            yield " ".join(block)
            block = []
    if block:
        yield " ".join(block)


def paragraphs(body):
    """The prose of Markdown: without code, headings and tables, which have no sentences. One list item is a paragraph."""
    body = re.sub(r"(?ms)^ *```.*?^ *```", "", body)
    body = re.sub(r"(?m)^    .*$", "", body)
    body = re.sub(r"(?m)^(#|\|).*$", "", body)
    body = re.sub(r"(?m)^(\s*(?:[-*]|\d+\.) )", r"\n\1", body)
    for text in re.split(r"\n\s*\n", body):
        text = re.sub(r"`[^`]*`", "X", re.sub(r"\]\([^)]*\)", "]", text))
        if text.strip():
            yield " ".join(text.split())


def cells(body):
    """Tables and headings of Markdown: their words count, but they need not be sentences."""
    for line in re.findall(r"(?m)^[#|].*$", re.sub(r"(?ms)^ *```.*?^ *```", "", body)):
        yield re.sub(r"`[^`]*`", "X", line)


def texts(path, body):
    """Returns the prose, whose sentences are measured, and the other words of a file."""
    if path.endswith(".md"):
        return list(paragraphs(body)), list(cells(body))
    if path.endswith(SCRIPTS):
        return list(comment_blocks(body.split("\n"))), []
    prose = []
    for comment in re.findall(r"/\*.*?\*/", body, re.S):
        for text in re.split(r"\n\s*\*?\s*\n|\n\s*\*   +", comment[2:-2]):  # paragraphs, and rows of tables
            prose.append(re.sub(r"\s*\n\s*\*?\s*", " ", text).strip(" *"))
    prose += re.findall(r"(?m)//+ ?(.*)$", body)
    code = re.sub(r"/\*.*?\*/", " ", body, flags=re.S)
    return prose, [s for s in re.findall(r'"((?:[^"\\\n]|\\.)*)"', code) if " " in s.strip()]


def files(argument):
    if os.path.isfile(argument):
        return [argument]
    found = []
    for folder, folders, names in os.walk(argument):
        folders.sort()
        found += [os.path.join(folder, name) for name in sorted(names) if name.endswith(CODE + SCRIPTS + (".md",))]
    return [path for path in found if not any(s in path for s in SKIP)]


def long_sentences(path, prose):
    """A colon, a semicolon and a list do not end a sentence for a reader. A formula in a comment does not make one long."""
    for text in prose:
        for sentence in re.split(r"(?<=[.!?])[\"')\]]*\s+(?=[A-Z\"'`(\[0-9x])", text):
            words = [w for w in sentence.split() if re.search(r"[A-Za-z]", w)]
            if len(words) > SENTENCE_WORDS:
                yield f"{path}: sentence of {len(words)} words: {' '.join(sentence.split()[:14])} ..."


def wide_lines(path, body):
    limit = DOCUMENT_COLUMNS if path.endswith(".md") else CODE_COLUMNS
    fenced = False
    for number, line in enumerate(body.split("\n"), 1):
        fenced ^= line.lstrip().startswith("```")
        exempt = path.endswith(".md") and (fenced or line.startswith(("|", "    ")) or "](" in line or "http" in line)
        if len(line) > limit and not exempt and "http" not in line:
            yield f"{path}:{number}: line of {len(line)} columns"


def check_file(path, hits, examples):
    """Adds the pattern hits of one file. Returns its words, its uses of "you" and the complaints about its shape."""
    with open(path, encoding="utf-8", errors="replace") as file:
        body = file.read()
    prose, other = texts(path, body)
    for text in prose + other:
        for name, pattern in PATTERNS.items():
            for m in re.finditer(pattern, text):
                hits[name] += 1
                examples.append(f"    {path}: [{name}] ...{text[max(0, m.start() - 50):m.end() + 50]}...")
    complaints = list(long_sentences(path, prose)) + list(wide_lines(path, body))
    if path.endswith(".md"):
        complaints += [f"{path}: paragraph of {len(t.split())} words: {t[:60]} ..." for t in prose
                       if len(t.split()) > PARAGRAPH_WORDS]
    words = sum(len(text.split()) for text in prose + other)
    return words, sum(len(re.findall(r"\b[Yy]our?\b", text)) for text in prose), complaints


def check(argument, show):
    """Prints the figures of a file or folder. Returns the number of limits that it breaks."""
    words, hits, examples, complaints = 0, dict.fromkeys(PATTERNS, 0), [], []
    for path in files(argument):
        count, you, found = check_file(path, hits, examples)
        words += count
        complaints += found
        if "docs/guides/" in path and you * 1000 < YOU_PER_THOUSAND * count:
            complaints.append(f'{path}: says "you" {you} times in {count} words')
    rate = sum(hits.values()) * 1e4 / max(1, words)
    print(f"{argument}: {words} words, {rate:.1f} hits per 10,000, {len(complaints)} complaints: "
          + ", ".join(f"{name} {count}" for name, count in hits.items() if count))
    print("\n".join(examples[:show] + complaints[:show]), end="\n" if show and examples + complaints else "")
    over = rate > LIMITS.get(argument.rstrip("/"), 10)
    if over:
        print(f"{argument}: over the limit of hits; --show 50 lists them")
    return over + bool(complaints)


def main():
    arguments = sys.argv[1:]
    show = 20
    for option in ("--show", "--root"):
        if option in arguments:
            at = arguments.index(option)
            value = arguments[at + 1]
            del arguments[at:at + 2]
            if option == "--show":
                show = int(value)
            else:
                os.chdir(value)
    broken = sum(check(argument, show) for argument in arguments or LIMITS)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
