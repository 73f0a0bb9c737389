#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Models as people have them: settings of generation, configurations, weights and tokenizers that other programs wrote.
# models.sh BIN-FOLDER TEST-DATA. Values are those of transformers 5.23 and tokenizers 0.23.3 for the same files.
. "${0%/*}/cases.sh"

# prints WANTED COMMAND...: the standard output is WANTED
prints()
{
    line=$1
    shift
    outcome 0 '' "$@"
    [ "$(cat "$work/out")" = "$line" ] || fail "$case_name: expected $line"
}

# ---- Settings of generation ---------------------------------------------------------------------------------------

# settings JSON [OPTION...]: generates 8 tokens with these settings
settings()
{
    echo "$1" > model/generation_config.json
    shift
    "$bin/txgen" --model model --ids "1 17 99" -n 8 "$@"
}

open_case generation-config-silent
prints "165 180 179 109" settings '{"eos_token_id": 109}'
prints "165 180 179 165 180 180 180 180" settings '{"eos_token_id": 109, "min_length": 12}'
prints "165 180 179 109" settings '{"eos_token_id": 109, "min_length": 12, "min_new_tokens": 2}'
prints "165 180 179 109" settings '{"eos_token_id": 109, "min_length": 12}' --min_new_tokens 0
prints "165 180 155 173 253 75 239 203" settings '{"eos_token_id": 258, "num_beams": 2}'
# Each setting of transformers that would change the text is followed or named.
for key in '"watermarking_config": {"bias": 5.0}' '"top_h": 0.01' '"encoder_repetition_penalty": 1.5' \
    '"stop_strings": ["a"]' '"force_words_ids": [[1]]' '"max_time": 3' '"min_p": 1.1' '"typical_p": -0.5' \
    '"bad_words_ids": [[3]]' '"suppress_tokens": [4]' '"begin_suppress_tokens": [4]' '"forced_eos_token_id": 0' \
    '"sequence_bias": [[[1], 2.0]]' '"renormalize_logits": true' '"num_return_sequences": 3' '"dola_layers": "low"' \
    '"exponential_decay_length_penalty": [5, 1.5]' '"token_healing": true' '"guidance_scale": 2' \
    '"encoder_no_repeat_ngram_size": 2' '"penalty_alpha": 0.6' '"diversity_penalty": 0.1' '"unheard_of": 1' \
    '"bos_token_id": 5'; do
    outcome 0 'generation_config.json: ' settings "{\"eos_token_id\": 258, $key}"
    name=${key%%:*}
    name=${name#\"}
    says "${name%\"}"
done
prints "165 180 179 109 114 190 63 233" settings '{"eos_token_id": 258, "pad_token_id": 0, "use_cache": false,
    "typical_p": 1.0, "no_repeat_ngram_size": 0, "bad_words_ids": [], "suppress_tokens": null, "bos_token_id": 259,
    "output_scores": true, "cache_implementation": "static", "transformers_version": "5.23.0"}'
! grep -q warning "$work/err" || fail "$case_name: warns of settings without effect"

# Without the file, the same keys in config.json count.
rm model/generation_config.json
sed -i 's/"vocab_size"/"num_beams": 2, "vocab_size"/' model/config.json
prints "165 180 155 173 253 75 239 203" "$bin/txgen" --model model --ids "1 17 99" -n 8

open_case generation-config-stops-load
end='"eos_token_id": 258'
outcome 0 '' settings "{\"top_k\": -1, \"do_sample\": true, $end}"
outcome 0 '' settings "{\"top_k\": -1, \"do_sample\": true, $end}" --top_k -1
outcome 1 'num_beams 2 with do_sample' settings "{\"num_beams\": 2, \"do_sample\": true, $end}"
for option in '--num_beams 1' '--temperature 0' '--do_sample false'; do
    # shellcheck disable=SC2086 # an option and its value
    outcome 0 '' settings "{\"num_beams\": 2, \"do_sample\": true, $end}" $option
