#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The matrix, parsed as programs parse that of nvidia-smi topo -m, in nine common ways, from -m and from --nvidia. Each
# result equals the JSON output.
#
#   test_parsers.sh TXTOPO SOURCE-FOLDER
txtopo=$1
fixtures=$2/tests/topology/fixtures
. "${0%/*}/../program.sh"
python=${TX_PYTHON:-python3}
command -v "$python" > /dev/null || { echo "skipped: no $python"; exit 77; }

# ---- the nine: each reads $work/text and prints its findings ------------------------------------
plain()
{
    sed 's/\x1b\[[0-9;]*m//g' "$work/text"
}

# Words; the header is the first line that begins with blanks and GPU0.
words()
{
    plain | awk '/^[ \t]+GPU0/ && !n { while ($(n + 1) ~ /^(GPU|NIC)[0-9]+$/) { n++; name[n] = $n }; next }
        n && /^(GPU|NIC)[0-9]/ { for (i = 1; i <= n; i++) print $1, name[i], $(i + 1) }'
}

# Tabs; the header is the first line that has GPU0; cells are trimmed.
tabs()
{
    plain | awk -F'\t' '/GPU0/ && !n { for (i = 2; $i ~ /^(GPU|NIC)[0-9]+ *$/; i++) name[n = i] = $i; next }
        n && /^(GPU|NIC)[0-9]+\t/ { for (i = 2; i <= n; i++) { gsub(/ /, "", $i); print $1, name[i], $i } }'
}

# The first line is the header, with its escapes in it, whatever it holds.
first_line()
{
    awk 'NR == 1 { gsub(/\033\[[0-9;]*m/, ""); n = split($0, name); next }
        $1 ~ /^(GPU|NIC)[0-9]+$/ { for (i = 1; i <= n && name[i] != "CPU"; i++) print $1, name[i], $(i + 1) }' \
    "$work/text"
}

# No header: as many rows as begin with GPU, the cells by their places.
by_place()
{
    plain | awk '/^GPU[0-9]/ { row[n++] = $0 }
        END { for (a = 0; a < n; a++) { split(row[a], w); for (b = 0; b < n; b++) print "GPU" a, "GPU" b, w[b + 2] } }'
}

# Columns of fixed width, after the places of the names in the header.
fixed_columns()
{
    plain | expand -t 8 | awk '/^ +GPU0/ && !n { n = split($0, name); head = $0; next }
        n && /^(GPU|NIC)[0-9]+ / { for (i = 1; i <= n && name[i] != "CPU"; i++) {
            cell = substr($0, index(head, name[i]), 8); gsub(/ /, "", cell); print $1, name[i], cell } }'
}

# Every NV# of a row.
nvlinks()
{
    plain | awk '/^GPU[0-9]/ { n = 0; for (i = 2; i <= NF; i++) n += $i ~ /^NV[0-9]+$/; print $1, n }'
}

# The first field that is a list of numbers is the CPU affinity.
cpu_affinity()
{
    plain | awk '/^GPU[0-9]/ { for (i = 2; i <= NF; i++) if ($i ~ /^[0-9]+([-,][0-9]+)*$/) { print $1, $i; next } }'
}

# The NUMA affinity, in the column that the header names.
numa_affinity()
{
    plain | awk -F'\t' '!at { for (i = 2; i <= NF; i++) if ($i == "NUMA Affinity") at = i; next }
        /^GPU/ { print $1, $at }'
}

# The names after NIC Legend.
nic_legend()
{
    plain | awk '/^NIC Legend/ { on = 1 } on && /^ +NIC[0-9]+:/ { sub(/:/, "", $1); print $1, $2 }'
}

# ---- expected results, from the JSON ------------------------------------------------------------------
cat > "$work/expected.py" << 'END'
import json, re, sys
t = json.load(open(sys.argv[2]))
devices = [d for d in t["devices"] if d["kind"] != "CPU"]
gpus = [d for d in devices if d["kind"] == "GPU"]
cells = {}
for pair in t["pairs"]:
    a, b = (t["devices"][pair[end]]["label"] for end in "ab")
    cells[a, b] = cells[b, a] = pair["cell"]
def cell(a, b):
    return "X" if a == b else cells[a["label"], b["label"]]
def matrix(of):
    return [(a["label"], b["label"], cell(a, b)) for a in of for b in of]
found = {
    "by_place": lambda: matrix(gpus),
    "nvlinks": lambda: [(a["label"], sum(bool(re.match(r"NV\d", cell(a, b))) for b in devices)) for a in gpus],
    "cpu_affinity": lambda: [(a["label"], a["cpu_affinity"]) for a in gpus],
    "numa_affinity": lambda: [(a["label"], a["numa_affinity"]) for a in gpus],
    "nic_legend": lambda: [(a["label"], a["system_name"]) for a in devices if a["kind"] == "NIC"],
}
for row in found.get(sys.argv[1], lambda: matrix(devices))():
    print(*row)
END

# try FILE FORM...
try()
{
    { "$txtopo" --json --input "$1" > "$work/json" && "$txtopo" "$2" --input "$1" > "$work/text"; } ||
        fail "$*: not printed"
    for shape in words tabs first_line by_place fixed_columns nvlinks cpu_affinity numa_affinity nic_legend; do
        "$python" "$work/expected.py" "$shape" "$work/json" > "$work/out"
        $shape | grep -v 'CPU[0-9]' > "$work/err" # a CPU device is one more column, which the expected rows have not
        cmp -s "$work/out" "$work/err" || fail "$1 $2: $shape finds otherwise"
        [ -s "$work/out" ] || [ $shape = nic_legend ] || fail "$1 $2: $shape has nothing to find"
        tried=$((tried + 1))
    done
}

tried=0
for file in bridges.xml unplaced.xml matrix.txt; do
    try "$fixtures/$file" -m
    try "$fixtures/$file" --nvidia
done
try "$fixtures/classes.xml" -m
[ $tried -eq 63 ] || fail "$tried readings, not 63"
[ $failures -eq 0 ]
