# SPDX-License-Identifier: Apache-2.0
"""Checks that matrix products and attention by Intel's matrix units keep their values in registers, in the machine code
of Intel's ocloc.

    dpas.py KERNEL_TEXTS

Compiles every Intel form of backends/opencl/matrix/gemm_matrix.def in its types, in three transposes and with each
epilogue. Compiles the forms of attention_matrix.def in both types, for several head sizes, without options, with
dropout and with all options. No register may be spilled, and no array may be in memory. Exit status 77: no ocloc with a
disassembler, or one from before 2023, which does not unroll loops over registers."""
import os
import re
import shutil
import sys
import tempfile

from forms import FEATURES, HEADS, KERNELS, PRODUCTS, TRANSPOSES, attention_forms, attention_options
from targets import Program, Programs, parallel, run, skip

TARGETS = {"DPAS8": ("dg2",), "DPAS16": ("bmg", "pvc")}
REGISTERS = " -cl-intel-256-GRF-per-thread"
EPILOGUES = ("",) + tuple(f" -DEPILOGUE={e} -DEXACT={exact}" for e, exact in ((1, 0), (1, 1), (2, 0), (2, 1)))
STORED = {"bf16": "bf16", "fp16": "f16", "tf32": "f32"}


def product_forms():
    """(name, atom, types, options, rows, columns, warps, lanes, local bytes)"""
    with open(PRODUCTS) as file:
        text = file.read()
    for words in re.findall(r"^TX_MATRIX\((.*)\)$", text, flags=re.M):
        name, atom, _, lanes, takes, _, rows, columns, warps_m, warps_n, stages, pitch, _, _ = \
            [word.strip().strip('"') for word in words.split(",")]
        if atom in TARGETS:
            options = (f"-DEMULATED=0 -DATOM={atom} -DTILE_M={rows} -DTILE_N={columns} "
                       f"-DWARPS_M={warps_m} -DWARPS_N={warps_n} "
                       f"-DSTAGES={stages} -DFULL=0 -DVW=4" + REGISTERS)
            yield (name, atom, ("bf16", "fp16") + (("tf32",) if "TF32" in takes else ()), options, int(rows),
                   int(columns),
                   int(warps_m) * int(warps_n), int(lanes), int(stages) * (int(rows) + int(columns)) * int(pitch))


def compiled(ocloc, target, program, kernel, folder):
    """Returns the kernel's assembly lines and a function to query the binary's report; exits if compilation fails."""
    out = f"{target}-{id(program)}"
    status, text = run([ocloc, "compile", "-q", "-file", program.text, "-device", target, "-output", out, "-out_dir",
                        folder, "-output_no_suffix",
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


def product_program(texts, form, dtype, transposes, epilogue=""):
    stored = STORED[dtype]
    return Program(os.path.join(texts, "gemm_matrix.cl"), "gemm_matrix",
                   f"{form[3]} -DAB={stored} -DY={stored} -DWIDEN={int(dtype != 'tf32')} "
                   f"-DTRANS_A={transposes[0]} -DTRANS_B={transposes[1]}{epilogue}")


def product_work():
    """(form, target, type of the operands, transposes, epilogue) of all products."""
    return [(form, target, dtype, transposes, epilogue) for form in product_forms() for target in TARGETS[form[1]]
            for dtype in form[2]
            for transposes in TRANSPOSES for epilogue in EPILOGUES
            if (transposes == "00" and dtype == "bf16" or not epilogue and (transposes == "00" or dtype != "fp16"))
            and not (dtype == "tf32" and target == "bmg")]


def attention_program(texts, form, *options):
    """The program and its kernel's name."""
    source, function, _ = KERNELS[form[0]]
    return Program(os.path.join(texts, source + ".cl"), source,
                   attention_options(form, form[2], *options) + REGISTERS), function


def attention_work():
    """(form, target, type, features) of all forms of attention."""
    return [(form, target, stored, features) for form in attention_forms(TARGETS, HEADS) for target in TARGETS[form[2]]
            for stored in ("bf16", "f16") for features in FEATURES]


def find_ocloc():
    """ocloc, and its version."""
    ocloc = shutil.which("ocloc")
    if not ocloc:
        skip("no ocloc")
    status, version = run([ocloc, "--version"])
    if status or not re.search(r"\d", version):
        skip("an ocloc of before 2023")
    return ocloc, "ocloc " + re.search(r"[\d.]+\d", version)[0]


def main():
    ocloc, version = find_ocloc()
    with tempfile.TemporaryDirectory() as folder:
        texts = Programs(sys.argv[1], "intel", "gpt2", folder).folder
        work = [(target, product_program(texts, form, *options), "gemm_matrix") for form, target,
                *options in product_work()]
        work += [(target, *attention_program(texts, form, *options)) for form, target, *options in attention_work()]
        parallel(lambda one: compiled(ocloc, *one, folder), work)
        print(f"{len(work)} programs by {version}, none of which uses private memory")


if __name__ == "__main__":
    main()
