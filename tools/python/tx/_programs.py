# SPDX-License-Identifier: Apache-2.0
"""Entry points of the programs: each replaces this process by the program with the name of the script."""
import os
import sys


def main():
    name = os.path.basename(sys.argv[0])
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    try:
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {path}: {error.strerror}")
