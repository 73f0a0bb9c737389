# SPDX-License-Identifier: Apache-2.0
"""Checks that NVIDIA's assembler accepts a form of each kernel on its cards since Turing. It refuses more than 48 KiB
of static local memory, except for sm_90a. Drivers may accept more, so larger forms are candidates, too.

    local_memory.py KERNEL_TEXTS

Prints a table of the forms of products and attention by matrix units: bytes, and the targets that refuse each. Then
assembles all kernels of GPT-2 124M, which need no matrix units. Exit status 77: no compiler is installed."""
import re
import sys
import tempfile

from forms import FEATURES, HEADS, TARGETS, attention_forms, attention_program, product_forms, product_program
from targets import Programs, Tools, parallel, run, skip, table_of

CARDS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
MOST = 48 << 10


def forms_of(texts):
    """Yields (kernel, form, target of clang, cards, program, function). WGMMA exists on sm_90a only."""
    for form in product_forms():
        if "sm_90" not in form[1]:
            continue
        for dtype in form[2]:
            target = "sm_90" if form[1] == TARGETS["WGMMA"] else "sm_80"
            cards = CARDS if target == "sm_80" else ("sm_90a",)
            program, function = product_program(texts, form, target, dtype, "01")
            if form[0].endswith("256") and target == "sm_80":
                program.options = program.options.replace("-DSTAGES=2", "-DSTAGES=4")
            yield f"product {dtype}", form[0], target, cards, program, function
    for form in attention_forms(("MMA", "WGMMA"), HEADS, all_forms=True):
        target, cards = ("sm_90", ("sm_90a",)) if form[2] == "WGMMA" else ("sm_80", CARDS)
        program, function = attention_program(texts, form, target, "bf16", FEATURES[1])
        yield f"{function} {form[5]}", form[1], target, cards, program, function


def build(tools, folder, work):
    """Returns the bytes of local memory, and the cards for which the assembler refuses the program."""
    _, name, target, cards, program, _ = work
    path, refused = f"{folder}/{id(program)}.s", []
    error = tools.assembly(target, program, path)
    if error:
        sys.exit(f"{program} for {target}:\n{error}")
    with open(path) as file:
        sizes = re.findall(r"^\.(?:visible |extern )*shared .*\[(\d+)\];|^\s+\.shared .*\[(\d+)\];", file.read(),
                           flags=re.M)
    for card in cards:
        status, text = run([tools.ptxas, "-arch=" + card, "-o", f"{path}.cubin", path])
        if status and "too much shared data" not in text:
            sys.exit(f"{name}, {program} on {card}:\n{text}")
        refused += [card] * bool(status)
    return sum(int(a or b) for a, b in sizes), refused


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(folder, sys.argv[1])
        if not tools.ptxas:
            skip("no ptxas")
        work = list(forms_of(Programs(sys.argv[1], "nvidia", "gpt2", folder).folder))
        for target, device in (("sm_75", "volta"), ("sm_80", "nvidia")):
            cards = ("sm_75",) if target == "sm_75" else CARDS
            work += [("", str(program), target, cards, program, "")
                     for program in Programs(sys.argv[1], device, "gpt2", f"{folder}/{device}").list
                     if "-DATOM=" not in program.options]
        found = parallel(lambda one: build(tools, folder, one), work)
    rows, built, bad = [("kernel", "form", "bytes", "refused by")], {}, []
    for (kernel, name, _, cards, _, _), (size, refused) in zip(work, found):
        if kernel:
            rows.append((kernel, name, size, " ".join(refused) or "none"))
            built.setdefault(kernel, set()).update(set(cards) - set(refused))
        if bool(refused) != (size > MOST and "sm_90a" not in cards) or (refused and not kernel):
            bad.append(f"{name}: {size} bytes, refused by {refused}")
    print(table_of(rows))
    bad += [f"{kernel}: no form for {card}" for kernel, cards in built.items() for card in CARDS if card not in cards]
    print(f"{len(work)} programs, {len(built)} kernels by matrix units, {len(bad)} faults")
    sys.exit("\n".join(bad) or 0)


if __name__ == "__main__":
    main()
