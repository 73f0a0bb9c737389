#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The locale of a host program, which may write 0,5, changes neither what TX reads nor what it writes.
#   locale.sh IN_LOCALE
program=$1
# shellcheck source=tests/program.sh
. "${0%/*}/../program.sh"
command -v localedef > /dev/null || { echo "skipped: no localedef (package libc-bin)"; exit 77; }
mkdir -p "$work/locales"
localedef -i tr_TR -f UTF-8 "$work/locales/tr_TR.UTF-8" > "$work/out" 2> "$work/err" # 0,5; and the small I has no dot
[ -s "$work/locales/tr_TR.UTF-8/LC_NUMERIC" ] || { echo "skipped: no tr_TR (package locales)"; exit 77; }
export LOCPATH="$work/locales" TX_CACHE="$work/cache" OMP_WAIT_POLICY=passive

write_small_text 60
write_small_config 2 32 256 0.25
i=0
while [ $i -lt 8 ]; do
    echo "{\"prompt\": \"say $i\", \"completion\": \"it is $i.5\", \"score\": 0.$i}"
    i=$((i + 1))
done > "$work/said.jsonl"
cat > "$work/mine.jinja" << 'END'
{% for m in messages %}{{ m.role }} {{ 1.5 }} {{ '%.2f' | format(0.25) }} {{ '2.5' | float }} {{ 2.567 | round(1) }}
{{ [0.5, 1e-7] | tojson }}{{ strftime_now('%B') | length > 0 }}{{ m.content }}{{ eos_token }}
{% endfor %}
END

# train LOCALE DECIMAL_POINT OPTION=VALUE...: trains in a folder of the locale's name
train()
{
    name=$1 point=$2
    shift 2
    rm -rf "${work:?}/$name"
    mkdir "$work/$name"
    (cd "$work/$name" && LC_ALL=$name exec "$program" "$point" threads=1 output_dir=out max_steps=3 logging_steps=1 \
        save_steps=2 learning_rate=2.5e-3 warmup_ratio=0.34 weight_decay=0.125 max_grad_norm=0.75 \
        per_device_train_batch_size=2 report_to=none overwrite_output_dir=true "$@") > "$work/out" 2> "$work/err"
    status=$?
    [ $status -eq 77 ] && { cat "$work/err"; exit 77; }
    [ $status -eq 0 ] || fail "$name $*: status $status"
    sed 's/, [0-9.]* s,.*\|[0-9]* tokens\/s.*//' "$work/out" > "$work/$name/said"
}

# Times and speeds differ from run to run.
steady() { LC_ALL=C sed -E "s/\"(time|[a-z_]*runtime|[a-z_]*per_second|seconds|waited|total_flos)[a-z_]*\": *[-0-9.e+]*//g" "$1"; }

compare()
{
    train tr_TR.UTF-8 , "$@"
    (cd "$work/C" && find . -type f ! -name .lock ! -name manifest.json) > "$work/files"
    while read -r file; do
        steady "$work/C/$file" > "$work/expected"
        steady "$work/tr_TR.UTF-8/$file" > "$work/got"
        cmp -s "$work/got" "$work/expected" ||
            fail "$*: other $file than in C: $(diff -a "$work/got" "$work/expected" | head -4)"
    done < "$work/files"
}

text="block_size=16 train_file=../text config_name=../config.json eval_strategy=steps eval_steps=2 validation_split_percentage=12.5"
# shellcheck disable=SC2086
train C . $text && compare $text
cp -R "$work/C/out" "$work/base"
text="max_seq_length=256 train_file=../said.jsonl model_name_or_path=../base chat_template=../mine.jinja use_peft=true lora_r=4 lora_alpha=1.5"
# shellcheck disable=SC2086
train C . $text && compare $text
verdict
