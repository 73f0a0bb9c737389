#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The output of txtopo --json follows tools/topology/txtopo.schema.json, for this machine, for the fixtures, and for the
# test data.
#
#   test_schema.sh TXTOPO SOURCE-FOLDER
set -u
txtopo=$1
source=$2
python=${TX_PYTHON:-python3}
command -v "$python" > /dev/null || { echo "skipped: no $python"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

"$txtopo" --json > "$work/live.json" || exit 1
OCL_ICD_VENDORS=/nowhere "$txtopo" --json > "$work/bare.json" || exit 1
printf '\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n' > "$work/matrix"
for file in "$source"/tests/topology/fixtures/*.xml "$work/matrix" \
    "${TX_TEST_DATA:-$source/../shared/data}"/topo/*.xml; do
    [ -f "$file" ] || continue
    "$txtopo" --json --input "$file" > "$work/$(basename "$file").json" || exit 1
done
# The checker detects errors.
sed 's/"kind": "GPU"/"kind": "gpu"/' "$work/classes.xml.json" > "$work/bad-word.json"
sed 's/"bus_id"/"bus"/' "$work/classes.xml.json" > "$work/bad-key.json"
sed 's/"partition": 0/"partition": -1/' "$work/classes.xml.json" > "$work/bad-number.json"
exec "$python" "$source/tests/topology/check_schema.py" "$source/tools/topology/txtopo.schema.json" "$work"/*.json
