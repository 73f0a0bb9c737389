#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Hostile and large chat templates: templates.sh BIN-FOLDER TEST-DATA
# shellcheck source=tests/cases/cases.sh
. "${0%/*}/cases.sh"
model=$data/models/stories260K

# A value of 60,000 levels is compared.
open_case jinja_deep_equal
cp "$model"/* .
echo hi > question
outcome 1 "a value is nested deeper than 100" "$bin/txgen" --model . --chat -n 5 < question

# A template with NUL and a megabyte after it.
open_case jinja-nul
B=$bin bash ./make.sh "$model" > "$work/out" 2> "$work/err"
says "is NUL: this is not a text file"

# Each turn replaces a namespace's text: all versions would have 16 GB.
open_case serve_template_memory
cat > sum.jinja << 'END'
{% set ns = namespace(x='') %}{% for m in messages %}{% set ns.x = ns.x + '<' + m.role + '>' + m.content + '</s>' %}
{% if m.role == 'assistant' %}{{ m.content }}</s>{% endif %}{% endfor %}{{ ns.x | length }}
END
awk 'BEGIN { for (k = 0; k < 2; k++) {
    printf "{\"messages\": ["
    for (i = 0; i < 8000; i++)
        printf "%s{\"role\": \"user\", \"content\": \"What is the number of turn %d, if any?\"}, " \
            "{\"role\": \"assistant\", \"content\": \"It is the number %d, as you said.\"}", i ? ", " : "", i, i
    print "]}" } }' > turns.jsonl
# Address sanitizers reserve more, so there the limit is left out.
limit=3000000
sh -c "ulimit -v $limit"'; exec "$@"' sh "$bin/txtrain" --version > /dev/null 2>&1 || limit=unlimited
outcome 0 "" sh -c "ulimit -v $limit"'; exec "$@"' sh "$bin/txtrain" --model_name_or_path "$model" --threads 1 \
    --train_file turns.jsonl --chat_template sum.jinja --max_steps 1 --save_strategy no --max_seq_length 64 \
    --per_device_train_batch_size 1 --output_dir out --report_to none
verdict
