# SPDX-License-Identifier: Apache-2.0
"""txserve --task embed and --task classify with the openai package and small random models, compared with transformers:
mean pooling of the last hidden state, and probabilities of a pipeline.

    encoders_client.py TXSERVE
"""
import json
import os
import sys
import tempfile

import oracle

import openai
import torch
from transformers import (BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast, pipeline)

from server import Server

TOKENIZER = os.path.join(oracle.DATA, "tokenizers", "bert-base-uncased-tokenizer.json")
TEXTS = ["a fox", "The quick brown fox jumps over the lazy dog.", "Where is the station?", "one two three four five"]
check = oracle.check
if not os.path.exists(TOKENIZER):
    oracle.skip(f"no {TOKENIZER}")


def near(got, want):
    return len(got) == len(want) and all(abs(a - b) <= 1e-5 for a, b in zip(got, want))


def save(folder, kind, **config):
    torch.manual_seed(4)
    model = kind(BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
                            max_position_embeddings=64, initializer_range=0.3, **config)).eval()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=TOKENIZER, unk_token="[UNK]", pad_token="[PAD]",
                                        cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]", model_max_length=64)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def test_embed(folder):
    model, tokenizer = save(folder, BertModel)
    with torch.no_grad():
        want = [model(tokenizer(t, return_tensors="pt").input_ids).last_hidden_state[0].mean(0).tolist() for t in TEXTS]
    with Server(sys.argv[1], folder, "--task", "embed") as server:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
        name = client.models.list().data[0].id
        for form in ("float", "base64", None):  # the package decodes its default, base64
            how = {"encoding_format": form} if form == "float" else {}
            got = client.embeddings.create(model=name, input=TEXTS, **how)
            check([d.index for d in got.data] == [0, 1, 2, 3], "the order of embeddings")
            check(all(near(d.embedding, w) for d, w in zip(got.data, want)), f"embeddings as {form}")
        tokens = sum(len(tokenizer(t).input_ids) for t in TEXTS)
        check(got.usage.prompt_tokens == tokens, f"{got.usage.prompt_tokens} tokens, expected {tokens}")
        check(near(client.embeddings.create(model=name, input=TEXTS[1]).data[0].embedding, want[1]), "a single text")
        got = client.embeddings.create(model=name, input=TEXTS, dimensions=3)
        check(all(near(d.embedding, w[:3]) for d, w in zip(got.data, want)), "the first 3 of the dimensions")
        ids = [tokenizer(t).input_ids for t in TEXTS]
        check(all(near(d.embedding, w) for d, w in zip(client.embeddings.create(model=name, input=ids).data, want)) and
              near(client.embeddings.create(model=name, input=ids[1]).data[0].embedding, want[1]), "ids")
        for words, how in (("longer", dict(input="fox " * 100)), ("empty", dict(input=[""])),
                           ("dimensions", dict(input="a", dimensions=33)), ("vocabulary", dict(input=[99999999])),
                           ("longer", dict(input=[[5] * 100])), ("empty", dict(input=[[]]))):
            try:
                client.embeddings.create(model=name, **how)
                check(False, f"{words}: accepted")
            except openai.BadRequestError as error:
                check(words in error.message, f"{words}: {error.message}")
        check(server.complete("a")[0] == 400, "an encoder completes no text")
        check(server.end() == 0, "the end of an encoder")


def test_classify(folder):
    labels = {0: "cat", 1: "dog", 2: "none"}
    save(folder, BertForSequenceClassification, id2label=labels, label2id={v: k for k, v in labels.items()})
    want = pipeline("text-classification", folder, top_k=None, device="cpu")(TEXTS)
    with Server(sys.argv[1], folder, "--task", "classify") as server:
        status, got = server.send("POST", "/v1/classify", {"input": TEXTS})
        check(status == 200 and len(got["data"]) == len(TEXTS), f"classes: {got}")
        for text, row, scores in zip(TEXTS, got["data"], want):
            probs = {s["label"]: s["score"] for s in scores}
            check(row["label"] == max(probs, key=probs.get) and row["num_classes"] == 3, f"{text}: {row}, {probs}")
            check(near(row["probs"], [probs[labels[i]] for i in range(3)]), f"{text}: {row['probs']}, {probs}")


QUERY, DOCUMENTS = "Where is the fox?", [*TEXTS, "a fox", {"text": "The dog sleeps."}]
PLAIN = [d if isinstance(d, str) else d["text"] for d in DOCUMENTS]


def rank(server, path="/v1/rerank", **how):
    return server.send("POST", path, {"query": QUERY, "documents": DOCUMENTS, **how})


