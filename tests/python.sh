#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a Python script with the interpreter in TX_PYTHON, by default python3; ends with 77 (skipped) if there is none.
python=${TX_PYTHON:-python3}
command -v "$python" > /dev/null || { echo "skipped: no $python"; exit 77; }
folder=$(cd "${0%/*}" && pwd)
PYTHONPATH=$folder${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1 exec "$python" "$@"
