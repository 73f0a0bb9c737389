# SPDX-License-Identifier: Apache-2.0
"""Trains a small BERT, and a small RoBERTa, on MRPC with txtrain, and compares the results with transformers. The
folder's model gives the same predictions for the same texts, tokenized and truncated by tokenizers. Accuracy and F1
are those of scikit-learn (or of its formulas, if it is not installed), and the loss of the evaluation is the
model's.

    glue.py TXTRAIN [DEVICE]      exit status 77: something is missing
"""
import json
import os
import shutil
import sys
import tempfile

from oracle import DATA, read_json, run, skip

import torch
from transformers import (BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel, DistilBertConfig,
                          DistilBertForSequenceClassification, DistilBertModel, ElectraConfig,
                          ElectraForSequenceClassification, ElectraModel, PreTrainedTokenizerFast,
                          RobertaConfig, RobertaForMaskedLM, RobertaForSequenceClassification, RobertaTokenizer)

BLOCK, TRAINED, EVALUATED = 40, 640, 408


def score(truth, guess):
    try:
        from sklearn.metrics import accuracy_score, f1_score
        return accuracy_score(truth, guess), f1_score(truth, guess), "scikit-learn"
    except ImportError:
        both = sum(t and g for t, g in zip(truth, guess))
        return (sum(t == g for t, g in zip(truth, guess)) / len(truth), 2 * both / (sum(truth) + sum(guess)),
                "the formulas")


def read(path, count):
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:count + 1]
    return [int(row[0]) for row in rows], [row[3] for row in rows], [row[4] for row in rows]


TYPED = (BertForSequenceClassification, ElectraForSequenceClassification)
SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)


def word_piece(model, start, tokenizers):
    vocabulary = os.path.join(tokenizers, "bert-base-uncased-tokenizer.json")
    model.save_pretrained(start)
    shutil.copy(vocabulary, os.path.join(start, "tokenizer.json"))
    return PreTrainedTokenizerFast(tokenizer_file=vocabulary, pad_token="[PAD]")


def make_bert(start, tokenizers):
    """A model without the head, in `start` with its tokenizer; the class with it, and the tokenizer."""
    model = BertForMaskedLM(BertConfig(max_position_embeddings=BLOCK, **SMALL))
    return BertForSequenceClassification, word_piece(model, start, tokenizers)


def make_sentence_bert(start, tokenizers):
    """A folder of sentence-transformers: a base encoder and its pooling."""
    tokenizer = word_piece(BertModel(BertConfig(max_position_embeddings=BLOCK, **SMALL)), start, tokenizers)
    os.mkdir(os.path.join(start, "1_Pooling"))
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
               {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
    for name, what in (("modules.json", modules), ("1_Pooling/config.json", {"pooling_mode_mean_tokens": True}),
                       ("sentence_bert_config.json", {"max_seq_length": BLOCK, "do_lower_case": False})):
        with open(os.path.join(start, name), "w", encoding="utf-8") as file:
            json.dump(what, file)
    return BertForSequenceClassification, tokenizer


def make_distilbert(start, tokenizers):
    model = DistilBertModel(DistilBertConfig(max_position_embeddings=BLOCK, dim=32, n_layers=2, n_heads=4,
                                             hidden_dim=64))
    return DistilBertForSequenceClassification, word_piece(model, start, tokenizers)


def make_electra(start, tokenizers):
    model = ElectraModel(ElectraConfig(max_position_embeddings=BLOCK, embedding_size=20, **SMALL))
    return ElectraForSequenceClassification, word_piece(model, start, tokenizers)


def make_roberta(start, tokenizers):
    with open(os.path.join(tokenizers, "gpt2-encoder.json"), encoding="utf-8") as file:
        words = ["<s>", "<pad>", "</s>", "<unk>"] + [word for word in json.load(file)
                                                     if word != "<|endoftext|>"] + ["<mask>"]
    with open(os.path.join(tokenizers, "gpt2-vocab.bpe"), encoding="utf-8") as file:
        merges = [tuple(line.split()) for line in file.read().split("\n")[1:] if line]
    tokenizer = RobertaTokenizer(vocab={word: i for i, word in enumerate(words)}, merges=merges)
    RobertaForMaskedLM(RobertaConfig(vocab_size=len(words), max_position_embeddings=BLOCK + 2, type_vocab_size=1,
                                     **SMALL)).save_pretrained(start)
    tokenizer.save_pretrained(start)
    return RobertaForSequenceClassification, tokenizer


def train(make, tokenizers, program, device):
    texts, dev = (os.path.join(DATA, "glue", "MRPC", name) for name in ("train_3668.tsv", "dev_408.tsv"))
    with tempfile.TemporaryDirectory() as work:
        start, end = os.path.join(work, "start"), os.path.join(work, "end")
        torch.manual_seed(0)
        kind, tokenizer = make(start, tokenizers)
        done = run(program, model_name_or_path=start, task_name="mrpc", train_file=texts, validation_file=dev,
                   test_file=dev,
                   do_train=True, do_eval=True, do_predict=True, max_seq_length=BLOCK, pad_to_max_length="false",
                   num_train_epochs=4, max_train_samples=TRAINED, learning_rate=3e-3, save_strategy="no",
                   per_device_train_batch_size=16, device=device, output_dir=end)
        if done.returncode:
            sys.exit(done.stderr)
        truth, first, second = read(dev, EVALUATED)
        model, info = kind.from_pretrained(end, output_loading_info=True)
        batch = tokenizer(first, second, truncation=True, max_length=BLOCK, padding="max_length", return_tensors="pt",
                          return_token_type_ids=kind in TYPED)
        with torch.no_grad():
            out = model.eval()(**batch, labels=torch.tensor(truth))
        guess = out.logits.argmax(-1).tolist()
        with open(os.path.join(end, "predict_results_mrpc.txt"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        results = read_json(end, "eval_results.json")
    names = ("not_equivalent", "equivalent")
    accuracy, f1, by = score(truth, guess)
    good = (not any(info.values()) and model.config.id2label == dict(enumerate(names))
            and lines == ["index\tprediction"] + [f"{i}\t{names[g]}" for i, g in enumerate(guess)]
            and abs(results["eval_accuracy"] - accuracy) <= 1e-12 and abs(results["eval_f1"] - f1) <= 1e-12
            and abs(results["eval_combined_score"] - (accuracy + f1) / 2) <= 1e-12
            and abs(results["eval_loss"] - out.loss.item()) <= 1e-5 and 0 < sum(guess) < len(guess))
    print(f"{kind.__name__}, {device}: accuracy {results['eval_accuracy']} and F1 {results['eval_f1']}, "
          f"by {by} {accuracy} and {f1}; loss "
          f"{results['eval_loss']}, transformers' {out.loss.item()}; {sum(guess)} of {len(guess)} positive: "
          f"{'agree' if good else 'FAIL'}")
    return 0 if good else 1


def main():
    program, device = sys.argv[1], (sys.argv[2:] or ["cpu"])[0]
    tokenizers = os.path.join(DATA, "tokenizers")
    if not all(os.path.exists(path) for path in (os.path.join(DATA, "glue", "MRPC"), os.path.join(
            tokenizers, "bert-base-uncased-tokenizer.json"), os.path.join(tokenizers, "gpt2-encoder.json"))):
        skip(f"no MRPC or no tokenizers in {DATA}")
    makes = (make_bert, make_roberta, make_sentence_bert, make_distilbert, make_electra)
    return max(train(make, tokenizers, program, device) for make in makes)


sys.exit(main())
