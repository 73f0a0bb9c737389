# SPDX-License-Identifier: Apache-2.0
"""Compares the members of the Python module's structures with those of the C headers: names and order, of each class
of ctypes in _library.py.

    module_structs.py SOURCE
"""
import ast
import glob
import os
import re
import sys

NAMES = {"Prompt": "lm_prompt", "Perplexity": "perplexity_options", "Figure": "figure"}


def members_of(source):
    """For each structure of the headers the names of its members."""
    found = {}
    for path in glob.glob(os.path.join(source, "api", "**", "*.h"), recursive=True) + \
            glob.glob(os.path.join(source, "models", "*.h")):
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        for name, body in re.findall(r"typedef struct tx_(\w+) \{([^{}]*)\}", text):
            members = []
            for line in filter(None, map(str.strip, body.split(";"))):
                pointer = re.match(r"[^(]*\(\*(\w+)\)", line)
                members += [pointer[1]] if pointer else [re.sub(r"\[.*\]", "", part).split()[-1].lstrip("*")
                                                         for part in line.split(",")]
            found[name] = members
    return found


def main():
    source = sys.argv[1]
    headers, compared = members_of(source), 0
    with open(os.path.join(source, "tools", "python", "tx", "_library.py"), encoding="utf-8") as file:
        tree = ast.parse(file.read())
    for kind in tree.body:
        if not isinstance(kind, ast.ClassDef) or "Structure" not in ast.unparse(kind.bases[0] if kind.bases else kind):
            continue
        fields = [item for item in kind.body if isinstance(item, ast.Assign)][0].value.elts
        ours = [field.elts[0].value for field in fields]
        name = NAMES.get(kind.name, re.sub(r"(?<!^)(?=[A-Z])", "_", kind.name).lower())
        if ours != headers.get(name):
            print(f"FAIL: {kind.name} has {ours}, tx_{name} has {headers.get(name)}")
            return 1
        compared += 1
    print(f"{compared} structures agree")
    return 0 if compared > 10 else 1


sys.exit(main())
