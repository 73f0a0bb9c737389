# SPDX-License-Identifier: Apache-2.0
"""Makes a pack of the programs that come with TX for NVIDIA cards, reads it, and assembles the programs for the
architectures on which they run.

    shipped.py KERNEL_TEXTS TX_PTX TEST_SHIPPED [--quick]     --quick: every 20th program

Exit status 77: no compiler is installed."""
import os
import re
import shutil
import sys
import tempfile

from targets import LIBRARY, Tools, parallel, run, skip

LIBCLC = LIBRARY + "nvptx64--nvidiacl.bc"
COMPILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/ptx/compile.sh")
# The architectures on which programs of a target run, without those that ptxas 13 does not know.
RUNS = {"sm_70": ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"),
        "sm_80": ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"), "sm_90": ("sm_90a",)}


def check(tools, folder, line):
    """Returns the number of architectures that refuse more than 48 KiB of local memory, and errors."""
    key, target, _, source, kernel, options = line.split(" ", 5)
    path = os.path.join(folder, key + ".ptx")
    status, text = run([tools.kernel_texts, "retarget", path]) if target == "sm_90" else (0, "")
    if status:
        return 0, [f"{source} {options}: {text}"]
    large, errors = 0, []
    for architecture in RUNS[target] if tools.ptxas else ():
        status, text = run([tools.ptxas, "-v", "-arch=" + architecture, "-o", path + ".out", path])
        if "uses too much shared data" in text:  # drivers accept it, or TX takes another form
            large += 1
        elif status or "(C75" in text:
            errors.append(f"{source} {options} for {architecture}: {text}")
    # The driver passes memory as such only to arguments that PTX declares as pointers.
    with open(path) as file:
        ptx = file.read()
    if not re.search(r"^\.target sm_\d+a?, texmode_independent$", ptx, re.M) or ".ptr .global" not in ptx:
        errors.append(f"{source} {options}: this is no PTX for OpenCL")
    if not re.search(r"\.entry " + ("" if kernel == "all" else rf"{kernel}\("), ptx):
        errors.append(f"{source} {options}: this is not kernel {kernel}")
    return large, errors


def main():
    quick = sys.argv[4:] == ["--quick"]
    if len(sys.argv) != 4 and not quick:
        sys.exit(__doc__)
    kernel_texts, tx_ptx, test_shipped = sys.argv[1:4]
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(folder, kernel_texts)
        if not os.path.exists(LIBCLC) or not shutil.which("zstd"):
            skip("no libclc-19 or no zstd")
        some, pack = os.path.join(folder, "some.sh"), os.path.join(folder, "pack")
        with open(some, "w") as file:
            file.write(f"#!/bin/sh\n{tx_ptx} $1 | sort -u | awk 'NR % {20 if quick else 1} == 0'\n")
        os.chmod(some, 0o755)
        status, text = run(["sh", COMPILE, some, tools.clang, LIBCLC, folder, pack])
        if status or run([test_shipped, "whole", pack])[0]:
            sys.exit(text + "no pack, or it cannot be read")
        with open(os.path.join(folder, "programs")) as file:
            lines = file.read().splitlines()
        results = parallel(lambda line: check(tools, folder, line), lines)
    errors = [error for result in results for error in result[1]]
    print("\n".join(errors))
    print(f"clang {tools.clang_version}, ptxas {tools.ptxas_version}: {len(lines)} programs, {len(errors)} failed, "
          f"{sum(result[0] for result in results)} times more than 48 KiB of local memory")
    sys.exit(len(errors) > 0 or len(lines) < 20)


if __name__ == "__main__":
    main()
