# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of the inner loop of matrix products in machine code for sm_90 and gfx90a. The inner loop is
the loop with the most multiply-adds that contains no other loop.

    inner_loop.py KERNEL_TEXTS KERNEL [--check]

It shows every form of the kernel that GPT-2 124M launches. A packed multiply-add is one instruction with two
multiply-adds: `share` counts it once, `of work` twice. Loads are from global, local and private memory. --check checks
the forms with the largest tile. It fails if multiply-adds are less than 80 % of the work, or if a load is narrower than
128 bits. The exit status is 77 if a compiler is missing."""
import re
import struct
import sys
import tempfile

import shared  # finds the next import
from targets import AMD, Programs, Tools, parallel, run, skip, table_of

SHARE = 0.8
KINDS = ("multiply-adds", "128-bit loads", "other loads", "rest")

# ---- AMD: llvm-objdump's text -----------------------------------------------------------------------------------

# Instructions with multiply-adds. v_dual_ has two of them.
AMD_ADDS = re.compile(r"v_(dual_)?(pk_)?(fma|fmac|mac|mad|fmamk|fmaak)_f32")
AMD_WIDE = re.compile(r"(ds|global|flat|buffer)_(read|load)(_dwordx4|_b128|2(st64)?_b64)")
AMD_LOAD = re.compile(r"(ds|global|flat|buffer|scratch)_(read|load)")


def back_edges(after):
    """Returns the back edges of a graph: edges to a node on the current path of a depth-first search from node 0."""
    found, state, way = [], {0: 1}, [(0, iter(after[0]))]
    while way:
        at, left = way[-1]
        to = next(left, None)
        if to is None:
            state[at] = 2
            way.pop()
        elif to not in state:
            state[to] = 1
            way.append((to, iter(after[to])))
        elif state[to] == 1:
            found.append((at, to))
    return found


def loops_of(code, branches, ends):
    """Returns the innermost loops as lists of items of `code`. `branches` maps the index of a branch to that of its
    target. `ends` has the indices of instructions that the next one does not follow."""
    after = [[i + 1] if i not in ends and i + 1 < len(code) else [] for i in range(len(code))]
    before = [[] for _ in code]
    for at, to in branches.items():
        after[at].append(to)
    for at, nodes in enumerate(after):
        for to in nodes:
            before[to].append(at)
    bodies = {}
    for at, to in back_edges(after):
        body, left = bodies.setdefault(to, {to}), [at]
        while left:
            i = left.pop()
            if i not in body:
                body.add(i)
                left += before[i]
    return [[code[i] for i in body] for body in bodies.values() if not any(other < body for other in bodies.values())]


def amd_kind(name, words):
    """Returns the kind and the number of multiply-adds of an instruction."""
    adds = sum(2 if m[2] else 1 for m in AMD_ADDS.finditer(name + words))
    return 0 if adds else 1 if AMD_WIDE.match(name) else 2 if AMD_LOAD.match(name) else 3, adds


def amd_loops(tools, path, kernel, kind=amd_kind):
    """Returns the loops as lists of kind(instruction), and the number of all instructions."""
    text = run([f"llvm-objdump-{tools.llvm}", "-d", "--no-show-raw-insn", path])[1]
    body = re.search(r"^[0-9a-f]+ <" + kernel + r">:\n((?:\t.*\n?)*)", text, flags=re.M)[1]
    lines = [re.match(r"\t(\S+)(.*?)// ([0-9A-F]+):(.*)$", line).groups() for line in body.splitlines() if "//" in line]
    place = {int(at, 16): i for i, (_, _, at, _) in enumerate(lines)}
    start = min(place)
    code, branches, ends = [], {}, set()
    for i, (name, words, at, rest) in enumerate(lines):
        code.append(kind(name, words))
        target = re.search(r"<" + kernel + r"(?:\+0x([0-9a-f]+))?>", rest)
        if re.match(r"s_c?branch", name):
            branches[i] = place[start + int(target[1] or "0", 16)]
        if re.match(r"s_branch|s_endpgm|s_setpc", name):
            ends.add(i)
    return loops_of(code, branches, ends), len(code)


# ---- NVIDIA: the words of the cubin, 16 bytes per instruction --------------------------------------------------------

# The low nine bits of an instruction are its opcode.
FFMA, BRA, EXIT, LD, LDG, LDL, LDS, LDGSTS = 0x023, 0x147, 0x14D, 0x180, 0x181, 0x183, 0x184, 0x1AE
OPCODE = 0x1FF
ALWAYS = 7  # the predicate that is always true
BITS_128 = 6  # value of the three bits for the width of a load


def sass(path, kernel):
    """Returns the instructions of a kernel in a 64-bit ELF file as pairs (low, high)."""
    with open(path, "rb") as file:
        data = file.read()
    table, = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    section = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
    wanted = b".text." + kernel.encode() + b"\0"
    for s in section:
        if data[section[names][4] + s[0]:].startswith(wanted):
            return [struct.unpack_from("<QQ", data, s[4] + i) for i in range(0, s[5], 16)]
    sys.exit(f"{path} has no {kernel}")


def nvidia_kind(word, width):
    """Returns the kind and the number of multiply-adds of an instruction. `word` is its low word."""
    what = word & OPCODE
    wide = what in (LD, LDG, LDS, LDGSTS) and width == BITS_128
    load = what in (LD, LDG, LDL, LDS, LDGSTS)
    return 0 if what == FFMA else 1 if wide else 2 if load else 3, int(what == FFMA)


def branch_words(low, high, lower):
    """Returns the signed distance of a branch in words. The lower 8 bits of the offset are separate, or missing."""
    upper, bits = low >> 34 | (high & 0x3FFFF) << 30, 56 if lower else 48
    words = upper << 8 | low >> 16 & 0xFF if lower else upper
    return words - (1 << bits if words >> bits - 1 else 0)


def nvidia_loops(path, kernel, kind=nvidia_kind):
    """The same as amd_loops."""
    machine, ends = sass(path, kernel), set()
    code = [kind(low, high >> 9 & 7) for low, high in machine]
    for i, (low, high) in enumerate(machine):
        if low & OPCODE in (BRA, EXIT) and low >> 12 & 0xF == ALWAYS and high >> 23 & 0xF == ALWAYS:
            ends.add(i)
    for lower in (True, False): # from sm_90 on, and before
        branches = {i: i + 1 + branch_words(low, high, lower) // 4
                    for i, (low, high) in enumerate(machine) if low & OPCODE == BRA}
        # A kernel ends with a branch to itself, which shows whether branches are decoded correctly.
        last = max(branches)
        if branches.pop(last) == last:
            return loops_of(code, branches, ends), last
    sys.exit("the branches of this machine code cannot be read")


# ---- Counts ---------------------------------------------------------------------------------------------------------


def machine_loops(tools, target, program, kernel, folder, kind=None):
    """Returns the result of amd_loops or nvidia_loops for a program's kernel, and the path of its assembly."""
    path, kinds = f"{folder}/{target}-{id(program)}", {"kind": kind} if kind else {}
    error = tools.assembly(target, program, path + ".s")
    if not error and target in AMD:
        status, text = run([tools.clang, "-target", "amdgcn-unknown-amdhsa", "-mcpu=" + target, "-c", "-o", path + ".o",
                            path + ".s"])
        if not status:
            return *amd_loops(tools, path + ".o", kernel, **kinds), path + ".s"
        error = text
    elif not error:
        status, error = tools.assemble(target, path + ".s", path + ".cubin")
        if not status:
            return *nvidia_loops(path + ".cubin", kernel, **kinds), path + ".s"
    sys.exit(f"{program} for {target}:\n{error}")


