#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures the seconds of a step of GPT-2 124M (4 x 256 tokens per rank) on two hosts with a line of RATE. The
# all-reduce of gradients runs after the backward pass, or during it, or without a limit of the line. Each rank has one
# core. Rounds are interleaved, and figures are medians of all steps except the first two of each run. They are compared
# with the prediction of models/split/split.h for steps with overlap, from rates that the runs measured at their start.
#
# The last number compares with steps whose communication is hidden by the whole backward pass. This is a bound, because
# nothing is hidden before the gradients of the head are ready.
#
#   line.sh BIN LAUNCHER [ROUNDS [STEPS [RATE [ARGUMENT...]]]]      ARGUMENTs are for txtrain, such as --zero_stage
#
# shellcheck disable=SC2034,SC2154
bin=$1
launcher=$2
rounds=${3:-3}
steps=${4:-7}
rate=${5:-1gbit}
shift $(($# < 5 ? $# : 5))
. "${0%/*}/../../../tests/program.sh"
. "${0%/*}/../../../tests/hosts.sh"
export OMP_WAIT_POLICY=passive

perl -e 'print pack("v*", map { $_ * 7919 % 50257 } 1 .. 400000)' > "$work/tokens.bin"
cat > "$work/rank" << EOF
#!/bin/sh
exec taskset -c \$((PMI_RANK % $(nproc))) "$bin/txtrain" "\$@"
EOF
chmod +x "$work/rank"

# one NAME ARGUMENT...: trains once, and appends the seconds of its steps to $work/NAME
limit_seconds=1800
one()
{
    name=$1
    shift
    on_hosts 1 "$work/rank" --train_file "$work/tokens.bin" --config_name gpt2 --block_size 256 --threads 1 \
        --per_device_train_batch_size 4 --max_steps "$steps" --save_strategy no --logging_strategy no \
        --comm_timeout 300 --profile --output_dir "$work/run" --overwrite_output_dir "$@" \
        > "$work/out" 2> "$work/err" || { fail "$name"; exit 1; }
    sed -n 's/.*"tokens": \([0-9]*\),.*"tokens_per_second": \([-+.0-9e]*\).*/\1 \2/p' "$work/run/log.jsonl" |
        awk 'NR > 2 { print ($1 - before) / $2 } { before = $1 }' > "$work/steps"
    [ -s "$work/steps" ] || { fail "$name: no steps in the log"; exit 1; }
    cat "$work/steps" >> "$work/$name"
    sed -n 's/^split .*predicted \([-+.0-9e]*\) ms.*/\1/p' "$work/out" | awk '{ print $1 / 1000 }' >> "$work/formula"
    awk '/^[a-z-]+, backward  / { s += $4 } END { print s }' "$work/out" >> "$work/backward_$name"
    echo "$name $(tr '\n' ' ' < "$work/steps")"
}

median()
{
    sort -n "$1" | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2 }'
}

i=0
while [ $i -lt "$rounds" ]; do
    one open --ddp_overlap no "$@"
    shape "$rate" || exit 1
    one after --ddp_overlap no "$@"
    one during --ddp_overlap yes --parallel auto --tensor_parallel 1 --pipeline_parallel 1 --zero_stage 0 "$@"
    unshape
    i=$((i + 1))
done
for name in open after during formula backward_open; do
    echo "$name: $(median "$work/$name") s"
done
for name in open after during formula backward_open; do
    median "$work/$name"
done | paste -s -d ' ' - |
    awk '{ cost = $2 - $1; least = $1 + (cost > $5 ? cost - $5 : 0)
           printf "hidden: %.2f of %.2f s; speed relative to no limit: %.1f %%; ", $2 - $3, cost, 100 * $1 / $3
           printf "time relative to the formula: %+.1f %%, ", 100 * ($3 / $4 - 1)
           printf "to full overlap with the backward pass: %+.1f %%\n", 100 * ($3 / least - 1) }'
