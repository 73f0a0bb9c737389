#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# bundle.sh SOURCE: makes the bundle, and trains with it, alone and as two ranks, in systems without a package
# installed: Debian 12 and 13 and Ubuntu 24.04, made by debootstrap, or those in the folder TX_TEST_ROOTS. What cannot
# be had is skipped, with a word.
source=$1
. "${0%/*}/../program.sh"
for tool in patchelf debootstrap; do
    command -v $tool > /dev/null || { echo "skipped: no $tool"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: debootstrap and chroot need root"; exit 77; }
make_bundle()
{
    cmake -S "$source" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTX_BUNDLE=ON -DBUILD_TESTING=OFF &&
        cmake --build "$work/build" && cpack --config "$work/build/CPackConfig.cmake" -B "$work"
}

make_bundle > "$work/out" 2>&1 || {
    tail -n 20 "$work/out"
    exit 1
}
bundle=$(echo "$work"/tx-*.tar.xz)
size=$(($(wc -c < "$bundle")))
echo "$size bytes"
[ $size -le 64000000 ] || fail "the bundle has $size bytes, more than 64 MB"
write_small_text
tried=0

# inside COMMAND...: runs it in $root with /proc mounted, by which programs find their own folder
inside()
{
    # shellcheck disable=SC2016 # the inner shell's
    unshare -m sh -c 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"' "$root" "$@" > "$work/out" 2> "$work/err"
}

# try NAME SUITE MIRROR
try()
{
    root=${TX_TEST_ROOTS:-$work/roots}/$1
    [ -x "$root/bin/sh" ] || debootstrap --variant=minbase "$2" "$root" "$3" > "$work/out" 2>&1 || {
        echo "skipped: $1 cannot be had: $(tail -n 1 "$work/out")"
        return
    }
    tried=$((tried + 1))
    rm -rf "$root/opt/tx" "$root/tmp/tx"
    mkdir -p "$root/opt/tx" "$root/tmp/tx"
    tar xf "$bundle" -C "$root/opt/tx" --strip-components 1
    cp "$work/text" "$root/tmp/tx/"
    set -- --config_overrides n_layer=1,n_embd=32,n_head=2,n_positions=32 --train_file /tmp/tx/text --max_steps 3 \
        --threads 1
    inside /opt/tx/bin/txtrain "$@" --output_dir /tmp/tx/one || fail "$root: one rank"
    inside /opt/tx/bin/txlaunch -n 2 -- /opt/tx/bin/txtrain "$@" --output_dir /tmp/tx/two || fail "$root: two ranks"
    for run in one two; do
        [ -s "$root/tmp/tx/$run/model.safetensors" ] || fail "$root: no model of $run"
    done
    inside /opt/tx/bin/txtopo --json || fail "$root: txtopo"
    # The compiler's libraries are the system's, since its drivers need no older ones. If it has none, the bundle's.
    inside env LD_TRACE_LOADED_OBJECTS=1 /opt/tx/bin/txtrain
    grep -q 'libstdc++.so.6 => /usr/lib' "$work/out" || fail "$root: not the system's libstdc++"
    system=$(find "$root/usr/lib" -name libstdc++.so.6)
    mv "$system" "$system.away"
    inside /opt/tx/bin/txtrain --version || fail "$root: does not start without a libstdc++ of the system"
    mv "$system.away" "$system"
    rm -rf "$root/tmp/tx" "$root/opt/tx"
}

try debian12 bookworm http://deb.debian.org/debian
try debian13 trixie http://deb.debian.org/debian
try ubuntu2404 noble http://archive.ubuntu.com/ubuntu
[ $failures -eq 0 ] || exit 1
[ $tried -gt 0 ] || exit 77