def count(tools, target, program, kernel, folder):
    loops = machine_loops(tools, target, program, kernel, folder)[0]
    if not loops:
        sys.exit(f"{program} for {target}: {kernel} has no loop")
    loop = max(loops, key=lambda body: sum(adds for _, adds in body))
    counts = [sum(kind == k for kind, _ in loop) for k in range(len(KINDS))]
    work = sum(adds for _, adds in loop)
    return counts, counts[0] / len(loop), work / (work + len(loop) - counts[0])


def main():
    check = sys.argv[3:] == ["--check"]
    if len(sys.argv) < 3 or (sys.argv[3:] and not check):
        sys.exit(__doc__)
    kernel, good = sys.argv[2], True
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(folder, sys.argv[1])
        targets = {"gfx90a": "cdna2", "sm_90": "nvidia"}
        if not tools.ptxas:
            print("no ptxas: sm_90 is left out")
            del targets["sm_90"]
        if not run(["sh", "-c", f"command -v llvm-objdump-{tools.llvm}"])[1]:
            skip(f"no llvm-objdump-{tools.llvm}")
        work = [(target, p) for target, device in targets.items()
                for p in Programs(sys.argv[1], device, "gpt2", folder).list if kernel in p.kernels]
        if not work:
            sys.exit(f"no launch of {kernel}")
        counted = parallel(lambda item: count(tools, *item, kernel, folder), work)
        most = {target: max(c[0][0] for (t, _), c in zip(work, counted) if t == target) for target in targets}
        rows = [("target",) + KINDS + ("share", "of work", "options")]
        for (target, p), (counts, share, of_work) in zip(work, counted):
            rows.append([target] + counts + [f"{100 * share:.1f} %", f"{100 * of_work:.1f} %", p.options])
            good = good and (counts[0] < most[target] or (of_work >= SHARE and counts[2] == 0))
        print(table_of(rows))
    if check and not good:
        print(f"multiply-adds are less than {100 * SHARE:.0f} %, or a load is narrower than 128 bits")
    sys.exit(check and not good)


if __name__ == "__main__":
    main()
