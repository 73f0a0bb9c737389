#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the commands that documents show and compares what they print with the documents.

    run.py [--bin FOLDER] [--launcher PROGRAM] [--root SYSTEM] [--update] [--keep] [DOCUMENT.md...]

Without documents it runs README.md and all of docs/. The form of the blocks:

- In a block that begins with ```console, a line "$ COMMAND" is a command. It may be continued by lines that begin with
  "> ", or after a backslash at the end of a line. Other lines are its output, standard error included.
- A line "..." stands for any number of lines. Numbers, units of bytes and runs of blanks are not compared.
- ```console fails: the last command of the block has to fail; all others have to succeed.
- ```sh run: the block is a script, each line of which has to succeed. Its output is not compared.
- ```sh install: as ```sh run, only with --root.
- ```sh server: as ```sh run, in the background until it prints "served". The file log has its output, $! its process.
- <!-- run: COMMANDS -->, on one line or several, runs commands that readers do not see.

The commands of a document run in order in one shell, in a scratch folder with the models and data of stand_ins.sh. The
program hf is the one of the folder bin.

--root runs documents in the folder of an empty system, such as debootstrap makes, with nothing but TX's sources at
their path and hf. A document whose sh install blocks use the folder tools begins in the sources, with nothing else. The
others need a system in which one before has installed TX, and begin in a scratch folder as without --root. It takes
root's rights, and sh install blocks may take half an hour.
Exit status: 0 if all is as shown, 1 if not, 77 if a document needs MPI and there is no launcher."""
import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SECONDS, ROOT_SECONDS = 120, 3600  # for a document
HUB_FOLDER = os.path.join(ROOT, "tests", "docs", "bin")  # of the program hf
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
SKIPPED = 77
# Looks at each status of the block itself, not of files that it sources. A trap ERR would ignore that of a in "a && b".
CHECKED = "failed=0\ntrap '[ $? = 0 ] || [ $BASH_SOURCE ] || failed=1' DEBUG\nSCRIPT\ntrap - DEBUG\n[ $failed = 0 ]"
SCRIPTS = {  # forms of commands by the first lines of blocks
    "```sh run": CHECKED,
    "```sh install": CHECKED,
    # The log of the server before says "served", too.
    "```sh server": ": > log\n{ exec SCRIPT\n} > log 2>&1 &\nwhile ! grep -q served log; do kill -0 $! || break; sleep 0.1; "
                    "done\ngrep served log || { cat log; false; }"}
MODELS = "home/.local/share/tx/models/"  # of stand-ins that a document uses by name
SHOWN_LINES = 40  # of a long output that is not as shown


class Command:
    """A command with its output in the document: lines[first:last] there."""

    def __init__(self, number, text, fails=False, hidden=False, installs=False):
        self.number, self.text, self.fails, self.hidden, self.installs = number, text, fails, hidden, installs
        self.first = self.last = number


def read_commands(lines):
    commands = []
    number = 0
    while number < len(lines):
        line = lines[number]
        if line.lstrip().startswith("<!-- run:"):
            first = number
            while "-->" not in lines[number]:
                number += 1
            text = "\n".join(lines[first:number + 1])
            commands.append(Command(first, text[text.index(":") + 1:text.index("-->")].strip(), hidden=True))
        elif line.strip() in SCRIPTS:
            number = read_script(lines, number + 1, line.strip(), commands)
        elif line.startswith("```console"):
            number = read_block(lines, number + 1, line.split()[1:] == ["fails"], commands)
        number += 1
    return commands


def read_block(lines, number, fails, commands):
    """Adds the commands of a block. Returns the number of the line that closes it."""
    found = []
    while number < len(lines) and not lines[number].startswith("```"):
        line = lines[number]
        number += 1
        if line.startswith("$ "):
            found.append(Command(number - 1, line[2:]))
            while lines[number].startswith("> ") or found[-1].text.endswith("\\"):
                found[-1].text += "\n" + re.sub("^> ", "", lines[number])
                number += 1
            found[-1].first = number
        if found:
            found[-1].last = number
    if found:
        found[-1].fails = fails
    commands += found
    return number


def read_script(lines, number, kind, commands):
    """Adds a block that is one script. Returns the number of the line that closes it."""
    first = number
    while not lines[number].startswith("```"):
        number += 1
    text = SCRIPTS[kind].replace("SCRIPT", "\n".join(lines[first:number]))
    commands.append(Command(first, text, hidden=True, installs=kind.endswith("install")))
    return number


