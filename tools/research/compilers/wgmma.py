# SPDX-License-Identifier: Apache-2.0
"""Compiles products with wgmma as for an H200 (backends/opencl/matrix/retarget.h): OpenCL C is compiled to PTX for
sm_90, changed as the backend changes it, and assembled by ptxas for sm_90a. It compiles every form with wgmma in
backends/opencl/matrix/gemm_matrix.def, in bf16, fp16 or planes of fp32, and in all transposes, with a bias, with
accumulation, and with GELU.

    wgmma.py KERNEL_TEXTS

Fails if registers spill (except for some with GELU and tiles of 128 x 256, whose epilogue does not overlap), if a
work-group needs more than a multiprocessor has, if ptxas warns that instructions are serialized (C75xx), if the inner
loop does not have one instruction for each 16 of its terms, or if blocks are not aligned as descriptors require. The
exit status is 77 if clang-19 or newer, or a ptxas for sm_90a, is missing."""
import os
import re
import sys
import tempfile

from inner_loop import OPCODE, nvidia_loops
from loops import HGMMA
from forms import group_fits, planes_of, product_forms, read_nvidia
from targets import Programs, Program, Tools, parallel, skip

EPILOGUES = ("", " -DEPILOGUE=1 -DEXACT=0")
SPILLED = 512  # bytes at the ends of a tile


def wrong(tools, texts, folder, work):
    """Returns the error of a form's kernel, or None."""
    options, items, stored, result, transposes, epilogue = work
    program = Program(os.path.join(texts, "gemm_matrix.cl"), "gemm_matrix",
                      f"{options} -DAB={stored} -DY={result} -DWIDEN=1 -DTRANS_A={transposes[0]} "
                      f"-DTRANS_B={transposes[1]}{epilogue}")
    path = f"{folder}/{id(program)}"
    error = tools.assembly("sm_90", program, path + ".s")
    if error:
        return f"{program}:\n{error}"
    with open(path + ".s") as file:
        if len(re.findall(r"\.shared \.align 1024 ", file.read())) != 2:
            return f"{program}: the blocks of local memory are not at multiples of 1024 bytes"
    status, text = tools.assemble("sm_90", path + ".s", path + ".cubin")
    if status:
        return f"{program}:\n{text}"
    registers, _, spills, scratch, _ = read_nvidia(text)["gemm_matrix"]
    if not group_fits(registers, items):
        return f"{program}: {registers} registers for each of {items} work-items"
    loops, _ = nvidia_loops(path + ".cubin", "gemm_matrix", lambda word, width: word & OPCODE)
    counts = [loop.count(HGMMA) for loop in loops]
    may_spill = "TILE_N=256" in options and "OVERLAPS" not in options and epilogue
    spilled = spills + scratch <= SPILLED if may_spill else not spills and not scratch
    good = spilled and max(counts) in (4, 12)  # of one step, or of all steps of two planes
    return None if good else f"{program}: {spills + scratch} bytes spilled, {max(counts)} of 4 instructions of wgmma"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(folder, sys.argv[1])
        if not tools.ptxas:
            skip("no ptxas")
        texts = Programs(sys.argv[1], "nvidia", "gpt2", folder).folder
        work = [(form[3], form[6] * form[7], stored, "f32" if planes_of(form) > 1 else stored, transposes, epilogue)
                for form in product_forms() if "ATOM=WGMMA" in form[3]
                for stored in (("bf16",) if planes_of(form) > 1 else ("bf16", "f16"))
                for transposes in ("00", "01", "10", "11") for epilogue in EPILOGUES]
        found = [text for text in parallel(lambda one: wrong(tools, texts, folder, one), work) if text]
        versions = f"clang {tools.clang_version}, ptxas {tools.ptxas_version}"
        print("\n".join(found + [f"{len(work)} kernels, {len(found)} wrong; {versions}"]))
    sys.exit(bool(found) or not work)


if __name__ == "__main__":
    main()
