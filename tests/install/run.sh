#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run.sh BUILD SOURCE CC PROGRAM...: installs BUILD in a scratch folder, moves the tree, and there builds and runs
# the consumers by pkg-config, shared and static, and train.py; sees that the programs are there and that the shared
# library exports what the installed headers declare, and no more.
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

# build NAME: NAME.c as NAME, and as NAME_static, whose linker would prefer libtx.so: -l: names the archive.
build()
{
    # shellcheck disable=SC2046 # pkg-config gives words
    "$cc" -std=c17 -o "$scratch/$1" "$source/tests/install/$1.c" $(pkg-config --cflags --libs tx)
    # shellcheck disable=SC2046
    "$cc" -std=c17 -o "$scratch/$1_static" "$source/tests/install/$1.c" \
        $(pkg-config --static --cflags --libs tx | sed 's/-ltx /-l:libtx.a /')
}

build consumer
[ "$(LD_LIBRARY_PATH=$libdir "$scratch/consumer")" = cpu ]
[ "$("$scratch/consumer_static")" = cpu ]
if ldd "$scratch/consumer_static" | grep libtx; then
    echo "the static program wants the shared library"
    exit 1
fi

# The same fine-tuning in C, shared and static, and in Python: the same loss.
seq 12 | sed 's/.*/line & of a text that says a little more than nothing about the number &/' > "$scratch/text"
"$tree/bin/txtrain" --config_overrides n_layer=1,n_embd=16,n_head=2,n_positions=32 --train_file "$scratch/text" \
    --output_dir "$scratch/model" --max_steps 1 > /dev/null
build consumer_train
LD_LIBRARY_PATH=$libdir "$scratch/consumer_train" "$scratch/model" "$scratch/text" "$scratch/c" > "$scratch/c.out"
[ "$(grep -c '^step [1-4] of 4: loss ' "$scratch/c.out")" = 4 ]
"$scratch/consumer_train_static" "$scratch/model" "$scratch/text" "$scratch/s" | cmp - "$scratch/c.out"
cmp "$scratch/c/model.safetensors" "$scratch/s/model.safetensors"
python=${TX_PYTHON:-python3}
if command -v "$python" > /dev/null; then
    LD_LIBRARY_PATH=$libdir "$python" "$source/tests/install/train.py" "$libdir/libtx.so" "$scratch/model" \
        "$scratch/text" "$scratch/p" > "$scratch/p.out"
    cmp "$scratch/c/model.safetensors" "$scratch/p/model.safetensors"
    grep -qxF "$(tail -n 1 "$scratch/c.out")" "$scratch/p.out"
    grep -q '^saved ' "$scratch/p.out"
else
    echo "no $python: training from Python is not tried"
fi

# Its blocks of 16 bytes, in batches of 4.
build consumer_text
blocks=$(($(wc -c < "$scratch/text") / 16))
for consumer in consumer_text consumer_text_static; do
    LD_LIBRARY_PATH=$libdir "$scratch/$consumer" "$scratch/text" > "$scratch/read"
    grep -q "^$blocks blocks, $(((blocks + 3) / 4)) batches of 60 labels: ...*" "$scratch/read"
done

# A text of the tiny model of the test data, as txgen continues it.
build consumer_generate
tiny=${TX_TEST_DATA:-$source/../shared/data}/models/tiny_gpt2_bytes
if [ -d "$tiny" ]; then
    "$tree/bin/txgen" --model "$tiny" --prompt "the cat" > "$scratch/wanted" 2> /dev/null
    for consumer in consumer_generate consumer_generate_static; do
        LD_LIBRARY_PATH=$libdir "$scratch/$consumer" "$tiny" "the cat" > "$scratch/continued"
        printf 'the cat%s\n' "$(cat "$scratch/continued")" | cmp - "$scratch/wanted"
    done
else
    echo "no $tiny: generation is not tried"
fi

nm -D --defined-only "$libdir/libtx.so" | awk '{print $3}' | sort > "$scratch/exported"
grep -ohE '\btx_[a-z_0-9]+\(' "$tree"/include/tx*.h | tr -d '(' | sort -u > "$scratch/declared"
if ! diff "$scratch/declared" "$scratch/exported"; then
    echo "libtx.so must export what the headers declare (<) and nothing else (>)"
    exit 1
fi
