# SPDX-License-Identifier: Apache-2.0
"""The page of txserve in headless Chromium: a message is typed and its answer appears, wide and narrow, light and dark;
nothing is wider than the window, and the console has no error.

    page.py TXSERVE MODEL [FOLDER]      FOLDER: for screenshots
"""
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from server import Server

browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if not browser:
    print("skipped: no Chromium")
    sys.exit(77)


class Page:
    """A tab of a browser, controlled by the DevTools protocol over two pipes."""

    def __init__(self, profile):
        to, self.write = os.pipe()
        self.read, answers = os.pipe()
        command = (f'exec "{browser}" --headless --no-sandbox --disable-gpu --user-data-dir="{profile}" '
                   f"--remote-debugging-pipe 3<&{to} 4>&{answers}")
        self.process = subprocess.Popen(["bash", "-c", command], pass_fds=(to, answers), stderr=subprocess.DEVNULL)
        os.close(to)
        os.close(answers)
        self.rest, self.number, self.session, self.errors = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")
        self.call("Log.enable")

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                data = os.read(self.read, 65536)
                if not data:
                    sys.exit("the browser has ended")
                self.rest += data
            text, self.rest = self.rest.split(b"\0", 1)
            got = json.loads(text)
            entry = got.get("params", {}).get("entry", {})
            if got.get("method") == "Runtime.exceptionThrown" or entry.get("level") == "error":
                self.errors.append(text.decode()[:300])
            if got.get("id") == self.number:
                if "error" in got:
                    sys.exit(f"{method}: {got['error']}")
                return got["result"]

    def value(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait(self, expression, what):
        end = time.time() + 30
        while not self.value(expression):
            if time.time() > end:
                sys.exit(f"FAILED: {what}: {self.value('document.body.innerText')!r}")
            time.sleep(0.05)

    def key(self, name):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=13, text="\r")


def check(good, what):
    if not good:
        sys.exit(f"FAILED: {what}")
    print(f"ok   {what}")


def converse(page, url, width, scheme, want):
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=700, deviceScaleFactor=1, mobile=False)
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    page.call("Page.navigate", url=url)
    page.wait("document.readyState == 'complete' && !!document.querySelector('#model')?.textContent", "the model")
    page.value("document.getElementById('temperature').value = 0; document.getElementById('most').value = 30")
    page.call("Input.insertText", text="Once upon a time")
    page.key("Enter")
    page.wait("document.querySelectorAll('#said p').length == 2 && "
              "document.getElementById('send').textContent == 'Send'", "an answer")
    said = page.value("[...document.querySelectorAll('#said p')].map(p => p.className + ': ' + p.textContent)")
    check(said == ["user: Once upon a time", f"assistant: {want}"], f"{width} {scheme}: {said}")
    check(page.value("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the window")
    light = page.value("getComputedStyle(document.body).backgroundColor") == "rgb(244, 245, 247)"
    check(light == (scheme == "light"), f"the {scheme} colours")
    if len(sys.argv) > 3:
        shot = page.call("Page.captureScreenshot")["data"]
        with open(os.path.join(sys.argv[3], f"chat-{width}-{scheme}.png"), "wb") as f:
            f.write(base64.b64decode(shot))


with Server(sys.argv[1], sys.argv[2], "--chat_template", "chatml") as server, tempfile.TemporaryDirectory() as profile:
    answer = server.send("POST", "/v1/chat/completions", {
        "messages": [{"role": "user", "content": "Once upon a time"}], "temperature": 0, "max_tokens": 30})[1]
    tab = Page(profile)
    for width, scheme in ((1200, "light"), (360, "dark")):
        converse(tab, f"http://127.0.0.1:{server.port}/", width, scheme, answer["choices"][0]["message"]["content"])
    check(not tab.errors, f"no error in the console: {tab.errors}")
    tab.call("Browser.close")
    tab.process.wait(20)
