#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# package.sh BUILD PROGRAM...: makes the Debian package, checks its control fields and contents, unpacks it, and trains
# and generates with it. Needs no root rights; it does not run dpkg's installation.
build=$1
shift
for tool in dpkg-deb dpkg-shlibdeps; do
    command -v $tool > /dev/null || {
        echo "skipped: no $tool"
        exit 77
    }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail()
{
    echo "FAILED: $*"
    failures=$((failures + 1))
}

cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work" > "$work/out" 2>&1 || {
    cat "$work/out"
    exit 1
}
version=$("$build/bin/txtrain" --version | cut -d ' ' -f 2)
package=$work/tx_${version}_$(dpkg --print-architecture).deb
[ -s "$package" ] || {
    echo "FAILED: no $package"
    exit 1
}

# field NAME PATTERN: the control field matches
field()
{
    dpkg-deb -f "$package" "$1" | grep -qE -- "$2" || fail "$1 is $(dpkg-deb -f "$package" "$1")"
}
field Package '^tx$'
field Version "^$version\$"
field Architecture "^$(dpkg --print-architecture)\$"
field Maintainer '.+ <.+@.+>$'
field Section '^science$'
field Description '^[a-z].{20,70}$'
for library in 'libc6 \(>= ' '(libgomp1|libomp5)' libjansson4; do
    field Depends "(^|, )$library"
done
for program in "$@"; do
    dpkg-deb -f "$package" Description | grep -qw "$program" || fail "the description has no $program"
done
if grep -q '^TX_MPI:BOOL=ON$' "$build/CMakeCache.txt"; then
    field Depends '(^|, )(mpich|openmpi-bin|hydra)'
fi
if grep -q '^TX_OPENCL:BOOL=ON$' "$build/CMakeCache.txt"; then
    field Depends ocl-icd-libopencl1
    field Recommends pocl-opencl-icd
fi

dpkg-deb -c "$package" > "$work/contents"
awk '$2 != "root/root" || $1 ~ /^-.......w/ { exit 1 }' "$work/contents" || fail "owners or modes of the files"
dpkg-deb -x "$package" "$work/root"
for file in lib/libtx.so lib/libtx.a include/tx.h lib/pkgconfig/tx.pc share/doc/tx/README.md share/doc/tx/copyright \
    share/doc/tx/docs/getting-started.md share/doc/tx/docs/recipes/chat-lora.yaml share/doc/tx/examples/train.c share/doc/tx/examples/mlp.c \
    share/tx/peer_torch.py share/tx/peer_llama_cpp.py; do
    [ -s "$work/root/usr/$file" ] || [ -n "$(find "$work/root/usr/lib" -path "*/${file#lib/}" -size +0)" ] ||
        fail "$file is missing"
done
for program in "$@"; do
    usr=$work/root/usr
    [ "$("$usr/bin/$program" --version)" = "$program $version" ] || fail "$program does not run"
    ! command -v help2man > "$work/out" || [ -s "$usr/share/man/man1/$program.1" ] || fail "$program has no manual page"
    bash -c ". '$usr/share/bash-completion/completions/$program' && complete -p $program" > "$work/out" 2>&1 ||
        fail "$program: completion: $(cat "$work/out")"
done
[ "$(find "$work/root/usr/bin" -type f | wc -l)" -eq $# ] || fail "programs that nobody asked for"

# It must run on CPUs other than the one that it was built on.
grep -q -e '-m\(arch\|tune\|cpu\)=native' "$build/compile_commands.json" && fail "built for this machine's CPU alone"

# A model trained from a configuration, and generation. txbench finds its peer next to itself.
seq 2000 > "$work/text"
printf '%s' '{"model_type": "gpt2", "vocab_size": 257, "n_positions": 32, "n_embd": 16, "n_layer": 1, "n_head": 2}' \
    > "$work/config.json"
cd "$work" || exit 1
echo '{"train_file": "text", "config_name": "config.json", "output_dir": "model", "block_size": 32, "max_steps": 3}' \
    > args.json
root/usr/bin/txtrain args.json > out 2>&1 || fail "training: $(cat out)"
root/usr/bin/txgen --model model --prompt "1" --max_new_tokens 4 > out 2>&1 || fail "generating: $(cat out)"
root/usr/bin/txplot model -o page.html > out 2>&1 || fail "plotting: $(cat out)"
TX_PYTHON=/bin/echo root/usr/bin/txbench train --config config.json --batch 1 --block 8 --peer torch > out 2>&1
grep -qF "$work/root/usr/bin/../share/tx/peer_torch.py" out || fail "the peer's script is not that of the package: $(cat out)"

[ $failures -eq 0 ] && echo "all good: $(basename "$package"), $(dpkg-deb -f "$package" Depends)"
exit $((failures != 0))
