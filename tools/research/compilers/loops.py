# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of a warp in the inner loop of matrix products in machine code for other devices. They are
for the model of txresearch predict. The script compares the counts with tools/research/loops.def.

    loops.py KERNEL_TEXTS [--record | --quick]      --record writes the file, --quick compares a third of the rows

It compiles every form of backends/opencl/matrix/gemm_matrix.def except Intel's, and gemm_tile's of 128 x 128 x 8, for
all their types and three transposes. The additional instructions of the epilogues GELU and its gradient (EPILOGUE 1 and
2 of epilogue.cl) are counted for transposes 00 and 01; weight gradients have no such epilogue. Local memory moves 128
bytes per clock. Reads of gemm_tile count 3/8, because half a warp reads the same data, and four warps share the reads
of wgmma. A difference is an error if the compilers are those of the record. The exit status is 77 if a compiler is
missing."""
import os
import re
import sys
import tempfile

from inner_loop import AMD_ADDS, BITS_128, FFMA, LDGSTS, LDS, OPCODE, machine_loops
from forms import planes_of, product_program, product_work, registers_of
from targets import AMD, Programs, Tools, parallel, run, skip

HERE = os.path.dirname(os.path.abspath(__file__))
RECORD = os.path.join(HERE, "../loops.def")
# How many times longer bank conflicts make the accesses to local memory (test_amd_products counts them), by transposes.
CONFLICTS = {"gfx90a": {"00": 3.67, "01": 1.33, "10": 6.0}, "gfx942": {"00": 3.67, "01": 1.33, "10": 6.0},
             "gfx1100": {"00": 2.6, "01": 1.2, "10": 4.0}, "gfx1201": {"00": 4.33, "01": 2.0, "10": 6.67}}
SWIZZLED = {"gfx1100": {"00": 1.3, "01": 1.0, "10": 1.6}}
STEPS = {1: 1, 2: 3, 3: 6}  # products of planes (matrix_planes.cl); the inner loop has one of them, or all
STEP = 4  # instructions of wgmma in a step
HMMA, HGMMA, LDSM, STS = 0x03C, 0x1F0, 0x03B, 0x188


def wgmma_of(word):
    """Returns the columns of an instruction of wgmma, and its lines of a that are in local memory."""
    return ((word >> 53 & 0x1F) + 1) * 8, 0 if word >> 10 & 1 else 64


def nvidia_kind(shared):
    def kind(word, width):
        """Returns for an instruction of a warp: is it of the matrix unit, multiply-adds, clocks of local memory."""
        what = word & OPCODE
        clocks = {BITS_128: 4, BITS_128 - 1: 2}.get(width, 1)
        local = 4 if what in (LDSM, LDGSTS) else clocks * (shared if what == LDS else 1) if what in (LDS, STS) else 0
        if what == HGMMA:
            local = sum(wgmma_of(word)) * 16 * 2 / 4 / 128
        return int(what in (HMMA, HGMMA)), int(what == FFMA), local
    return kind


def amd_kind(lanes, shared):
    def kind(name, words):
        found = re.match(r"ds_(read|load|write|store)(2)?\w*?_?b(\d+)", name)
        bytes_ = lanes * int(found[3]) // 8 * (2 if found[2] else 1) if found else 0
        adds = sum(2 if m[2] else 1 for m in AMD_ADDS.finditer(name + words))
        return (int(name.startswith(("v_mfma", "v_wmma"))), adds,
                bytes_ / 128 * (shared if found and found[1] in ("read", "load") else 1))
    return kind


def row_of(tools, texts, folder, work):
    form, target, dtype, transposes = work
    name, _, flops, _, rows, columns, warps, lanes, local = form
    programs = [product_program(texts, form, target, dtype, transposes, epilogue)
                for epilogue in range(1 if transposes == "10" else 3)]
    program, kernel = programs[0]
    shared = 0.375 if kernel == "gemm_tile" else 1
    kind = amd_kind(lanes, shared) if target in AMD else nvidia_kind(shared)
    unit = int(kernel == "gemm_tile")
    counted = []
    for one, _ in programs:
        loops, count, path = machine_loops(tools, target, one, kernel, folder, kind)
        loop = max(loops, key=lambda body: sum(i[unit] for i in body))
        counted.append((loop, count - len(loop), path))
    loop, outside, path = counted[0]
    gelu, slope = [more[1] - outside for more in counted[1:]] or (0, 0)
    registers, _, spills, scratch, _ = registers_of(tools, target, path, kernel)
    if spills or scratch:
        sys.exit(f"{program} for {target} spills")
    planes, products = planes_of(form), 3 if name.endswith("3xtf32") else STEPS[planes_of(form)]
    units = sum(i[0] for i in loop)
    steps = STEPS[planes] * STEP // units if planes > 1 else 1
    done = steps * sum(i[unit] for i in loop) * flops[dtype]
    terms = done // (2 * rows * columns // warps) // products
    local_clocks = sum(i[2] * (steps if i[0] or steps == 1 else planes) for i in loop)
    if name.startswith("amd"):
        local_clocks *= (SWIZZLED if "SWIZZLE" in form[3] else CONFLICTS).get(target, {}).get(transposes, 1)
    stages = re.search(r"-DSTAGES=(\d+)", form[3])
    ahead = int(stages[1]) - 1 - ("WGMMA" in form[3] and planes == 1) if stages else 1  # as AHEAD in gemm_matrix.cl
    return (f'TX_LOOP("{name}", "{target}", "{dtype}", "{transposes}", {rows}, {columns}, {terms}, {warps}, {lanes}, '
            f'{registers}, {local}, {done}, {steps * len(loop)}, {local_clocks:.5g}, {outside}, {gelu}, {slope}, '
            f'{ahead})')


def wants(option, about):
    """True if the option is given: --record writes the table, --quick compares a third of its rows."""
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], ["--record"], ["--quick"]):
        sys.exit(about)
    return sys.argv[2:] == [option]


def record_or_compare(about, path, fields, work, count):
    """Writes a table with a row for each item of `work`, or compares the table with the rows. `fields` describes the
    columns. count(tools, texts, folder, item) makes a row."""
    if wants("--quick", about):
        work = [one for i, one in enumerate(work) if (i + i // 3) % 3 == 0] # includes each transpose
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(folder, sys.argv[1])
        if not tools.ptxas:
            skip("no ptxas")
        if not run(["sh", "-c", f"command -v llvm-objdump-{tools.llvm}"])[1]:
            skip(f"no llvm-objdump-{tools.llvm}")
        texts = Programs(sys.argv[1], "nvidia", "gpt2", folder).folder
        rows = sorted(parallel(lambda one: count(tools, texts, folder, one), work))
        versions = tools.versions("sm_90")
    keep(about, path, fields, rows, versions)


def wrapped(row):
    """Breaks a row of more than 120 columns at a comma."""
    if len(row) <= 120:
        return row
    at = row.rindex(", ", 0, 120) + 1
    return row[:at] + "\n       " + row[at:]


def keep(about, path, fields, rows, versions):
    """Writes the rows to the table, or compares the table with them."""
    name = os.path.basename(sys.argv[0])
    rows = [wrapped(row) for row in rows]
    text = f"""/* SPDX-License-Identifier: Apache-2.0
 * Written by tools/research/compilers/{name} --record, with {versions}.
 *
{fields} */
/* clang-format off */
""" + "\n".join(rows) + f"""
/* clang-format on */
#undef {rows[0].split("(")[0]}
"""
    if wants("--record", about):
        with open(path, "w") as file:
            file.write(text)
        return
    with open(path) as file:
        recorded = file.read()
    if f"with {versions}." not in recorded:
        skip(f"recorded with other compilers than {versions}")
    if recorded != text and not (wants("--quick", about) and all(row + "\n" in recorded for row in rows)):
        sys.exit(f"{os.path.normpath(path)} differs from the kernels; to write it, run {sys.argv[0]} {sys.argv[1]} "
                 f"--record\n{text}")
    print(f"{len(rows)} loops are as recorded")


FIELDS = """\
 *     TX_LOOP(provider, target, type, transposes, rows, columns, terms, warps, lanes, registers, local_bytes, done,
 *             issued, local, outside)
 *
 * `provider`, `target`, `type`, `transposes`: the kernel, the type of its operands, and whether a and b are transposed.
 * `rows`, `columns`, `terms`: size of a tile, and its terms in a round of the inner loop.
 * `warps`, `lanes`, `registers`, `local_bytes`: warps of a work-group, lanes of a warp, registers of a lane, bytes of
 * local memory.
 * `done`, `issued`, `local`: of a warp in a round, operations of the units, instructions, clocks of local memory.
 * `outside`: instructions of a warp outside of the loop."""

if __name__ == "__main__":
    FIELDS = FIELDS.replace("outside)", "outside, gelu, slope, ahead)") + """
 * `gelu`, `slope`: additional instructions outside of the loop with GELU, and with its gradient.
 * `ahead`: blocks that are copied while one is multiplied."""
    record_or_compare(__doc__, RECORD, FIELDS, product_work(), row_of)
