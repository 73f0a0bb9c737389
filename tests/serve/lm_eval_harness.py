# SPDX-License-Identifier: Apache-2.0
"""lm-evaluation-harness scores a model through txserve as it scores the same model in transformers: log-probabilities
of a cloze and of a multiple-choice task, to 1e-4.

    lm_eval_harness.py TXSERVE MODEL
"""
import json
import os
import random
import shutil
import sys
import tempfile

import oracle

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
import lm_eval
import tenacity  # lm_eval's client needs it
from lm_eval.tasks import TaskManager

from server import Server

WHO = ["Lily", "Tom", "Sam", "Mia", "Ben"]
DID = ["went to the park", "saw a big dog", "was very happy", "played with her toy", "said hello", "had a red ball"]
CLOZE = """task: tx_cloze
output_type: loglikelihood
doc_to_text: "{{text.split(' ')[:-1]|join(' ')}}"
doc_to_target: "{{' '+text.split(' ')[-1]}}"
metric_list: [{metric: acc}, {metric: perplexity}]
"""
CHOICE = """task: tx_choice
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc}, {metric: acc_norm}]
"""


def write_tasks(folder):
    r = random.Random(1)
    rows = {"tx_cloze": [], "tx_choice": []}
    for _ in range(30):
        name = r.choice(WHO)
        text = f"Once upon a time, there was a little girl named {name}. She {r.choice(DID)}."
        rows["tx_cloze"].append({"text": text})
        rows["tx_choice"].append({"question": f"One day {name}", "choices": r.sample(DID, 4), "answer": r.randrange(4)})
    for name, text in (("tx_cloze", CLOZE), ("tx_choice", CHOICE)):
        data = os.path.join(folder, f"{name}.jsonl")
        with open(data, "w") as f:
            f.writelines(json.dumps(row) + "\n" for row in rows[name])
        with open(os.path.join(folder, f"{name}.yaml"), "w") as f:
            f.write(f"{text}dataset_path: json\ntest_split: test\ndataset_kwargs: {{data_files: {{test: {data}}}}}\n")


def score(folder, model, arguments):
    """The log-probability and whether it is greedy, of each continuation; and the results."""
    found = lm_eval.simple_evaluate(model=model, model_args=arguments, tasks=["tx_cloze", "tx_choice"], batch_size=1,
                                    device="cpu", task_manager=TaskManager(include_path=folder), bootstrap_iters=0)
    return [(float(r[0][0]), str(r[0][1])) for name in ("tx_cloze", "tx_choice")
            for sample in sorted(found["samples"][name], key=lambda s: s["doc_id"]) for r in sample["resps"]]


with tempfile.TemporaryDirectory() as work:
    model = os.path.join(work, "model")
    shutil.copytree(sys.argv[2], model)
    with open(os.path.join(model, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}, f)
    write_tasks(work)
    want = score(work, "hf", f"pretrained={model},dtype=float32,add_bos_token=True")
    with Server(sys.argv[1], model) as server:
        url = f"http://127.0.0.1:{server.port}/v1/completions"
        got = score(work, "local-completions", f"base_url={url},model=model,tokenizer={model},num_concurrent=4,"
                    "tokenizer_backend=huggingface,max_length=512,add_bos_token=True")
    worst = max(abs(a[0] - b[0]) for a, b in zip(got, want))
    oracle.check(len(got) == len(want) == 150 and worst <= 1e-4, f"log-probabilities differ by {worst}")
    oracle.check([g[1] for g in got] == [w[1] for w in want], "greedy continuations")
    print(f"{len(got)} continuations, worst difference {worst:.2g}")
sys.exit(oracle.status())
