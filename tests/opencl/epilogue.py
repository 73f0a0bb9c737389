# SPDX-License-Identifier: Apache-2.0
"""Checks the machine code of epilogues on NVIDIA's sm_90: a lane loads the operands of several atoms before it uses the
first, and only branches that are the same for all lanes separate the loads and stores.

    epilogue.py KERNEL_TEXTS

ptxas and nvdisasm are in the toolkit, or in nvidia-cuda-nvcc and nvidia-cuda-nvdisasm of PyPI. Exit status 77: a tool
is missing."""
import re
import shutil
import sys
import tempfile

from forms import product_forms, product_program, registers_of
from targets import DEVICE, Programs, Tools, run, skip

TARGET = "sm_90"
LOADS = 8  # in a row
BRANCHES = 6  # about operands that may be absent; guards of rows and columns would be dozens
# Transposes and epilogues of a residual sum, of GELU's gradient, and of a weight's gradient, which adds to the old one.
CASES = (("00", 0), ("01", 2), ("10", 0))


def accesses(code):
    """The kinds of the instructions after the last product: L loads, S stores, B branches."""
    names = re.findall(r"/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P\d+ )?([A-Z0-9]+)", code)
    letters = "".join({"LDG": "L", "STG": "S", "BRA": "B", "HGMMA": "M", "HMMA": "M"}.get(name, "") for name in names)
    return letters[letters.rindex("M") + 1:]


def check(tools, texts, form, transposes, epilogue):
    """Returns a line about the program, and whether its loads overlap."""
    program, kernel = product_program(texts, form, TARGET, "bf16", transposes, epilogue)
    path = f"{texts}/{form[0]}-{transposes}-{epilogue}.s"
    error = tools.assembly(TARGET, program, path)
    if error:
        sys.exit(f"{program}:\n{error}")
    spills = registers_of(tools, TARGET, path, kernel)[2]
    status, code = run(["nvdisasm", "-c", path + ".cubin"])
    if status:
        sys.exit(code)
    found = accesses(code)
    most = max(map(len, re.findall("L+", found)))
    between = found[found.index("L"):found.rindex("S")].count("B")
    return (f"{form[0]} {transposes}, epilogue {epilogue}: {most} loads in a row, {between} branches, {spills} bytes "
            "spilled", most >= LOADS and between <= BRANCHES and spills == 0)


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
