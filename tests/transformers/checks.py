# SPDX-License-Identifier: Apache-2.0
"""What the comparisons with transformers count."""
failures = []


def check(good, what):
    """Notes what does not hold; a NaN holds nothing."""
    if not good:
        failures.append(what)
        print(f"FAIL: {what}")


def status():
    """The exit status, which is told as well."""
    print("FAILED" if failures else "all agree", flush=True)
    return 1 if failures else 0