def check_ranks(server, scores, tokens, what):
    """The order, scores and documents are those of an oracle; equal ones are in the order of the request."""
    order = sorted(range(len(scores)), key=lambda i: (-round(scores[i], 4), i))
    for path, how, count, texts in (("/v1/rerank", {}, 6, True), ("/rerank", {"top_n": 2}, 2, True),
                                    ("/v1/rerank", {"top_n": 99, "return_documents": False}, 6, False)):
        status, got = rank(server, path, **how)
        rows = got.get("results", [])
        check(status == 200 and [r["index"] for r in rows] == order[:count], f"{what} {how}: {got}, expected {order}")
        check(near([r["relevance_score"] for r in rows], [scores[i] for i in order[:count]]), f"{what}: {got}, {scores}")
        check(all(r.get("document") == ({"text": PLAIN[r["index"]]} if texts else None) for r in rows), f"texts: {got}")
        check(got["usage"]["prompt_tokens"] == tokens, f"{what}: {got['usage']}, {tokens} tokens")
    for words, how in (("query", {"query": 5}), ("query", {"query": ""}), ("documents", {"documents": "a"}),
                       ("documents", {"documents": []}), ("documents", {"documents": ["a"] * 2049}),
                       ("document 1", {"documents": ["a", 5]}), ("text", {"documents": [{"content": "a"}]}),
                       ("empty", {"documents": [""]}), ("longer", {"documents": ["fox " * 100]}),
                       ("top_n", {"top_n": 0}), ("top_n", {"top_n": "1"}), ("return_documents", {"return_documents": 1}),
                       ("query", {"query": None}), ("documents", {"documents": None}), ("unknown key", {"input": "a"})):
        status, got = rank(server, **how)
        check(status == 400 and words in got["error"]["message"], f"{what} {str(how)[:60]}: {got}")


def test_rerank(folder):
    """A cross-encoder, with and without a sigmoid; embeddings, with prompts and without; other models are refused."""
    for problem in (None, "regression"):
        model, tokenizer = save(folder, BertForSequenceClassification, num_labels=1, problem_type=problem)
        encoded = [tokenizer(QUERY, text, return_tensors="pt", return_token_type_ids=True) for text in PLAIN]
        with torch.no_grad():
            scores = [model(**e).logits[0, 0] for e in encoded]
        scores = [(s if problem else torch.sigmoid(s)).item() for s in scores]
        with Server(sys.argv[1], folder, "--task", "classify") as server:
            check_ranks(server, scores, sum(e.input_ids.shape[1] for e in encoded), f"cross-encoder, {problem}")
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
            got = client.post("/rerank", cast_to=object, body={"model": client.models.list().data[0].id, "query": QUERY, "documents": PLAIN})
            check(got["results"] == rank(server)[1]["results"], f"ranks by the openai package: {got}")
    save(folder, BertForSequenceClassification, num_labels=3)
    with Server(sys.argv[1], folder, "--task", "classify") as server:
        status, got = rank(server)
        check(status == 400 and "one label" in got["error"]["message"], f"three labels: {got}")


def test_rerank_embed(folder):
    model, tokenizer = save(folder, BertModel)
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    os.mkdir(os.path.join(folder, "1_Pooling"))
    for name, data in (("modules.json", [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                                         for i, (path, kind) in enumerate(modules)]),
                       ("1_Pooling/config.json", {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}),
                       ("config_sentence_transformers.json", {"prompts": {"query": "query: ", "passage": "text: "}})):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(data, f)

    def embed(text):
        with torch.no_grad():
            ids = tokenizer(text, return_tensors="pt").input_ids
            return torch.nn.functional.normalize(model(ids).last_hidden_state[0].mean(0), dim=0), ids.shape[1]

    query, tokens = embed("query: " + QUERY)
    rows = [embed("text: " + text) for text in PLAIN]
    with Server(sys.argv[1], folder, "--task", "embed") as server:
        check_ranks(server, [(query @ r).item() for r, _ in rows], tokens + sum(n for _, n in rows), "embeddings")
        got = server.send("POST", "/v1/embeddings", {"input": TEXTS, "dimensions": 7})[1]["data"]
        want = [torch.nn.functional.normalize(embed(t)[0][:7], dim=0).tolist() for t in TEXTS]
        check(all(near(g["embedding"], w) for g, w in zip(got, want)), "7 dimensions of length 1")


with tempfile.TemporaryDirectory() as work:
    test_embed(os.path.join(work, "embed"))
    test_rerank(os.path.join(work, "rerank"))
    test_rerank_embed(os.path.join(work, "rerank_embed"))
    test_classify(os.path.join(work, "classify"))
sys.exit(oracle.status())
