# SPDX-License-Identifier: Apache-2.0
"""What a warp does in the inner loop of matrix products on devices that are not here, counted in machine code, for the model of
txbench predict: tools/bench/loops.def, which this writes anew or compares with.

    loops.py KERNEL_TEXTS [--record | --quick]     --quick: a third of them

Instructions that GELU and its slope add where results are stored (EPILOGUE of kernels/epilogue.cl, 1 and 2) are counted of layers' products,
whose transposes are 00 and 01; gradients of weights have none. Every form of backends/opencl/matrix.def but Intel's, and gemm_tile's of 128 x 128 x 8, are compiled in the types that they take and in three
transposes. Local memory moves 128 bytes a clock; reads of gemm_tile count 3/8, since half a warp reads the same, and
four warps share what wgmma reads. A difference is an error where the compilers are those of the record. Exit status 77: no such compiler here."""
import os
import re
import sys
import tempfile

from inner_loop import AMD_ADDS, BITS_128, FFMA, LDGSTS, LDS, machine_loops
from registers import read_amd, read_nvidia
from targets import AMD, Programs, Program, Tools, parallel, run, skip

HERE = os.path.dirname(os.path.abspath(__file__))
FORMS = os.path.join(HERE, "../../backends/opencl/matrix.def")
RECORD = os.path.join(HERE, "../../tools/bench/loops.def")
HMMA, HGMMA, LDSM, STS = 0x03C, 0x1F0, 0x03B, 0x188
TARGETS = {"MMA": ("sm_80", "sm_90"), "WGMMA": ("sm_90",), "MFMA": ("gfx90a", "gfx942"), "WMMA": ("gfx1100", "gfx1201")}
TRANSPOSES = ("00", "01", "10")
# What models add to their results: of a layer a bias, of its input's gradient nothing, of its weight's what was there.
ADDED = {"00": " -DBIAS=1 -DADDS=0", "01": " -DBIAS=0 -DADDS=0", "10": " -DBIAS=0 -DADDS=1"}
# Of the operands: what is stored, whether it has 16 bits, and what an instruction of a warp does of floating-point operations.
MMA = {"bf16": 4096, "tf32": 2048, "fp32": 2048}
MFMA = {"bf16": 2 * 32 * 32 * 8, "tf32": 2 * 32 * 32 * 4, "fp32": 2 * 32 * 32 * 2}
WMMA = {"bf16": 2 * 16 * 16 * 16}
TILE = ("-DGROUP_X=16 -DGROUP_Y=16 -DROW_QUADS=2 -DCOLUMN_QUADS=2 -DTILE_K=8 -DBUFFERS=2 -DWIDE_A=1 -DWIDE_B=1 -DVW=4")


def nvidia_kind(shared, columns=0):
    def kind(what, width):
        """Of an instruction of a warp: whether it is one of the units, and clocks of local memory."""
        clocks = {BITS_128: 4, BITS_128 - 1: 2}.get(width, 1)
        local = 4 if what in (LDSM, LDGSTS) else clocks * (shared if what == LDS else 1) if what in (LDS, STS) else 0
        if what == HGMMA:
            local = (64 + columns) * 16 * 2 / 4 / 128
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


