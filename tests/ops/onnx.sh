#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the ONNX cases of the test data if they exist: onnx.sh TXCHECK DATA DEVICE; TX_TEST_DATA overrides DATA.
set -eu
folder="${TX_TEST_DATA:-$2}/onnx_cases"
if [ ! -f "$folder/manifest.jsonl" ]; then
    echo "skipped: no $folder/manifest.jsonl"
    exit 77
fi
exec "$1" onnx "$folder" --device "$3"
