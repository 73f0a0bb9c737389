# SPDX-License-Identifier: Apache-2.0
"""The page of txserve in headless Chromium: a message is typed and its answer appears, wide and narrow, light and dark;
nothing is wider than the window, and the console has no error.

    page.py TXSERVE MODEL
"""
import sys

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
    tab.close()
