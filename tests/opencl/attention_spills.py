# SPDX-License-Identifier: Apache-2.0
"""That attention by the matrix units of NVIDIA and AMD keeps what it computes in registers: the preferred form of each kernel, in both
types, for several sizes of heads, with nothing, dropout, and all that it may have besides. (Intel's: dpas.py.)

    attention_spills.py KERNEL_TEXTS [--quick]

--quick: bf16 with dropout. What windows and packed documents take besides lies at the edge of what the compilers manage: there a few bytes may
leave the registers. Exit status 77: no such compiler here."""
import sys
import tempfile

from attention_loops import ATOMS, FEATURES, HEADS, forms, program_of
from loops import wants
from registers import read_amd, read_nvidia
from targets import AMD, Programs, Tools, parallel, skip

BOUNDED = 16 # bytes


def memory_of(tools, texts, folder, work):
    """Bytes of private memory and of its stores and loads."""
    form, target, *options = work
    program, function = program_of(texts, form, target, *options)
    path = f"{folder}/{id(program)}.s"
    error = tools.assembly(target, program, path)
    if error:
        sys.exit(f"{program} for {target}:\n{error}")
    if target in AMD: # a scalar that lies in a vector register is in no memory
        return read_amd(path)[function][3]
    _, _, spills, stack, _ = read_nvidia(tools.assemble(target, path, path + ".cubin")[1])[function]
    return max(spills, stack)


def main():
    quick = wants("--quick", __doc__)
    work = [(form, target, stored, features) for form in forms(ATOMS, HEADS) for target in ATOMS[form[2]][0]
            for stored in ("bf16", "f16") for features in FEATURES if not quick or (stored == "bf16" and features == FEATURES[1])]
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(folder, sys.argv[1])
        if not tools.ptxas:
            skip("no ptxas")
        texts = Programs(sys.argv[1], "nvidia", "gpt2", folder).folder
        found = parallel(lambda one: memory_of(tools, texts, folder, one), work)
    bad = [f"{form[0]} {form[1]}, heads of {form[5]}, {target} {stored} {features}: {memory} bytes"
           for (form, target, stored, features), memory in zip(work, found) if memory > BOUNDED * ("WINDOW" in features)]
    print(f"{len(work)} programs, {sum(memory > 0 for memory in found)} of which use private memory, {max(found)} bytes at most")
    sys.exit("\n".join(bad) or 0)


if __name__ == "__main__":
    main()
