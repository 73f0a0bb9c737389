#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run.sh BUILD SOURCE CC PROGRAM...: installs BUILD in a scratch folder and moves the tree. There it builds and runs
# the consumers by pkg-config, shared and static, train.py, and txtrain and txgen from their sources. Checks that the
# programs are installed, and that the shared library exports exactly the declarations of the installed headers.
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

# The README's compile lines, as printed, on the installed examples in a clean folder; and CMake's package.
mkdir "$scratch/clean"
cp "$(find "$tree" -path '*/doc/*' -name train.c)" "$(find "$tree" -path '*/doc/*' -name mlp.c)" "$scratch/clean"
grep '^cc .*pkg-config' "$source/README.md" | sed "s|^cc|$cc|" > "$scratch/lines"
[ "$(wc -l < "$scratch/lines")" -eq 2 ]
(cd "$scratch/clean" && while read -r line; do sh -ec "$line"; done < "$scratch/lines" &&
    LD_LIBRARY_PATH=$libdir ./a.out > ../mlp.out)
grep -q loss "$scratch/mlp.out"
cat > "$scratch/clean/CMakeLists.txt" << 'END'
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C CXX)
find_package(tx 0.2 REQUIRED)
add_executable(train train.c)
target_link_libraries(train PRIVATE tx::tx)
add_executable(mlp mlp.c)
target_link_libraries(mlp PRIVATE tx::static m)
END
cmake -G Ninja -S "$scratch/clean" -B "$scratch/clean/build" -DCMAKE_PREFIX_PATH="$tree" -DCMAKE_C_COMPILER="$cc" \
    > "$scratch/log" 2>&1 &&
    cmake --build "$scratch/clean/build" >> "$scratch/log" 2>&1 || {
    cat "$scratch/log"
    exit 1
}
"$scratch/clean/build/mlp" | cmp - "$scratch/mlp.out"
"$scratch/clean/build/train" > "$scratch/log" 2>&1 && exit 1 # without arguments it says how it is called
[ -s "$scratch/log" ]

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

# TX's own programs from their sources, with the installed headers and the shared library: their folders come along, and
# nothing else of the source tree.
mkdir -p "$scratch/own/tools"
for folder in cli train generate; do cp -R "$source/tools/$folder" "$scratch/own/tools"; done
rm "$scratch/own/tools/train/txplot.c" "$scratch/own/tools/train/history.c" "$scratch/own/tools/train/follow.c" # of txplot
for program in train gen; do
    folder=$(echo "$program" | sed 's/^gen$/generate/')
    # shellcheck disable=SC2046
    (cd "$scratch/own" && "$cc" -std=c17 -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -I. -o "tx$program" \
        tools/"$folder"/*.c tools/cli/*.c $(pkg-config --cflags --libs tx) -lm -lpthread)
done
export LD_LIBRARY_PATH="$libdir"
for bin in "$tree/bin" "$scratch/own"; do
    "$bin/txtrain" --model_name_or_path "$scratch/model" --train_file "$scratch/text" --output_dir "$scratch/again" \
        --overwrite_output_dir --learning_rate 1e-3 --max_steps 4 --threads 1 --profile > "$scratch/log"
    grep -q '^peak resident memory' "$scratch/log"
    mv "$scratch/again/model.safetensors" "$scratch/again/$(basename "$bin")"
    "$bin/txgen" --model "$scratch/c" --ids "1 2 3" --max_new_tokens 5 --threads 1 --temperature 0 > "$scratch/$(basename "$bin").ids" \
        2> "$scratch/log"
done
cmp "$scratch/again/bin" "$scratch/again/own"
cmp "$scratch/bin.ids" "$scratch/own.ids"
unset LD_LIBRARY_PATH

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
    "$tree/bin/txgen" --model "$tiny" --prompt "the cat" --temperature 0 > "$scratch/wanted" 2> /dev/null
    for consumer in consumer_generate consumer_generate_static; do
        LD_LIBRARY_PATH=$libdir "$scratch/$consumer" "$tiny" "the cat" > "$scratch/continued"
        printf 'the cat%s\n' "$(cat "$scratch/continued")" | cmp - "$scratch/wanted"
    done
else
    echo "no $tiny: generation is not tried"
fi

nm -D --defined-only "$libdir/libtx.so" | awk '{print $3}' | sort > "$scratch/exported"
grep -hv '^typedef' "$tree"/include/tx*.h | grep -oE '\btx_[a-z_0-9]+\(|^extern const char .*\btx_[a-z_0-9]+\[' |
    sed 's/.*\b\(tx_[a-z_0-9]*\)[[(].*/\1/' | sort -u > "$scratch/declared"
if ! diff "$scratch/declared" "$scratch/exported"; then
    echo "libtx.so must export what the headers declare (<) and nothing else (>)"
    exit 1
fi
