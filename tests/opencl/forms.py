# SPDX-License-Identifier: Apache-2.0
"""The forms of matrix products and attention by matrix units (backends/opencl/matrix/gemm_matrix.def and
attention_matrix.def), their programs, and the compilers' reports on registers."""
import os
import re

from targets import AMD, Program

KERNELS_OF = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../backends/opencl")
PRODUCTS = os.path.join(KERNELS_OF, "matrix/gemm_matrix.def")
ATTENTION = os.path.join(KERNELS_OF, "matrix/attention_matrix.def")

# ---- Reports of compilers -------------------------------------------------------------------------------------


def read_amd(path):
    """{kernel: numbers} of an assembly's metadata."""
    with open(path) as file:
        text = file.read()
    found = {}
    for entry in re.split(r"^  - ", text[text.index("amdhsa.kernels:"):text.index("amdhsa.target:")],
                          flags=re.M)[1:]:
        value = dict(re.findall(r"^(?:    )?\.(\w+): +'?([^'\s]+)'?$", entry, flags=re.M))
        spills = int(value["vgpr_spill_count"]) + int(value["sgpr_spill_count"])
        found[value["name"]] = [int(value["vgpr_count"]), int(value["sgpr_count"]), spills,
                                int(value["private_segment_fixed_size"]), int(value["group_segment_fixed_size"])]
    undefined = set(re.findall(r"(\w+)@(?:rel32|gotpcrel32)@lo", text)) - set(re.findall(r"^(\w+):", text, flags=re.M))
    return {} if undefined else found


def read_nvidia(text):
    """Returns {kernel: numbers} of ptxas's report."""
    found = {}
    for entry in text.split("Compiling entry function '")[1:]:
        stack, stores, loads = map(int,
                                   re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill",
                                                  entry).groups())
        registers = int(re.search(r"Used (\d+) registers", entry)[1])
        local = re.search(r"(\d+) bytes smem", entry)
        found[entry.split("'")[0]] = [registers, 0, stores + loads, stack, int(local[1]) if local else 0]
    return found


