# SPDX-License-Identifier: Apache-2.0
"""test_terminal.py BIN: txtrain's lines in terminals of 80 and 50 columns: a progress bar with percent and the time
that is left, no line wider than the terminal, colours unless NO_COLOR is set, and neither in a pipe."""
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios

binary = os.path.join(sys.argv[1], "txtrain")
failures = []


def run(folder, columns, **environment):
    """The output of a run in a terminal of so many columns."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    words = ["--config_overrides", "n_layer=1,n_embd=16,n_head=2,n_positions=32", "--train_file",
             os.path.join(folder, "text"), "--max_steps", "12", "--logging_steps", "4", "--threads", "1",
             "--save_strategy", "no", "--overwrite_output_dir", "--output_dir", os.path.join(folder, "out")]
    process = subprocess.Popen([binary, *words], stdin=child, stdout=child, stderr=child,
                               env={**env, "TERM": "xterm", **environment})
    os.close(child)
    output = b""
    try:
        while piece := os.read(parent, 65536):
            output += piece
    except OSError:  # the terminal is closed
        pass
    os.close(parent)
    if process.wait():
        failures.append(f"{columns} columns: status {process.returncode}: {output.decode()}")
    return output.decode()


def check(folder, columns, colors, **environment):
    output = run(folder, columns, **environment)
    plain = re.sub(r"\033\[[0-9;]*[mK]", "", output)
    wide = [line for line in re.split(r"[\r\n]+", plain) if len(line) > columns]
    if wide:
        failures.append(f"{columns} columns: {wide[0]!r} has {len(wide[0])}")
    bars = re.findall(r" *(\d+) % (?:\[(=*) *\] )?(\d+)/12  loss \d+\.\d+.*?(\d+:\d\d:\d\d left)?(?=\r|$)", plain, re.M)
    if [int(bar[2]) for bar in bars] != list(range(1, 13)) or bars[5][0] != "50" or bars[-1][0] != "100":
        failures.append(f"{columns} columns: {bars}")
    if columns >= 80 and (not bars[-1][3] or not len(bars[-1][1]) > len(bars[5][1]) > len(bars[0][1])):
        failures.append(f"{columns} columns: no growing bar with the time left: {bars}")
    if ("\033[32m" in output) != colors:
        failures.append(f"{columns} columns: colours are {'missing' if colors else 'there'} with {environment}")


with tempfile.TemporaryDirectory() as scratch:
    with open(os.path.join(scratch, "text"), "w") as file:
        file.write("".join(f"line {i}: the cat sat on the mat\n" for i in range(99)))
    check(scratch, 80, True)
    check(scratch, 120, False, NO_COLOR="1")
    check(scratch, 100, False, TERM="dumb")
    check(scratch, 50, True)
print("\n".join(failures) or "all lines fit")
sys.exit(bool(failures))
