# SPDX-License-Identifier: Apache-2.0
"""Trains a small BERT for embeddings by txtrain --task_name embedding, and by the losses of sentence-transformers on
the same rows: pairs and hard negatives (MultipleNegativesRankingLoss), scored sentences (CosineSimilarityLoss) and
triplets (TripletLoss). Compares 20 losses, metrics, and embeddings of the saved folder.

    embedding.py TXTRAIN TXGEN [DEVICE]      exit status 77: something is missing
"""
import json
import sys
import tempfile

from oracle import check, read_json, run, status
from training import Training, mrpc, need, tokenizer_file

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses, modules
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator, TripletEvaluator
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, Qwen3Config, Qwen3Model

torch.set_num_threads(1)
TOKENIZER = tokenizer_file("bert-base-uncased-tokenizer.json")
POSITIONS, BATCH, STEPS, SEED, RATE = 48, 4, 20, 7, 1e-3

need(TOKENIZER)


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


def loss_here(model, loss, batch):
    features = [model.preprocess([texts_in(row)[i] for row in batch]) for i in range(len(texts_in(batch[0])))]
    return loss(features, torch.tensor([row.get("score", 0.0) for row in batch]))


def save_base(folder, decodes, vocabulary):
    torch.manual_seed(0)
    sizes = dict(vocab_size=vocabulary, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                 intermediate_size=48, max_position_embeddings=POSITIONS, initializer_range=0.1)
    if decodes:
        model = Qwen3Model(Qwen3Config(num_key_value_heads=2, head_dim=8, pad_token_id=0, **sizes))
    else:
        model = BertModel(BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes))
    model.save_pretrained(folder)


def compare(work, name, kind, mode, texts, programs, decodes=False, save=save_base, most=1e-5,
            learns=True, **given):
    txtrain, txgen, device = programs
    t = Training(txtrain, f"{name} of {kind}, {mode}{', a decoder' * decodes}", work, steps=STEPS, batch=BATCH, rate=RATE, task_name="embedding",
                 device=device, seed=SEED, **given)
    start = t.path("start")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=TOKENIZER, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=POSITIONS)
    base = t.path("base")
    save(base, decodes, len(tokenizer))
    tokenizer.save_pretrained(base)
    parts = [modules.Transformer(base), modules.Pooling(read_json(base, "config.json")["hidden_size"], pooling_mode=mode)]
    if mode == "cls":
        parts.append(modules.Normalize())
    model = SentenceTransformer(modules=parts, device="cpu")
    model.save(start)
    rows = rows_of(texts, kind)
    rows, held = rows[:50], rows[50:90]
    t.rows(rows, held)
    end = t.train(start)
    loss = getattr(losses, name)(model, **({"scale": given["similarity_scale"]} if "similarity_scale" in given else {}))
    said = t.compare(model.train(), lambda part: loss_here(model, loss, [rows[n] for _, n in part]), most,
                     learns=learns)
    saved = SentenceTransformer(end, device="cpu")
    check([type(part).__name__ for part in saved] == [type(part).__name__ for part in parts],
          f"the saved folder has other modules: {saved}")
    sentences = [text for row in held for text in texts_in(row)]
    far = abs(saved.encode(sentences) - model.eval().encode(sentences)).max()
    check(far <= 2e-2, f"{name}: embeddings after training differ by {far}")
    done = run(txgen, embed=True, model=end, prompt=sentences[0], device=device)
    near = abs(torch.tensor(json.loads(done.stdout)["embedding"]) - saved.encode([sentences[0]])[0]).max()
    check(near <= 5e-6, f"{name}: txgen's embedding of the saved folder differs by {near}")
    if kind == "scores":
        score = EmbeddingSimilarityEvaluator([r["sentence1"] for r in held], [r["sentence2"] for r in held],
                                             [r["score"] for r in held])(saved)
        t.results(far=1e-5, **{metric: score[metric] for metric in ("pearson_cosine", "spearman_cosine")})
    if kind == "triplets":
        score = TripletEvaluator([r["anchor"] for r in held], [r["positive"] for r in held],
                                 [r["negative"] for r in held])(saved)
        t.results(far=1e-6, cosine_accuracy=score["cosine_accuracy"])
    print(said)
    return said


def main():
    programs = (sys.argv[1], sys.argv[2], (sys.argv[3:] or ["cpu"])[0])
    texts = [(row[3], row[4], row[0]) for row in mrpc()[:90]]
    with tempfile.TemporaryDirectory() as work:
        compare(work, "MultipleNegativesRankingLoss", "pairs", "mean", texts, programs)
        compare(work, "MultipleNegativesRankingLoss", "triplets", "cls", texts, programs, similarity_scale=5.0)
        compare(work, "CosineSimilarityLoss", "scores", "lasttoken", texts, programs)
        compare(work, "MultipleNegativesRankingLoss", "pairs", "lasttoken", texts, programs, decodes=True)
        compare(work, "TripletLoss", "triplets", "mean", texts, programs, embedding_loss="TripletLoss")
    return status()


if __name__ == "__main__":
    sys.exit(main())
