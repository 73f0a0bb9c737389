#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# compile.sh TX_PTX CLANG LIBCLC FOLDER PACK: makes the pack of compiled programs (backends/opencl/shipped/pack.h).
# TX_PTX lists the programs and writes their texts to FOLDER. CLANG compiles each to FOLDER/KEY.ptx, with LIBCLC, the
# library of built-in functions for nvptx64--nvidiacl, as many at a time as there are cores. A key is a digest of all
# that is compiled, so the files of earlier calls are kept. Divisions err by 2 units in the last place, which OpenCL
# allows; correctly rounded ones would be subroutines.
set -eu
LC_ALL=C
export LC_ALL
if [ "$1" = compile ]; then
    clang=$2 libclc=$3 folder=$4
    read -r key processor version source kernel options <<LINE
$5
LINE
    [ ! -f "$folder/$key.ptx" ] || exit 0
    # shellcheck disable=SC2086 # options are words
    "$clang" -cc1 -triple nvptx64-unknown-nvcl -target-cpu "$processor" -target-feature "+$version" -x cl \
        -D__OPENCL_VERSION__=120 -cl-ext=-all -finclude-default-header -fdeclare-opencl-builtins \
        -include "$(dirname "$0")/native.h" -mlink-builtin-bitcode "$libclc" -mllvm -nvptx-prec-divf32=1 -O3 -S \
        -o "$folder/$key.tmp" $options "$folder/$source.$kernel.cl"
    # Comments are a third of PTX. Those that begin with @90a are instructions (backends/opencl/matrix/retarget.h).
    sed -i -e '/^[[:space:]]*\/\/@90a/!s#[[:space:]]*//.*##' -e '/^[[:space:]]*$/d' "$folder/$key.tmp"
    mv "$folder/$key.tmp" "$folder/$key.ptx"
    exit
fi
clang=$2 libclc=$3 folder=$4 pack=$5
mkdir -p "$folder" "$(dirname "$pack")"
"$1" "$folder" > "$folder/lines"
sort -u -k 1,1 "$folder/lines" > "$folder/programs" # kernels of one macro have one text, and so one key
tr '\n' '\0' < "$folder/programs" | xargs -0 -P "$(nproc)" -n 1 sh "$0" compile "$clang" "$libclc" "$folder"
sources=$(cut -d ' ' -f 4 "$folder/programs" | sort -u)
echo "$sources" > "$folder/frame" # of files, whose size is known, zstd writes the size to the frame
zstd -q -c "$folder/frame" > "$pack.tmp"
for source in $sources; do
    grep "^[^ ]* [^ ]* [^ ]* $source " "$folder/programs" | while read -r key processor rest; do
        echo "$key $processor $(wc -c < "$folder/$key.ptx")"
        cat "$folder/$key.ptx"
    done > "$folder/frame"
    zstd -q -c -19 --long=24 "$folder/frame" >> "$pack.tmp"
done
mv "$pack.tmp" "$pack"
