#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a Python script with the interpreter in TX_PYTHON (python3 where it is not set); ends with 77 (skipped) where
# there is none.
python=${TX_PYTHON:-python3}
command -v "$python" > /dev/null || { echo "skipped: no $python"; exit 77; }
folder=$(cd "${0%/*}" && pwd)
PYTHONPATH=$folder${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1 exec "$python" "$@"
