# SPDX-License-Identifier: Apache-2.0
"""Compiles OpenCL C to AMD's machine code, as its driver does, and decodes it for amd_wave.h.

    amd_compile.py TARGET TEXT.cl IMAGE [build options]

TARGET is gfx942, gfx1100 or gfx1201. llvm-objdump disassembles the object. IMAGE receives the instructions and their
operands, under their names on gfx9 (amd_wave.def). An instruction with unknown modifiers keeps them in its name, which
the emulator does not know."""
import os
import re
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from amd_object import Object, metadata
from targets import ALWAYS, amd_command, newest_clang

# amd_image.h
MAGIC, NAME = 0x31414D44, 64
NONE, SCALAR, VECTOR, CONSTANT = range(4)
NEGATED, ABSOLUTE, SIGNED = 1, 2, 4
WHOLE, LOW_WORD, HIGH_WORD, LOW_HALF, HIGH_HALF, BYTE = range(6)
VCC, TTMP, NULL, M0, EXEC, ASIDE = 106, 108, 124, 125, 126, 512
KINDS = ["by_value", "global_buffer", "dynamic_shared_pointer"]
EMPTY = (NONE, 0, 0, 0, 0, 0)

SPECIAL = {"vcc": VCC, "vcc_lo": VCC, "vcc_hi": VCC + 1, "exec": EXEC, "exec_lo": EXEC, "exec_hi": EXEC + 1, "m0": M0,
           "null": NULL}
# Waits, caches and hints. In an emulator memory is whole after each instruction.
NOTHING = re.compile(r"s_(nop|waitcnt.*|wait_.*|delay_alu|clause|code_end|sendmsg|setprio|sleep|barrier_signal|"
                     r"inst_prefetch|"
                     r"set_inst_prefetch_distance)$|buffer_(gl[01]_inv|inv|wbl2)$|global_(inv|wb|wbinv)$")
CACHE = re.compile(r" (glc|slc|dlc|sc0|sc1|nt|th:\w+|scope:\w+)\b")
# gfx11 and gfx12 to gfx9.
RENAMED = [(r"^v_s_", "s_"), (r"_nc_", "_"), (r"_num_", "_"), (r"_rcp_iflag_", "_rcp_"),
           (r"^v_(add|sub|subrev)_co_ci_u32$", r"v_\1c_co_u32"),
           (r"^v_subc_", "v_subb_"), (r"^v_subrevc_", "v_subbrev_"), (r"^v_mad_co_", "v_mad_"),
           (r"^v_accvgpr_(read|write)_b32$", "v_mov_b32"),
           (r"^s_and_not1_", "s_andn2_"), (r"^s_or_not1_", "s_orn2_"), (r"^s_add_co_ci_", "s_addc_"),
           (r"^s_sub_co_ci_", "s_subb_"),
           (r"^s_(add|sub)_co_", r"s_\1_"), (r"^s_(add|mul)k(_co)?_i32$", r"s_\1k_i32"), (r"^s_cls_", "s_flbit_"),
           (r"^v_cls_", "v_ffbh_"),
           (r"^v_clz_i32_u32$", "v_ffbh_u32"), (r"^s_barrier_wait$", "s_barrier"),
           (r"^ds_load_", "ds_read_"), (r"^ds_store_", "ds_write_"),
           (r"^ds_(read|write)_2addr_stride64_", r"ds_\g<1>2st64_"),
           (r"^ds_(read|write)_2addr_", r"ds_\g<1>2_"), (r"_short_d16(_hi)?$", r"_d16\1_b16"),
           (r"_u16_d16(_hi)?$", r"_d16\1_b16")]
BYTES = {"ubyte": 1, "u8": 1, "byte": 1, "b8": 1, "ushort": 2, "u16": 2, "short": 2, "b16": 2, "dword": 4, "b32": 4,
         "dwordx2": 8, "b64": 8,
         "dwordx3": 12, "b96": 12, "dwordx4": 16, "b128": 16, "dwordx8": 32, "b256": 32, "dwordx16": 64, "b512": 64}
PARTS = {"WORD_0": LOW_WORD, "WORD_1": HIGH_WORD, "DWORD": WHOLE, **{f"BYTE_{n}": BYTE + n for n in range(4)}}