def group_fits(registers, items):
    """True if a multiprocessor of NVIDIA has the registers of a work-group, which it allocates in eights."""
    return -(-registers // 8) * 8 * items <= 65536


def registers_of(tools, target, path, kernel):
    """The numbers of a kernel of the assembly in file `path`."""
    if target in AMD:
        return read_amd(path)[kernel]
    status, text = tools.assemble(target, path, path + ".cubin")
    if status:
        raise RuntimeError(f"{path} for {target}:\n{text}")
    return read_nvidia(text)[kernel]


# ---- Products -------------------------------------------------------------------------------------------------

TARGETS = {"MMA": ("sm_80", "sm_90"), "WGMMA": ("sm_90",), "MFMA": ("gfx90a", "gfx942"), "WMMA": ("gfx1100", "gfx1201")}
TRANSPOSES = ("00", "01", "10")
# Properties of operands: storage type, whether it has 16 bits, and floating-point operations of a warp's instruction.
MMA = {"bf16": 4096, "tf32": 2048, "fp32": 2048}
MFMA = {"bf16": 2 * 32 * 32 * 8, "tf32": 2 * 32 * 32 * 4, "fp32": 2 * 32 * 32 * 2}
WMMA = {"bf16": 2 * 16 * 16 * 16}
TILE = ("-DGROUP_X=16 -DGROUP_Y=16 -DROW_QUADS=2 -DCOLUMN_QUADS=2 -DTILE_K=8 -DBUFFERS=2 -DWIDE_A=1 -DWIDE_B=1 -DVW=4")


def product_forms():
    """(name, targets, types, options, rows, columns, warps, lanes, local bytes)"""
    with open(PRODUCTS) as file:
        text = file.read()
    for words in re.findall(r"^TX_MATRIX\((.*)\)$", text, flags=re.M):
        name, atom, vendor, lanes, takes, quads, rows, columns, warps_m, warps_n, stages, pitch, planes, _ = \
            [word.strip().strip('"') for word in words.split(",")]
        if atom not in TARGETS: # Intel's: dpas.py
            continue
        overlaps = "OVERLAPS" in takes
        wgmma = dict.fromkeys(("bf16", "tf32", "fp32"), 2 * 16 * int(columns) * 16)
        flops = {"MMA": MMA, "WGMMA": wgmma, "MFMA": MFMA, "WMMA": WMMA}[atom]
        types = [dtype for word, dtype in (("HALVES", "bf16"), ("TF32", "tf32"), ("FULL", "fp32"), ("OVERLAPS", "bf16")) if word in takes]
        options = (f"-DEMULATED=0 -DATOM={atom} -DTILE_M={rows} -DTILE_N={columns} "
                   f"-DWARPS_M={warps_m} -DWARPS_N={warps_n} "
                   f"-DSTAGES={stages} -DFULL={int(takes == 'FULL')} -DVW={4 if quads == 'true' else 1} "
                   f"-DPLANES={planes}" +
                   " -DSWIZZLE=1" * (vendor == "TX_CL_AMD" and pitch == "64") + " -DOVERLAPS=1" * overlaps)
        warps = int(warps_m) * int(warps_n)
        waiting = overlaps * (2 * int(rows) * (int(columns) + 8) + 4 * int(columns))
        yield (name, TARGETS[atom], {t: flops[t] for t in types}, options, int(rows), int(columns),
               warps, int(lanes), int(stages) * (int(rows) + int(columns)) * int(pitch) * int(planes) + waiting)
    for lanes, targets in ((32, TARGETS["MMA"] + TARGETS["WMMA"]), (64, TARGETS["MFMA"])):
        yield ("portable-tile-128x128x8", targets, {"fp32": 2 * lanes}, TILE, 128, 128, 256 // lanes, lanes,
               2 * 4 * 8 * 264)


def planes_of(form):
    """Planes of bf16 into which the operands are split, or 1."""
    found = re.search(r"-DPLANES=(\d)", form[3])
    return int(found[1]) if found else 1


def product_options(form, target, dtype, transposes, epilogue=0):
    options = form[3]
    if "WMMA" in options:
        options = options.replace("WMMA", "WMMA12" if target == "gfx1201" else "WMMA11")
        if "WMMA11" in options and "SWIZZLE" not in options:
            options = options.replace("VW=4", "VW=1")
    if target == "sm_80": # ptxas accepts at most 48 KiB for it, drivers accept more
        options = options.replace("-DSTAGES=4", "-DSTAGES=2")
    result = "bf16" if dtype == "bf16" else "f32"
    stored = "bf16" if planes_of(form) > 1 else result
    return (f"{options} -DAB={stored} -DY={result} -DWIDEN={int(stored == 'bf16')} -DTRANS_A={transposes[0]} "
            f"-DTRANS_B={transposes[1]}" + f" -DEPILOGUE={epilogue} -DEXACT=0" * (epilogue > 0))


def product_program(texts, form, *options):
    """The program and its kernel's name."""
    kernel = "gemm_tile" if form[0].startswith("portable") else "gemm_matrix"
    return Program(os.path.join(texts, kernel + ".cl"), kernel, product_options(form, *options)), kernel


def product_work():
    """(form, target, type of the operands, transposes) of all products."""
    return [(form, target, dtype, transposes) for form in product_forms() for target in form[1] for dtype in form[2]
            for transposes in TRANSPOSES if not (dtype == "tf32" and target == "gfx90a")]


# ---- Attention ------------------------------------------------------------------------------------------------

# By atom: targets, and floating-point operations of a warp's instruction, of wgmma for one column. ptxas accepts the
# local memory of some forms only for sm_90; drivers accept it for others.
ATOMS = {"MMA": (("sm_90",), MMA["bf16"]), "WGMMA": (("sm_90",), 2 * 16 * 16),
         "MFMA": (("gfx90a", "gfx942"), MFMA["bf16"]), "WMMA": (("gfx1100", "gfx1201"), WMMA["bf16"])}
# By kernel: text, function, and products of own lines by others.
KERNELS = {"FORWARD": ("attention_matrix", "attention", 2),
           "GRAD_Q": ("attention_matrix_grad_q", "attention_grad_q", 3),
           "GRAD_KV": ("attention_matrix_grad_kv", "attention_grad_kv", 4)}
SIZES = (64, 128)
# Variants that spills.py and dpas.py compile in addition.
HEADS = (64, 80, 96, 128)
FEATURES = ("-DLENGTHS=0 -DDROPOUT=0", "-DLENGTHS=0 -DDROPOUT=1", "-DLENGTHS=1 -DDROPOUT=1 -DWINDOW=1 -DSTARTS=1")


def attention_forms(atoms, sizes=SIZES, all_forms=False):
    """Yields the preferred forms of these atoms, or all: (kernel, name, atom, lanes, rows of an atom, head size, warps,
    atoms of a warp, other lines, whether own lines are held, warps that share own lines)."""
    with open(ATTENTION) as file:
        text = file.read()
    found = set()
    for words in re.findall(r"^TX_ATTENTION_MATRIX\((.*)\)$", text, flags=re.M):
        kernel, name, atom, _, lanes, rows, least, most, warps, own, others, held, paired = [
            word.strip().strip('"') for word in words.split(",")]
        for size in sizes:
            if atom in atoms and int(least) <= size <= int(most) and (
                    all_forms or (kernel, atom, size) not in found):
                found.add((kernel, atom, size))
                yield (kernel, name, atom, int(lanes), int(rows), size, int(warps), int(own), int(others),
                       int(held == "true"), 1 + (paired == "true"))


def attention_options(form, unit, stored="bf16", features="-DLENGTHS=0 -DDROPOUT=0"):
    _, _, _, _, _, size, warps, atoms, others, held, sharing = form
    return (f"-DH={stored} -DD={size} -DCAUSAL=1 {features} -DCACHED=0 -DVW=4 "
            f"-DEMULATED=0 -DATOM={unit} -DWARPS={warps} "
            f"-DOWN_ATOMS={atoms} -DOTHERS={others} -DOWN_HELD={held}" + " -DPAIRED=1" * (sharing - 1))


def attention_program(texts, form, target, *options):
    """The program and its kernel's name."""
    kernel, _, atom = form[:3]
    source, function, _ = KERNELS[kernel]
    unit = {"WMMA": "WMMA12" if target == "gfx1201" else "WMMA11"}.get(atom, atom)
    return Program(os.path.join(texts, source + ".cl"), source, attention_options(form, unit, *options)), function
