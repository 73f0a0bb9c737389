#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The lines that txtopo --bind prints for this machine are correct. Started by its mpiexec line, each rank may run on
# the CPUs in the table and no others. The same holds for its numactl and hwloc-bind lines.
#
#   test_bind.sh TXTOPO [LAUNCHER]
set -u
txtopo=$1
for launcher in ${2:+"$2"} mpiexec.mpich mpiexec.hydra mpiexec ''; do
    [ -n "$launcher" ] && "$launcher" --version 2> /dev/null | grep -qi hydra && break
done
[ -n "$launcher" ] || {
    echo "no launcher of MPICH (mpiexec): apt-get install mpich"
    exit 77
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failures=0

# The program that ranks run: "RANK CPUS".
cat > "$work/where" << 'END'
#!/bin/sh
echo "${PMI_RANK:-} $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)"
END
chmod +x "$work/where"

# check WHAT: $work/found equals $work/wanted
check()
{
    cmp -s "$work/wanted" "$work/found" && return
    echo "FAIL: $1: not where the table says:"
    diff "$work/wanted" "$work/found"
    failures=$((failures + 1))
}

cpus=$(getconf _NPROCESSORS_ONLN)
for ranks in 1 2 3 "$cpus" $((cpus + 1)); do
    "$txtopo" --bind "$ranks" > "$work/out" || exit 1
    # The column of CPUs, up to the empty line after the table.
    awk '/^Rank / { at = index($0, "CPUs"); next }
        !NF { exit } { split(substr($0, at), part, " "); print $1, part[1] }' \
        "$work/out" > "$work/wanted"
    [ "$(wc -l < "$work/wanted")" -eq "$ranks" ] || {
        echo "FAIL: --bind $ranks: not so many ranks"
        exit 1
    }
    line=$(sed -n "s|^  mpiexec \(.*\) PROGRAM\$|\1 $work/where|p" "$work/out")
    # shellcheck disable=SC2086 # the line is split into words as a shell would
    "$launcher" $line | sort -n > "$work/found"
    check "mpiexec $line"
    if command -v numactl > /dev/null; then
        sed -n "s|^  \(env numactl .*\) PROGRAM  # rank \(.*\)\$|PMI_RANK=\2 \1 $work/where|p" "$work/out" > "$work/script"
        sh "$work/script" > "$work/found"
        check "numactl, $ranks ranks"
    fi
    if command -v hwloc-bind > /dev/null; then
        sed -n "s|^  \(hwloc-bind .*\) -- PROGRAM  # rank \(.*\)\$|PMI_RANK=\2 \1 -- $work/where|p" "$work/out" > "$work/script"
        sh "$work/script" > "$work/found"
        check "hwloc-bind, $ranks ranks"
    fi
done
[ $failures -eq 0 ]
