# SPDX-License-Identifier: Apache-2.0
"""Checks that kernels for NVIDIA and AMD keep their values in registers: the kernels of GPT-2 124M on each target.

Products by matrix units are compiled in every form, in its types and transposes, with and without GELU. Attention by
matrix units is compiled in the preferred form of each kernel, in both types, for several head sizes, without options,
with dropout and with all options. A report of ptxas that wgmma instructions are serialized is an error, too. (Intel's:
dpas.py.)

    spills.py KERNEL_TEXTS [--quick]

--quick: only matrix units, with products without GELU in bf16, and attention in bf16 with dropout. Windows and packed
documents need almost all registers: there a few bytes may be spilled. Exit status 77: no compiler is installed."""
import sys
import tempfile

from forms import (ATOMS, FEATURES, HEADS, attention_forms, attention_program, product_program, product_work,
                   registers_of)
from targets import AMD, DEVICE, Programs, Tools, parallel, skip

BOUNDED = 16 # bytes


def memory_of(tools, folder, work):
    """Bytes of private memory and of its stores and loads."""
    target, program, function, _ = work
    path = f"{folder}/{target}-{id(program)}.s"
    error = tools.assembly(target, program, path)
    if error:
        sys.exit(f"{program} for {target}:\n{error}")
    _, _, spills, stack, _ = registers_of(tools, target, path, function)
    return stack if target in AMD else max(spills, stack) # a scalar that lies in a vector register is in no memory


def programs(texts, quick):
    """Yields (target, program, kernel, bytes that may be in memory)."""
    for form, target, dtype, transposes in product_work():
        for epilogue in range(1 if quick or transposes == "10" else 3):
            if not quick or dtype == "bf16":
                yield target, *product_program(texts, form, target, dtype, transposes, epilogue), 0
    for form in attention_forms(ATOMS, HEADS):
        for target in ATOMS[form[2]][0]:
            for stored in ("bf16", "f16"):
                for features in FEATURES:
                    if not quick or (stored == "bf16" and features == FEATURES[1]):
                        yield target, *attention_program(texts, form, target, stored,
                                                         features), BOUNDED * ("WINDOW" in features)


def main():
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], ["--quick"]):
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(folder, sys.argv[1])
        if not tools.ptxas:
            skip("no ptxas")
        texts = Programs(sys.argv[1], "nvidia", "gpt2", folder).folder
        work = list(programs(texts, bool(sys.argv[2:])))
        launched = {} if sys.argv[2:] else {target: DEVICE[target] for target in AMD + ("sm_90",)}
        lists = {name: Programs(sys.argv[1], name, "gpt2", f"{folder}/launched").list
                 for name in set(launched.values())}
        work += [(target, program, kernel, 0) for target, name in launched.items() for program in lists[name]
                 for kernel in program.kernels if kernel]
        found = parallel(lambda one: memory_of(tools, folder, one), work)
    bad = [f"{program}, {target}: {memory} bytes" for (target, program, _, most), memory in zip(work, found)
           if memory > most]
    print(f"{len(work)} programs, {sum(memory > 0 for memory in found)} of which use private memory, "
          f"{max(found)} bytes at most")
    sys.exit("\n".join(bad) or 0)


if __name__ == "__main__":
    main()
