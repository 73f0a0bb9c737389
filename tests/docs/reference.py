# SPDX-License-Identifier: Apache-2.0
"""reference.py BIN SOURCE PROGRAM... [--write]: compares the generated sections of docs/reference and BENCHMARKS.md with the
code, the programs' --help and docs/benchmarks/*.json. A section is between <!-- BEGIN name --> and <!-- END name -->. With
--write the sections are written instead."""
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


def output(*command):
    os.environ["COLUMNS"] = "110"
    return subprocess.run([os.path.join(bin_folder, command[0]), *command[1:]], check=True, capture_output=True, text=True).stdout


def help_of(*command):
    """The help of a program or one of its commands, without the options that all programs have."""
    text = output(*command, "--help").split("\nCommon options:")[0].rstrip()
    if command == ("txtrain",):
        text = "\n\n".join(text.split("\n\n")[:2])
    return f"```text\n{text}\n```\n"


def section_programs():
    text = ""
    for program in sorted(programs):
        text += f"\n## {program}\n\n{help_of(program)}"
        commands = re.search(r"^Commands:\n(.*?)(?:\n\n|\Z)", output(program, "--help"), re.M | re.S)
        for command in re.findall(r"^  (\w+)", commands.group(1), re.M) if commands else []:
            if output(program, command, "--help") != output(program, "--help"):
                text += f"\n### {program} {command}\n\n{help_of(program, command)}"
    return text.lstrip("\n").replace("```\n\n## txtune", "```\n\nThe options are in [Options of txtrain](options.md).\n\n## txtune")


def benchmark_rows(kind):
    """Rows of docs/benchmarks/*.json that BENCHMARKS.md shows: those that name this table."""
    for path in sorted(glob.glob(os.path.join(source, "docs/benchmarks/*.json"))):
        with open(path) as file:
            for row in json.load(file)["rows"]:
                if row.get("table") == kind:
                    yield row


def section_speed():
    text = "| measured | TX | peer | ratio | machine |\n|---|---|---|---|---|\n"
    for row in benchmark_rows("speed"):
        text += f"| {row['name']} | {row.get('tx', '')} | {row.get('peer', '')} | **{row['ratio']}** | {row['machine']} |\n"
    return text


def section_memory():
    text = "| measured | bytes | beside it |\n|---|---|---|\n"
    for row in benchmark_rows("memory"):
        text += f"| {row['name']} | {row['value']} | {row.get('note', '')} |\n"
    return text


def undocumented():
    """Variables that a source reads by name and environment.def does not have."""
    with open(os.path.join(source, "api/base/environment.def")) as file:
        known = re.findall(r"VARIABLE\((\w+)", file.read())
    for folder in ("api", "backends", "comm", "models", "tools"):
        for path in glob.glob(os.path.join(source, folder, "**/*.c"), recursive=True):
            with open(path) as file:
                for name in re.findall(r'\b(?:getenv|tx_environment_count|environment)\("(\w+)"', file.read()):
                    if name not in known:
                        yield f"{path}: {name} has no row in api/base/environment.def"


def unnamed_files():
    """Files that a run writes and docs/reference/files.md does not name."""
    with open(os.path.join(source, "docs/reference/files.md")) as file:
        words = re.findall(r"`([^`\n]+)`", file.read())
    names = [re.sub(r"\b(N|NAME|HASH)\b", "*", word.rstrip("/")) for word in words]
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "text"), "w") as file:
            file.write("".join(f"{i}\n" for i in range(999)))
        with open(os.path.join(folder, "c.json"), "w") as file:
            json.dump({"model_type": "gpt2", "vocab_size": 257, "n_positions": 32, "n_embd": 16, "n_layer": 1, "n_head": 2}, file)
        run = os.path.join(folder, "run")
        output("txtrain", "--train_file", f"{folder}/text", "--config_name", f"{folder}/c.json", "--output_dir", run, "--max_steps",
               "2", "--do_train", "--do_eval", "--report_to", "tensorboard", "--threads", "1")
        for parent, _, files in os.walk(run):
            for path in files if not parent.endswith("/cache") else []:
                if not any(fnmatch.fnmatch(os.path.relpath(os.path.join(parent, path), run), n) or n == path for n in names):
                    yield f"docs/reference/files.md does not name {path}"


def renew(found):
    name = found.group(1)
    own = globals().get("section_" + name)
    text = own() if own else output("reference", name)
    return f"<!-- BEGIN {name} -->\n\n{text.strip()}\n\n<!-- END {name} -->"


faults = sorted({*undocumented(), *unnamed_files()})
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
