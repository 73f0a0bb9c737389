#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The worked example of CONTRIBUTING.md, "Add an op": quick_gelu, as the patch op/quick_gelu.patch.
#
#   op.sh patch SOURCE WORK                     applies the patch to a copy of the tree; it changes at most five files,
#                                               which the guide names
#
#   op.sh build SOURCE WORK [CMAKE OPTION...]   builds the copy; the op passes the conformance suite on each device,
#                                               forward and backward, and a network learns with it
#
# Exit status 77: there is no patch command.
set -eu
mode=$1
source=$2
work=$3
shift 3
patch=$source/tests/examples/op/quick_gelu.patch
command -v patch > /dev/null || {
    echo "patch is missing"
    exit 77
}

fail()
{
    echo "op.sh: $1"
    exit 1
}

rm -rf "$work/tree"
mkdir -p "$work/tree/tests"
cd "$source"
cp -r CMakeLists.txt CONTRIBUTING.md api backends comm models tools "$work/tree"
cp -r tests/ops tests/examples "$work/tree/tests"
cd "$work/tree"
patch -s -p1 -F0 < "$patch" || fail "the patch does not apply: follow CONTRIBUTING.md again and make another"

files=$(sed -n 's,^+++ b/,,p' "$patch")
[ "$(echo "$files" | wc -l)" -le 5 ] || fail "more than five files: $files"
for file in $files; do
    sed -n '/^## Add an op$/,/^## Add an optimizer$/p' CONTRIBUTING.md | grep -qF "\`$file\`" || fail "the guide does not name $file"
done
[ "$mode" = build ] || exit 0

sed 's/tx_gelu(\(.*\), false)/tx_quick_gelu(\1)/' tests/examples/mlp.c > example.c
grep -q tx_quick_gelu example.c || fail "mlp.c calls tx_gelu no more"
echo "add_executable(example example.c)
target_link_libraries(example PRIVATE tx)" >> CMakeLists.txt
cmake -G Ninja -S . -B ../build -DBUILD_TESTING=OFF -DTX_MPI=OFF "$@" > ../log || fail "$(cat ../log)"
cmake --build ../build --target txcheck example > ../log || fail "$(tail -n 30 ../log)"
for device in cpu opencl; do
    for op in quick_gelu quick_gelu_grad; do
        status=0
        ../build/bin/txcheck ops --device $device --op $op > ../log || status=$?
        [ $status -eq 0 ] || [ $status -eq 77 ] || fail "$op on $device: $(cat ../log)"
    done
done
../build/bin/example