def forms():
    """(name, targets, types, options, rows, columns, warps, lanes, local bytes)"""
    with open(FORMS) as file:
        text = file.read()
    for words in re.findall(r"^TX_MATRIX\((.*)\)$", text, flags=re.M):
        _, name, atom, vendor, lanes, takes, quads, rows, columns, warps_m, warps_n, stages, pitch, _ = \
            [word.strip().strip('"') for word in words.split(",")]
        if atom not in TARGETS: # Intel's: dpas.py
            continue
        flops = {"MMA": MMA, "WGMMA": {"bf16": 2 * 16 * int(columns) * 16}, "MFMA": MFMA, "WMMA": WMMA}[atom]
        types = ["fp32"] if takes == "FULL" else ["bf16"] + (["tf32"] if "TF32" in takes else [])
        options = (f"-DEMULATED=0 -DATOM={atom} -DTILE_M={rows} -DTILE_N={columns} -DWARPS_M={warps_m} -DWARPS_N={warps_n} "
                   f"-DSTAGES={stages} -DFULL={int(takes == 'FULL')} -DVW={4 if quads == 'true' else 1}")
        warps = int(warps_m) * int(warps_n)
        yield (name, TARGETS[atom], {t: flops[t] for t in types}, options, int(rows), int(columns),
               warps, int(lanes), int(stages) * (int(rows) + int(columns)) * int(pitch))
    for lanes, targets in ((32, TARGETS["MMA"] + TARGETS["WMMA"]), (64, TARGETS["MFMA"])):
        yield ("portable-tile-128x128x8", targets, {"fp32": 2 * lanes}, TILE, 128, 128, 256 // lanes, lanes, 2 * 4 * 8 * 264)


def options_of(form, target, dtype, transposes, epilogue=0):
    options = form[3]
    if "WMMA" in options:
        options = options.replace("WMMA", "WMMA12") if target == "gfx1201" else options.replace("WMMA", "WMMA11").replace("VW=4", "VW=1")
    if target == "sm_80": # ptxas takes no more than 48 KiB for it, drivers do
        options = options.replace("-DSTAGES=4", "-DSTAGES=2")
    stored = "bf16" if dtype == "bf16" else "f32"
    return (f"{options} -DAB={stored} -DY={stored} -DWIDEN={int(dtype == 'bf16')} -DTRANS_A={transposes[0]} "
            f"-DTRANS_B={transposes[1]} -DPARTS=0" + ADDED[transposes] * (form[0] != "portable-tile-128x128x8") +
            f" -DEPILOGUE={epilogue} -DEXACT=0" * (epilogue > 0))


def row_of(tools, texts, folder, work):
    form, target, dtype, transposes = work
    name, _, flops, _, rows, columns, warps, lanes, local = form
    kernel = "gemm_tile" if name.startswith("portable") else "gemm_matrix"
    programs = [Program(os.path.join(texts, kernel + ".cl"), kernel, options_of(form, target, dtype, transposes, epilogue))
                for epilogue in range(1 if transposes == "10" else 3)]
    program = programs[0]
    shared = 0.375 if kernel == "gemm_tile" else 1
    kind = amd_kind(lanes, shared) if target in AMD else nvidia_kind(shared, columns)
    unit = int(kernel == "gemm_tile")
    counted = []
    for one in programs:
        loops, count, path = machine_loops(tools, target, one, kernel, folder, kind)
        loop = max(loops, key=lambda body: sum(i[unit] for i in body))
        counted.append((loop, count - len(loop), path))
    loop, outside, path = counted[0]
    gelu, slope = [more[1] - outside for more in counted[1:]] or (0, 0)
    if target in AMD:
        registers, _, spills, scratch, _ = read_amd(path)[kernel]
    else:
        registers, _, spills, scratch, _ = read_nvidia(tools.assemble(target, path, path + ".cubin")[1])[kernel]
    if spills or scratch:
        sys.exit(f"{program} for {target} spills")
    done = sum(i[unit] for i in loop) * flops[dtype]
    terms = done // (2 * rows * columns // warps) // (3 if name.endswith("3xtf32") else 1)
    return (f'TX_LOOP("{name}", "{target}", "{dtype}", "{transposes}", {rows}, {columns}, {terms}, {warps}, {lanes}, {registers}, '
            f'{local}, {done}, {len(loop)}, {sum(i[2] for i in loop):g}, {outside}, {gelu}, {slope})')


def wants(option, about):
    """Whether that is the option: --record, the table is written anew; --quick, a third of the rows is compared."""
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], ["--record"], ["--quick"]):
        sys.exit(about)
    return sys.argv[2:] == [option]


def record_or_compare(about, path, fields, work, count):
    """Writes a row for each piece of work to a table, or holds the table against them. `fields`: the macro, and what a row of it is;
    count(tools, texts, folder, piece) makes a row."""
    if wants("--quick", about):
        work = [one for i, one in enumerate(work) if (i + i // 3) % 3 == 0] # each transpose of some
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


def keep(about, path, fields, rows, versions):
    """Writes the rows to the table, or holds it against them."""
    name = os.path.basename(sys.argv[0])
    text = f"""/* SPDX-License-Identifier: Apache-2.0
 * What tests/opencl/{name} --record wrote, with {versions}.
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
        skip(f"recorded by other compilers than {versions}")
    if recorded != text and not (wants("--quick", about) and all(row + "\n" in recorded for row in rows)):
        sys.exit(f"{os.path.normpath(path)} is not what the kernels are: {sys.argv[0]} {sys.argv[1]} --record\n{text}")
    print(f"{len(rows)} loops are as recorded")


FIELDS = """ *     TX_LOOP(provider, target, type of the operands, transposes, rows and columns of a tile, terms of a round of the inner
 *             loop, warps, lanes, registers of a lane, bytes of local memory, and of a warp: floating-point operations of the
 *             units a round, instructions a round, clocks of local memory a round, instructions outside of the loop)"""

if __name__ == "__main__":
    fields = FIELDS[:-1] + ",\n *             so many more with GELU, and with its slope)"
    record_or_compare(__doc__, RECORD, fields, [(form, target, dtype, transposes) for form in forms() for target in form[1]
                                                for dtype in form[2] for transposes in TRANSPOSES
                                                if not (dtype == "tf32" and target == "gfx90a")], row_of)
