#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run.sh BUILD SOURCE CC PROGRAM...: installs BUILD in a scratch folder, moves the tree, and there builds and runs
# consumer.c by pkg-config, shared and static; sees that the programs are there and that the shared library exports
# what tx.h and the headers that it includes declare, and no more.
set -eu
build=$1
source=$2
cc=$3
shift 3
command -v pkg-config > /dev/null || {
    echo "pkg-config is missing"
    exit 77
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install "$build" --prefix "$scratch/first" > "$scratch/log" || {
    cat "$scratch/log"
    exit 1
}
tree=$scratch/moved
mv "$scratch/first" "$tree"
pc=$(find "$tree" -name tx.pc)
PKG_CONFIG_PATH=$(dirname "$pc")
libdir=$(dirname "$PKG_CONFIG_PATH")
export PKG_CONFIG_PATH

for program in "$@"; do
    "$tree/bin/$program" --version > /dev/null || {
        echo "the installed $program does not run"
        exit 1
    }
done

# shellcheck disable=SC2046 # pkg-config gives words
"$cc" -std=c17 -o "$scratch/shared" "$source/tests/install/consumer.c" $(pkg-config --cflags --libs tx)
# The linker prefers libtx.so; -l: names the archive.
# shellcheck disable=SC2046
"$cc" -std=c17 -o "$scratch/static" "$source/tests/install/consumer.c" \
    $(pkg-config --static --cflags --libs tx | sed 's/-ltx /-l:libtx.a /')
[ "$(LD_LIBRARY_PATH=$libdir "$scratch/shared")" = cpu ]
[ "$("$scratch/static")" = cpu ]
if ldd "$scratch/static" | grep libtx; then
    echo "the static program wants the shared library"
    exit 1
fi

nm -D --defined-only "$libdir/libtx.so" | awk '{print $3}' | sort > "$scratch/exported"
grep -ohE '\btx_[a-z_0-9]+\(' "$tree"/include/tx*.h | tr -d '(' | sort -u > "$scratch/declared"
if ! diff "$scratch/declared" "$scratch/exported"; then
    echo "libtx.so must export what tx.h declares (<) and nothing else (>)"
    exit 1
fi
