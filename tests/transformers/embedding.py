# SPDX-License-Identifier: Apache-2.0
"""Trains a small BERT for embeddings by txtrain --task_name embedding, and by the losses of sentence-transformers on
the same rows: pairs and hard negatives (MultipleNegativesRankingLoss), scored sentences (CosineSimilarityLoss) and
triplets (TripletLoss). Compares 20 losses, metrics, and embeddings of the saved folder.

    embedding.py TXTRAIN TXGEN [DEVICE]      exit status 77: something is missing
"""
import json
import math
import os
import sys
import tempfile

from oracle import DATA, check, log_of, read_json, run, skip, status

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses, modules
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator, TripletEvaluator
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

torch.set_num_threads(1)
TOKENIZER = os.path.join(DATA, "tokenizers", "bert-base-uncased-tokenizer.json")
MRPC = os.path.join(DATA, "glue", "MRPC", "dev_408.tsv")
POSITIONS, BATCH, STEPS, SEED, RATE = 48, 4, 20, 7, 1e-3

if not os.path.exists(TOKENIZER) or not os.path.exists(MRPC):
    skip(f"no tokenizer or no MRPC in {DATA}")


def rows_of(texts, kind):
    pairs = [(a, b) for a, b, _ in texts]
    others = [texts[(i + 7) % len(texts)][1] for i in range(len(texts))]
    if kind == "pairs":
        return [{"question": a, "answer": b} for a, b in pairs]
    if kind == "scores":
        return [{"sentence1": a, "sentence2": b, "score": round(0.1 + 0.8 * int(s), 2)} for a, b, s in texts]
    return [{"idx": i, "anchor": a, "positive": b, "negative": n} for i, ((a, b), n) in enumerate(zip(pairs, others))]


def texts_in(row):
    return [text for key, text in row.items() if key not in ("score", "idx")]


def train_here(model, loss, rows, samples):
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    model.train()
    found, at = [], 0
    for _ in range(STEPS):
        size = min(BATCH, sum(e == samples[at][0] for e, _ in samples[at:at + BATCH]))
        batch = [rows[n] for _, n in samples[at:at + size]]
        at += size
        features = [model.preprocess([texts_in(row)[i] for row in batch]) for i in range(len(texts_in(batch[0])))]
        value = loss(features, torch.tensor([row.get("score", 0.0) for row in batch]))
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found.append(value.item())
    return found


def compare(work, name, kind, mode, texts, programs, **given):
    txtrain, txgen, device = programs
    start, end, order = (os.path.join(work, f"{name}-{kind}-{part}") for part in ("start", "end", "order"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=TOKENIZER, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=POSITIONS)
    torch.manual_seed(0)
    base = os.path.join(work, "base")
    BertModel(BertConfig(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                         intermediate_size=48, max_position_embeddings=POSITIONS, hidden_dropout_prob=0.0,
                         attention_probs_dropout_prob=0.0, initializer_range=0.1)).save_pretrained(base)
    tokenizer.save_pretrained(base)
    parts = [modules.Transformer(base), modules.Pooling(32, pooling_mode=mode)]
    if mode == "cls":
        parts.append(modules.Normalize())
    model = SentenceTransformer(modules=parts, device="cpu")
    model.save(start)
    rows = rows_of(texts, kind)
    rows, held = rows[:50], rows[50:90]
    paths = {}
    for split, part in (("train", rows), ("validation", held)):
        paths[f"{split}_file"] = os.path.join(work, f"{split}.jsonl")
        with open(paths[f"{split}_file"], "w", encoding="utf-8") as file:
            file.write("".join(json.dumps(row) + "\n" for row in part))
    done = run(txtrain, task_name="embedding", model_name_or_path=start, output_dir=end, device=device, threads=1,
               seed=SEED, save_strategy="no", max_steps=STEPS, per_device_train_batch_size=BATCH, learning_rate=RATE,
               lr_scheduler_type="constant", dump_order=order, do_train=True, do_eval=True, **paths, **given)
    check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
    if done.returncode:
        return
    got = log_of(end)[:STEPS]
    with open(order, encoding="utf-8") as file:
        samples = [tuple(map(int, line.split())) for line in file]
    loss = getattr(losses, name)(model, **({"scale": given["similarity_scale"]} if "similarity_scale" in given else {}))
    want = train_here(model, loss, rows, samples)
    worst = max(abs(a - b) for a, b in zip(got, want)) if len(got) == STEPS else math.inf
    check(worst <= 1e-5, f"{name}, {kind}: losses differ by {worst}: {got[:3]}, {want[:3]}")
    check(got[-1] < got[0], f"{name}, {kind}: nothing is learnt: {got}")
    saved = SentenceTransformer(end, device="cpu")
    check([type(part).__name__ for part in saved] == [type(part).__name__ for part in parts],
          f"the saved folder has other modules: {saved}")
    sentences = [text for row in held for text in texts_in(row)]
    far = abs(saved.encode(sentences) - model.eval().encode(sentences)).max()
    check(far <= 2e-2, f"{name}: embeddings after training differ by {far}")
    done = run(txgen, embed=True, model=end, prompt=sentences[0], device=device)
    near = abs(torch.tensor(json.loads(done.stdout)["embedding"]) - saved.encode([sentences[0]])[0]).max()
    check(near <= 5e-6, f"{name}: txgen's embedding of the saved folder differs by {near}")
    results = read_json(end, "eval_results.json")
    if kind == "scores":
        score = EmbeddingSimilarityEvaluator([r["sentence1"] for r in held], [r["sentence2"] for r in held],
                                             [r["score"] for r in held])(saved)
        for metric in ("pearson_cosine", "spearman_cosine"):
            check(abs(results[f"eval_{metric}"] - score[metric]) <= 1e-5, f"{metric}: {results}, {score}")
    if kind == "triplets":
        score = TripletEvaluator([r["anchor"] for r in held], [r["positive"] for r in held],
                                 [r["negative"] for r in held])(saved)
        check(abs(results["eval_cosine_accuracy"] - score["cosine_accuracy"]) <= 1e-6, f"{results}, {score}")
    print(f"{name} of {kind}, {mode}: {STEPS} losses from {got[0]:.4f} to {got[-1]:.4f} within {worst:.1e}")


def main():
    programs = (sys.argv[1], sys.argv[2], (sys.argv[3:] or ["cpu"])[0])
    with open(MRPC, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:91]
    texts = [(row[3], row[4], row[0]) for row in rows]
    with tempfile.TemporaryDirectory() as work:
        compare(work, "MultipleNegativesRankingLoss", "pairs", "mean", texts, programs)
        compare(work, "MultipleNegativesRankingLoss", "triplets", "cls", texts, programs, similarity_scale=5.0)
        compare(work, "CosineSimilarityLoss", "scores", "lasttoken", texts, programs)
        compare(work, "TripletLoss", "triplets", "mean", texts, programs, embedding_loss="TripletLoss")
    return status()


sys.exit(main())
