#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# man.sh BIN FOLDER PROGRAM...: writes the manual pages of programs and of their commands by help2man.
set -eu
bin=$1
folder=$2
shift 2
mkdir -p "$folder"
export COLUMNS=110

# write NAME COMMAND: the page FOLDER/NAME.1 of a command line
write()
{
    help=$($2 --help all)
    about=$(printf '%s\n' "$help" | awk -v RS= 'NR == 2' | tr '\n' ' ' | sed 's/[.:].*//; s/ *$//')
    first=$(printf '%.1s' "$about" | tr '[:upper:]' '[:lower:]')
    # Commands have a page each, a list of words may break after |, and the date would change with every build.
    title=$(printf '%s' "$1" | tr '[:lower:]' '[:upper:]')
    help2man --no-info --help-option="--help all" --manual TX --source "$version" --name "$first${about#?}" "$2" |
        sed "s/^\.TH [^ ]* \"1\" \"[^\"]*\"/.TH $title \"1\" \"\"/; 2a .ad l
            /^\.SH NAME/{n;s/^[^ ]*/$1/;}; s/|/|\\\\:/g" > "$folder/$1.1"
}

for program in "$@"; do
    version=$("$bin/$program" --version)
    write "$program" "$bin/$program"
    whole=$help
    for command in $(printf '%s\n' "$whole" | sed -n '/^Commands:$/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
        [ "$("$bin/$program" "$command" --help all)" = "$whole" ] || write "$program-$command" "$bin/$program $command"
    done
done
