# SPDX-License-Identifier: Apache-2.0
"""What a warp does for a step of attention by matrix units on devices that are not here, counted in machine code, for the model of
txresearch predict: tools/research/attention_loops.def, which this writes anew or compares with.

    attention_loops.py KERNEL_TEXTS [--record]

The preferred form of each kernel (backends/opencl/matrix/attention_matrix.def; Intel's: dpas_loops.py) is compiled for heads of 64 and 128, bf16, causal, without
dropout. What only the steps at the edge do is counted as well. A difference is an error where the compilers are those of the record.
Exit status 77: no such compiler here."""
import os
import sys

from inner_loop import machine_loops
from loops import amd_kind, nvidia_kind, record_or_compare
from forms import ATOMS, KERNELS, attention_forms, attention_program, registers_of
from targets import AMD

HERE = os.path.dirname(os.path.abspath(__file__))
RECORD = os.path.join(HERE, "../attention_loops.def")
MUFU = 0x108


def nvidia(what, width):
    unit, _, local = nvidia_kind(1)(what, width)
    return unit, int(what == MUFU), local


def amd(lanes):
    def kind(name, words):
        unit, _, local = amd_kind(lanes, 1)(name, words)
        return unit, int(name.startswith("v_exp_")), local
    return kind


def row_of(tools, texts, folder, work):
    form, target = work
    atom, lanes = form[2:4]
    program, function = attention_program(texts, form, target)
    loops, count, path = machine_loops(tools, target, program, function, folder, amd(lanes) if target in AMD else nvidia)
    registers, _, spills, scratch, local = registers_of(tools, target, path, function)
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
    record_or_compare(__doc__, RECORD, FIELDS, [(form, target) for form in attention_forms(ATOMS) for target in ATOMS[form[2]][0]], row_of)
