#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each recipe of docs/recipes trains two steps on stand-ins of its model and data: recipes.sh BIN.
set -u
PATH=$1:$PATH
export PATH
here=$(cd "${0%/*}" && pwd)
bad=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
for recipe in "$here"/../../docs/recipes/*.yaml; do
    name=$(basename "$recipe" .yaml)
    mkdir -p "$work/$name/home"
    cd "$work/$name" || exit 1
    HOME=$work/$name/home
    export HOME
    if sh "$here/stand_ins.sh" "$recipe" > log 2>&1 && txtrain "$recipe" --max_steps 2 --device cpu > log 2>&1; then
        grep -q '^warning' log && { echo "$name warns: $(grep '^warning' log)"; bad=1; }
        [ -s "out/$name/model.safetensors" ] || [ -s "out/$name/adapter_model.safetensors" ] ||
            { echo "$name: no model"; bad=1; }
    else
        echo "$name: $(cat log)"
        bad=1
    fi
done
[ $bad = 0 ] && echo "all recipes train"
exit $bad
