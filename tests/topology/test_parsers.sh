#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The matrix as programs parse that of nvidia-smi topo -m, in nine ways that are met, out of -m and of --nvidia: each gets
# what the CSV says.
#
#   test_parsers.sh TXTOPO SOURCE-FOLDER
txtopo=$1
fixtures=$2/tests/topology/fixtures
. "${0%/*}/../program.sh"

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
        $1 ~ /^(GPU|NIC)[0-9]+$/ { for (i = 1; i <= n && name[i] != "CPU"; i++) print $1, name[i], $(i + 1) }' "$work/text"
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

# The NUMA affinity is where the header has it.
numa_affinity()
{
    plain | awk -F'\t' '!at { for (i = 2; i <= NF; i++) if ($i == "NUMA Affinity") at = i; next } /^GPU/ { print $1, $at }'
}

# The names behind NIC Legend.
nic_legend()
{
    plain | awk '/^NIC Legend/ { on = 1 } on && /^ +NIC[0-9]+:/ { sub(/:/, "", $1); print $1, $2 }'
}

# ---- what is to be found, of the CSV ------------------------------------------------------------------
# csv PROGRAM: awk over its rows, whose column of a name is col["name"]; commas within values are ;
csv()
{
    sed ':a; s/\("[^",]*\),\([^"]*"\)/\1;\2/; ta; s/"//g' "$work/csv" |
        awk -F, "NR == 1 { for (i = 1; i <= NF; i++) { col[\$i] = i; name[i] = \$i } n = col[\"bus_id\"] - 1; next } $1"
}

# shellcheck disable=SC2016 # the programs are awk's
expected()
{
    case $1 in
    by_place)
        csv '/^GPU/ { for (i = 2; i <= n; i++) if (name[i] ~ /^GPU/) print $1, name[i], $i }' ;;
    nvlinks) csv '/^GPU/ { c = 0; for (i = 2; i <= n; i++) c += $i ~ /^NV[0-9]+$/; print $1, c }' ;;
    cpu_affinity) csv '/^GPU/ { gsub(/;/, ",", $col["cpu_affinity"]); print $1, $col["cpu_affinity"] }' ;;
    numa_affinity) csv '/^GPU/ { print $1, $col["numa_affinity"] }' ;;
    nic_legend) csv '/^NIC/ { print $1, $col["system_name"] }' ;;
    *) csv '!/^CPU/ { for (i = 2; i <= n; i++) if (name[i] !~ /^CPU/) print $1, name[i], $i }' ;;
    esac
}

# try FILE FORM...
try()
{
    { "$txtopo" --csv --input "$1" > "$work/csv" && "$txtopo" "$2" --input "$1" > "$work/text"; } || fail "$*: not printed"
    for shape in words tabs first_line by_place fixed_columns nvlinks cpu_affinity numa_affinity nic_legend; do
        expected "$shape" > "$work/out"
        $shape | grep -v 'CPU[0-9]' > "$work/err" # a CPU device is one more column, which the CSV's rows here have not
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
# A CPU device stands behind the others.
"$txtopo" --json --input "$fixtures/classes.xml" | sed 's/"kind": "NIC"/"kind": "CPU"/' > "$work/cpu.json"
try "$work/cpu.json" -m
[ $tried -eq 72 ] || fail "$tried readings, not 72"
[ $failures -eq 0 ]
