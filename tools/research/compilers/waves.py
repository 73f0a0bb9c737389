# SPDX-License-Identifier: Apache-2.0
"""Prints wave occupancy and registers of the products of a GPT-2 124M training step (B = 16, T = 1024) on other cards,
as a Markdown table. It reads cards.tsv and registers.tsv, which tests check. Nothing is built or run.

    waves.py [--all]

Each card has a line with the minimum and the mean share of the device that is busy while the work-groups of a product
run in waves. The figures in brackets are for the numbers of parts by the former rule (two work-groups per unit, rounded
up) with the same tiles. Registers are the largest number of a work-item in the kernels of these tiles, by clang and
ptxas, or "-" if the architecture is not compiled. --all prints a line for each product."""
import csv
import math
import os
import re
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
# As in test_stand_in.c: m, n, k.
PRODUCTS = {"qkv": (16384, 2304, 768), "fc": (16384, 3072, 768), "proj": (16384, 768, 3072),
            "classifier": (2048, 50304, 768), "fc dX": (16384, 768, 3072), "proj dW": (3072, 768, 16384),
            "classifier dW": (50304, 768, 2048), "qkv dW": (768, 2304, 16384), "attention proj dW": (768, 768, 16384),
            "classifier dX": (2048, 768, 50304)}
TYPES = {"fp32": 2, "bf16": 4}  # columns of cards.tsv


def rows_of(name):
    with open(os.path.join(FOLDER, name)) as file:
        return list(csv.reader((line for line in file if not line.startswith("#")), delimiter="\t"))


def former_fill(tile, product, units):
    """Returns the occupancy by the former rule: two work-groups per unit, 512 terms or more, 64 MiB of sums or less."""
    m, n, k = product
    tiles = math.ceil(m / tile[0]) * math.ceil(n / tile[1])
    parts = max(min(math.ceil(2 * units / tiles), k // 512, 16, (64 << 20) // (4 * m * n)), 1)
    groups = tiles * parts
    return groups / (math.ceil(groups / units) * units)


def tile_of(provider):
    found = re.fullmatch(r"[a-z]+-\w+-(\d+)x(\d+)(x\d+)?", provider)
    return (int(found[1]), int(found[2])) if found else (128, 128)


def registers_of(target, provider, registers):
    """Returns the largest number of registers as "124", or with spills as "124, 12 spilled"."""
    tile, matrix = tile_of(provider), not provider.startswith("portable")
    found = []
    for row in registers:
        forms = dict(re.findall(r"-D(\w+)=(\S+)", row["options"]))
        if row["target"] != target or row["kernel"] != ("gemm_matrix" if matrix else "gemm_tile"):
            continue
        if matrix and (forms["ATOM"].rstrip("12") != provider.split("-")[1].upper() or
                       tile != (int(forms["TILE_M"]), int(forms["TILE_N"]))):
            continue
        if matrix or tile == (4 * int(forms["GROUP_Y"]) * int(forms["ROW_QUADS"]),
                              4 * int(forms["GROUP_X"]) * int(forms["COLUMN_QUADS"])):
            found.append((int(row["registers"]), int(row["spills"])))
    if not found:
        return "-"
    most, spills = max(one[0] for one in found), max(one[1] for one in found)
    return f"{most}, {spills} spilled" if spills else str(most)


def table(rows):
    print("\n".join("| " + " | ".join(row) + " |" for row in [rows[0], ["---"] * len(rows[0])] + rows[1:]) + "\n")


def main():
    if sys.argv[1:] not in ([], ["--all"]):
        sys.exit(__doc__)
    cards, recorded = rows_of("cards.tsv"), rows_of("registers.tsv")
    registers = [dict(zip(recorded[0], row)) for row in recorded[1:]]
    short = [["card", "units"] + [f"{name} {what}" for name in TYPES for what in ("least", "mean", "tiles: registers")]]
    long = [["card", "product"] +
            [f"{name} {what}" for name in TYPES for what in ("tile", "parts", "fill", "registers")]]
    for card, _, target, units, *_ in [row for row in cards if row[1] == "is"]:
        units, line = int(units.split()[0]), []
        lines = {product: [card, product] for product in PRODUCTS}
        for column in TYPES.values():
            fills, formers, tiles = [], [], {}
            for row in cards:
                if row[0] != card or row[1] not in PRODUCTS or " x" not in row[column]:
                    continue
                provider, parts, fill = row[column].split()
                former = former_fill(tile_of(provider), PRODUCTS[row[1]], units)
                fills, formers = fills + [float(fill)], formers + [former]
                tiles[provider.replace("portable-tile-", "")] = registers_of(target, provider, registers)
                lines[row[1]] += [provider, parts[1:], f"{fill} ({former:.2f})",
                                  registers_of(target, provider, registers)]
            line += [f"{min(fills):.2f} ({min(formers):.2f})",
                     f"{sum(fills) / len(fills):.2f} ({sum(formers) / len(formers):.2f})",
                     ", ".join(f"{tile}: {count}" for tile, count in sorted(tiles.items()))]
        short.append([card, str(units)] + line)
        long += list(lines.values())
    table(long if sys.argv[1:] else short)


if __name__ == "__main__":
    main()
