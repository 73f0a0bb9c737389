#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The ONNX cases of the test data, where there are any: onnx.sh TXCHECK DATA DEVICE; TX_TEST_DATA goes before DATA.
set -eu
folder="${TX_TEST_DATA:-$2}/onnx_cases"
if [ ! -f "$folder/manifest.jsonl" ]; then
    echo "skipped: no $folder/manifest.jsonl"
    exit 77
fi
exec "$1" onnx "$folder" --device "$3"