def bits_of(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def operand(text):
    """(kind, change, part, register, low, high) of an operand's text; how many registers it has."""
    change = 0
    if re.match(r"-[|vsan]", text) and not text.startswith("-null"):
        change, text = NEGATED, text[1:]
    if text.startswith("|"):
        change, text = change | ABSOLUTE, text[1:-1]
    if text.startswith("sext("):
        change, text = SIGNED, text[5:-1]
    if text == "off":
        return EMPTY, 0
    if text in SPECIAL:
        return (SCALAR, change, 0, SPECIAL[text], 0, 0), 1
    found = re.fullmatch(r"(v|a|s|ttmp)(?:(\d+)|\[(\d+):(\d+)\])", text)
    if found:
        first, last = int(found[2] or found[3]), int(found[2] or found[4])
        base = {"v": 0, "a": 256, "s": 0, "ttmp": TTMP}[found[1]]
        return (VECTOR if found[1] in "va" else SCALAR, change, 0, base + first, 0, 0), last - first + 1
    if re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", text):
        value = int(text, 0) & (1 << 64) - 1
        return (CONSTANT, change, 0, 0, value & 0xFFFFFFFF, value >> 32), 1
    return (CONSTANT, change, 0, 0, bits_of(float(text)), 0), 1  # 0.15914494 is rounded to the unit's 1 / (2 pi)


def part_of(one, part):
    return one[:2] + (part,) + one[3:]


def mask_of(text):
    """Bits of a modifier: [0,1,1] is 6."""
    return sum(int(bit) << n for n, bit in enumerate(text.strip("[]").split(",")))


class Unknown(Exception):
    pass


class Decoder:
    """Lines of a disassembly to instructions: (name, first byte, numbers, to, also, sources)."""

    def __init__(self, gfx9):
        self.gfx9, self.list = gfx9, []

    def line(self, text, at, size):
        first = len(self.list)
        words = CACHE.sub("", text).split(None, 1)
        try:
            if " :: " in text:
                self.pair(text, at)
            elif not NOTHING.match(words[0]):
                self.one(words[0], words[1] if len(words) > 1 else "", at, size)
        except (Unknown, ValueError, KeyError):
            del self.list[first:]
            self.add(text[:NAME - 1], at)

    def add(self, name, at, to=EMPTY, also=EMPTY, sources=(), numbers=()):
        self.list.append((name, at, (list(numbers) + [0] * 4)[:4], to, also, (list(sources) + [EMPTY] * 4)[:4]))

    def pair(self, text, at):
        """Decodes a pair of instructions, which both read before one writes: the first writes to a spare register."""
        first = len(self.list)
        for half in text.split(" :: "):
            name, rest = half.split(None, 1)
            rest += ", vcc_lo" if "cndmask" in name else ""
            self.one(name.replace("_dual_", "_"), rest, at, 0)
        name, _, numbers, to, also, sources = self.list[first]
        self.list[first] = (name, at, numbers, (VECTOR, 0, 0, ASIDE, 0, 0), also, sources)
        self.add("v_mov_b32", at, to, sources=[(VECTOR, 0, 0, ASIDE, 0, 0)])

    def one(self, name, rest, at, size):
        modifiers = dict(re.findall(r" (\w+):(\[[^\]]*\]|\S+)", " " + rest))
        rest = re.sub(r" \w+:(\[[^\]]*\]|\S+)", "", " " + rest).strip()
        texts = rest.split(", ") if rest else []
        name = re.sub(r"_(e32|e64|sdwa)$", "", name)
        for pattern, other in RENAMED:
            name = re.sub(pattern, other, name)
        if re.match(r"s_c?branch", name):
            jump = int(texts[0])
            self.add(name, at, numbers=[at + 4 + 4 * (jump - (jump >> 15 << 16))])  # the byte, for now
        elif re.match(r"s_(load|barrier|endpgm)|global_|scratch_|ds_", name):
            self.memory(name, texts, modifiers, at)
        elif name.startswith("s_"):
            self.scalar(name, texts, modifiers, at, size)
        else:
            self.vector(name, texts, modifiers, at)

    def memory(self, name, texts, modifiers, at):
        if name in ("s_barrier", "s_endpgm"):
            self.add(name, at)
            return
        kind, size = name.rsplit("_", 1)
        half = re.search(r"_d16(_hi)?$", kind)
        kind = kind[:half.start()] if half else kind
        operands = [operand(text)[0] for text in texts]
        load = "load" in kind or "read" in kind or "permute" in kind
        to = operands.pop(0) if load else EMPTY
        offset, two = int(modifiers.pop("offset", "0"), 0), re.fullmatch(r"ds_(read|write)2(st64)?", kind)
        if kind == "s_load" and texts[2] not in SPECIAL and operands[1][0] == CONSTANT:
            offset, operands[1] = operand(texts[2])[0][4], EMPTY
        numbers = [BYTES[size], offset]
        if two:
            unit = BYTES[size] * (64 if two[2] else 1)
            numbers = [BYTES[size]] + [unit * int(modifiers.pop(f"offset{n}", "0")) for n in (0, 1)]
            kind = kind.replace("st64", "")
        if half and BYTES[size] == 2:
            numbers += [0] * (3 - len(numbers)) + [2 if half[1] else 1]
        elif half:
            raise Unknown  # a byte, widened
        if kind in ("global_load", "scratch_load"):
            operands.insert(1, EMPTY)
        if modifiers:
            raise Unknown
        self.add(kind, at, to, sources=operands, numbers=numbers)

    def scalar(self, name, texts, modifiers, at, size):
        if modifiers:
            raise Unknown
        if re.match(r"s_(mov|add|mul|cmp)k_", name):
            value = int(texts[1], 0)
            value -= 0 if name.endswith("u32") else value >> 15 << 16
            texts = [texts[0]] + ([texts[0]] if name[2:5] in ("add", "mul") else []) + [str(value)]
            name = {"s_movk_i32": "s_mov_b32"}.get(name, name.replace("k_", "_"))
        accumulates = name == "s_fmac_f32"
        name = re.sub(r"^s_fm(amk|aak|ac)_", "s_fma_", name)
        operands = [operand(text)[0] for text in texts]
        to = EMPTY if re.match(r"s_cmp|s_bitcmp|s_setpc", name) else operands.pop(0)
        operands += [to] if accumulates else []
        self.add(name, at, to, sources=operands, numbers=[size])

    def vector(self, name, texts, modifiers, at):
        accumulates = name == "v_fmac_f32"
        name = re.sub(r"^v_fm(amk|aak|ac)_f32$", "v_fma_f32", name)
        parsed = [operand(text) for text in texts]
        operands = [one for one, _ in parsed]
        if name.startswith("v_cmpx_"):
            name = "v_cmp_" + name[7:]
            operands.insert(0, (SCALAR, 0, 0, EXEC, 0, 0))
            if self.gfx9:
                raise Unknown
        to, also = operands.pop(0), EMPTY
        if re.match(r"v_(add|addc|sub|subb|subrev|subbrev)_co_|v_div_scale|v_mad_u64", name):
            also = operands.pop(0)
        operands += [to] if accumulates else []
        numbers = []
        if name.startswith("v_pk_"):
            high = "[1,1,1]" if name != "v_pk_mov_b32" else "[0,0]"
            numbers = [mask_of(modifiers.pop(key, default)) for key, default in (
                ("op_sel", "[0]"), ("op_sel_hi", high), ("neg_lo", "[0]"), ("neg_hi", "[0]"))]
            if name == "v_pk_mov_b32":
                numbers[1] = 0
        elif re.match(r"v_(mfma|wmma)_", name):
            numbers = [parsed[1][1]]
        operands = self.parts(name, operands, modifiers)
        if name.startswith("v_fma_mix") and name != "v_fma_mix_f32":
            numbers, operands, name = [int(name == "v_fma_mixhi_f16")], operands + [to], "v_fma_mix_f16"
        # From gfx10 on these keep the upper half of their result register.
        if name in ("v_cvt_f16_f32", "v_mul_lo_u16", "v_sub_u16", "v_lshlrev_b16", "v_lshrrev_b16"):
            operands += [] if self.gfx9 else [to]
        name = {"v_fma_mix_f32": "v_fma_f32", "v_cvt_f32_f16": "v_mov_b32"}.get(name, name)
        if modifiers:
            raise Unknown
        self.add(name, at, to, also, operands, numbers)

    @staticmethod
    def parts(name, operands, modifiers):
        """Returns the operands with the parts of their registers that the instruction reads."""
        if modifiers.pop("dst_sel", "DWORD") != "DWORD":
            raise Unknown
        modifiers.pop("dst_unused", None)
        for n in (0, 1):
            part = PARTS[modifiers.pop(f"src{n}_sel", "DWORD")]
            operands = operands[:n] + [part_of(operands[n], part)] + operands[n + 1:] if part else operands
        if name.startswith("v_fma_mix"):
            halves, upper = mask_of(modifiers.pop("op_sel_hi", "[0]")), mask_of(modifiers.pop("op_sel", "[0]"))
            return [part_of(one, LOW_HALF + (upper >> n & 1)) if halves >> n & 1 else one
                    for n, one in enumerate(operands)]
        if name == "v_cvt_f32_f16":
            upper = operands[0][2] == HIGH_WORD or mask_of(modifiers.pop("op_sel", "[0]")) == 1
            return [part_of(operands[0], LOW_HALF + upper)]
        return operands


def pack_operand(one):
    kind, change, part, reg, low, high = one
    return struct.pack("<BBBBIII", kind, change, part, 0, reg, low, high)


def resolve(instructions):
    """Jumps, from bytes to instructions."""
    starts = [one[1] for one in instructions]
    found = {}
    for n in range(len(starts) - 1, -1, -1):
        found[starts[n]] = n
    following, at = {}, len(starts)
    for byte in range(max(starts), -1, -4):
        at = found.get(byte, at)
        following[byte] = at
    return following


def write(path, code, kernels, instructions):
    following = resolve(instructions)
    names = {}
    for one in instructions:
        names.setdefault(one[0], len(names))
    out, arguments = [], []
    for name, at, numbers, to, also, sources in instructions:
        if name.startswith(("s_branch", "s_cbranch")):
            numbers = [following[numbers[0] + code.text]] + numbers[1:]
        out.append(struct.pack("<II4i", names[name], at, *numbers) + b"".join(map(pack_operand, [to, also] + sources)))
    table = []
    for kernel in kernels:
        descriptor = code.descriptor(kernel[".symbol"])
        group = [int(n) for n in kernel.get(".reqd_workgroup_size", [0, 0, 0])]
        table.append(struct.pack(f"<{NAME}s13I", kernel[".name"].encode(), following[descriptor.entry],
                                 int(kernel[".wavefront_size"]), int(kernel[".max_flat_workgroup_size"]), *group,
                                 int(kernel[".group_segment_fixed_size"]), int(kernel[".private_segment_fixed_size"]),
                                 int(kernel[".kernarg_segment_size"]), descriptor.properties, descriptor.resources,
                                 len(arguments), len(kernel[".args"])))
        for one in kernel[".args"]:
            kind = one[".value_kind"]
            number = KINDS.index(kind) if kind in KINDS else len(KINDS)
            arguments.append(struct.pack("<4I", int(one[".offset"]), int(one[".size"]), number,
                                         int(one.get(".pointee_align", 1))))
    with open(path, "wb") as file:
        file.write(struct.pack("<6I", MAGIC, len(code.memory), len(names), len(instructions), len(kernels),
                               len(arguments)))
        file.write(code.memory + b"".join(struct.pack(f"{NAME}s", name.encode()) for name in names))
        file.write(b"".join(out + table + arguments))


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    target, text, image = sys.argv[1:4]
    clang, version = newest_clang()
    made = image + ".o"
    done = subprocess.run(amd_command(clang, target) + ["-O3", "-c", "-o", made] + sys.argv[4:] + [text])
    if done.returncode:
        sys.exit(1)
    code = Object(made)
    kernels = metadata(subprocess.run([f"llvm-readelf-{version}", "--notes", made], stdout=subprocess.PIPE, text=True,
                                      check=True).stdout)
    code.link()
    lines = subprocess.run([f"llvm-objdump-{version}", "-d", "-j", ".text", made], stdout=subprocess.PIPE, text=True,
                           check=True).stdout
    os.remove(made)
    decoder = Decoder(gfx9=target.startswith("gfx9"))
    for line in lines.splitlines():
        found = re.match(r"\t(.*?)\s*// ([0-9A-F]+): ([0-9A-F ]+)", line)
        if found:
            decoder.line(found[1], code.text + int(found[2], 16), 4 * len(found[3].split()))
    write(image, code, kernels, decoder.list)


if __name__ == "__main__":
    main()
