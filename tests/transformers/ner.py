# SPDX-License-Identifier: Apache-2.0
"""Trains small encoders to label words with txtrain, and the same models with transformers on the same rows, made as
run_ner.py makes them. The models begin as base encoders without a head. Compares 30 losses, and in a folder of TX that
transformers reads the predictions, the loss, and precision, recall, F1 and accuracy of seqeval (of its rules as copied
here if it is not installed).

    ner.py TXTRAIN [DEVICE]      exit status 77: something is missing
"""
import json
import math
import os
import shutil
import sys
import tempfile

from oracle import DATA, check, log_of, read_json, run, skip, status

import torch
from transformers import (BertConfig, BertForTokenClassification, BertModel, DistilBertConfig,
                          DistilBertForTokenClassification, DistilBertModel, PreTrainedTokenizerFast, RobertaConfig,
                          RobertaForTokenClassification, RobertaModel, RobertaTokenizerFast, XLMRobertaConfig,
                          XLMRobertaForTokenClassification, XLMRobertaModel)
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

torch.set_num_threads(1)
TOKENIZERS = os.path.join(DATA, "tokenizers")
WORD_PIECE = os.path.join(TOKENIZERS, "bert-base-cased-tokenizer.json")
MRPC = os.path.join(DATA, "glue", "MRPC", "dev_408.tsv")
BLOCK, BATCH, STEPS, SEED, RATE = 32, 4, 30, 11, 3e-3
SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
             hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
LABELS = sorted([f"{place}-{kind}" for place in "BIES" for kind in ("LOC", "PER")] + ["O"])

if not all(map(os.path.exists, (WORD_PIECE, MRPC, os.path.join(TOKENIZERS, "gpt2-encoder.json")))):
    skip(f"no tokenizers or no MRPC in {DATA}")


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


def train_here(model, rows, samples, tokenizer, kind):
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    losses, at = [], 0
    for _ in range(STEPS):
        epoch = samples[at][0]
        size = min(BATCH, sum(e == epoch for e, _ in samples[at:at + BATCH]))
        loss = model(**batch_of([rows[n] for _, n in samples[at:at + size]], tokenizer, kind)).loss
        at += size
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def write_rows(path, rows, names, numbers=False):
    with open(path, "w", encoding="utf-8") as file:
        for words, tags in rows:
            said = [LABELS.index(t) for t in tags] if numbers else tags
            file.write(json.dumps({names[0]: words, names[1]: said}) + "\n")


def compare(name, make, program, device, rows, dev):
    with tempfile.TemporaryDirectory() as work:
        start, end, order = (os.path.join(work, x) for x in ("start", "end", "order"))
        torch.manual_seed(0)
        kind, tokenizer = make(start)
        for path, part in (("train.jsonl", rows), ("dev.jsonl", dev)):
            write_rows(os.path.join(work, path), part, ("tokens", "ner_tags"))
        given = dict(train_file=os.path.join(work, "train.jsonl"), validation_file=os.path.join(work, "dev.jsonl"),
                     max_seq_length=BLOCK, device=device)
        # The first run only makes the head, so that both begin with the same weights.
        done = run(program, model_name_or_path=start, do_train=True, max_steps=1, learning_rate=0, seed=SEED,
                   save_strategy="no", output_dir=os.path.join(work, "head"), **given)
        check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
        done = run(program, model_name_or_path=os.path.join(work, "head"), do_train=True, do_eval=True, do_predict=True,
                   test_file=given["validation_file"], max_steps=STEPS, per_device_train_batch_size=BATCH,
                   learning_rate=RATE, seed=SEED, lr_scheduler_type="constant", save_strategy="no", dump_order=order,
                   output_dir=end, **given)
        check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
        if done.returncode:
            return
        got = log_of(end)[:STEPS]
        with open(order, encoding="utf-8") as file:
            samples = [tuple(map(int, line.split())) for line in file]
        model, info = kind.from_pretrained(os.path.join(work, "head"), output_loading_info=True)
        check(not any(info.values()) and list(model.config.id2label.values()) == LABELS,
              f"{name}: transformers loads the folder with {info} and {model.config.id2label}")
        want = train_here(model.train(), rows, samples, tokenizer, kind)
        worst = max(abs(a - b) for a, b in zip(got, want)) if len(got) == STEPS else math.inf
        check(worst <= 1e-4, f"{name}: losses differ by {worst}")
        check(got[-1] < got[0], f"{name}: nothing is learnt")
        trained, info = kind.from_pretrained(end, output_loading_info=True)
        check(not any(info.values()), f"{name}: transformers loads the trained folder with {info}")
        batch = batch_of(dev, tokenizer, kind)
        with torch.no_grad():
            out = trained.eval()(**batch)
        labels, guess = batch["labels"], out.logits.argmax(-1)
        truth = [[LABELS[x] for x in row[row != -100]] for row in labels]
        said = [[LABELS[x] for x in g[row != -100]] for g, row in zip(guess, labels)]
        wanted = score(truth, said)
        results = read_json(end, "eval_results.json")
        keys = ("eval_precision", "eval_recall", "eval_f1", "eval_accuracy")
        check(all(abs(results[key] - value) <= 1e-12 for key, value in zip(keys, wanted)),
              f"{name}: {[results[key] for key in keys]}, {wanted[4]} has {wanted[:4]}")
        check(abs(results["eval_loss"] - out.loss.item()) <= 1e-5,
              f"{name}: eval_loss {results['eval_loss']}, transformers' {out.loss.item()}")
        with open(os.path.join(end, "predict_results.txt"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        check(lines == ["index\tprediction"] + [f"{i}\t{' '.join(x)}" for i, x in enumerate(said)],
              f"{name}: the predictions differ")
        check(0 < wanted[2] < 1, f"{name}: F1 {wanted[2]} says little")
        print(f"{name}, {device}: {STEPS} losses from {got[0]:.4f} to {got[-1]:.4f} within {worst:.1e}, F1 "
              f"{results['eval_f1']:.4f} as {wanted[4]} has it")
        check_columns(name, program, device, work, dev, results)


def check_columns(name, program, device, work, dev, results):
    """Labels as numbers of the model, in columns of other names, give the same results."""
    path = os.path.join(work, "numbers.jsonl")
    write_rows(path, dev, ("pieces", "classes"), numbers=True)
    done = run(program, model_name_or_path=os.path.join(work, "end"), do_eval=True, validation_file=path,
               task_name="ner", text_column_name="pieces", label_column_name="classes",
               max_seq_length=BLOCK, device=device,
               output_dir=os.path.join(work, "again"))
    check(done.returncode == 0, f"{name}, numbers: {done.stderr.strip()}")
    again = read_json(os.path.join(work, "again"), "eval_results.json")
    check(all(again[key] == results[key] for key in results if key in ("eval_loss", "eval_f1", "eval_accuracy")),
          f"{name}, numbers: {again}")


def main():
    program, device = sys.argv[1], (sys.argv[2:] or ["cpu"])[0]
    with open(MRPC, encoding="utf-8") as file:
        texts = [line.rstrip("\n").split("\t")[3].split() for line in file][1:]
    rows = [(words, tag_words(words)) for words in texts]
    for name, make in (("BERT", make_bert), ("DistilBERT", make_distilbert), ("RoBERTa", make_roberta),
                       ("XLM-RoBERTa", make_xlm_roberta)):
        compare(name, make, program, device, rows[:90], rows[90:150])
    return status()


sys.exit(main())
