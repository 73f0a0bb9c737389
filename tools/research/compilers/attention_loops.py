# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of a warp for a step of attention by matrix units in machine code for other devices. They are
for the model of txresearch predict. The script compares the counts with tools/research/attention_loops.def.

    attention_loops.py KERNEL_TEXTS [--record]      --record writes the file

It compiles the preferred form of each kernel in backends/opencl/matrix/attention_matrix.def, except Intel's
(dpas_loops.py), for causal attention in bf16 with heads of 64 and 128 and without dropout. Instructions that only the
steps at the edge execute are counted as well. A difference is an error if the compilers are those of the record. The
exit status is 77 if a compiler is missing."""
import os
import sys

from inner_loop import OPCODE, machine_loops
from loops import HGMMA, amd_kind, nvidia_kind, record_or_compare, wgmma_of
from forms import ATOMS, KERNELS, attention_forms, attention_program, registers_of
from targets import AMD

HERE = os.path.dirname(os.path.abspath(__file__))
RECORD = os.path.join(HERE, "../attention_loops.def")
MUFU = 0x108


def nvidia(word, width):
    unit, _, local = nvidia_kind(1)(word, width)
    what = word & OPCODE
    return wgmma_of(word)[0] if what == HGMMA else unit, int(what == MUFU), local


def amd(lanes):
    def kind(name, words):
        unit, _, local = amd_kind(lanes, 1)(name, words)
        return unit, int(name.startswith("v_exp_")), local
    return kind


def row_of(tools, texts, folder, work):
    form, target = work
    atom, lanes = form[2:4]
    program, function = attention_program(texts, form, target)
    kind = amd(lanes) if target in AMD else nvidia
    loops, count, path = machine_loops(tools, target, program, function, folder, kind)
    registers, _, spills, scratch, local = registers_of(tools, target, path, function)
    if spills or scratch:
        sys.exit(f"{program} for {target} spills")
    loop = max(loops, key=lambda body: sum(i[0] for i in body))
    return row_text(form, target, registers, local, sum(i[0] for i in loop) * ATOMS[atom][1], len(loop),
                    sum(i[2] for i in loop), sum(i[1] for i in loop), count - len(loop))


def expected(form):
    """Returns the floating-point operations of a warp in a step."""
    kernel, _, _, _, rows, size, _, atoms, others, _, sharing = form
    return 2 * KERNELS[kernel][2] * atoms * rows * others * size // sharing


def row_text(form, target, registers, local, done, inside, clocks, exponentials, outside):
    kernel, name, _, lanes, rows, size, warps, atoms, others, _, sharing = form
    own = warps * atoms * rows // sharing
    if done != expected(form):
        sys.exit(f"{name}, {kernel}, heads of {size} for {target}: a warp does {done} operations in a step instead of "
                 f"{expected(form)}")
    return (f'TX_STEP_LOOP({kernel}, "{name}", "{target}", {size}, {own}, {others}, {warps}, {lanes}, '
            f'{registers}, {local}, {done}, {inside}, {clocks:g}, {exponentials}, {outside})')


FIELDS = """\
 *     TX_STEP_LOOP(kernel, form, target, size, own, others, warps, lanes, registers, local_bytes, done, issued,
 *             local, powers, outside)
 *
 * `kernel`, `form`, `target`, `size`: the kernel and its head size.
 * `own`, `others`: tokens of a work-group, and tokens that it reads in a step.
 * `warps`, `lanes`, `registers`, `local_bytes`: warps of a work-group, lanes of a warp, registers of a lane, bytes of
 * local memory.
 * `done`, `issued`, `local`: of a warp in a step, operations of the matrix units, instructions, clocks of local memory.
 * `powers`: exponentials of a lane in a step.
 * `outside`: instructions of a warp outside of the loop."""

if __name__ == "__main__":
    WORK = [(form, target) for form in attention_forms(ATOMS) for target in ATOMS[form[2]][0]]
    record_or_compare(__doc__, RECORD, FIELDS, WORK, row_of)
