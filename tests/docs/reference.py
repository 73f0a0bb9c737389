# SPDX-License-Identifier: Apache-2.0
"""reference.py BIN SOURCE PROGRAM... [--write]

Compares the generated sections of docs/reference and BENCHMARKS.md with the code, the programs' --help and
docs/benchmarks/*.json. A section is between <!-- BEGIN name --> and <!-- END name -->. With --write the sections are
written instead."""
import fnmatch
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

arguments = [a for a in sys.argv[1:] if a != "--write"]
write = len(arguments) + 1 < len(sys.argv)
bin_folder, source, *programs = arguments


def output(program, *words):
    command = [os.path.join(bin_folder, program), *words]
    wide = {**os.environ, "COLUMNS": "100"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=wide).stdout


def help_of(*command):
    """The help of a program or one of its commands, without the options that all programs have."""
    text = output(*command, "--help", "all").split("\nCommon options:")[0].rstrip()
    if command == ("txtrain",):
        text = "\n\n".join(text.split("\n\n")[:2]) + "\n\nSee options.md for the options."
    return f"```text\n{text}\n```\n"


def section_programs():
    text = ""
    for program in sorted(programs):
        text += f"\n## {program}\n\n{help_of(program)}"
        commands = re.search(r"^Commands:\n(.*?)(?:\n\n|\Z)", output(program, "--help"), re.M | re.S)
        for command in re.findall(r"^  (\w+)", commands.group(1), re.M) if commands else []:
            if output(program, command, "--help", "all") != output(program, "--help", "all"):
                text += f"\n### {program} {command}\n\n{help_of(program, command)}"
    return text


def benchmark_rows(kind):
    """Rows of docs/benchmarks/*.json that BENCHMARKS.md shows: those that name this table."""
    for path in sorted(glob.glob(os.path.join(source, "docs/benchmarks/*.json"))):
        with open(path) as file:
            for row in json.load(file)["rows"]:
                if row.get("table") == kind:
                    yield row


def section_speed():
    """A row for each measurement, with the figures of each machine."""
    machines, cells = "ABCD", {}
    for row in benchmark_rows("speed"):
        times = f" ({row['tx']}, {row['peer']})" if row["tx"] else ""
        cells.setdefault(row["name"], {})[row["machine"]] = f"**{row['ratio']:.2f}**{times}"
    text = "| measured | " + " | ".join(machines) + " |\n|---|" + "---|" * len(machines) + "\n"
    for name, found in cells.items():
        text += f"| {name} | " + " | ".join(found.get(machine, "") for machine in machines) + " |\n"
    return text


def section_memory():
    text = "| measured | bytes | note |\n|---|---|---|\n"
    for row in benchmark_rows("memory"):
        text += f"| {row['name']} | {row['value']} | {row['note']} |\n"
    return text


def section_quality():
    """Perplexities of files: the mean over the seeds, and how much of a loss above 0.02 training recovers."""
    rows = list(benchmark_rows("quality"))
    mean = {row["name"]: [sum(row[way]) / len(row[way]) if row[way] else None for way in ("without", "own", "other")]
            for row in rows}
    text = "| file | perplexity | trained for its type | trained for another type |\n|---|---|---|---|\n"
    for row in rows:
        plain, *trained = mean[row["name"]]
        loss = plain - mean["f32"][0]
        cells = [f"{value:.3f}" + (f" ({100 * (plain - value) / loss:.0f} %)" if loss > 0.02 else "") if value else ""
                 for value in trained]
        other = f", {row['other_type']}" if row["other_type"] else ""
        text += f"| {row['name']} | {plain:.3f} | {' | '.join(cells)}{other} |\n"
    return text


def environment():
    """Variables that a source reads and environment.def does not have, and rows that no source mentions."""
    with open(os.path.join(source, "api/base/environment.def")) as file:
        rows = re.findall(r"VARIABLE\((\w+)", file.read())
    mentioned = set()
    for folder in ("api", "backends", "comm", "models", "tools"):
        for path in glob.glob(os.path.join(source, folder, "**/*.[ch]"), recursive=True):
            with open(path) as file:
                text = file.read()
            mentioned.update(re.findall(r'"(\w+)"', text))
            for name in re.findall(r'\b(?:getenv|tx_environment_count|environment)\("(\w+)"', text):
                if name not in rows:
                    yield f"{path}: {name} has no row in api/base/environment.def"
    yield from (f"api/base/environment.def: no source reads {name}" for name in rows if name not in mentioned)


def unnamed_files():
    """Files that a run writes and docs/reference/files.md does not name."""
    with open(os.path.join(source, "docs/reference/files.md")) as file:
        words = re.findall(r"`([^`\n]+)`", file.read())
    names = [re.sub(r"\b(N|NAME|HASH)\b", "*", word.rstrip("/")) for word in words]
    model = {"model_type": "gpt2", "vocab_size": 257, "n_positions": 32, "n_embd": 16, "n_layer": 1, "n_head": 2}
    with tempfile.TemporaryDirectory() as folder:
        text, config, run = (os.path.join(folder, name) for name in ("text", "config.json", "run"))
        with open(text, "w") as file:
            file.write("".join(f"{i}\n" for i in range(999)))
        with open(config, "w") as file:
            json.dump(model, file)
        words = "--max_steps 2 --do_train --do_eval --report_to tensorboard --threads 1".split()
        output("txtrain", "--train_file", text, "--config_name", config, "--output_dir", run, *words)
        for parent, _, files in os.walk(run):
            for path in [os.path.join(parent, name) for name in files if not parent.endswith("/cache")]:
                found = (os.path.relpath(path, run), os.path.basename(path))
                if not any(fnmatch.fnmatch(f, name) for f in found for name in names if name != "*"):
                    yield f"docs/reference/files.md does not name {path}"


def twice():
    """Options that have two rows."""
    seen = set()
    for name in re.findall(r"^\| `(\w+)`", output("reference", "options") + output("reference", "foreign"), re.M):
        if name in seen:
            yield f"option {name} has two rows"
        seen.add(name)


def renew(found):
    name = found.group(1)
    own = globals().get("section_" + name)
    text = own() if own else output("reference", name)
    return f"<!-- BEGIN {name} -->\n\n{text.strip()}\n\n<!-- END {name} -->"


faults = sorted({*environment(), *unnamed_files(), *twice()})
for page in sorted(glob.glob(os.path.join(source, "docs/reference/*.md"))) + [os.path.join(source, "BENCHMARKS.md")]:
    with open(page) as file:
        before = file.read()
    after = re.sub(r"<!-- BEGIN (\w+) -->.*?<!-- END \1 -->", renew, before, flags=re.S)
    if before != after and write:
        with open(page, "w") as file:
            file.write(after)
    elif before != after:
        faults.append(f"{page} is out of date; write it: cmake --build BUILD --target docs")
print("\n".join(faults) or "all pages agree")
sys.exit(bool(faults))
