# SPDX-License-Identifier: Apache-2.0
"""Objects of clang for AMD: their sections in memory, kernel descriptors and metadata (LLVM's user guide for the AMDGPU
backend)."""
import collections
import re
import struct

ALLOC, SYMBOLS, RELA = 2, 2, 4
REL32_LO, REL32_HI, REL64 = 10, 11, 5

Section = collections.namedtuple("Section", "name type flags offset size link info entry_size")
Descriptor = collections.namedtuple("Descriptor", "entry properties resources")


class Object:
    """The object in file `path`. memory: the loaded sections, one after the other; text: the code's position."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            self.bytes = bytearray(file.read())
        at, = struct.unpack_from("<Q", self.bytes, 0x28)
        count, names = struct.unpack_from("<HH", self.bytes, 0x3C)
        headers = [struct.unpack_from("<IIQQQQIIQQ", self.bytes, at + 64 * n) for n in range(count)]
        self.sections = [Section(self.text_at(headers[names][4] + h[0]), h[1], h[2], h[4], h[5], h[6], h[7], h[9])
                         for h in headers]
        self.place, self.memory = {}, b""
        end = 0
        for n, section in enumerate(self.sections):
            if section.flags & ALLOC:
                self.place[n] = end
                end = (end + section.size + 255) // 256 * 256
        self.text = next(place for n, place in self.place.items() if self.sections[n].name == ".text")

    def text_at(self, at):
        return self.bytes[at:self.bytes.index(0, at)].decode()

    def symbols(self):
        """[(name, section, address in memory)]"""
        for section in self.sections:
            if section.type == SYMBOLS:
                strings = self.sections[section.link].offset
                for at in range(section.offset, section.offset + section.size, 24):
                    name, _, _, index, value, _ = struct.unpack_from("<IBBHQQ", self.bytes, at)
                    yield self.text_at(strings + name), index, self.place.get(index, 0) + value

    def link(self):
        """Sets relocated values, which depend on the sections' addresses, also in the file."""
        symbols = list(self.symbols())
        for section in self.sections:
            if section.type != RELA or section.info not in self.place:
                continue
            for at in range(section.offset, section.offset + section.size, 24):
                offset, info, addend = struct.unpack_from("<QQq", self.bytes, at)
                name, index, value = symbols[info >> 32]
                if index not in self.place:
                    raise ValueError(f"{self.path}: {name} is not in the object")
                distance = (value + addend - self.place[section.info] - offset) & (1 << 64) - 1
                layout, number = {REL32_LO: ("<I", distance & 0xFFFFFFFF), REL32_HI: ("<I", distance >> 32),
                                  REL64: ("<Q", distance)}[info & 0xFFFFFFFF]
                struct.pack_into(layout, self.bytes, self.sections[section.info].offset + offset, number)
        with open(self.path, "wb") as file:
            file.write(self.bytes)
        for n, place in self.place.items():
            section = self.sections[n]
            self.memory = self.memory.ljust(place, b"\0") + self.bytes[section.offset:section.offset + section.size]
        self.memory = bytes(self.memory.ljust((len(self.memory) + 7) // 8 * 8, b"\0"))

    def descriptor(self, symbol):
        """After link()."""
        at = next(value for name, _, value in self.symbols() if name == symbol)
        entry, = struct.unpack_from("<q", self.memory, at + 16)
        resources, properties = struct.unpack_from("<IH", self.memory, at + 52)
        return Descriptor(at + entry, properties, resources)


def metadata(text):
    """Parses llvm-readelf --notes: returns [{key: value}] of kernels; .args is such a list itself."""
    kernels, key = [], ""
    for line in text.splitlines():
        found = re.match(r"( *)(- )?(\.\w+): *(.*)$", line)
        item = re.match(r" {6}- +(\w+)$", line)
        depth = len(found[1] + (found[2] or "")) if found else 0
        if depth == 4:
            if found[2]:
                kernels.append({".args": []})
            key = found[3]
            if key != ".args":
                kernels[-1][key] = found[4].strip("'") or []
        elif depth == 8:
            if found[2]:
                kernels[-1][".args"].append({})
            kernels[-1][".args"][-1][found[3]] = found[4]
        elif item and kernels:
            kernels[-1][key].append(item[1])
    return kernels
