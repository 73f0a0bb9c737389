# SPDX-License-Identifier: Apache-2.0
"""What a warp does in the inner loops of matrix products and attention by Intel's matrix units, counted in the machine code that
Intel's ocloc makes, for the model of txbench predict: tools/bench/loops_intel.def and attention_loops_intel.def, which this writes
anew or compares with.

    dpas.py KERNEL_TEXTS [--record]

Every form of Intel's in backends/opencl/matrix.def is compiled in the types that it takes, in three transposes and with each epilogue;
of attention_matrix.def in both types, for several sizes of heads, with nothing, dropout, and all that it may have besides: no register is
spilled, and no array lies in memory. Recorded is what attention_loops.py records of others. On DG2 the compiler begins each row of DPAS by
one that does nothing; these count as instructions alone. A difference is an error where the compiler is that of the record. Exit status 77:
no ocloc that has a disassembler, or one of before 2023, which leaves loops over registers rolled."""
import os
import re
import shutil
import sys
import tempfile

import attention_loops
from loops import ADDED, FIELDS, FORMS, TRANSPOSES, keep, wants
from targets import Program, Programs, parallel, run, skip

TABLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/bench")
TARGETS = {"DPAS8": ("dg2",), "DPAS16": ("bmg", "pvc")}
ATTENTION_TARGETS = {"DPAS8": ("dg2",), "DPAS16": ("bmg",)}
REGISTERS = " -cl-intel-256-GRF-per-thread"
EPILOGUES = ("",) + tuple(f" -DEPILOGUE={e} -DEXACT={exact}" for e, exact in ((1, 0), (1, 1), (2, 0), (2, 1), (3, 0)))
STORED = {"bf16": "bf16", "fp16": "f16", "tf32": "f32"}


def forms():
    """(name, atom, types, options, rows, columns, warps, lanes, local bytes)"""
    with open(FORMS) as file:
        text = file.read()
    for words in re.findall(r"^TX_MATRIX\((.*)\)$", text, flags=re.M):
        _, name, atom, _, lanes, takes, _, rows, columns, warps_m, warps_n, stages, pitch, _ = \
            [word.strip().strip('"') for word in words.split(",")]
        if atom in TARGETS:
            options = (f"-DEMULATED=0 -DATOM={atom} -DTILE_M={rows} -DTILE_N={columns} -DWARPS_M={warps_m} -DWARPS_N={warps_n} "
                       f"-DSTAGES={stages} -DFULL=0 -DVW=4" + REGISTERS)
            yield (name, atom, ("bf16", "fp16") + (("tf32",) if "TF32" in takes else ()), options, int(rows), int(columns),
                   int(warps_m) * int(warps_n), int(lanes), int(stages) * (int(rows) + int(columns)) * int(pitch))


def compiled(ocloc, target, program, kernel, folder):
    """The lines of the kernel's assembly, and a question to what the binary says of it; exits where that is no good."""
    out = f"{target}-{id(program)}"
    status, text = run([ocloc, "compile", "-q", "-file", program.text, "-device", target, "-output", out, "-out_dir", folder, "-output_no_suffix",
                        "-options", "-cl-std=CL1.2 -w " + program.options])
    made = [os.path.join(folder, name) for name in (out + ".bin", out) if os.path.exists(os.path.join(folder, name))]
    if status or not made:
        sys.exit(f"{program} does not compile for {target}:\n{text}")
    dump = os.path.join(folder, out + "-dump")
    run([ocloc, "disasm", "-file", made[0], "-device", target, "-dump", dump])
    code, info = os.path.join(dump, f".text.{kernel}.asm"), os.path.join(dump, ".ze_info")
    if not os.path.exists(code) or not os.path.exists(info):
        skip("this ocloc does not disassemble")
    with open(code) as file:
        lines = [line.strip() for line in file]
    with open(info) as file:
        info = file.read()
    wrong = re.search(r"(spill_size|private_size): *[1-9].*", info)
    if wrong:
        sys.exit(f"{program} for {target}: {wrong[0]}")
    shutil.rmtree(dump)
    return lines, lambda name: int(re.search(name + r": *(\d+)", info)[1])


def local_bytes(line, lanes):
    """What a message to local memory moves."""
    found = re.search(r"(load|store)\.slm\.d(\d+)(?:u\d+)?(?:x(\d+)(t)?)?\.", line)
    return int(found[2]) // 8 * int(found[3] or 1) * (1 if found[4] else lanes) if found else 0


def local_clocks(lines, lanes):
    return sum(local_bytes(line, lanes) for line in lines) / 128


def is_unit(line):
    """One that does nothing multiplies a register by itself, and adds nothing."""
    return "dpas." in line and not re.search(r"null:\S+ +(r\d+)\b\S* +\1\b", line)


def loops_of(lines):
    """(first, last) line of each range that a branch back repeats."""
    place = {line[:-1]: i for i, line in enumerate(lines) if re.fullmatch(r"\w+:", line)}
    return [(place[name], i) for i, line in enumerate(lines) for name in re.findall(r"\b[L_]\w+", line) if name in place and place[name] <= i]


