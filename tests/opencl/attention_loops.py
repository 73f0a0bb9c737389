# SPDX-License-Identifier: Apache-2.0
"""What a warp does for a step of attention by matrix units on devices that are not here, counted in machine code, for the model of
txbench predict: tools/bench/attention_loops.def, which this writes anew or compares with.

    attention_loops.py KERNEL_TEXTS [--record]

The preferred form of each kernel (backends/opencl/attention_matrix.def; Intel's: dpas.py) is compiled for heads of 64 and 128, bf16, causal, without
dropout. What only the steps at the edge do is counted as well. A difference is an error where the compilers are those of the record.
Exit status 77: no such compiler here."""
import os
import re
import sys

from inner_loop import machine_loops
from loops import MFMA, MMA, WMMA, amd_kind, nvidia_kind, record_or_compare
from registers import read_amd, read_nvidia
from targets import AMD, Program

HERE = os.path.dirname(os.path.abspath(__file__))
FORMS = os.path.join(HERE, "../../backends/opencl/attention_matrix.def")
RECORD = os.path.join(HERE, "../../tools/bench/attention_loops.def")
MUFU = 0x108
# By atom: targets, and floating-point operations of an instruction of a warp. ptxas takes the local memory of some for sm_90 alone;
# drivers do for others.
ATOMS = {"MMA": (("sm_90",), MMA["bf16"]), "MFMA": (("gfx90a", "gfx942"), MFMA["bf16"]), "WMMA": (("gfx1100", "gfx1201"), WMMA["bf16"])}
# By kernel: text, function, and products of own lines by others.
KERNELS = {"FORWARD": ("attention_matrix", "attention", 2), "GRAD_Q": ("attention_matrix_grad_q", "attention_grad_q", 3),
           "GRAD_KV": ("attention_matrix_grad_kv", "attention_grad_kv", 4)}
SIZES = (64, 128)
# What attention_spills.py and dpas.py compile besides.
HEADS = (64, 80, 96, 128)
FEATURES = ("-DLENGTHS=0 -DDROPOUT=0", "-DLENGTHS=0 -DDROPOUT=1", "-DLENGTHS=1 -DDROPOUT=1 -DWINDOW=1 -DSTARTS=1")


def nvidia(what, width):
    unit, _, local = nvidia_kind(1)(what, width)
    return unit, int(what == MUFU), local


def amd(lanes):
    def kind(name, words):
        unit, _, local = amd_kind(lanes, 1)(name, words)
        return unit, int(name.startswith("v_exp_")), local
    return kind


def forms(atoms, sizes=SIZES):
    """The preferred of these atoms: (kernel, name, atom, lanes, rows of an atom, head size, warps, atoms of a warp, other lines, whether own
    lines are held, warps that share own lines)"""
    with open(FORMS) as file:
        text = file.read()
    found = set()
    for words in re.findall(r"^TX_ATTENTION_MATRIX\((.*)\)$", text, flags=re.M):
        kernel, name, atom, _, lanes, rows, least, most, warps, own, others, held, paired = [word.strip().strip('"') for word in words.split(",")]
        for size in sizes:
            if atom in atoms and int(least) <= size <= int(most) and (kernel, atom, size) not in found:
                found.add((kernel, atom, size))
                yield kernel, name, atom, int(lanes), int(rows), size, int(warps), int(own), int(others), int(held == "true"), 1 + (paired == "true")


def options_of(form, unit, stored="bf16", features="-DLENGTHS=0 -DDROPOUT=0"):
    _, _, _, _, _, size, warps, atoms, others, held, sharing = form
    return (f"-DH={stored} -DD={size} -DCAUSAL=1 {features} -DCACHED=0 -DVW=4 -DEMULATED=0 -DATOM={unit} -DWARPS={warps} "
            f"-DOWN_ATOMS={atoms} -DOTHERS={others} -DOWN_HELD={held}" + " -DPAIRED=1" * (sharing - 1))


def program_of(texts, form, target, *options):
    """The program and its kernel's name."""
    kernel, _, atom = form[:3]
    source, function, _ = KERNELS[kernel]
    unit = {"WMMA": "WMMA12" if target == "gfx1201" else "WMMA11"}.get(atom, atom)
    return Program(os.path.join(texts, source + ".cl"), source, options_of(form, unit, *options)), function


def row_of(tools, texts, folder, work):
    form, target = work
    atom, lanes = form[2:4]
    program, function = program_of(texts, form, target)
    loops, count, path = machine_loops(tools, target, program, function, folder, amd(lanes) if target in AMD else nvidia)
    if target in AMD:
        registers, _, spills, scratch, local = read_amd(path)[function]
    else:
        registers, _, spills, scratch, local = read_nvidia(tools.assemble(target, path, path + ".cubin")[1])[function]
    if spills or scratch:
        sys.exit(f"{program} for {target} spills")
    loop = max(loops, key=lambda body: sum(i[0] for i in body))
    return row_text(form, target, registers, local, sum(i[0] for i in loop) * ATOMS[atom][1], len(loop), sum(i[2] for i in loop),
                    sum(i[1] for i in loop), count - len(loop))


def expected(form):
    """Operations of a warp for a step."""
    kernel, _, _, _, rows, size, _, atoms, others, _, sharing = form
    return 2 * KERNELS[kernel][2] * atoms * rows * others * size // sharing


def row_text(form, target, registers, local, done, inside, clocks, exponentials, outside):
    kernel, name, _, lanes, rows, size, warps, atoms, others, _, sharing = form
    own = warps * atoms * rows // sharing
    if done != expected(form):
        sys.exit(f"{name}, {kernel}, heads of {size} for {target}: a warp does {done} operations a step and should do {expected(form)}")
    return (f'TX_ATTENTION_LOOP({kernel}, "{name}", "{target}", {size}, {own}, {others}, {warps}, {lanes}, {registers}, {local}, {done}, '
            f'{inside}, {clocks:g}, {exponentials}, {outside})')


FIELDS = """ *     TX_ATTENTION_LOOP(kernel, form, target, head size, own lines of a work-group, other lines of a step, warps, lanes, registers of a
 *             lane, bytes of local memory, and of a warp: floating-point operations of the units a step, instructions a step,
 *             clocks of local memory a step, exponentials of a lane a step, instructions outside of the loop)"""

if __name__ == "__main__":
    record_or_compare(__doc__, RECORD, FIELDS, [(form, target) for form in forms(ATOMS) for target in ATOMS[form[2]][0]], row_of)
