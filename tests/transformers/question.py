# SPDX-License-Identifier: Apache-2.0
"""Trains small encoders for extractive question answering by txtrain, and by transformers on the same windows, made as
run_qa.py makes them from the tokenizer's offsets (the softmax leaves out padding). Compares 20 losses, and in the saved
folder exact match and F1 of the answers, by the formulas of the metrics squad and squad_v2, and the predictions.

    question.py TXTRAIN [DEVICE]      exit status 77: something is missing
"""
import collections
import json
import math
import os
import random
import re
import string
import sys
import tempfile

from oracle import check, status
from training import Training, loads, mrpc, need, tokenizer_file

import torch
import transformers
from transformers import PreTrainedTokenizerFast

torch.set_num_threads(1)
TOKENIZERS = {"Bert": "bert-base-uncased-tokenizer.json", "DistilBert": "bert-base-cased-tokenizer.json",
              "DebertaV2": "bert-base-uncased-tokenizer.json", "ModernBert": "bert-base-uncased-tokenizer.json",
              "Roberta": "gpt2-tokenizer.json"}
BLOCK, STRIDE, LONGEST, BATCH, STEPS, SEED, RATE = 96, 20, 12, 4, 20, 3, 1e-3
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
         "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SMALL = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "dropout": 0.0, "attention_dropout": 0.0,
         "qa_dropout": 0.0}
DEBERTA = {"relative_attention": True, "position_buckets": 16, "norm_rel_ebd": "layer_norm", "share_att_key": True,
           "pos_att_type": "p2c|c2p", "position_biased_input": False, "type_vocab_size": 2}

FILES = {family: tokenizer_file(name) for family, name in TOKENIZERS.items()}

need(*FILES.values())


def rows_of(count, unanswered):
    """Contexts of several sentences, with characters of several bytes and accents."""
    texts = [row[3] for row in mrpc()]
    random.seed(4)
    rows = []
    for i in range(count):
        context = " ".join(random.sample(texts, random.randint(1, 6))).replace(" the ", " thé “the” ", 2)
        words = [m.span() for m in re.finditer(r"\S+", context)]
        first = random.randrange(len(words))
        begin, end = words[first][0], words[min(first + random.randrange(4), len(words) - 1)][1]
        answers = {"text": [context[begin:end]], "answer_start": [begin]}
        if unanswered and i % 4 == 0:
            answers = {"text": [], "answer_start": []}
        question = f"  what is {random.choice(texts)[:30]}?"
        rows.append({"id": str(i), "title": "", "context": context, "question": question, "answers": answers})
    return rows


def features_of(rows, tokenizer):
    """Windows as dictionaries: inputs, positions of the answer, offsets of the context's tokens, and the row."""
    made = []
    for number, row in enumerate(rows):
        t = tokenizer(row["question"].lstrip(), row["context"], truncation="only_second", max_length=BLOCK,
                      stride=STRIDE, return_overflowing_tokens=True, return_offsets_mapping=True, padding="max_length")
        for i in range(len(t["input_ids"])):
            kinds = t.sequence_ids(i)
            offsets = [o if kind == 1 else None for o, kind in zip(t["offset_mapping"][i], kinds)]
            own = [k for k, o in enumerate(offsets) if o is not None]
            start = end = 0
            if row["answers"]["text"]:
                begin = row["answers"]["answer_start"][0]
                stop = begin + len(row["answers"]["text"][0])
                if offsets[own[0]][0] <= begin and offsets[own[-1]][1] >= stop:
                    start = max(k for k in own if offsets[k][0] <= begin)
                    end = min(k for k in own if offsets[k][1] >= stop)
            inputs = {key: t[key][i] for key in t if key in ("input_ids", "attention_mask", "token_type_ids")}
            made.append({"inputs": inputs, "start": start, "end": end, "offsets": offsets, "row": number})
    return made


def logits_of(model, features):
    batch = {key: torch.tensor([f["inputs"][key] for f in features]) for key in features[0]["inputs"]}
    out = model(**batch)
    padding = (1.0 - batch["attention_mask"]) * -1e9
    return out.start_logits + padding, out.end_logits + padding


def loss_of(model, features):
    starts, ends = logits_of(model, features)
    cross = torch.nn.functional.cross_entropy
    return (cross(starts, torch.tensor([f["start"] for f in features])) +
            cross(ends, torch.tensor([f["end"] for f in features]))) / 2


