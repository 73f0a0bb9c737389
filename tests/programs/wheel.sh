#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# wheel.sh SOURCE: builds the Python wheel, installs it in an empty virtual environment outside of the tree, trains and
# generates with the module and the programs, and compares with transformers. Python is $TX_PYTHON, or python3.
source=$1
. "${0%/*}/../program.sh"
python=${TX_PYTHON:-python3}
"$python" -c 'import scikit_build_core, numpy' 2> "$work/out" || { echo "skipped: $(tail -n 1 "$work/out")"; exit 77; }
PYTHON=$python CMAKE_C_COMPILER_LAUNCHER=$(command -v ccache) sh "$source/tools/wheel" "$work/dist" \
    --no-build-isolation > "$work/out" 2>&1 || { tail -n 20 "$work/out"; exit 1; }
wheel=$(echo "$work"/dist/tx_train-*.whl)
size=$(($(wc -c < "$wheel")))
echo "$(basename "$wheel"): $size bytes"
[ $size -le 25000000 ] || fail "the wheel has $size bytes, more than 25 MB"
if "$python" -c 'import auditwheel' 2> "$work/err"; then
    # It may not need more than its tag allows. Our libraries are inside.
    tag=$(echo "$wheel" | sed 's/.*-manylinux_2_\([0-9]*\)_.*/\1/')
    "$python" -m auditwheel show "$wheel" > "$work/out" 2>&1 || fail "auditwheel: $(cat "$work/out")"
    needed=$(tr '\n' ' ' < "$work/out" |
        sed -n 's/.*consistent with *the following platform tag: "manylinux_2_\([0-9]*\)_.*/\1/p')
    [ "${needed:-$((tag + 1))}" -le "$tag" ] || fail "the tag promises too much: $(cat "$work/out")"
fi

env -u PYTHONPATH "$python" -m venv "$work/venv" || { echo "skipped: no venv"; exit 77; }
"$work/venv/bin/pip" install -q "$wheel" > "$work/out" 2>&1 || { echo "skipped: $(tail -n 1 "$work/out")"; exit 77; }
cp "${0%/*}/wheel.py" "$work"
cd "$work" || exit 1
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    echo "line $i: the cat sat on the mat, and the dog ran to the river in the sun"
done > text
env -u PYTHONPATH venv/bin/python -W error wheel.py use "$work" > out 2>&1 || fail "the module: $(cat out)"
for program in venv/bin/tx*; do
    "$program" --version > out 2>&1 || fail "$program --version: $(cat out)"
    grep -q "^$(basename "$program") [0-9]" out || fail "$program --version: $(cat out)"
done
venv/bin/txgen --model model --prompt "the cat" -n 4 --temperature 0 --threads 1 > out 2>&1 || fail "txgen: $(cat out)"
venv/bin/txtopo > out 2>&1 || fail "txtopo: $(cat out)"
venv/bin/txtrain --learning_rat 1 > out 2>&1
[ $? -eq 2 ] || fail "txtrain's exit status: $(cat out)"
if "$python" -c 'import torch, transformers' 2> err; then
    "$python" wheel.py compare "$work" > out 2>&1 || fail "transformers: $(tail -n 3 out)"
    cat out
fi
[ $failures -eq 0 ] || exit 1
