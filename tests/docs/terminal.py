#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/terminal.svg, a terminal in which txtrain trains a small model and txgen continues a text:

    terminal.py BIN_FOLDER TEXT [PICTURE]

It runs both programs on TEXT, which takes about a minute, and draws their output. Lines wrap at 88 columns, which the
log lines need. Progress lines, which appear every ten seconds, and the table of metrics at the end of the training are
left out. The picture follows the reader's light or dark theme."""
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile

COLUMNS = 88
TRAIN = """txtrain --train_file {text} --output_dir model --block_size 128 \\
    --max_steps 3000 --learning_rate 2e-3 --lr_scheduler_type constant \\
    --logging_steps 300 --save_strategy no"""
GENERATE = """txgen --model model --prompt "You may " --max_new_tokens 110 --temperature 0.5"""

# Pixels of a character, of a line and of the frame.
WIDTH, HEIGHT, MARGIN, BAR = 7.8, 18, 16, 34
STYLE = """
svg { --page: #ffffff; --bar: #eef1f5; --edge: #d0d7de; --text: #1f2328; --command: #0550ae; --sign: #1a7f37 }
@media (prefers-color-scheme: dark) {
svg { --page: #161b22; --bar: #21262d; --edge: #30363d; --text: #c9d1d9; --command: #79c0ff; --sign: #56d364 } }
.page { fill: var(--page); stroke: var(--edge) } .bar { fill: var(--bar) } .dot { fill: var(--edge) }
text { fill: var(--text); font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
white-space: pre }
.command { fill: var(--command) } .sign { fill: var(--sign); font-weight: 600 }
"""


def run(programs, folder, command):
    """Returns the lines that a command prints."""
    env = dict(os.environ, PATH=programs + os.pathsep + os.environ["PATH"], TX_PROGRESS="0")
    done = subprocess.run(command, shell=True, cwd=folder, env=env, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        sys.exit(f"terminal.py: {command} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout.rstrip("\n").split("\n")


def wrapped(line):
    return [line[at:at + COLUMNS] for at in range(0, max(len(line), 1), COLUMNS)]


def session(programs, text):
    """Returns the rows of the terminal: a kind (command or output) and the text of each."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.basename(text)
        shutil.copy(text, os.path.join(folder, name))
        for command in (TRAIN.format(text=name), GENERATE):
            rows += [("command", ("$ " if at == 0 else "") + line) for at, line in enumerate(command.split("\n"))]
            for line in run(programs, folder, command):
                if line.startswith("*****"):  # the table of metrics
                    break
                if not re.match(r"step (?!1/)\d+/\d+  loss", line):  # no progress line
                    rows += [("output", part) for part in wrapped(line)]
    return rows + [("command", "$ ")]


def draw(rows):
    width, height = COLUMNS * WIDTH + 2 * MARGIN, len(rows) * HEIGHT + BAR + MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
           f'height="{height}" role="img" aria-label="txtrain trains a small model, txgen continues a text">',
           f"<style>{STYLE}</style>", '<rect class="page" x="0.5" y="0.5" width="99.9%" height="99.8%" rx="8"/>',
           f'<path class="bar" d="M1 {BAR - 8}V9a8 8 0 0 1 8-8h{width - 18:.0f}a8 8 0 0 1 8 8v{BAR - 17}z"/>']
    out += [f'<circle class="dot" cx="{18 + 18 * i}" cy="{(BAR - 8) // 2 + 1}" r="5"/>' for i in range(3)]
    for at, (kind, line) in enumerate(rows):
        text = html.escape(line, quote=False)
        if kind == "command":
            sign, rest = ("$", text[1:]) if text.startswith("$") else ("", text)
            text = f'<tspan class="sign">{sign}</tspan><tspan class="command">{rest}</tspan>'
        if line.strip():
            out.append(f'<text x="{MARGIN}" y="{BAR + (at + 1) * HEIGHT - 5}">{text}</text>')
    return "\n".join(out) + "\n</svg>\n"


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    here = os.path.dirname(os.path.abspath(__file__))
    picture = sys.argv[3] if len(sys.argv) == 4 else os.path.join(here, "..", "..", "docs", "terminal.svg")
    body = draw(session(os.path.abspath(sys.argv[1]), sys.argv[2]))
    with open(picture, "w", encoding="utf-8") as file:
        file.write(body)


if __name__ == "__main__":
    main()