def answers_of(rows, features, starts, ends, unanswered):
    found = []
    for number, row in enumerate(rows):
        best, none, text = -math.inf, math.inf, ""
        for f, s, e in zip(features, starts, ends):
            if f["row"] != number:
                continue
            none = min(none, s[0] + e[0])
            for i in sorted(range(len(s)), key=lambda k: -s[k])[:20]:
                for k in sorted(range(len(e)), key=lambda k: -e[k])[:20]:
                    if f["offsets"][i] and f["offsets"][k] and i <= k < i + LONGEST and s[i] + e[k] > best:
                        best, text = s[i] + e[k], row["context"][f["offsets"][i][0]:f["offsets"][k][1]]
        found.append("" if unanswered and none > best else text)
    return found


def words_of(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def score(row, answer):
    exact = f1 = 0.0
    for truth in row["answers"]["text"] or [""]:
        a, b = words_of(answer), words_of(truth)
        same = sum((collections.Counter(a) & collections.Counter(b)).values())
        exact = max(exact, float(a == b))
        f1 = max(f1, float(a == b) if not a or not b else 2 * same / (len(a) + len(b)))
    return exact, f1


def compare(work, program, device, family, unanswered):
    t = Training(program, family, work, steps=STEPS, batch=BATCH, rate=RATE, max_seq_length=BLOCK, doc_stride=STRIDE,
                 max_answer_length=LONGEST, device=device, seed=SEED, task_name="question_answering")
    start = t.path("start")
    names = ["input_ids", "attention_mask"] + (["token_type_ids"] if family in ("Bert", "DebertaV2") else [])
    with open(FILES[family], encoding="utf-8") as file:
        text = json.load(file)
    vocab = text["model"]["vocab"]
    if family == "Roberta":
        text["post_processor"] = {"type": "RobertaProcessing", "sep": ["!", 0], "cls": ["\"", 1],
                                  "trim_offsets": True, "add_prefix_space": False}
    os.mkdir(start)
    with open(os.path.join(start, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(text, file)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(start, "tokenizer.json"), model_input_names=names,
                                        pad_token="!" if family == "Roberta" else "[PAD]")
    torch.manual_seed(0)
    config = getattr(transformers, family + "Config")(
        vocab_size=max(len(vocab), len(tokenizer)), max_position_embeddings=BLOCK + 8,
        initializer_range=0.1, **(SMALL if family == "DistilBert" else SIZES),
        **({"type_vocab_size": 1, "pad_token_id": 1} if family == "Roberta" else {}),
        **(DEBERTA if family == "DebertaV2" else {}), **({"pad_token_id": 0} if family == "ModernBert" else {}))
    getattr(transformers, family + "Model")(config).save_pretrained(start)
    rows = rows_of(60, unanswered)
    rows, dev = rows[:25], rows[25:]
    t.rows(rows, dev)
    head = t.head(start)
    end = t.train(head)
    kind = getattr(transformers, family + "ForQuestionAnswering")
    model = loads(kind, head, family).train()
    features = features_of(rows, tokenizer)
    check(len(features) > len(rows) and any(f["start"] for f in features), "no context has several windows")
    said = t.compare(model, lambda part: loss_of(model, [features[n] for _, n in part]), 1e-5, learns=False)
    trained = kind.from_pretrained(end).eval()
    features = features_of(dev, tokenizer)
    with torch.no_grad():
        starts, ends = (x.tolist() for x in logits_of(trained, features))
        loss = loss_of(trained, features).item()
    answers = answers_of(dev, features, starts, ends, unanswered)
    scores = [score(row, answer) for row, answer in zip(dev, answers)]
    exact, f1 = (100 * sum(s[i] for s in scores) / len(scores) for i in range(2))
    t.results(far=1e-9, exact_match=exact, f1=f1, loss=loss)
    print(f"{said}, {len(features)} windows, exact match {exact:.2f}, F1 {f1:.2f}")


def main():
    program, device = sys.argv[1], (sys.argv[2:] or ["cpu"])[0]
    with tempfile.TemporaryDirectory() as work:
        compare(work, program, device, "Bert", False)
        compare(work, program, device, "DistilBert", True)
        compare(work, program, device, "Roberta", False)
        compare(work, program, device, "DebertaV2", False)
        compare(work, program, device, "ModernBert", False)
    return status()


sys.exit(main())
