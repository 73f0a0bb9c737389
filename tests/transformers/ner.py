# SPDX-License-Identifier: Apache-2.0
"""Trains small encoders to label words with txtrain, and the same models with transformers on the same rows, made as
run_ner.py makes them. The models begin as base encoders without a head. Compares 30 losses, and in a folder of TX that
transformers reads the predictions, the loss, and precision, recall, F1 and accuracy of seqeval (of its rules as copied
here if it is not installed).

    ner.py TXTRAIN [DEVICE]      exit status 77: something is missing
"""
import json
import os
import shutil
import sys
import tempfile

from oracle import DATA, check, read_json, status
from training import MRPC, Training, loads, mrpc, need, tokenizer_file, write_rows

import torch
from transformers import (BertConfig, BertForTokenClassification, BertModel, DistilBertConfig,
                          DistilBertForTokenClassification, DistilBertModel, PreTrainedTokenizerFast, RobertaConfig,
                          RobertaForTokenClassification, RobertaModel, RobertaTokenizerFast, XLMRobertaConfig,
                          XLMRobertaForTokenClassification, XLMRobertaModel)
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

torch.set_num_threads(1)
TOKENIZERS = os.path.join(DATA, "tokenizers")
WORD_PIECE = tokenizer_file("bert-base-cased-tokenizer.json")
BLOCK, BATCH, STEPS, SEED, RATE = 32, 4, 30, 11, 3e-3
SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
             hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
LABELS = sorted([f"{place}-{kind}" for place in "BIES" for kind in ("LOC", "PER")] + ["O"])

need(WORD_PIECE, tokenizer_file("gpt2-encoder.json"))


def chunks(tags):
    """seqeval's get_entities for the tags of one text."""
    found, begin, before, kind = set(), 0, "O", ""
    for i, tag in enumerate(tags + ["O"]):
        now, own = tag[0], tag[1:].split("-", 1)[-1] or "_"
        if before in "ES" or (before in "BI" and now in "BSO") or (before not in "O." and kind != own):
            found.add((kind, begin, i - 1))
        if now in "BS" or (before in "ESO" and now in "EI") or (now not in "O." and kind != own):
            begin = i
        before, kind = now, own
    return found


def score(truth, guess):
    """Precision, recall, F1 and accuracy, and who computed them."""
    try:
        from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score
        return (precision_score(truth, guess), recall_score(truth, guess), f1_score(truth, guess),
                accuracy_score(truth, guess), "seqeval")
    except ImportError:
        both = [(chunks(t), chunks(g)) for t, g in zip(truth, guess)]
        right, predicted, real = (sum(map(len, x)) for x in ([t & g for t, g in both], [g for _, g in both],
                                                             [t for t, _ in both]))
        words = [(a, b) for t, g in zip(truth, guess) for a, b in zip(t, g)]
        return (right / predicted if predicted else 0.0, right / real if real else 0.0,
                2 * right / (predicted + real) if predicted + real else 0.0,
                sum(a == b for a, b in words) / len(words), "its rules")


def tag_words(words):
    """Capitalized words are entities, long ones places. Many tags break the rules of BIOES on purpose."""
    kinds = [("LOC" if len(word) > 6 else "PER") if word[:1].isupper() else None for word in words]
    return [f"{'BIES'[len(word) % 4]}-{kind}" if kind else "O" for word, kind in zip(words, kinds)]


def make_bert(start, model=BertModel, config=BertConfig, kind=BertForTokenClassification):
    model(config(vocab_size=28996, max_position_embeddings=BLOCK, **SMALL)).save_pretrained(start)
    shutil.copy(WORD_PIECE, os.path.join(start, "tokenizer.json"))
    return kind, PreTrainedTokenizerFast(tokenizer_file=WORD_PIECE, pad_token="[PAD]", cls_token="[CLS]")


def make_distilbert(start):
    names = dict(hidden_size="dim", num_hidden_layers="n_layers", num_attention_heads="n_heads",
                 intermediate_size="hidden_dim", hidden_dropout_prob="dropout",
                 attention_probs_dropout_prob="attention_dropout")
    changed = {names[key]: value for key, value in SMALL.items()}
    return make_bert(start, DistilBertModel, lambda **c: DistilBertConfig(
        **{key: value for key, value in c.items() if key not in SMALL}, **changed), DistilBertForTokenClassification)


def make_roberta(start):
    """Its tokenizer.json has no add_prefix_space, as RoBERTa's has none; run_ner sets it."""
    with open(os.path.join(TOKENIZERS, "gpt2-encoder.json"), encoding="utf-8") as file:
        words = ["<s>", "<pad>", "</s>", "<unk>"] + [w for w in json.load(file) if w != "<|endoftext|>"] + ["<mask>"]
    with open(os.path.join(TOKENIZERS, "gpt2-vocab.bpe"), encoding="utf-8") as file:
        merges = [tuple(line.split()) for line in file.read().split("\n")[1:] if line]
    vocabulary = {word: i for i, word in enumerate(words)}
    RobertaModel(RobertaConfig(vocab_size=len(words), max_position_embeddings=BLOCK + 2, type_vocab_size=1,
                               **SMALL)).save_pretrained(start)
    RobertaTokenizerFast(vocab=vocabulary, merges=merges).save_pretrained(start)
    return RobertaForTokenClassification, RobertaTokenizerFast(vocab=vocabulary, merges=merges, add_prefix_space=True)