def inner_loop(lines):
    """The smallest loop that holds all of the unit's instructions."""
    units = [i for i, line in enumerate(lines) if is_unit(line)]
    loops = [(first, last) for first, last in loops_of(lines) if first <= units[0] and last >= units[-1]]
    if not loops:
        sys.exit("the inner loop cannot be found")
    first, last = max(loops)
    return lines[first:last + 1]


def repeated(loop, expected):
    """The loop's lines, those of loops in it that have the unit's as often as it takes to have `expected` of these."""
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
    form, target, dtype, transposes, epilogue = work
    name, _, _, options, rows, columns, warps, lanes, local = form
    stored = STORED[dtype]
    program = Program(os.path.join(texts, "gemm_matrix.cl"), "gemm_matrix",
                      f"{options} -DAB={stored} -DY={stored} -DWIDEN={int(dtype != 'tf32')} -DTRANS_A={transposes[0]} -DTRANS_B={transposes[1]} "
                      f"-DPARTS=0{ADDED['00'] + epilogue if epilogue else ADDED[transposes]}")
    lines, number = compiled(ocloc, target, program, "gemm_matrix", folder)
    loop = inner_loop(lines)
    terms = 16 if dtype == "tf32" else 32
    done = sum(map(is_unit, loop)) * 2 * 8 * lanes * terms // 2
    if done != 2 * rows * columns * terms // warps:
        sys.exit(f"{program} for {target}: a warp does {done} operations a round")
    inside = len(instructions(loop))
    return (f'TX_LOOP("{name}", "{target}", "{dtype}", "{transposes}", {rows}, {columns}, {terms}, {warps}, {lanes}, {number("grf_count")}, '
            f'{local}, {done}, {inside}, {local_clocks(loop, lanes):g}, {len(instructions(lines)) - inside})')


def attention_row(ocloc, texts, folder, work):
    form, target = work
    kernel, _, atom, lanes = form[:4]
    source, function, _ = attention_loops.KERNELS[kernel]
    program = Program(os.path.join(texts, source + ".cl"), source, attention_loops.options_of(form, atom) + REGISTERS)
    lines, number = compiled(ocloc, target, program, function, folder)
    once = inner_loop(lines)
    loop = repeated(once, attention_loops.expected(form) // (2 * 8 * lanes * 16))
    inside = len(instructions(loop))
    return attention_loops.row_text(form, target, number("grf_count"), number("slm_size"), sum(map(is_unit, loop)) * 2 * 8 * lanes * 16,
                                    inside, local_clocks(loop, lanes), sum("math.exp" in line for line in loop),
                                    len(instructions(lines)) - len(instructions(once)))


def attention_forms():
    """What every form of attention is compiled as: (source, function, target, options)"""
    for form in attention_loops.forms(TARGETS, attention_loops.HEADS):
        source, function, _ = attention_loops.KERNELS[form[0]]
        for target in TARGETS[form[2]]:
            for stored in ("bf16", "f16"):
                for features in attention_loops.FEATURES:
                    yield source, function, target, attention_loops.options_of(form, form[2], stored, features) + REGISTERS


def main():
    wants("--record", __doc__)
    ocloc = shutil.which("ocloc")
    if not ocloc:
        skip("no ocloc")
    status, version = run([ocloc, "--version"])
    if status or not re.search(r"\d", version):
        skip("an ocloc of before 2023")
    with tempfile.TemporaryDirectory() as folder:
        texts = Programs(sys.argv[1], "intel", "gpt2", folder).folder
        work = [(form, target, dtype, transposes, epilogue) for form in forms() for target in TARGETS[form[1]] for dtype in form[2]
                for transposes in TRANSPOSES for epilogue in EPILOGUES
                if (transposes == "00" and dtype == "bf16" or not epilogue and (transposes == "00" or dtype != "fp16"))
                and not (dtype == "tf32" and target == "bmg")]
        rows = parallel(lambda one: row_of(ocloc, texts, folder, one), work)
        products = sorted(row for row, one in zip(rows, work) if not one[-1] and one[2] != "fp16")
        attention = sorted(parallel(lambda one: attention_row(ocloc, texts, folder, one),
                                    [(form, target) for form in attention_loops.forms(ATTENTION_TARGETS) for target in ATTENTION_TARGETS[form[2]]]))
        parallel(lambda one: compiled(ocloc, one[2], Program(os.path.join(texts, one[0] + ".cl"), one[0], one[3]), one[1], folder), attention_forms())
    version = "ocloc " + re.search(r"[\d.]+\d", version)[0]
    keep(__doc__, os.path.join(TABLES, "loops_intel.def"), FIELDS, products, version)
    keep(__doc__, os.path.join(TABLES, "attention_loops_intel.def"), attention_loops.FIELDS, attention, version)


if __name__ == "__main__":
    main()
