#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Files of options in YAML: recipe.sh BIN. A recipe sets the options that the same command line sets; faults end with one
# line that names the place.
set -u
bin=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
bad=0

fail()
{
    echo "FAILED: $*"
    bad=1
}

# refused WORDS < YAML: the file is refused with one line that has the words.
refused()
{
    cat > bad.yaml
    "$bin/txtrain" bad.yaml > out 2>&1 && fail "accepted: $1"
    grep -qF -- "$1" out || fail "$1: $(cat out)"
    [ "$(wc -l < out)" -eq 1 ] || fail "not one line: $(cat out)"
}

i=0
while [ $i -lt 200 ]; do
    echo "line $i of a text" >> text.txt
    i=$((i + 1))
done

cat > recipe.yaml << 'END'
# A comment.
train_file: ${DATA}/text.txt
output_dir: "${DATA}/yaml"   # quoted
do_train: true
max_steps: 2
lr: 1e-3
lr_scheduler_type: constant
block_size: 32
per_device_train_batch_size: 2
save_strategy: no
report_to: [none]
gradient_checkpointing: false
seed: 7
threads: 1
dataset_config_name: ~
END
DATA=$work "$bin/txtrain" recipe.yaml > out 2>&1 || fail "the recipe: $(cat out)"
"$bin/txtrain" --train_file text.txt --output_dir line --do_train --max_steps 2 --lr 1e-3 --lr_scheduler_type constant \
    --block_size 32 --per_device_train_batch_size 2 --save_strategy no --report_to none --seed 7 --threads 1 > out 2>&1 ||
    fail "the command line: $(cat out)"
cmp yaml/model.safetensors line/model.safetensors || fail "other weights than by the command line"
DATA=$work "$bin/txtrain" recipe.yaml --max_steps 1 --overwrite_output_dir > out 2>&1 || fail "an option after the file: $(cat out)"
grep -q '"global_step": *1\b' yaml/trainer_state.json || fail "an option after the file does not count"

refused "line 2: the environment has no variable NOWHERE" << 'END'
do_train: true
train_file: ${NOWHERE}/x
END
refused "line 2: this key is there twice: seed" << 'END'
seed: 1
seed: 2
END
refused "line 1: anchors and aliases are not supported" << 'END'
seed: &a 1
END
refused "bad.yaml: line" << 'END'
seed: [1
END
refused "learning_rat" << 'END'
learning_rat: 1
END
refused "no YAML document" << 'END'
END
refused "must hold one object" << 'END'
- a
END
refused "tags are not supported" << 'END'
seed: !!python/object 1
END
[ $bad = 0 ] && echo "all passed"
exit $bad
