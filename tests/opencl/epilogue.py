# SPDX-License-Identifier: Apache-2.0
"""Checks the machine code of epilogues on NVIDIA's sm_90: a lane loads the operands of several atoms before it uses the
first, only branches that are the same for all lanes separate the loads and stores, and products are not serialized
because registers are missing (C75xx). An epilogue that overlaps with the next tile's products has its loads,
exponentials and stores between these products and the wait for them.

    epilogue.py KERNEL_TEXTS

ptxas and nvdisasm are in the toolkit, or in nvidia-cuda-nvcc and nvidia-cuda-nvdisasm of PyPI. Exit status 77: a tool
is missing."""
import re
import shutil
import sys
import tempfile

from forms import product_forms, product_program, read_nvidia
from targets import DEVICE, Programs, Tools, run, skip

TARGET = "sm_90"
LOADS = {1: 4}  # in a row, by epilogue: GELU loads only a bias; 8 with others
BRANCHES = 6  # about operands that may be absent; guards of rows and columns would be dozens
SPILLED = {1: 300}  # bytes at the ends of a tile of 128 x 256, by epilogue; none with others
# Transposes and epilogues of a residual sum, of GELU in both forms and of its gradient; and of a weight's gradient,
# which adds to the old one.
CASES = (("00", 0), ("01", 1), ("01", 1, "-DEXACT=1"), ("01", 2), ("10", 0))


LETTERS = {"LDG": "L", "STG": "S", "BRA": "B", "HGMMA": "M", "HMMA": "M", "MUFU": "E", "WARPGROUP.DEPBAR": "W"}


def accesses(code):
    """The kinds of the instructions after the last product: loads, stores, branches, exponentials, waits for units."""
    names = re.findall(r"/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P\d+ )?(WARPGROUP\.DEPBAR|[A-Z0-9]+)", code)
    letters = "".join(LETTERS.get(name, "") for name in names)
    return letters[letters.rindex("M") + 1:]


def check(tools, texts, form, transposes, epilogue, more=""):
    """Returns a line about the program, and whether its loads overlap."""
    program, kernel = product_program(texts, form, TARGET, "bf16", transposes, epilogue)
    program.options = program.options.replace("-DEXACT=0", more or "-DEXACT=0")
    path = f"{texts}/{form[0]}-{transposes}-{epilogue}{more}.s"
    error = tools.assembly(TARGET, program, path)
    if error:
        sys.exit(f"{program}:\n{error}")
    text = tools.assemble(TARGET, path, path + ".cubin")[1]
    spills, serialized = read_nvidia(text)[kernel][2], "C75" in text
    status, code = run(["nvdisasm", "-c", path + ".cubin"])
    if status:
        sys.exit(code)
    found = accesses(code)
    if "OVERLAPS" in form[3]:
        beside = {kind: found[:found.index("W")].count(kind) for kind in "LES"}
        good = beside["S"] >= 4 and not spills and not serialized
        good = good and (beside["L"] >= 4 or epilogue == 1) and (beside["E"] >= 16 or epilogue == 0)
        return (f"{form[0]} {transposes}, epilogue {epilogue}{more}: {beside['L']} loads, {beside['E']} exponentials "
                f"and reciprocals, {beside['S']} stores while the unit works, {spills} bytes spilled"
                f"{', serialized' if serialized else ''}", good)
    found = re.sub("[EW]", "", found)
    most = max(map(len, re.findall("L+", found)))
    between = found[found.index("L"):found.rindex("S")].count("B")
    good = most >= LOADS.get(epilogue, 8) and between <= BRANCHES
    good = good and spills <= SPILLED.get(epilogue, 0) and not serialized
    return (f"{form[0]} {transposes}, epilogue {epilogue}{more}: {most} loads in a row, {between} branches, {spills} "
            f"bytes spilled{', serialized' if serialized else ''}", good)


def main(kernel_texts):
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(folder, kernel_texts)
        if not tools.ptxas or not shutil.which("nvdisasm"):
            skip("no ptxas or nvdisasm (nvidia-cuda-nvcc and nvidia-cuda-nvdisasm of PyPI)")
        texts = Programs(kernel_texts, DEVICE[TARGET], "gpt2", folder).folder
        good = True
        for form in product_forms():
            if TARGET in form[1] and "bf16" in form[2]:
                for case in CASES:
                    line, right = check(tools, texts, form, *case)
                    print(("ok    " if right else "FAIL  ") + line)
                    good = good and right
    return 0 if good else 1


sys.exit(main(sys.argv[1]))
