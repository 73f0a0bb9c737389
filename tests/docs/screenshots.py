#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes the pictures in docs/screens from real runs, with Chromium and Pillow:

    sh tests/python.sh tests/docs/screenshots.py BIN_FOLDER TEXT [FOLDER]

A terminal of 80 columns with the progress bar of txtrain, its --help and the matrix of txtopo; the page of txserve; and
the page of txplot --follow during the run. TEXT is a text to train on. It takes about a minute."""
import fcntl
import html
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios

from PIL import Image

from browser import Page
from serve.server import Server

COLUMNS, ROWS = 80, 24
HERE = os.path.dirname(os.path.abspath(__file__))
TRAIN = """txtrain --train_file text --output_dir model --block_size 64 \\
    --config_overrides n_layer=2,n_embd=64,n_head=4 --max_steps 600 \\
    --learning_rate 2e-3 --logging_steps 20 --eval_strategy steps \\
    --eval_steps 100 --validation_file text"""
SAYS = {"cow": "Moo.", "dog": "Woof, woof!", "cat": "Meow.", "duck": "Quack.", "sheep": "Baa.", "owl": "Hoot."}
PAGE = """<meta charset="utf-8"><style>:root { color-scheme: light dark }
body { margin: 0; background: light-dark(#fff, #161b22); color: light-dark(#1f2328, #c9d1d9) }
pre { margin: 0; padding: 12px; display: inline-block; width: 80ch; font: 12px/1.3 "DejaVu Sans Mono", monospace }
b { color: light-dark(#0550ae, #79c0ff); font-weight: 400 } .c32 { color: light-dark(#1a7f37, #56d364) }
.c31 { color: light-dark(#cf222e, #ff7b72) } .c33 { color: light-dark(#9a6700, #e3b341) } .c1 { font-weight: 700 } .c4 { text-decoration: underline }
</style><pre>"""


class Terminal:
    """A program in a terminal. `lines` has the characters that a person sees, each with its colour."""

    def __init__(self, words, folder, programs):
        parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
        env.update(PATH=programs + os.pathsep + env["PATH"], TERM="xterm", LC_ALL="C.UTF-8")
        self.process = subprocess.Popen(words, cwd=folder, env=env, stdin=child, stdout=child, stderr=child)
        os.close(child)
        self.parent, self.lines, self.column, self.colour = parent, [[]], 0, ""

    def read(self):
        """Shows the next output. Returns false at its end."""
        try:
            data = os.read(self.parent, 65536).decode(errors="replace")
        except OSError:  # the terminal is closed
            return False
        for piece in re.findall(r"\033\[[0-9;?]*[A-Za-z]|.", data, re.S):
            line = self.lines[-1]
            if piece == "\n":
                self.lines.append([])
            elif piece == "\r":
                self.column = 0
            elif piece == "\t":
                line += [(" ", "")] * (8 - self.column % 8)
                self.column = len(line)
            elif piece == "\033[K":
                del line[self.column:]
            elif piece.endswith("m") and len(piece) > 1:
                self.colour = piece[2:-1].lstrip("0")
            elif len(piece) == 1:
                line[self.column:self.column + 1] = [(piece, self.colour)]
                self.column += 1
        return bool(data)

    def text(self):
        return "\n".join("".join(c for c, _ in line).rstrip() for line in self.lines)

    def markup(self, command):
        rows = [f"$ <b>{html.escape(command)}</b>"]
        for line in self.lines:
            if len(line) > COLUMNS:
                sys.exit(f"{command}: wider than {COLUMNS} columns: {''.join(c for c, _ in line)}")
            rows.append("".join(f'<span class="c{colour}">{html.escape(c)}</span>' if colour else html.escape(c)
                                for c, colour in line))
        return "\n".join(rows).rstrip()


class Pictures:
    def __init__(self, folder):
        self.folder, self.page, self.scratch = folder, Page(), tempfile.TemporaryDirectory()
        os.makedirs(folder, exist_ok=True)

    def both(self, name, url, width, height, ready="true", act=lambda: None):
        """Takes a picture in light and one in dark colours; of a narrow window only in dark ones."""
        for scheme in ("light", "dark") if width > 400 else ("dark",):
            self.page.show(url, width, height, scheme)
            act()
            self.page.wait(ready, name)
            pre = self.page.value("(p => p && [p.offsetWidth, p.offsetHeight])(document.querySelector('body > pre'))")
            area = {"x": 0, "y": 0, "width": pre[0], "height": min(pre[1], height)} if pre else {}
            path = os.path.join(self.folder, f"{name}-{scheme}.png")
            self.page.picture(path, **area)
            Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)
            size = os.path.getsize(path)
            print(f"{path}: {size} bytes")
            if size > 100000:
                sys.exit(f"{path} is larger than 100 KB")

    def terminal(self, name, markup):
        path = os.path.join(self.scratch.name, f"{name}.html")
        with open(path, "w", encoding="utf-8") as file:
            file.write(PAGE + markup + "</pre>")
        self.both(name, "file://" + path, 660, 900)


def chat(pictures, programs):
    """Teaches a small model what animals say, and asks it on the page."""
    page, folder = pictures.page, pictures.scratch.name
    with open(os.path.join(folder, "chats.jsonl"), "w", encoding="utf-8") as file:
        for animal, says in SAYS.items():
            said = [{"role": "user", "content": f"What does the {animal} say?"}, {"role": "assistant", "content": says}]
            file.write(json.dumps({"messages": said}) + "\n")
    subprocess.run([os.path.join(programs, "txtrain"), "--train_file", "chats.jsonl", "--output_dir", "my-chat",
                    "--chat_template", "zephyr", "--max_length", "64", "--save_strategy", "no", "--max_steps", "250",
                    "--learning_rate", "1e-2", "--config_overrides", "n_layer=2,n_embd=64,n_head=2"],
                   cwd=folder, check=True, capture_output=True)
    done = ("document.querySelectorAll('#said p').length == 2 && "
            "document.getElementById('send').textContent == 'Send'")

    def ask():
        page.wait("!!document.querySelector('#model')?.textContent", "the model")
        page.value("document.getElementById('temperature').value = 0")
        page.call("Input.insertText", text="What does the dog say?")
        page.key("Enter")

    with Server(os.path.join(programs, "txserve"), os.path.join(folder, "my-chat")) as server:
        for name, width, height in (("chat", 900, 420), ("chat-narrow", 360, 480)):
            pictures.both(name, f"http://127.0.0.1:{server.port}/", width, height, done, ask)


def main():
    programs, text = os.path.abspath(sys.argv[1]), sys.argv[2]
    pictures = Pictures(sys.argv[3] if len(sys.argv) > 3 else os.path.join(HERE, "..", "..", "docs", "screens"))
    for name, words in (("help", ["txtrain", "--help"]), ("topology", ["txtopo"])):
        terminal = Terminal(words, pictures.scratch.name, programs)
        while terminal.read():
            pass
        pictures.terminal(name, terminal.markup(" ".join(words)))
    with open(text, encoding="utf-8") as file, open(os.path.join(pictures.scratch.name, "text"), "w") as to:
        to.write(file.read()[:100000])
    terminal = Terminal(TRAIN.replace("\\\n", "").split(), pictures.scratch.name, programs)
    while not re.search(r"% \[.*\] (3[89]|[45].)./600.*$", terminal.text()):  # a bar may be erased at the moment
        if not terminal.read():
            sys.exit(f"no progress bar after step 380: {terminal.text()}")
    pictures.terminal("progress", terminal.markup(TRAIN))
    follow = subprocess.Popen([os.path.join(programs, "txplot"), "model", "--follow", "0"], cwd=pictures.scratch.name,
                              stdout=subprocess.PIPE, text=True)
    url = re.search(r"http://\S+", follow.stdout.readline()).group(0)
    for name, width, height in (("plot", 1100, 760), ("plot-narrow", 360, 760)):
        pictures.both(name, url, width, height, "document.querySelectorAll('svg path').length > 0")
    follow.kill()
    while terminal.read():
        pass
    if terminal.process.wait():
        sys.exit(terminal.text())
    chat(pictures, programs)
    pictures.page.close()


if __name__ == "__main__":
    main()
