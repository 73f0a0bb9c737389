#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the links of documents: links.py [DOCUMENT.md...]

Each relative link has to lead to a file, and its #anchor to a heading of that file. Without arguments the script checks
the documents in the top folder and all of docs/."""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def without_code(text):
    return re.sub(r"`[^`\n]*`", "", re.sub(r"(?ms)^```.*?^```", "", text))


def anchors(path):
    """The anchors that GitHub makes of the headings of a document."""
    with open(path) as document:
        headings = re.findall(r"(?m)^#+ +(.*?) *$", re.sub(r"(?ms)^```.*?^```", "", document.read()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(path):
    with open(path) as document:
        targets = re.findall(r"\]\(([^)\s]+)\)", without_code(document.read()))
    for target in targets:
        if re.match("[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = os.path.join(os.path.dirname(path), name) if name else path
        if not os.path.exists(file):
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors(file):
            yield f"{target}: no such heading"


def main():
    documents = sys.argv[1:] or sorted(glob.glob(f"{ROOT}/*.md") + glob.glob(f"{ROOT}/docs/**/*.md", recursive=True))
    found = [f"{os.path.relpath(path, ROOT)}: {text}" for path in documents for text in broken_links(path)]
    print("\n".join(found) if found else f"{len(documents)} documents: no broken link")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
