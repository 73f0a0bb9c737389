#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# txbench train, generate and comm, end to end: all figures exist and are consistent, and errors are reported. The test
# does not judge the figures.
#
#   bench.sh TXBENCH [LAUNCHER]
txbench=$1
launcher=${2-}
. "${0%/*}/../program.sh"
export OMP_WAIT_POLICY=passive
echo '{"model_type": "gpt2", "vocab_size": 300, "n_positions": 64, "n_embd": 32, "n_layer": 3, "n_head": 4}' \
    > "$work/config.json"

# count KEY: the number of values above 0 in its list (or its single value) in the printed JSON
count()
{
    sed -n "s/.*\"$1\": \[*\([^]}]*\).*/\1/p" "$work/out" | tr ',' '\n' | awk '$1 > 0' | wc -l
}

bench()
{
    command=$1
    shift
    outcome 0 "" "$txbench" "$command" --config "$work/config.json" --json "$@"
    [ "$(wc -l < "$work/out")" -eq 1 ] || fail "$command $*: not one line of JSON"
}

# ---- train -----------------------------------------------------------------------------------------------------------
bench train --batch 2 --block 32 --steps 2 --pairs 3
[ "$(count seconds_per_step)" -eq 3 ] || fail "train: not three figures"
grep -q '"peer": {' "$work/out" && fail "train: a peer that nobody asked for"
# A step reads 2 x 32 tokens.
sed -n 's/.*"seconds_per_step": \[\([^]]*\)\], "tokens_per_second": \([0-9.]*\).*/\1,\2/p' "$work/out" | tr ',' '\n' |
    awk 'NR < 4 { if (!least || $1 < least) least = $1; if ($1 > most) most = $1 }
         NR == 4 { good = $1 >= 63.9 / most && $1 <= 64.1 / least } END { exit !good }' ||
    fail "train: tokens a second do not fit the seconds"
outcome 0 "tx tokens_per_second" "$txbench" train --config "$work/config.json" --batch 2 --block 32 --steps 1 --pairs 1
# Other models, and adapters; compared with the peer if Python has it.
stack='"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 300'
echo "{\"model_type\": \"bert\", \"architectures\": [\"BertForSequenceClassification\"], $stack}" > "$work/bert.json"
echo "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], $stack, \"max_position_embeddings\": 64}" \
    > "$work/llama.json"
peer=none
HF_HUB_OFFLINE=1 "${TX_PYTHON:-python3}" -c "import torch, transformers, peft" 2> "$work/err" && peer=torch
for model in bert llama; do
    for adapter in "" "--lora_r 4 --bf16"; do
        # shellcheck disable=SC2086
        bench train --batch 2 --block 16 --steps 1 --pairs 1 $adapter --peer $peer --config "$work/$model.json"
        [ $peer = none ] || [ "$(count processor_ratio)" -eq 1 ] || fail "train: $model $adapter: no ratio"
    done
done
grep -q '"gradients": [1-9][0-9]\{3\},' "$work/out" || fail "train: an adapter has as many gradients as its model"
outcome 1 "more than the model's 64 positions" "$txbench" train --config "$work/config.json" --block 65
outcome 1 "no published model" "$txbench" train --config nothing
outcome 2 "must be one of" "$txbench" train --peer nobody

# ---- generate --------------------------------------------------------------------------------------------------------
bench generate --prompt 8 --new_tokens 8 --pairs 2
[ "$(count seconds)" -eq 2 ] || fail "generate: not two figures"
outcome 0 "tx tokens_per_second" "$txbench" generate --config "$work/config.json" --prompt 8 --new_tokens 8 --pairs 1 --batch 3
outcome 1 "the model has 64 positions" "$txbench" generate --config "$work/config.json"
# A model with its weights, and a stand-in for a peer: it checks its description, and answers with fixed times.
bin=${txbench%/*}
seq 300 > "$work/text"
sed "s/: 300/: 257/" "$work/config.json" > "$work/bytes.json"
{ "$bin/txtrain" --config_name "$work/bytes.json" --train_file "$work/text" --block_size 32 --max_steps 1 \
    --output_dir "$work/model" && "$bin/txconvert" "$work/model" --to "$work/model.gguf"; } > "$work/out" 2>&1 ||
    fail "no model: $(cat "$work/out")"
cat > "$work/python" << 'END'
#!/bin/sh
case $1$3 in
*/peer_llama_cpp.py*'"model": '*'model.gguf"'*'"batch": 2, "block": 8, "count": 4, "threads": 0, "compile": false, "gpu": false'*) ;;
*/peer_torch.py*'"compile": true'*) ;;
*) exit 1 ;;
esac
echo "ready a stand-in"
while read -r count; do echo "seconds 30 20"; done
END
chmod +x "$work/python"
outcome 0 '"peer_name": "a stand-in"' env TX_PYTHON="$work/python" "$txbench" generate --model "$work/model.gguf" \
    --peer llama.cpp --batch 2 --prompt 8 --new_tokens 4 --pairs 2 --json
[ "$(count other_processors)" -le 2 ] || fail "generate: more than two measurements of other programs"
grep -q '"peer": {"seconds": \[30.0, 30.0\], "tokens_per_second": 0.26' "$work/out" || fail "generate: not the peer's times"
outcome 0 '"peer_name": "a stand-in"' env TX_PYTHON="$work/python" "$txbench" train --config "$work/config.json" \
    --peer torch-compile --batch 2 --block 8 --steps 10 --pairs 1 --json
grep -q '"peer": {"seconds_per_step": \[3.0\], ' "$work/out" || fail "train: not the peer's time of a step"
outcome 1 "give one as --model" "$txbench" generate --config "$work/config.json" --peer llama.cpp
outcome 1 "only for --model" "$txbench" generate --config "$work/config.json" --dtype float32
if "${TX_PYTHON:-python3}" -c "import llama_cpp" 2> "$work/err"; then
    outcome 0 "peer tokens_per_second" "$txbench" generate --model "$work/model.gguf" --peer llama.cpp --prompt 8 \
        --new_tokens 4 --pairs 1
fi

# ---- comm ------------------------------------------------------------------------------------------------------------
outcome 0 "self" "$txbench" comm --sizes 1 --rounds 1
outcome 1 "--sizes one: expected up to 16 sizes in MB" "$txbench" comm --sizes one
if [ -n "$launcher" ] && command -v "$launcher" > /dev/null; then
    outcome 0 "mpi_all_reduce_gbytes" "$launcher" -n 2 "$txbench" comm --sizes 0.1,0.25 --rounds 2
    outcome 0 '"communicator": "mpi", "ranks": 2' "$launcher" -n 2 "$txbench" comm --sizes 0.1,0.25 --rounds 2 --json
    for key in all_reduce_seconds mpi_all_reduce_seconds memcpy_seconds; do
        [ "$(grep -oE "\"$key\": \[[0-9.e-]+, [0-9.e-]+\]" "$work/out" | wc -l)" -eq 2 ] || fail "comm: not two rounds of $key"
    done
    grep -q '"bytes": 100000, .*"bytes": 250000, ' "$work/out" || fail "comm: other sizes"
    outcome 0 "communicator  " "$launcher" -n 2 env TX_COMM_SHM=0 "$txbench" comm --sizes 0.1 --rounds 1 --wire bf16
fi

verdict
