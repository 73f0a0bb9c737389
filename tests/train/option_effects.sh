# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2154
#
# Effects that rows of test_train_options.sh expect, and runs that learn from rewards. The run is in $work/r, its
# arguments were "$@".

differs() { ! cmp -s "$work/base/$1" "$work/r/$1"; }
adapter_differs()
{
    [ -s "$work/r/adapter_model.safetensors" ] && ! cmp -s "$work/adapter" "$work/r/adapter_model.safetensors"
}
weights_differ() { [ -s "$work/r/model.safetensors" ] && differs model.safetensors; }
experts_differ()
{
    run experts --config_name "$work/experts.json" &&
        ! cmp -s "$work/experts/model.safetensors" "$work/r/model.safetensors"
}
log_differs()
{
    sed 's/, "tokens_per_second".*//' "$work/base/log.jsonl" > "$work/a"
    sed 's/, "tokens_per_second".*//' "$work/r/log.jsonl" > "$work/b"
    ! cmp -s "$work/a" "$work/b"
}
says() { grep -qF -- "$*" "$work/out" "$work/err"; }
# The categories make up the total.
# As many rows in a step as before, and half as many micro-batches would be too many.
finds_a_batch()
{
    set -- $(sed -n 's/^batch   1048576 rows .*memory: \([0-9]*\) do, with \([0-9]*\) micro-batches instead of 3$/\1 \2/p' "$work/out")
    [ $# -eq 2 ] && [ $(($1 * $2)) -eq $((1048576 * 3)) ] && [ "$1" -lt 1048576 ]
}
# Options of methods that the run has not are named, each with its reason.
names_the_idle()
{
    for text in "--distill_alpha (only with --teacher_model_name_or_path)" \
        "--router_z_loss_coef (the model has no experts)" "--init_scale, --growth_interval (only with --fp16)" \
        "--nvme_path (only with --offload" "--adam_beta1 (the optimizer has none)" "--zero_stage (the run has one rank)" \
        "--eval_steps (only with --eval_strategy steps)" "--run_name (only with --report_to)" \
        "--pad_to_max_length (all blocks have the same length)" "--validation_file (nothing is evaluated)"; do
        says "$text" || return 1
    done
}
# The run keeps its loss scale and says so; a changed interval counts and is reported.
tells_other_scales()
{
    "$bin/txtrain" --resume_from_checkpoint "$work/r/checkpoint-3" --output_dir "$work/r/on" --init_scale 32 --growth_interval 9 \
        > "$work/out" 2> "$work/err" && says growth_interval was 2000 and is 9 now &&
        says the given values have no effect: init_scale was 64.0 and is 32.0 now &&
        grep -q '"loss_scale":.64' "$work/r/on/log.jsonl"
}
grouping_changes_nothing() { says group_by_length: all rows have the same length && weights_kept; }
# The last sample is the longest of three.
begins_with_the_longest() { [ "$(grep -c ' 2$' "$work/lengths") $(sed -n '1p;4p' "$work/lengths" | tr '\n' ' ')" = "2 0 2 1 2 " ]; }
computes_again() { says recomputes 1 of 1 segment && weights_kept; }
weights_kept() { ! differs model.safetensors; }
# The same training; evaluations give other numbers, within 0.1 %.
evaluates_otherwise()
{
    weights_kept && numbers eval_loss "$work/base/log.jsonl" > "$work/a" && numbers eval_loss "$work/r/log.jsonl" |
        paste - "$work/a" | awk \
        '{ d = $1 / $2 - 1; if (!(d < 1e-3 && d > -1e-3 && d != 0)) bad = 1 } END { exit bad || NR != 2 }'
}
does_not_say() { says device && ! says "$@"; }
steps_are() { ended "$work/r" "$1"; }
logged() { grep -q -- "$*" "$work/r/log.jsonl"; }
prepared() { grep -q -- "$*" "$work"/r/cache/*.jsonl; }
rows_are() { [ "$(cat "$work"/r/cache/*.jsonl | wc -l)" -eq "$1" ]; }
has() { for file in "$work"/r/$1; do [ -e "$file" ] && return 0; done; return 1; }
lacks() { ! has "$1"; }
holds() { grep -q -- "$2" "$work/r/$1"; }
# Calls that the preloaded library counted
counted() { [ -z "$shim" ] || grep -q "calls of $1: $2\$" "$work/err"; }
one_batch_a_sample()
{
    awk -F'[:,]' '/samples_per_second/ { a = $2 } /steps_per_second/ { b = $2 } END { exit !(a > 0 && a == b) }' \
        "$work/r/eval_results.json"
}
# No file may pass 16 KiB, so that no checkpoint can be written. A thread writes it, so the run may only notice this when
# it saves the next one.
stops_when_saving_fails()
{
    for action in continue stop; do
        rm -rf "$work/r"
        (
            trap '' XFSZ
            ulimit -f 16
            run r --max_steps 12 --save_strategy steps --save_steps 3 --on_save_error $action
        ) && return 1
        last=$(numbers step "$work/r/log.jsonl" | tail -n 1)
        case $action in continue) [ "$last" -eq 12 ] ;; *) [ "$last" -ge 3 ] && [ "$last" -le 6 ] ;; esac || return 1
    done
}
draws_progress()
{
    command -v script > /dev/null || return 0
    for value in false true; do
        rm -rf "$work/r"
        script -qec "$bin/txtrain --train_file $work/text --config_name $work/config.json --max_steps 3 --threads 1 \
            --save_strategy no --output_dir $work/r --disable_tqdm $value" "$work/typed" > /dev/null
        found=no
        grep -q "left" "$work/typed" && found=yes
        [ "$value $found" = "false yes" ] || [ "$value $found" = "true no" ] || return 1
    done
}

# alters WHAT COMMAND ARGUMENT...: the run of the command has others, of a file or of a key of log.jsonl
alters()
{
    what=$1
    shift
    rm -rf "$work/with"
    mv "$work/r" "$work/with"
    "$@" || return 1
    case $what in
    *.*) [ -s "$work/r/$what" ] && ! cmp -s "$work/with/$what" "$work/r/$what" ;;
    *)
        numbers "$what" "$work/with/log.jsonl" > "$work/a"
        numbers "$what" "$work/r/log.jsonl" > "$work/b"
        [ -s "$work/b" ] && ! cmp -s "$work/a" "$work/b"
        ;;
    esac
}
# The 4-bit weights take less memory, and train other adapters.
packed_adapter_differs() { says "those of the blocks in $1" && shift && alters adapter_model.safetensors "$@"; }
planned() { sed -n 's/^ *total *\([0-9]*\) .*/\1/p' "$work/out" | head -n 1; }
# pair_saves ARGUMENT...: of the last run's memory, compared with that of these arguments
pair_saves()
{
    [ -n "$launcher" ] || return 0
    saved=$(planned)
    pair --dry_run "$@" || return 1
    [ "$saved" -lt "$(planned)" ]
}

# More tokens are trained than by default.
learns_more()
{
    cp "$work/r/log.jsonl" "$work/b" && rm -rf "$work/r" && "$1" --chat_template "$work/form.jinja" || return 1
    [ "$(numbers loss "$work/b" | head -n 1)" != "$(numbers loss "$work/r/log.jsonl" | head -n 1)" ]
}
# evaluations_are STEP...: those of log.jsonl
evaluations_are()
{
    [ "$(grep eval_loss "$work/r/log.jsonl" | sed 's/^{"step": \([0-9]*\).*/\1/' | tr '\n' ' ')" = "$* " ]
}
stopped_at() { steps_are "$1" && says early stopping after step "$1" && has README.md; }
# ... and no run resumes from it.
holds_the_model_alone()
{
    has checkpoint-3/model.safetensors && lacks checkpoint-3/optimizer.safetensors || return 1
    "$bin/txtrain" --resume_from_checkpoint "$work/r/checkpoint-3" --train_file "$work/text" > "$work/out" \
        2> "$work/err" && return 1
    says --model_name_or_path "$work/r/checkpoint-3"
}

pair_says() { [ -z "$launcher" ] || says "$@"; }
pair_logged() { [ -z "$launcher" ] || logged "$@"; }
pair_hides() { [ -z "$launcher" ] || { steps_are 8 && ! says "$@"; }; }
# Rank 1 comes late.
late()
{
    [ -n "$launcher" ] || return 0
    # shellcheck disable=SC2016
    timeout -s KILL 60 "$launcher" -n 2 sh -c \
        '[ "${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-0}}" = 1 ] && sleep 8; exec "$@"' sh "$bin/txtrain" \
        --train_file "$work/text" --config_name "$work/config.json" --output_dir "$work/r" --block_size 16 \
        --max_steps 2 --threads 1 "$@" > "$work/out" 2> "$work/err"
}
pair_fails() { [ -z "$launcher" ] || grep -q "$*" "$work/err"; }
# A step of this model takes longer than the limit.
times_out() { grep -q "rank 0 on .* is stuck: last step [0-9]*" "$work/err"; }

# The base run's model on prompts, with rewards for the length of its completions
sample()
{
    short --train_file "$work/pairs.jsonl" --model_name_or_path tiny --task_name grpo --num_generations 2 \
        --max_completion_length 4 --output_dir "$work/r" --reward_funcs length "$@"
}
# The same from recorded completions
replay()
{
    short --train_file "$work/pairs.jsonl" --model_name_or_path tiny --task_name ${learns:-grpo} --num_generations 2 \
        --max_completion_length 4 --output_dir "$work/r" --rollout_file "$work/rollouts.jsonl" "$@"
}
replay_rloo()
{
    learns=rloo replay "$@"
}

# Writes small data for the tasks.
write_data()
{
    for word in cat dog bird; do
        echo "{\"prompt\": [{\"role\": \"user\", \"content\": \"$word\"}]," \
            "\"completion\": [{\"role\": \"assistant\", \"content\": \"a $word\"}]}"
    done > "$work/talk.jsonl"
    for word in cat dog; do
        echo "{\"prompt\": \"$word\", \"chosen\": \" one\", \"rejected\": \" three\"}"
    done > "$work/pairs.jsonl"
    for reward in 1 0 0.5 0.25; do
        echo "{\"completion_ids\": [9$((${#reward})), 97, 98], \"rewards\": {\"a\": $reward, \"b\": -0.5}}"
    done > "$work/rollouts.jsonl"
    for good in true false; do
        echo "{\"prompt\": \"cat\", \"completion\": \" one\", \"label\": $good}"
    done > "$work/likes.jsonl"
    for word in cat dog; do
        echo "{\"anchor\": \"$word\", \"positive\": \"a $word\", \"negative\": \"no $word\"}"
    done > "$work/trios.jsonl"
    echo '{"question": "who", "context": "a cat and a dog", "answers": {"text": ["cat"], "answer_start": [2]}}' \
        > "$work/question.jsonl"
}
