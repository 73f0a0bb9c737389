# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Common functions of tools/quickstart and tools/check. The script that sources this must set `program` and `root`
# before.

say()
{
    printf '%s\n' "$*"
}

# die TEXT...: prints an error message and exits.
die()
{
    printf '%s: %s\n' "$program" "$*" >&2
    exit 1
}

# Makes a folder for scratch files. When the script ends, the folder is removed and the processes in $background are
# ended.
make_scratch()
{
    background=
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/tx-$program.XXXXXX") ||
        die "cannot create a temporary folder in ${TMPDIR:-/tmp}"
    # shellcheck disable=SC2086 # a list of numbers
    trap '[ -z "$background" ] || kill $background 2> /dev/null; rm -rf "$scratch"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# Prints the time and the last line of the log. A terminal shows one line that changes every second; otherwise a line
# follows after one second and then every nine seconds. "[3/40] Building" of ninja gets a percentage.
follow_log()
{
    pause=1
    spent=0
    while sleep "$pause" > /dev/null 2>&1; do
        spent=$((spent + pause))
        last=$(tail -c 300 "$scratch/log" | tr '\r' '\n' | sed -n '$p')
        share=$(printf '%s\n' "$last" | awk -F '[][/]' '/^\[[0-9]+\/[0-9]+\]/ { printf "%3d %%  ", 100 * $2 / $3 }')
        line=$(printf '  %3d s  %s%s' "$spent" "$share" "$last" | cut -c 1-79)
        if [ -t 1 ]; then
            printf '\r\033[K%s' "$line"
        else
            pause=9
            say "$line"
        fi
    done
}

# quietly REASON COMMAND...: runs a command with its output in a log, and shows the last line of the log from time to
# time. If the command fails, shows the end of the log and exits with REASON.
quietly()
{
    reason=$1
    shift
    : > "$scratch/log"
    follow_log &
    follower=$!
    background="$background $follower"
    "$@" > "$scratch/log" 2>&1
    quiet_status=$?
    kill $follower
    wait $follower 2> /dev/null
    [ ! -t 1 ] || printf '\r\033[K'
    background=${background% *}
    [ $quiet_status -ne 0 ] || return 0
    tail -n 25 "$scratch/log" >&2
    die "$reason"
}

# Prints the missing Debian packages of the given kinds ("build", "test", "check") on one line.
missing_packages()
{
    for kind in "$@"; do
        sed -n "s/^$kind //p" "$root/tools/packages.txt"
    done | while read -r package; do
        # shellcheck disable=SC2016 # the format is dpkg-query's
        case $(dpkg-query -W -f='${db:Status-Status}' "$package" 2> /dev/null) in
        installed) ;;
        *) printf '%s ' "$package" ;;
        esac
    done
}

# Installs the missing packages of the given kinds. With install=no it prints their names and exits.
need_packages()
{
    command -v dpkg-query > /dev/null || {
        [ "$install" = no ] && return
        die "this is not Debian: install the packages in tools/packages.txt for your system, then run with --no-install"
    }
    missing=$(missing_packages "$@")
    missing=${missing% }
    [ -n "$missing" ] || return 0
    [ "$install" = yes ] || die "packages are missing (leave out --no-install, or apt-get install them): $missing"
    command -v apt-get > /dev/null || die "apt-get not found: install $missing, then run with --no-install"
    if [ "$(id -u)" = 0 ]; then
        sudo=
    elif command -v sudo > /dev/null; then
        sudo=sudo
    else
        die "installing packages needs root: run this as root, or run first: apt-get install $missing"
    fi
    say "installing: $missing"
    quietly "apt-get update failed: see above" $sudo apt-get update
    # shellcheck disable=SC2086 # a list of words
    quietly "apt-get install failed: see above" \
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
}
