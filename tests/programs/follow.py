# SPDX-License-Identifier: Apache-2.0
"""follow.py BIN: txplot --follow serves the page of a run, draws new steps, and ends by a signal with status 0. If
Chromium is installed, the open page shows the new steps without being loaded again."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

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
    browser = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), None)
    if browser:
        viewer = subprocess.Popen([browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
                                   "--virtual-time-budget=120000", address], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True)
        threading.Thread(target=lambda: pages.append(viewer.communicate(timeout=60)[0])).start()
        with open(log, "a", buffering=1) as file:
            file.write("ss\": 1}\n")
            for step in range(5, 600):
                if viewer.poll() is not None:
                    break
                file.write(line(step))
                time.sleep(0.05)
        while len(pages) < 9:
            time.sleep(0.1)
        dom = pages[8]
        shown = int(re.search(r"<td[^>]*>(\d+)</td>", dom).group(1))
        assert shown > steps(dom), f"loaded with {steps(dom)} steps, shows {shown}"
        print("the open page shows the new steps")
    server.send_signal(signal.SIGTERM)
    assert server.wait(timeout=20) == 0, server.returncode
