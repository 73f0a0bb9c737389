# SPDX-License-Identifier: Apache-2.0
"""follow.py BIN: txplot --follow serves the page of a run, draws new steps, and ends by a signal with status 0. If
Chromium is installed, the open page shows the new steps without being loaded again, wide and narrow, light and dark."""
import atexit
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import browser

txplot = os.path.join(sys.argv[1], "txplot")
if "--follow" not in subprocess.run([txplot, "--help"], capture_output=True, text=True, check=True).stdout:
    print("skipped: txplot was built without libmicrohttpd")
    sys.exit(77)


def line(step):
    return json.dumps({"step": step, "loss": 9 - 0.01 * step, "tokens": step, "tokens_per_second": 5}) + "\n"


def fetch(address, path="/"):
    try:
        with urllib.request.urlopen(address + path, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def steps(page):
    return json.loads(re.search(r'id="data">(.*)</script>', page).group(1))["runs"][0]["steps"]


with tempfile.TemporaryDirectory() as folder:
    log = os.path.join(folder, "log.jsonl")
    server = subprocess.Popen([txplot, folder, "--follow", "0"], stdout=subprocess.PIPE, text=True)
    atexit.register(server.kill)
    address = re.match(r"http://localhost:\d+", server.stdout.readline()).group(0)
    status, text = fetch(address)
    assert status == 503 and folder in text, (status, text)
    with open(log, "w") as file:
        file.write(line(1) + line(2))
    status, page = fetch(address)
    assert status == 200 and steps(page) == 2, status
    with open(log, "a") as file:
        file.write(line(3) + '{"step": 4, "lo')
    assert steps(fetch(address)[1]) == 3
    assert fetch(address, "/else")[0] == 404
    pages = []
    threads = [threading.Thread(target=lambda: pages.append(fetch(address)[1])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [steps(page) for page in pages] == [3] * 8
    port = address.rsplit(":", 1)[1]
    for wrong, wanted in [(port, 1), ("70000", 2), ("x", 2)]:
        assert subprocess.run([txplot, folder, "--follow", wrong], capture_output=True).returncode == wanted, wrong
    if browser.find():
        with open(log, "a", buffering=1) as file:
            file.write('ss": 1}\n')
            tab, step = browser.Page(), 5
            shown = "+[...document.querySelectorAll('td')].map(c => c.textContent).find(t => /^\\d+$/.test(t))"
            for width in (1200, 360):
                for scheme in ("light", "dark"):
                    tab.show(address, width, 800, scheme)
                    tab.wait(shown + " > 0", "the first steps")
                    before = tab.value(shown)
                    file.write("".join(line(step + i) for i in range(20)))
                    step += 20
                    tab.wait(f"{shown} >= {before + 20}", "the new steps")
                    assert tab.fits(), f"{width} {scheme}: wider than the window"
                    dark = tab.value("/^rgb\\((\\d+)/.exec(getComputedStyle(document.body).backgroundColor)[1] < 100")
                    assert dark == (scheme == "dark"), f"{width}: the {scheme} colours"
            assert not tab.errors, tab.errors
            tab.close()
        print("the open page shows the new steps, wide and narrow, light and dark")
    server.send_signal(signal.SIGTERM)
    assert server.wait(timeout=20) == 0, server.returncode
