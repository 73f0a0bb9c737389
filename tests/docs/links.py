# SPDX-License-Identifier: Apache-2.0
"""links.py SOURCE: every relative link of the tree's Markdown files leads to a file, and its anchor to a heading."""
import os
import re
import sys

LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)|<img [^>]*src=\"([^\"]+)\"|^\[[^\]]+\]: (\S+)", re.M)
SKIP = {".git", "third_party"}


def prose(text):
    """The text without code, whose brackets are no links."""
    text = re.sub(r"(?ms)^ *(```|~~~).*?^ *\1", "", text)
    return re.sub(r"`[^`\n]*`", "", re.sub(r"(?m)^(?: {4}|\t).*$", "", text))


def anchors(text):
    """The anchors of the headings, as GitHub and the site make them."""
    found = []
    for heading in re.findall(r"(?m)^#+ +(.*?) *#*$", re.sub(r"(?ms)^ *(```|~~~).*?^ *\1", "", text)):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        anchor = re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-")
        found.append(anchor + (f"-{found.count(anchor)}" if anchor in found else ""))
    return found + re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text)


def pages(root):
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIP and not name.startswith("build")]
        yield from (os.path.normpath(os.path.join(folder, name)) for name in names if name.endswith(".md"))


def faults(text_of):
    """The broken links of pages: path -> text."""
    for path, text in sorted(text_of.items()):
        for groups in LINK.findall(prose(text)):
            target, _, anchor = "".join(groups).partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            there = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
            if not os.path.exists(there) and there not in text_of:
                yield f"{path}: {target} does not exist"
            elif anchor and there in text_of and anchor not in anchors(text_of[there]):
                yield f"{path}: {target}#{anchor} has no such heading"


planted = {"/a.md": "# One `two`\n[x](b.md) [y](#one-two) [z](#three) `[no](link)`\n"}
assert [fault.split(": ")[1] for fault in faults(planted)] == ["b.md does not exist", "#three has no such heading"]
found = {}
for page in pages(sys.argv[1]):
    with open(page, encoding="utf-8") as file:
        found[page] = file.read()
broken = list(faults(found))
print("\n".join(broken) or f"the links of {len(found)} pages resolve")
sys.exit(bool(broken))
