# SPDX-License-Identifier: Apache-2.0
"""The pages of txserve in headless Chromium: a message is typed and its answer appears, texts are labelled and ranked,
wide and narrow, light and dark; nothing is wider than the window, and the console has no error.

    page.py TXSERVE MODEL TXTRAIN
"""
import json
import os
import subprocess
import sys
import tempfile

from browser import Page
from server import Server


def check(good, what):
    if not good:
        sys.exit(f"FAILED: {what}")
    print(f"ok   {what}")


def converse(page, url, width, scheme, want):
    page.show(url, width, 700, scheme)
    page.wait("!!document.querySelector('#model')?.textContent", "the model")
    page.value("document.getElementById('temperature').value = 0; document.getElementById('most').value = 30; "
               "document.getElementById('system').value = ' Be brief. '")
    page.call("Input.insertText", text="Once upon a time")
    for name, wrong, right in (("temperature", 3, 0), ("top", -0.1, ""), ("top", 1.1, 1), ("most", 0, 30)):
        page.value(f"document.getElementById('{name}').value = {wrong}")
        page.key("Enter")
        check(page.value("document.querySelectorAll('#said p').length == 0 && document.querySelector('details').open"),
              f"{name} {wrong} is refused")
        page.value(f"document.getElementById('{name}').value = '{right}'; document.getElementById('text').focus()")
    page.key("Enter")
    page.wait("document.querySelectorAll('#said p').length == 2 && "
              "document.getElementById('send').textContent == 'Send'", "an answer")
    said = page.value("[...document.querySelectorAll('#said p')].map(p => p.className + ': ' + p.textContent)")
    check(said == ["user: Once upon a time", f"assistant: {want}"], f"{width} {scheme}: {said}")
    check(page.fits(), "nothing is wider than the window")
    light = page.value("getComputedStyle(document.body).backgroundColor") == "rgb(244, 245, 247)"
    check(light == (scheme == "light"), f"the {scheme} colours")


def encode(page, url, width, scheme, query, want):
    """Types texts and sends them. `want` is the start of the page's results."""
    page.show(url, width, 700, scheme)
    page.wait("!!document.querySelector('#model')?.textContent", "the model")
    check(page.value("document.activeElement.id") == ("query" if query else "texts"), "the first field has the focus")
    check(page.value("document.getElementById('query').offsetHeight > 0") == bool(query), "only ranking has a query")
    page.value(f"document.getElementById('query').value = {json.dumps(query)}; document.getElementById('texts').focus()")
    page.call("Input.insertText", text="a great film\na dull story\n")
    page.value("document.querySelector('form').requestSubmit()")
    page.wait("document.querySelectorAll('#results h2').length == 2", "two results")
    said = page.value("document.getElementById('results').innerText.replace(/\\s+/g, ' ')")
    check(said.startswith(want), f"{width} {scheme}: {said}")
    check(page.fits(), "nothing is wider than the window")
    light = page.value("getComputedStyle(document.body).backgroundColor") == "rgb(244, 245, 247)"
    check(light == (scheme == "light"), f"the {scheme} colours")
    page.value("document.getElementById('texts').value = 'word '.repeat(1000); "
               "document.querySelector('form').requestSubmit()")
    page.wait("!!document.querySelector('#results .error')", "an error")
    check("longer" in page.value("document.querySelector('#results .error').textContent"), "the server's message")


FILMS = [{"text": "a great film", "label": "good"}, {"text": "a dull story", "label": "bad"}]
PAIRS = [{"anchor": "a great film", "positive": "a good film"}, {"anchor": "a dull story", "positive": "a bad book"}]
BERT = {"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 32, "max_position_embeddings": 64, "vocab_size": 257}


def train(program, folder, rows, *arguments):
    """Trains a small model on rows about films. Returns its folder."""
    with open(os.path.join(folder, "films.jsonl"), "w") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows) * 20)
    with open(os.path.join(folder, "bert.json"), "w") as file:
        json.dump(BERT, file)
    subprocess.run([program, "--train_file", "films.jsonl", "--config_name", "bert.json", "--output_dir", "films",
                    "--overwrite_output_dir", "--save_strategy", "no", "--learning_rate", "5e-3", "--max_steps", "60",
                    "--device", "cpu", *arguments], cwd=folder, check=True, capture_output=True)
    return os.path.join(folder, "films")


tab = Page()
with Server(sys.argv[1], sys.argv[2], "--chat_template", "chatml") as server:
    answer = server.send("POST", "/v1/chat/completions", {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Once upon a time"}],
        "temperature": 0, "top_p": 1, "max_tokens": 30})[1]
    for width in (1200, 360):
        for scheme in ("light", "dark"):
            converse(tab, f"http://127.0.0.1:{server.port}/", width, scheme,
                     answer["choices"][0]["message"]["content"])
check(not tab.errors, f"no error in the console: {tab.errors}")
for task, name, data, asked, first in (("classify", "classification", FILMS, "", "a great film good "),
                                       ("embed", "embedding", PAIRS, "a great film", "a great film score ")):
    with tempfile.TemporaryDirectory() as scratch:
        with Server(sys.argv[1], train(sys.argv[3], scratch, data, "--task_name", name), "--task", task) as server:
            for width in (1280, 390):
                for scheme in ("light", "dark"):
                    encode(tab, f"http://127.0.0.1:{server.port}/", width, scheme, asked, first)
# Requests that the server refuses are errors of the console: one for each text that is too long.
check(len(tab.errors) == 8 and all("400" in error for error in tab.errors), f"errors in the console: {tab.errors}")
tab.close()
