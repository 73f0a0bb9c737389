# SPDX-License-Identifier: Apache-2.0
# Helpers of the tests of divided models. A test sources it after ranks.sh and defines
#   split RANKS PARTS NAME ARGUMENT...: a run of RANKS ranks in groups of PARTS ranks, which divide the model
# shellcheck shell=sh disable=SC2034,SC2154
saves="--save_strategy steps --save_steps 6"
evaluates="--eval_strategy steps --eval_steps 6"
weights=model.safetensors # the file of a run's weights

# alike NAME NAME [LIMIT]: 12 steps of the same losses, relative, of the same norms, within five times as much, and, if
# runs evaluate, two evaluations
alike()
{
    keys="loss grad_norm"
    case $from in *"$evaluates"*) keys="$keys eval_loss" ;; esac
    for key in $keys; do
        numbers $key "$work/$1/log.jsonl" > "$work/expected"
        numbers $key "$work/$2/log.jsonl" > "$work/got"
        times=12 factor=1
        [ $key = grad_norm ] && factor=5
        [ $key = eval_loss ] && times=2
        [ "$(wc -l < "$work/got")" -eq $times ] || fail "$2: not all of $key is in the log"
        paste "$work/expected" "$work/got" | awk -v limit="${3:-2e-6}" -v factor=$factor \
            '{ d = $1 - $2; if (d < 0) d = -d }
            !(d <= factor * limit * $1) { print "step " NR ": " $1 " and " $2; bad = 1 }
            END { exit bad }' \
            > "$work/out" || fail "$2: other values of $key than $1"
    done
}

# divides RANKS.PARTS NAME ARGUMENT...: trains as the run `one` does, with the same weights on all ranks, and writes
# whole files
divides()
{
    way=$1 name=$2
    shift 2
    split "${way%.*}" "${way#*.}" "$name" "$@" --ddp_check 4 || fail "$way"
    alike one "$name"
    [ "$(grep -c '"weights"' "$work/$name/log.jsonl")" -eq 3 ] || fail "$way: weights were not compared"
    for file in $weights optimizer.safetensors; do
        [ "$(wc -c < "$work/one/checkpoint-6/$file")" -eq "$(wc -c < "$work/$name/checkpoint-6/$file")" ] ||
            fail "$way: $file is not whole"
    done
}

# trains_alike ROWS: 2 and 4 ranks, alone and in groups, train as one rank does; so they do with three micro-batches of
# so many rows and activations that are computed again, and ZeRO's stages change no bit
trains_alike()
{
    # shellcheck disable=SC2086
    split 1 1 one $saves || fail "one rank"
    for way in 2.2 4.4 4.2; do
        # shellcheck disable=SC2086
        divides $way "by$way" $saves
    done
    split 4 2 folded --gradient_accumulation_steps 3 --per_device_train_batch_size "$1" --gradient_checkpointing \
        --ddp_overlap yes || fail "accumulation and checkpointing"
    alike one folded
    for stage in 1 2 3; do
        # shellcheck disable=SC2086
        split 4 2 stage$stage $saves --zero_stage $stage --ddp_check 4 || fail "ZeRO's stage $stage"
        for file in $weights optimizer.safetensors; do
            cmp -s "$work/by4.2/checkpoint-6/$file" "$work/stage$stage/checkpoint-6/$file" ||
                fail "stage $stage: other $file"
        done
        same by4.2 stage$stage $weights
    done
}

# go_on NAME NAME: a copy of a run of which nothing is left but its checkpoint of step 6
go_on()
{
    rm -rf "${work:?}/$2"
    mkdir "$work/$2"
    cp -r "$work/$1/checkpoint-6" "$work/$2"
}

