# SPDX-License-Identifier: Apache-2.0
"""Checks that functions of kernels that reach a barrier are TX_INLINE: inline.py ROOT

PoCL 3.1 shares the local memory of the others among its threads when they are called more than once, so results are
wrong, but only now and then."""
import glob
import re
import sys

FUNCTION = re.compile(r"^(\w[^;{}#]*?)\b(\w+)\(([^;{}]*)\)\s*\{(.*?)^\}", re.M | re.S)


def functions(folder):
    """Yields (file, name, what precedes the name, body)."""
    for path in sorted(glob.glob(folder + "/**/*.cl", recursive=True)):
        with open(path) as file:
            text = re.sub(r"/\*.*?\*/|__attribute__\(\((?!always_inline).*?\)\)\)?", "", file.read(), flags=re.S)
        for before, name, _, body in FUNCTION.findall(text):
            yield path, name, before, body


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = list(functions(sys.argv[1] + "/backends/opencl"))
    waits = {("", "barrier"), ("", "TX_GROUP_JOIN"), ("", "BARRIER"), ("", "SYNC")}
    files = {}
    for path, name, _, _ in found:
        files.setdefault(name, set()).add(path)
    count = 0
    while count < len(waits):
        count = len(waits)
        for path, name, _, body in found:
            for call in re.findall(r"\b(\w+)\(|\b(BARRIER|SYNC)\b", body):
                call = "".join(call)
                # A file's own function comes before one of the same name in another.
                of = {path} if path in files.get(call, ()) else files.get(call, {""})
                if any((one, call) in waits for one in of):
                    waits.add((path, name))
    bad = [f"{path}: {name} reaches a barrier and is not TX_INLINE" for path, name, before, _ in found
           if (path, name) in waits and "TX_INLINE" not in before and "__kernel" not in before]
    if count < 50:
        bad.append(f"only {count} functions with barriers were found")
    print(f"{len(found)} functions, {count} reach a barrier")
    sys.exit("\n".join(bad) or 0)


main()
