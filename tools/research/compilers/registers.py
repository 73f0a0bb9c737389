# SPDX-License-Identifier: Apache-2.0
"""Compares registers, spills, scratch and local memory of each kernel of GPT-2 124M (training with B = 16 and T = 1024,
and generation) on other devices with registers.tsv. The figures are those of clang and ptxas.

    registers.py KERNEL_TEXTS [--targets A,B] [--record]      --record writes registers.tsv

Fails if spills, scratch or local memory grow, if registers grow by more than SLACK, if a work-group of NVIDIA needs
more registers than there are, or if the kernels are not those of the record. With another compiler than that of the
record, it checks only for spills of kernels that had none. A kernel that spills needs a reason in the last column of
the record, which --record keeps. The exit status is 77 if a compiler is missing.

Registers are those of a work-item: VGPRs of AMD (with the accumulation registers of CDNA), and SGPRs of a wave in a
separate column. Spills are registers on AMD and bytes on NVIDIA. Scratch is private memory in bytes, including spills.
Local memory is that of a work-group, including arguments."""
import argparse
import math
import os
import sys
import tempfile

import shared  # finds the next two imports
from forms import group_fits, read_amd, read_nvidia
from targets import AMD, DEVICE, Programs, Tools, parallel, table_of

RECORD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "registers.tsv")
TARGETS = AMD + ("sm_90",)
SLACK = 8
NUMBERS = ("registers", "scalar", "spills", "scratch", "local")
COLUMNS = ("target", "kernel", "group") + NUMBERS + ("options", "why")


def items_of(group):
    return math.prod(map(int, group.split("x"))) if group not in ("", "any") else 0


def rows_of(tools, target, program, folder):
    """Returns the rows of all launched kernels of a program, or an error text if it does not compile."""
    path = os.path.join(folder, f"{target}-{id(program)}.s")
    error = tools.assembly(target, program, path)
    if error:
        return f"{program} for {target}:\n{error}"
    if target in AMD:
        found = read_amd(path)
    else:
        status, text = tools.assemble(target, path, path + ".cubin")
        if status:
            return f"{program} for {target}:\n{text}"
        found = read_nvidia(text)
    rows = []
    for kernel, launches in sorted(program.kernels.items()):
        if not kernel:
            continue
        if kernel not in found:
            return f"{program} for {target}: the numbers of {kernel} cannot be read"
        group = max((launch[0] for launch in launches), key=items_of) or "any"
        numbers = found[kernel][:-1] + [found[kernel][-1] + max(local for _, local in launches)]
        rows.append(dict(zip(COLUMNS, [target, kernel, group] + numbers + [program.options, ""])))
    return rows


def key(row):
    return row["target"], row["kernel"], row["options"]


def read_record():
    """Returns the versions by target, and the rows by key."""
    versions, rows = {}, {}
    if not os.path.exists(RECORD):
        return versions, rows
    with open(RECORD) as file:
        for line in file:
            words = line.rstrip("\n").split("\t")
            if words[0].startswith("#"):
                if len(words) == 2:
                    versions[words[0][2:]] = words[1]
            elif words[0] != COLUMNS[0]:
                row = dict(zip(COLUMNS, words))
                rows[key(row)] = {**row, **{name: int(row[name]) for name in NUMBERS}}
    return versions, rows


def write_record(versions, rows):
    with open(RECORD, "w") as file:
        file.write("# SPDX-License-Identifier: Apache-2.0\n# Written by registers.py --record, which describes it.\n")
        for target in sorted(versions):
            file.write(f"# {target}\t{versions[target]}\n")
        file.write("\t".join(COLUMNS) + "\n")
        for row in sorted(rows, key=key):
            file.write("\t".join(str(row[name]) for name in COLUMNS) + "\n")


def judge(row, old, same_compiler):
    """Returns a list of errors of a row, compared with the recorded one."""
    if not old:
        return ["is not in the record"]
    wrong = []
    for name in ("spills", "scratch"):
        worse = row[name] > old[name] if same_compiler else row[name] > 0 and old[name] == 0
        if worse:
            wrong.append(f"{name} {old[name]} -> {row[name]}")
    if same_compiler and row["registers"] > old["registers"] + SLACK:
        wrong.append(f"registers {old['registers']} -> {row['registers']}")
    if same_compiler and row["local"] > old["local"]:
        wrong.append(f"local memory {old['local']} -> {row['local']}")
    if row["spills"] and not old["why"]:
        wrong.append(f"spills {row['spills']}, and the record has no reason")
    if row["target"] not in AMD and not group_fits(row["registers"], items_of(row["group"])):
        wrong.append(f"{row['registers']} registers are too many for a work-group of {row['group']}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel_texts")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    targets = options.targets.split(",")
    versions, recorded = read_record()
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(folder, options.kernel_texts)
        if not tools.ptxas:
            print("no ptxas: NVIDIA is left out")
            targets = [t for t in targets if t in AMD]
        programs = {name: Programs(options.kernel_texts, name, "gpt2", folder).list
                    for name in {DEVICE[t] for t in targets}}
        work = [(t, p) for t in targets for p in programs[DEVICE[t]]]
        rows = []
        for found in parallel(lambda item: rows_of(tools, *item, folder), work):
            failures += [found] if isinstance(found, str) else []
            rows += found if isinstance(found, list) else []
        for row in rows:
            row["why"] = recorded.get(key(row), row)["why"]
        print(table_of([COLUMNS] + [[row[name] for name in COLUMNS] for row in sorted(rows, key=key)]))
        for target in targets:
            same = versions.get(target) == tools.versions(target)
            if not same and not options.record:
                print(f"{target}: recorded with {versions.get(target, 'nothing')}, this is {tools.versions(target)}: "
                      f"only new spills are checked")
            for row in [] if options.record else [r for r in rows if r["target"] == target]:
                failures += [f"{target} {row['kernel']} {row['options']}: {wrong}"
                             for wrong in judge(row, recorded.get(key(row)), same)]
        gone = set(recorded) - {key(row) for row in rows}
        failures += [] if options.record else [f"{' '.join(k)}: recorded, but no longer launched"
                                               for k in sorted(gone) if k[0] in targets]
        if options.record and not failures:
            kept = [row for k, row in recorded.items() if k[0] not in targets]
            write_record({**versions, **{t: tools.versions(t) for t in targets}}, kept + rows)
    for failure in failures:
        print(failure)
    if failures and not options.record:
        print(f"If this is intended, run {sys.argv[0]} {options.kernel_texts} --record")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