# hands_over NAME:RANKS.PARTS...: another split resumes from a run's checkpoint, with the weights to the bit and the
# same steps as `one`
hands_over()
{
    for way in "$@"; do
        to=${way#*:}
        go_on "${way%:*}" on
        split "${to%.*}" "${to#*.}" on --resume_from_checkpoint --max_steps 6 || fail "$way: nothing left to train"
        cmp -s "$work/${way%:*}/checkpoint-6/$weights" "$work/on/$weights" ||
            fail "$way: other weights"
        go_on "${way%:*}" on
        split "${to%.*}" "${to#*.}" on --resume_from_checkpoint || fail "$way"
        alike one on
    done
}

# llama_alike: a Llama of grouped heads and rotary positions, in the folder $work/base, trains on 4 ranks as on one,
# with evaluations; its configuration is in $work/llama.json
llama_alike()
{
    cat > "$work/llama.json" << 'EOF'
{"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
 "intermediate_size": 48, "max_position_embeddings": 32, "vocab_size": 257, "attention_dropout": 0.1}
EOF
    from="--config_name $work/llama.json --train_file $work/text --block_size 32"
    ranks 1 base --max_steps 1 --per_device_train_batch_size 12 || fail "a model to begin with"
    from="--model_name_or_path $work/base --train_file $work/text --validation_file $work/text --block_size 32"
    from="$from $evaluates"
    split 1 1 llama || fail "Llama on one rank"
    split 4 2 llama42 || fail "Llama on 4 ranks"
    alike llama llama42
}

# write_words: texts with labels, $work/texts.tsv, and a small BERT that reads them, in the folder $work/words
write_words()
{
    write_texts
    mkdir "$work/words"
    cp "${0%/*}"/../chat/golden/tokenizer*.json "$work/words"
    cat > "$work/words/config.json" << 'EOF'
{"model_type": "bert", "vocab_size": 342, "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128,
 "num_attention_heads": 4,
 "max_position_embeddings": 24}
EOF
}

# refused WORDS RANKS PARTS ARGUMENT...: ends, and says why in one line
refused()
{
    words=$1 count=$2 parts=$3
    shift 3
    split "$count" "$parts" refused "$@" && fail "not refused: $words"
    grep -q -e "$words" "$work/err" || fail "another reason than: $words"
    rm -rf "$work/refused"
}

# ends_alone CONFIG ARGUMENT...: a rank of two dies, or stops while the other waits for it: the run ends by itself and
# names it
ends_alone()
{
    config=$1
    shift
    for signal in KILL STOP; do
        folder=$work/$signal
        timeout -s KILL 60 "$launcher" -n 2 "$bin/txtrain" --train_file "$work/text" --config_name "$config" \
            --block_size 32 \
            --threads 1 --max_steps 100000 --logging_strategy no --save_strategy no --ddp_overlap no \
            --device "$device" --comm_timeout 2 "$@" --output_dir "$folder" > "$work/out" 2> "$work/err" &
        pid=$!
        tries=0
        until [ "$(grep -c '"step"' "$folder/log.jsonl" 2> /dev/null || true)" -ge 20 ] 2> /dev/null ||
            [ $tries -ge 2000 ]; do
            sleep 0.01
            tries=$((tries + 1))
        done
        kill -$signal "$(pgrep -f "^$bin/txtrain .*--output_dir $folder\$" | tail -n 1)"
        wait $pid
        status=$?
        { [ $status -ne 0 ] && [ $status -ne 137 ]; } || fail "$signal: the launcher ended with $status"
        [ $signal = KILL ] || grep -q "^txtrain: rank [01] on .* does not answer" "$work/err" || fail "$signal: no rank is named"
    done
}

# ends: the test's last line
ends()
{
    [ "$failures" -eq 0 ] && echo "all good"
    exit $((failures != 0))
}

# write_layers: configurations of models whose last layers use keys and values of earlier ones, with heads that differ
# (shared.json), or with several residual streams and sparse gates (streams.json)
write_layers()
{
    cat > "$work/shared.json" << 'EOF'
{"model_type": "gemma4_text", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 8,
 "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 32, "vocab_size": 257,
 "vocab_size_per_layer_input": 257, "hidden_size_per_layer_input": 8, "global_head_dim": 12, "sliding_window": 9,
 "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
 "num_kv_shared_layers": 2, "attention_dropout": 0.1, "rms_norm_eps": 0.01, "final_logit_softcapping": 5.0}
EOF
    sed 's/gemma4/gemma3n/; s/"global_head_dim": 12/"laurel_rank": 6, "activation_sparsity_pattern": [0.9, 0.5, 0, 0]/
        s/input": 257/input": 250/' "$work/shared.json" \
        > "$work/streams.json"
}
