# SPDX-License-Identifier: Apache-2.0
# Helpers of the tests of many ranks: a text, a model, runs and their comparison. Tests that have the arguments BIN and
# LAUNCHER set $device and source it.
# shellcheck shell=sh disable=SC2154
bin=$1
launcher=$2
. "${0%/*}/../program.sh"
[ "$device" = mixed ] && device=opencl && mixed=yes || mixed=no
need_device
# Runs are compared bit by bit, and the autotuner's choices depend on the load of the machine.
export TX_GEMM_TUNE=0
command -v "$launcher" > /dev/null || { echo "skipped: no $launcher"; exit 77; }

i=0
while [ $i -lt 120 ]; do
    echo "Line $i says what line $((i * 7 % 120)) says: $((i * i)) is the square of $i."
    i=$((i + 1))
done > "$work/text"
cat > "$work/config.json" << 'EOF'
{"model_type": "gpt2", "n_layer": 3, "n_head": 2, "n_embd": 32, "n_positions": 32, "vocab_size": 257}
EOF

# Data, model and learning rate of the runs. A test may replace them.
from="--config_name $work/config.json --train_file $work/text --block_size 32"
rate=1e-2

# write_texts: texts of several lengths with labels, $work/texts.tsv
write_texts()
{
    awk 'BEGIN {
        split("cat dog bird", animal, " ")
        print "sentence\tlabel"
        for (i = 0; i < 90; i++) {
            text = animal[i % 3 + 1]
            for (k = 0; k < i % 9; k++) text = text " and " animal[(i + k) % 3 + 1]
            print text (i % 2 ? " sat" : " ran") "\t" i % 2
        }
    }' > "$work/texts.tsv"
}

# write_talk: conversations, $work/talk.jsonl
write_talk()
{
    awk 'BEGIN {
        split("cat dog bird", who, " ")
        for (i = 0; i < 240; i++)
            printf "{\"messages\": [{\"role\": \"user\", \"content\": \"greet the %s\"}, " \
                "{\"role\": \"assistant\", \"content\": \"hi %s\"}]}\n", \
                who[i % 3 + 1], who[i % 3 + 1]
    }' > "$work/talk.jsonl"
}

# write_masks: a tokenizer with a mask token, in the folder $work/masked
write_masks()
{
    mkdir "$work/masked"
    cat > "$work/masked/tokenizer.json" << 'END'
{"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "BertPreTokenizer"},
 "post_processor": null,
 "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
 "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
 "max_input_chars_per_word": 100,
  "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[MASK]": 3, "Line": 4, "says": 5, "what": 6, "line": 7, "is": 8,
  "the": 9, "square": 10, "of": 11}}}
END
}

# ranks N NAME ARGUMENT...: a run of N ranks into $work/NAME; of mixed ones the first half computes on the cpu
ranks()
{
    n=$1
    folder=$work/$2
    shift 2
    # shellcheck disable=SC2086
    set -- $from --threads 1 --seed 3 --max_steps 12 --learning_rate $rate --save_strategy no --logging_strategy no \
        --ddp_overlap no --output_dir "$folder" "$@"
    if [ "$mixed" = yes ] && [ "$n" -gt 1 ]; then
        timeout -s KILL 120 "$launcher" -n $((n / 2)) "$bin/txtrain" "$@" --device cpu : -n $((n - n / 2)) \
            "$bin/txtrain" "$@" --device opencl > "$work/out" 2> "$work/err"
    else
        timeout -s KILL 120 "$launcher" -n "$n" "$bin/txtrain" "$@" --device "$device" > "$work/out" 2> "$work/err"
    fi
}

losses()
{
    numbers loss "$work/$1/log.jsonl"
}

# near NAME NAME: 12 steps with the same losses, except for rounding
limit=2e-6
[ "$mixed" = yes ] && limit=1e-5
near()
{
    losses "$1" > "$work/expected"
    losses "$2" > "$work/got"
    [ "$(wc -l < "$work/got")" -eq 12 ] || fail "$2: not 12 steps in the log"
    paste "$work/expected" "$work/got" | awk -v limit="$limit" \
        '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= limit)) { print "step " NR ": " $1 " and " $2; bad = 1 } }
        END { exit bad }' \
        > "$work/out" || fail "$2: other losses than $1"
}

# random N: sets $drawn to a number from 0 to N-1. A command substitution would lose the new seed.
seed=$$
random()
{
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    drawn=$((seed / 65536 % $1))
}

# divided WAY: how long runs divide the model from here on; "": not at all
sizes=n_layer=6,n_embd=96
split=
divided()
{
    case $1 in
    "") ;;
    zero) split="--zero_stage 3" ;;
    tensor | context) split="--${1}_parallel 2" ;;
    expert)
        split="--expert_parallel 2"
        sizes=num_hidden_layers=6
        echo '{"model_type": "mixtral", "hidden_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
            "intermediate_size": 64, "max_position_embeddings": 32, "vocab_size": 257, "num_local_experts": 4}' \
    > "$work/config.json"
        ;;
    pipeline) split="--pipeline_parallel 2 --gradient_accumulation_steps 2" ;;
    interleaved) split="--pipeline_parallel 2 --gradient_accumulation_steps 2 --pipeline_schedule interleaved" ;;
    *) fail "no way to divide a model: $1" ;;
    esac
}

# long_run FOLDER LAUNCHER...: 200 steps with checkpoints into FOLDER, under the launcher, to be disturbed
long_run()
{
    folder=$1
    shift
    # shellcheck disable=SC2086
    "$@" "$bin/txtrain" --train_file "$work/text" --config_name "$work/config.json" \
        --config_overrides "$sizes" --block_size 32 --threads 1 --seed 3 --max_steps 200 --learning_rate 1e-3 \
        --logging_strategy no --ddp_overlap no --device "$device" --per_device_train_batch_size 4 \
        --save_strategy steps --save_steps 20 --save_total_limit 2 --comm_timeout 3 $split --output_dir "$folder"
}

# await_moment FOLDER: a random step of the first three quarters of a long run into FOLDER
await_moment()
{
    random 140
    moment=$((drawn + 5))
    tries=0
    until [ "$(grep -c '"step"' "$1/log.jsonl" 2> /dev/null || true)" -ge $moment ] 2> /dev/null ||
        [ $tries -ge 3000 ]; do
        sleep 0.01
        tries=$((tries + 1))
    done
}
