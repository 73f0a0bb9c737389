# SPDX-License-Identifier: Apache-2.0
# Start of the scripts of this folder, with the arguments BIN-FOLDER TEST-DATA. Sourced. Each works in a copy of the
# folder of a case, named by its folder in TEST-DATA/cases.
# shellcheck shell=sh
bin=$(cd "$1" && pwd)
data=${TX_TEST_DATA:-$2}
[ -d "$data/cases" ] || { echo "skipped: no folder $data/cases"; exit 77; }
data=$(cd "$data" && pwd)
. "${0%/*}/../program.sh"

# open_case NAME: copies a case's folder to $work/NAME and makes it the current folder
open_case()
{
    cp -R "$data/cases/$1" "$work/" && chmod -R u+w "$work/$1" && cd "$work/$1" || exit 1
    case_name=$1
    : > "$work/out"
    : > "$work/err"
}

# says TEXT: the last output contains it
says() { grep -qF -- "$*" "$work/out" "$work/err" || fail "$case_name: does not say: $*"; }
