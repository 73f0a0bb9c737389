#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# txtopo from the outside: forms, options, this machine with and without OpenCL, errors.
#
#   test_txtopo.sh TXTOPO SOURCE-FOLDER OPENCL(yes or no)
txtopo=$1
fixtures=$2/tests/topology/fixtures
opencl=$3
. "${0%/*}/../program.sh"

# expect STATUS TEXT ARGUMENT...: checks the exit status, and that the output contains TEXT; errors are one line.
expect()
{
    wanted=$1
    text=$2
    shift 2
    outcome "$wanted" "$text" "$txtopo" "$@"
    if [ "$wanted" -eq 0 ]; then
        [ ! -s "$work/err" ] || fail "$*: complains"
    else
        [ "$(grep -c '^txtopo: ' "$work/err")" -eq 1 ] && [ "$(wc -l < "$work/err")" -eq 1 ] || fail "$*: not one line of error"
        [ ! -s "$work/out" ] || fail "$*: prints more than its error"
    fi
}

# lacks TEXT: the last output does not have it
lacks()
{
    ! grep -qF -- "$1" "$work/out" || fail "says \"$1\""
}

tab=$(printf '\t')
escape=$(printf '\033')

# ---- options ------------------------------------------------------------------------------------
expect 0 "--input FILE" --help
expect 0 "txtopo 0." --version
expect 0 "XG#   Connection traversing # XGMI" --help
expect 2 "exclude each other" -m -mp
expect 2 "exclude each other" --json --nvidia
expect 2 "exclude each other" --tree -mp
expect 2 "z is not one of r, w, n, a and p" -p2p rz
expect 2 "the value is missing" -p2p
expect 2 "did you mean --nvidia" --nvdia
expect 2 "unknown option" -x

# ---- forms ---------------------------------------------------------------------------------------
classes=$fixtures/classes.xml
expect 0 "GPU3${tab}PHB${tab}PHB${tab}PHB${tab} X ${tab}XG${tab}" --input "$classes"
lacks "$escape"
# Programs that parse the matrix read it from the first line on; a terminal has the table of devices before it.
[ "$(head -n 1 "$work/out" | cut -c 1-5)" = "${tab}GPU0" ] || fail "the matrix does not come first"
if script -qc true /dev/null < /dev/null > /dev/null 2>&1; then # needs pseudo-terminals
    script -qc "$txtopo --input $classes" /dev/null < /dev/null > "$work/out"
    [ "$(head -n 1 "$work/out" | cut -c 1-6)" = Device ] || fail "the devices do not come first on a terminal"
fi
expect 0 "  1. hwloc does not report how many XGMI links there are; XG has no number (GPU3-GPU4)." -m --input "$classes"
expect 0 "GPU3${tab}PHB${tab}PHB${tab}PHB${tab} X ${tab}NODE${tab}" -mp --input "$classes"
lacks "NV#"
lacks "XGMI"
expect 0 "${tab}${escape}[4mGPU0${tab}GPU1" --nvidia --input "$classes"
expect 0 "GPU5${tab}SYS${tab}SYS${tab}SYS${tab}SYS${tab}SYS${tab} X ${tab}PIX${tab}PHB${tab}SYS${tab}SYS${tab}4-7${tab}1${tab}${tab}N/A" --nvidia --input "$classes"
lacks "XG"
expect 0 "GPU0${tab}X${tab}U" -p2p rw --input "$classes"
expect 0 '"cell": "NV2"' --json --input "$classes"
"$txtopo" --nvidia --input "$classes" | "$txtopo" --nvidia --input /dev/stdin > "$work/b"
"$txtopo" --nvidia --input "$classes" | cmp -s - "$work/b" || fail "--nvidia reads otherwise"


expect 0 "0000:03:00.0  GPU0 " --tree --input "$classes"
expect 0 "-bind-to user:4+5,6+7 PROGRAM" --bind 2 --input "$classes"
expect 0 "--cpu-bind=mask_cpu:0x30,0xc0 PROGRAM" --bind 2 --input "$classes"
expect 0 "env ZE_AFFINITY_MASK=0.0 numactl --physcpubind=4-5 --membind=1 PROGRAM  # rank 0" --bind 2 --input "$classes"
expect 0 "env ROCR_VISIBLE_DEVICES=1 numactl" --bind 8 --input "$classes"
expect 0 "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1 numactl" --bind 8 --input "$classes"
expect 0 "env numactl --physcpubind=64-127 --membind=1 PROGRAM  # rank 1" --bind 2 --input "$fixtures/matrix.txt"
printf '\tGPU0\nGPU0\t X \n' > "$work/bare.txt"
expect 2 "exclude each other" --bind 2 -mp
expect 2 "exclude --nvidia and --json" --bind 2 --json
expect 2 "must be between" --bind 5000
expect 1 "does not list the CPU cores" --bind 2 --input "$work/bare.txt"

# ---- this machine -----------------------------------------------------------------------------------
expect 0 "CPU" -m
expect 0 "" --nvidia
export OCL_ICD_VENDORS=/nowhere
expect 0 "OpenCL: " -m
[ "$(grep -c 'OpenCL: ' "$work/out")" -eq 1 ] || fail "does not say in one line that there is no OpenCL"
grep -q 'NUMA node 0: CPUs\|CPU Affinity' "$work/out" || fail "says nothing of the CPUs"
unset OCL_ICD_VENDORS
HWLOC_SYNTHETIC="pack:2 [numa(memory=1073741824)] core:2 pu:2"
export HWLOC_SYNTHETIC
expect 0 "NUMA node 1: CPUs 4-7, 1.0 GiB"
expect 0 "name another machine"
unset HWLOC_SYNTHETIC
[ "$opencl" = no ] && expect 0 "built without it (TX_OPENCL=OFF)"

# ---- errors ------------------------------------------------------------------------------------------
: > "$work/empty"
head -c 3000 "$classes" > "$work/cut.xml"
sed 's/<topology version="2.0">/<topology version="3.0">/' "$classes" > "$work/three.xml"
head -c 4096 /dev/urandom > "$work/noise"
expect 1 "is empty" --input "$work/empty"
expect 1 "$work: a folder, not" --input "$work"
expect 1 "cannot open" --input "$work/none"
expect 1 "cut.xml: hwloc" --input "$work/cut.xml"
expect 1 "lstopo --export-xml-flags v2" --input "$work/three.xml"
expect 1 "noise: " --input "$work/noise"
if [ -w /dev/full ]; then
    "$txtopo" --input "$classes" > /dev/full 2> "$work/err" && fail "does not see a full disk"
    grep -q 'standard output' "$work/err" || fail "does not say that nothing was written"
fi

[ $failures -eq 0 ] || echo "$failures failed"
[ $failures -eq 0 ]
