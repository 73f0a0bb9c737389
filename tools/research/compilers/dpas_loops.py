# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of a warp in the inner loops of matrix products and attention by Intel's matrix units, in the
machine code of Intel's ocloc. They are for the model of txresearch predict. The script compares the counts with
tools/research/loops_intel.def and attention_loops_intel.def.

    dpas_loops.py KERNEL_TEXTS [--record]      --record writes the files

The columns are those of loops.py and attention_loops.py. On DG2 the compiler starts each row of DPAS with one that does
nothing. These count only as instructions. A difference is an error if the compiler is that of the record. The exit
status is 77 in the cases of tests/opencl/dpas.py."""
import os
import re
import sys
import tempfile

import attention_loops
from dpas import attention_program, compiled, find_ocloc, product_program, product_work
from forms import attention_forms
from loops import FIELDS, keep, wants
from targets import Programs, parallel

TABLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
ATTENTION_TARGETS = {"DPAS8": ("dg2",), "DPAS16": ("bmg",)}


def local_bytes(line, lanes):
    """Returns the bytes of a message to local memory."""
    found = re.search(r"(load|store)\.slm\.d(\d+)(?:u\d+)?(?:x(\d+)(t)?)?\.", line)
    return int(found[2]) // 8 * int(found[3] or 1) * (1 if found[4] else lanes) if found else 0


def local_clocks(lines, lanes):
    return sum(local_bytes(line, lanes) for line in lines) / 128


def is_unit(line):
    """True for a DPAS that does work. One that does nothing multiplies a register by itself and adds nothing."""
    return "dpas." in line and not re.search(r"null:\S+ +(r\d+)\b\S* +\1\b", line)


def loops_of(lines):
    """Returns the first and last line of each range that a backward branch repeats."""
    place = {line[:-1]: i for i, line in enumerate(lines) if re.fullmatch(r"\w+:", line)}
    return [(place[name], i) for i, line in enumerate(lines) for name in re.findall(r"\b[L_]\w+", line)
            if name in place and place[name] <= i]


def inner_loop(lines):
    """Returns the smallest loop that contains all instructions of the matrix unit."""
    units = [i for i, line in enumerate(lines) if is_unit(line)]
    loops = [(first, last) for first, last in loops_of(lines) if first <= units[0] and last >= units[-1]]
    if not loops:
        sys.exit("the inner loop cannot be found")
    first, last = max(loops)
    return lines[first:last + 1]


def repeated(loop, expected):
    """Returns the lines of the loop, with inner loops repeated to have `expected` instructions of the matrix unit."""
    inside = [False] * len(loop)
    for first, last in loops_of(loop):
        if (first, last) != (0, len(loop) - 1) and any(map(is_unit, loop[first:last + 1])):
            inside[first:last + 1] = [True] * (last + 1 - first)
    again = [line for line, is_inside in zip(loop, inside) if is_inside]
    once = [line for line, is_inside in zip(loop, inside) if not is_inside]
    left = expected - sum(map(is_unit, once))
    each = sum(map(is_unit, again))
    return once + again * (left // each if each else 1)


def instructions(lines):
    return [line for line in lines if line and not line.startswith("//") and not re.fullmatch(r"\w+:", line)]


def row_of(ocloc, texts, folder, work):
    form, target, dtype, transposes = work
    name, _, _, _, rows, columns, warps, lanes, local = form
    program = product_program(texts, form, dtype, transposes)
    lines, number = compiled(ocloc, target, program, "gemm_matrix", folder)
    loop = inner_loop(lines)
    terms = 16 if dtype == "tf32" else 32
    done = sum(map(is_unit, loop)) * 2 * 8 * lanes * terms // 2
    if done != 2 * rows * columns * terms // warps:
        sys.exit(f"{program} for {target}: a warp does {done} operations in a round")
    inside = len(instructions(loop))
    return (f'TX_LOOP("{name}", "{target}", "{dtype}", "{transposes}", {rows}, {columns}, {terms}, {warps}, {lanes}, '
            f'{number("grf_count")}, {local}, {done}, {inside}, {local_clocks(loop, lanes):g}, '
            f'{len(instructions(lines)) - inside})')


def attention_row(ocloc, texts, folder, work):
    form, target = work
    lanes = form[3]
    program, function = attention_program(texts, form)
    lines, number = compiled(ocloc, target, program, function, folder)
    once = inner_loop(lines)
    loop = repeated(once, attention_loops.expected(form) // (2 * 8 * lanes * 16))
    inside = len(instructions(loop))
    done = sum(map(is_unit, loop)) * 2 * 8 * lanes * 16
    return attention_loops.row_text(form, target, number("grf_count"), number("slm_size"), done, inside,
                                    local_clocks(loop, lanes), sum("math.exp" in line for line in loop),
                                    len(instructions(lines)) - len(instructions(once)))


def main():
    wants("--record", __doc__)
    ocloc, version = find_ocloc()
    with tempfile.TemporaryDirectory() as folder:
        texts = Programs(sys.argv[1], "intel", "gpt2", folder).folder
        work = [one for *one, epilogue in product_work() if not epilogue and one[2] != "fp16"]
        products = sorted(parallel(lambda one: row_of(ocloc, texts, folder, one), work))
        forms = [(form, target) for form in attention_forms(ATTENTION_TARGETS) for target in ATTENTION_TARGETS[form[2]]]
        attention = sorted(parallel(lambda one: attention_row(ocloc, texts, folder, one), forms))
    keep(__doc__, os.path.join(TABLES, "loops_intel.def"), FIELDS, products, version)
    keep(__doc__, os.path.join(TABLES, "attention_loops_intel.def"), attention_loops.FIELDS, attention, version)


if __name__ == "__main__":
    main()