def normal(line):
    """The line without the parts that depend on the machine or on the size of a stand-in."""
    line = re.sub(r"(?<![A-Za-z_.\d])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![A-Za-z_]{3})", "#", line)
    line = re.sub(r"#( ?)[KMGTP]i?B?(?![A-Za-z])", r"#\1B", line)
    line = re.sub(r"device +cpu: .*", "device cpu", line)
    return " ".join(line.split())


def matches(shown, real):
    """True if the output is as shown; "..." in `shown` stands for any lines."""
    pattern = "".join(r"(?:.*\n)*" if line.strip() == "..." else re.escape(normal(line)) + "\n" for line in shown)
    return re.fullmatch(pattern, "".join(normal(line) + "\n" for line in real)) is not None


def environment(bin_folder, work, launcher):
    """The commands' environment. Programs of this build are found first, also as build/bin/NAME."""
    tools = os.path.join(work, "tools")
    os.makedirs(tools)
    os.makedirs(os.path.join(work, "home"))
    os.makedirs(os.path.join(work, "here", "build"))
    os.symlink(bin_folder, os.path.join(work, "here", "build", "bin"))
    os.symlink(os.path.join(ROOT, "tools"), os.path.join(work, "here", "tools"))
    if launcher:
        for name in ("mpirun", "mpiexec"):
            with open(os.path.join(tools, name), "w") as script:
                script.write(f'#!/bin/sh\nexec "{launcher}" "$@"\n')
            os.chmod(os.path.join(tools, name), 0o755)
    changed = {"PATH": os.pathsep.join((bin_folder, tools, HUB_FOLDER, os.environ["PATH"])),
               "HOME": os.path.join(work, "home"),
               "TX_PROGRESS": "0", "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive", "LC_ALL": "C.UTF-8",
               "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1",
               "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    kept = {name: value for name, value in os.environ.items() if not re.match("TX_|HF_|XDG_", name)}
    return {**kept, **changed}


def fill_system(system, home):
    """Copies the files of the newest commit into a system, and prepares its apt-get, which asks nobody. Returns the
    commands' environment."""
    sources = system + ROOT
    os.makedirs(sources, exist_ok=True)
    with subprocess.Popen(["git", "-C", ROOT, "archive", "HEAD"], stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "-x", "-C", sources], stdin=archive.stdout, check=True)
    shutil.copy("/etc/resolv.conf", system + "/etc")
    with open(system + "/etc/apt/apt.conf.d/90yes", "w") as settings:
        settings.write('APT::Get::Assume-Yes "true";\n')
    if os.path.exists(CERTIFICATES):
        os.makedirs(os.path.dirname(system + CERTIFICATES), exist_ok=True)
        shutil.copy(CERTIFICATES, system + CERTIFICATES)
    kept = {name: value for name, value in os.environ.items() if re.match("CMAKE_|CCACHE_|PIP_CERT|SSL_CERT_FILE", name)}
    return {**kept, "PATH": HUB_FOLDER + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": home, "TX_PROGRESS": "0", "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}


def run_script(commands, start, seen, variables, system):
    """Runs the commands in one shell, of a system or of this one. Returns the shell's status. `seen` is the scratch
    folder as the shell sees it."""
    script = [start]
    for index, command in enumerate(commands):
        script.append(f'{{ {command.text}\n}} > "{seen}/{index}.out" 2>&1\necho $? > "{seen}/{index}.status"')
    with subprocess.Popen((["chroot", system] if system else []) + ["bash", "-c", "\n".join(script)],
                          env=variables, stdin=subprocess.DEVNULL, start_new_session=True) as shell:
        try:
            return shell.wait(ROOT_SECONDS if system else SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, 9)
            return None


def run_all(document, commands, work, arguments):
    """Runs the commands of a document. Returns the status and the lines of output of each that ended."""
    system = arguments.root
    seen = os.path.join("/", os.path.relpath(work, system)) if system else work
    start = f'cd "{seen}/here" && sh "{ROOT}/tests/docs/stand_ins.sh" "{document}" > "{seen}/stand_ins" 2>&1 || exit 9'
    if system:
        for name in ("here", "home"):
            os.makedirs(os.path.join(work, name))
        if any(command.installs and "tools/" in command.text for command in commands):
            start = f'cd "{ROOT}"'
        mounted = []
        try:
            for kind, folder in (("proc", system + "/proc"), ("sysfs", system + "/sys")):
                subprocess.run(["mount", "-t", kind, kind, folder], check=True)
                mounted.append(folder)
            status = run_script(commands, start, seen, fill_system(system, seen + "/home"), system)
        finally:
            for folder in mounted:
                subprocess.run(["umount", folder], check=True)
    else:
        status = run_script(commands, start, seen, environment(arguments.bin, work, arguments.launcher), None)
    if status == 9 and not os.path.exists(os.path.join(work, "0.out")):
        with open(os.path.join(work, "stand_ins"), errors="replace") as text:
            sys.exit("stand_ins.sh failed: " + text.read())
    return read_results(commands, work, seen)


