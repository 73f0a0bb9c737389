#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# roots.sh WHEEL [ROOT...]: installs the wheel by pip in clean systems that have only python3-venv, then trains,
# generates and serves there, and talks to the server with the openai package. Each ROOT is the folder of a system.
# Without one, debootstrap makes Debian 12 and Ubuntu 24.04, which takes root's rights and some minutes.
set -eu
here=$(cd "${0%/*}" && pwd)
wheel=$(realpath "$1")
shift
[ "$(id -u)" = 0 ] || { echo "skipped: only root may chroot"; exit 77; }
scratch=
clean_up()
{
    for root in "$@"; do
        umount "$root/proc" 2> /dev/null || true
    done
    [ -z "$scratch" ] || rm -rf "$scratch"
}
make_root() # FOLDER SUITE MIRROR COMPONENTS
{
    script=/usr/share/debootstrap/scripts/$2
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/gutsy # what Ubuntu's suites are links to
    debootstrap --variant=minbase --components="$4" --include=python3-venv,ca-certificates "$2" "$1" "$3" "$script" \
        > "$scratch/log" 2>&1 || { echo "skipped: debootstrap $2: $(tail -n 1 "$scratch/log")"; clean_up; exit 77; }
}
if [ $# -eq 0 ]; then
    command -v debootstrap > /dev/null || { echo "skipped: no debootstrap"; exit 77; }
    scratch=$(mktemp -d)
    make_root "$scratch/debian" bookworm http://deb.debian.org/debian main
    make_root "$scratch/ubuntu" noble http://archive.ubuntu.com/ubuntu main,universe
    set -- "$scratch/debian" "$scratch/ubuntu"
fi
trap 'clean_up "$@"' EXIT
for root in "$@"; do
    rm -rf "$root/work" && mkdir "$root/work"
    cp "$wheel" "$here/roots_inside.sh" "$here/roots_client.py" "$root/work"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    [ ! -e /etc/ssl/certs/ca-certificates.crt ] ||
        cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
    mount -t proc proc "$root/proc"
    name=$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' "$root/etc/os-release")
    chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
        PIP_CERT=/etc/ssl/certs/ca-certificates.crt sh /work/roots_inside.sh > "$root/work/log" 2>&1 ||
        { echo "FAILED: $name: $(tail -n 20 "$root/work/log")"; exit 1; }
    echo "ok   $name: $(tail -n 1 "$root/work/log")"
done