def make_xlm_roberta(start):
    """A Unigram tokenizer as XLM-RoBERTa has it, over the words of MRPC."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    with open(MRPC, encoding="utf-8") as file:
        tokenizer.train_from_iterator(file.readlines(), trainers.UnigramTrainer(
            vocab_size=600, special_tokens=special, unk_token="<unk>", show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>",
                                                             special_tokens=[("<s>", 0), ("</s>", 2)])
    XLMRobertaModel(XLMRobertaConfig(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=BLOCK + 2,
                                     type_vocab_size=1, **SMALL)).save_pretrained(start)
    tokenizer.save(os.path.join(start, "tokenizer.json"))
    return XLMRobertaForTokenClassification, PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>")


def batch_of(rows, tokenizer, kind):
    """As run_ner's tokenize_and_align_labels has it."""
    batch = tokenizer([words for words, _ in rows], is_split_into_words=True, truncation=True, max_length=BLOCK,
                      padding="max_length", return_tensors="pt",
                      return_token_type_ids=kind is BertForTokenClassification)
    labels = torch.full(batch["input_ids"].shape, -100)
    for r, (_, tags) in enumerate(rows):
        before = None
        for t, word in enumerate(batch.word_ids(r)):
            if word is not None and word != before:
                labels[r, t] = LABELS.index(tags[word])
            before = word
    return dict(batch, labels=labels)


def json_of(rows, words="tokens", tags="ner_tags", numbers=False):
    return [{words: text, tags: [LABELS.index(t) for t in own] if numbers else own} for text, own in rows]


def compare(name, make, program, device, rows, dev):
    with tempfile.TemporaryDirectory() as work:
        t = Training(program, name, work, steps=STEPS, batch=BATCH, rate=RATE, max_seq_length=BLOCK, device=device,
                     seed=SEED)
        start = t.path("start")
        torch.manual_seed(0)
        kind, tokenizer = make(start)
        t.rows(json_of(rows), json_of(dev))
        head = t.head(start)
        end = t.train(head, do_predict=True, test_file=t.given["validation_file"])
        model = loads(kind, head, name).train()
        check(list(model.config.id2label.values()) == LABELS, f"{name}: labels {model.config.id2label}")
        text = t.compare(model, lambda part: model(**batch_of([rows[n] for _, n in part], tokenizer, kind)).loss, 1e-4)
        trained = loads(kind, end, name)
        batch = batch_of(dev, tokenizer, kind)
        with torch.no_grad():
            out = trained.eval()(**batch)
        labels, guess = batch["labels"], out.logits.argmax(-1)
        truth = [[LABELS[x] for x in row[row != -100]] for row in labels]
        said = [[LABELS[x] for x in g[row != -100]] for g, row in zip(guess, labels)]
        wanted = score(truth, said)
        results = t.results(**dict(zip(("precision", "recall", "f1", "accuracy"), wanted)), loss=out.loss.item())
        check(t.predictions() == [" ".join(x) for x in said], f"{name}: the predictions differ")
        check(0 < wanted[2] < 1, f"{name}: F1 {wanted[2]} says little")
        print(f"{text}, F1 {results['eval_f1']:.4f} as {wanted[4]} has it")
        check_columns(t, end, dev, results)


def check_columns(t, end, dev, results):
    """Labels as numbers of the model, in columns of other names, give the same results."""
    path = t.path("numbers.jsonl")
    write_rows(path, json_of(dev, "pieces", "classes", numbers=True))
    folder = t.run("again", model_name_or_path=end, do_train=None, train_file=None, save_strategy=None, do_eval=True,
                   validation_file=path, task_name="ner", text_column_name="pieces", label_column_name="classes")
    again = read_json(folder, "eval_results.json")
    check(all(again[key] == results[key] for key in ("eval_loss", "eval_f1", "eval_accuracy")),
          f"{t.name}, numbers: {again}")


def main():
    program, device = sys.argv[1], (sys.argv[2:] or ["cpu"])[0]
    rows = [(words, tag_words(words)) for words in (row[3].split() for row in mrpc())]
    for name, make in (("BERT", make_bert), ("DistilBERT", make_distilbert), ("RoBERTa", make_roberta),
                       ("XLM-RoBERTa", make_xlm_roberta)):
        compare(name, make, program, device, rows[:90], rows[90:150])
    return status()


sys.exit(main())