def read_results(commands, work, seen):
    results = []
    for index in range(len(commands)):
        try:
            with open(f"{work}/{index}.status") as text:
                status = int(text.read())
            with open(f"{work}/{index}.out", errors="replace") as text:
                output = text.read()
        except FileNotFoundError:
            break
        for folder, name in ((MODELS, ""), ("home", "~"), ("here/", "")):
            output = output.replace(os.path.join(seen, folder), name)
        results.append((status, output.rstrip("\n").split("\n") if output.strip() else []))
    return results


def show_difference(shown, real):
    """Prints how the output differs from the document."""
    changes = difflib.unified_diff([normal(line) for line in shown], [normal(line) for line in real], "document",
                                   "output", lineterm="", n=2)
    for line in list(changes)[:SHOWN_LINES]:
        print("    " + line)


def run_document(path, arguments):
    """Runs a document. Returns the number of its faults, or SKIPPED."""
    with open(path) as text:
        lines = text.read().split("\n")
    commands = [command for command in read_commands(lines) if arguments.root or not command.installs]
    name = os.path.relpath(path, ROOT)
    needs_mpi = any(re.search(r"\b(mpirun|mpiexec|txlaunch)\b", command.text) for command in commands)
    if needs_mpi and not arguments.launcher and not arguments.root:
        print(f"{name}: skipped, it needs an MPI launcher")
        return SKIPPED
    if not commands:
        print(f"{name}: no commands")
        return 0
    began = time.monotonic()
    work = tempfile.mkdtemp(prefix="tx-docs-", dir=os.path.join(arguments.root, "tmp") if arguments.root else None)
    try:
        results = run_all(os.path.abspath(path), commands, work, arguments)
    finally:
        if arguments.keep:
            print(f"{name}: the scratch folder is {work}/here")
        else:
            shutil.rmtree(work, ignore_errors=True)
    faults = 0
    for command, (status, real) in reversed(list(zip(commands, results))):
        where = f"{name}:{command.number + 1}"
        shown = lines[command.first:command.last]
        if (status != 0) != command.fails:
            print(f"{where}: exit status {status}: {command.text}")
            print("\n".join("    " + line for line in real[-SHOWN_LINES:]))
            faults += 1
        elif not command.hidden and not matches(shown, real):
            if arguments.update:
                lines[command.first:command.last] = real
            else:
                print(f"{where}: other output: {command.text}")
                show_difference(shown, real)
                faults += 1
    if len(results) < len(commands):
        late = commands[len(results)]
        print(f"{name}:{late.number + 1}: did not end within {SECONDS} s from the start: {late.text}")
        faults += 1
    if arguments.update:
        with open(path, "w") as text:
            text.write("\n".join(lines))
    print(f"{name}: {len(commands)} commands, {faults} faults, {time.monotonic() - began:.1f} s")
    return faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"), help="the folder of TX's programs")
    parser.add_argument("--launcher", default=shutil.which("mpiexec.mpich") or shutil.which("mpiexec") or "",
                        help="MPI's launcher; empty: skip documents that need it")
    parser.add_argument("--root", help="run in the system in this folder, and the commands that install TX too")
    parser.add_argument("--update", action="store_true", help="write the real output into the documents if it differs")
    parser.add_argument("--keep", action="store_true", help="keep the scratch folders")
    parser.add_argument("documents", nargs="*")
    arguments = parser.parse_args()
    arguments.root = arguments.root and os.path.abspath(arguments.root)
    arguments.bin = os.path.abspath(arguments.bin)
    documents = arguments.documents or [os.path.join(ROOT, "README.md")] + sorted(
        os.path.join(folder, name) for folder, _, names in os.walk(os.path.join(ROOT, "docs")) for name in names
        if name.endswith(".md"))
    results = [run_document(path, arguments) for path in documents]
    if any(result not in (0, SKIPPED) for result in results):
        return 1
    return SKIPPED if SKIPPED in results else 0


if __name__ == "__main__":
    sys.exit(main())
