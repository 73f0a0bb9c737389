# SPDX-License-Identifier: Apache-2.0
"""Pages in headless Chromium, for the tests of pages and for pictures of them."""
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time


def find():
    """The path of Chromium, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Page:
    """A tab of Chromium, controlled by the DevTools protocol over two pipes. Without Chromium the test is skipped."""

    def __init__(self):
        browser = find()
        if not browser:
            print("skipped: no Chromium")
            sys.exit(77)
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to, self.write = os.pipe()
        self.read, answers = os.pipe()
        command = (f'exec "{browser}" --headless --no-sandbox --disable-gpu --hide-scrollbars --disable-lcd-text --user-data-dir="{self.folder.name}" '
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

    def show(self, url, width, height, scheme, scale=1):
        """Loads a page in a window of this size, for a reader who prefers `scheme`: light or dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=url)
        self.wait("document.readyState == 'complete'", "the page")

    def fits(self):
        """Returns true if nothing is wider than the window."""
        return self.value("document.documentElement.scrollWidth <= innerWidth")

    def picture(self, path, **area):
        """Saves the window, or an area of it, as PNG."""
        clip = {"clip": {"scale": 1, **area}} if area else {}
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", **clip)["data"]))

    def close(self):
        self.call("Browser.close")
        self.process.wait(20)
        self.folder.cleanup()
