#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# roots_inside.sh: the part of roots.sh that runs in a clean system, in the folder /work with the wheel.
set -eu
cd /work
python3 -m venv venv
venv/bin/pip install -q ./*.whl openai
PATH=/work/venv/bin:$PATH
for i in $(seq 40); do
    echo "line $i: the cat sat on the mat, and the dog ran to the river in the sun"
done > text
txtrain --train_file text --output_dir model --config_overrides n_layer=2,n_embd=64,n_head=2 --block_size 64 \
    --max_steps 40 --learning_rate 1e-2 --save_strategy no --threads 1
txgen --model model --prompt "line 7: the cat" --max_new_tokens 20 --temperature 0 --threads 1 > generated
grep "line 7: the cat" generated
python -c "
import tx
text = tx.LM('model').generate('line 7: the cat', max_new_tokens=20, temperature=0)
assert open('generated').read().strip() == ('line 7: the cat' + text).strip() or text, text"
txserve --model model --chat_template chatml --port 8124 --threads 1 > served 2>&1 &
for i in $(seq 100); do
    grep -q "is served" served && break
    sleep 0.1
done
python roots_client.py http://127.0.0.1:8124/v1
kill -TERM $!
wait $!
echo "trained, generated, served"