done
outcome 0 '' settings "{\"top_p\": 0, $end}" --top_p 0.9
prints "165 180 179 109 114 190 63 233" settings "{\"top_p\": 0, \"do_sample\": true, $end}"
outcome 0 'prompt_lookup_num_tokens: 10 is not in 0..7' settings "{\"prompt_lookup_num_tokens\": 10, $end}"
outcome 0 'temperature: -1 is below 0' settings "{\"temperature\": -1, $end}"
echo "{\"num_beams\": 2, \"do_sample\": true, $end}" > model/generation_config.json
outcome 0 '' "$bin/txgen" --model model --ids "1 17 99" --logits logits

open_case eos-list-config
prints "364 88 453" "$bin/txgen" --model model --ids "5 17 300" -n 12 --temperature 0

# ---- Tokenizers ---------------------------------------------------------------------------------------------------

# encodes IDS TEXT: both directions
encodes()
{
    printf '%s' "$2" > text
    prints "$1" "$bin/txtok" encode --tokenizer "${3:-tok}" text
}

open_case bpe-end-of-word-suffix
encodes "31 25" "lower newer"
encodes "5 0 11 29 7 2 0 27 26" "lo wwider odx tree ree"
sed -i 's/"decoder": null/"decoder": {"type": "BPEDecoder", "suffix": "<\/w>"}/' tok/tokenizer.json
echo 31 25 > text
prints "lower newer" "$bin/txtok" decode --tokenizer tok text

open_case tokens-in-tokenizer-config
encodes "67 500 68 502 69 501" 'a<tool>b<extra>c<pad>' .

# ---- Models -------------------------------------------------------------------------------------------------------

open_case olmo-gqa-refused
prints "39 88 1 40 12 78" "$bin/txgen" --model model --ids "1 2 3" -n 6 --temperature 0

open_case t5-v11-tied-head
prints "16 16 16 16 16" "$bin/txgen" --model model --ids "5 6 1" -n 5
outcome 0 '' "$bin/txcheck" file model

open_case yarn-positions
ids=3
i=4
while [ $i -le 102 ]; do
    ids="$ids $i"
    i=$((i + 1))
done
outcome 0 '' "$bin/txgen" --model . --ids "$ids" --logits logits

open_case perplexity-stride
# perplexity_is VALUE STRIDE
perplexity_is()
{
    outcome 0 '999 tokens' "$bin/txgen" --model "$data/models/tiny_gpt2_bytes" --perplexity p.txt --stride "$2"
    sed -n 's/^perplexity \([0-9.]*\).*/\1/p' "$work/out" > "$work/got"
    echo "$1" > "$work/right"
    near "$work/got" "$work/right" 5e-5 || fail "$case_name: the perplexity is not $1, but $(cat "$work/got")"
}
perplexity_is 9.06104 1
perplexity_is 8.31526 32
says '999 tokens'

# ---- Configurations -----------------------------------------------------------------------------------------------

open_case refusal-list-cut
outcome 1 'model_type: "bart": TX has no such type, but "bert"; docs/reference/features.md lists all' \
    "$bin/txgen" --model model --ids 1
sed -i 's/bart/qwen3_nexd/' model/config.json
outcome 1 'TX has no such type, but "qwen3"' "$bin/txgen" --model model --ids 1

open_case no-model-type-message
prints "188 108 239 217" "$bin/txgen" --model model --ids "1 2" -n 4 --temperature 0
sed -i 's/LlamaForCausalLM/LlamoForCausalLM/' model/config.json
outcome 1 'model_type is missing, and TX does not know the class LlamoForCausalLM' "$bin/txgen" --model model --ids 1
sed -i '/architectures/,/]/d' model/config.json
outcome 1 'model_type is missing' "$bin/txgen" --model model --ids 1

open_case olmo-gqa-refused
sed -i 's/Olmo2ForCausalLM/Olmo2ForSequenceClassification/' model/config.json
outcome 1 'Olmo2ForSequenceClassification: TX has no classifiers of model type olmo2, only of gpt2' \
    "$bin/txgen" --model model --classify --prompt a

verdict
