# SPDX-License-Identifier: Apache-2.0
"""Evaluations that write texts (--predict_with_generate), compared with transformers' Seq2SeqTrainer, whose metrics are
those of run_summarization.py and run_translation.py, except that sentences are not divided by nltk: during training and
after it, greedy and with beams, with an adapter, by two ranks, and predictions.

    written_texts.py TXTRAIN LAUNCHER [DEVICE]      exit status 77: something is missing
"""
import json
import math
import os
import random
import shutil
import sys
import tempfile

from oracle import check, read_json, run, status

import numpy
from peft import PeftModel
from rouge_score import rouge_scorer
import sacrebleu
from seq2seq import GATED, SIZES, make_tokenizer, texts_of, write_rows
import torch
from transformers import (DataCollatorForSeq2Seq, GenerationConfig, Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config,
                          T5ForConditionalGeneration)

SOURCE, TARGET, PREFIX, KINDS = 48, 32, "summarize: ", ["rouge1", "rouge2", "rougeL", "rougeLsum"]
ROWS, HELD, TOPICS = 240, 37, 9
program, launcher = sys.argv[1], sys.argv[2]
device = (sys.argv[3:] or ["cpu"])[0]
torch.set_num_threads(1)


def length_of(ids, tokenizer):
    """The number of ids after the first, up to the end of the text. Beam search fills the rest of T5's rows by it."""
    ends = numpy.flatnonzero(ids == tokenizer.eos_token_id)
    return ends[0] if len(ends) else numpy.flatnonzero(ids != tokenizer.pad_token_id)[-1]


def metrics_of(tokenizer):
    scorer = rouge_scorer.RougeScorer(KINDS, use_stemmer=True)

    def compute(given):
        predictions, labels = (numpy.where(ids >= 0, ids, tokenizer.pad_token_id) for ids in given)
        texts, targets = ([text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]
                          for ids in (predictions, labels))
        scores = [scorer.score(target, text) for text, target in zip(texts, targets)]
        return {**{kind: 100 * numpy.mean([score[kind].fmeasure for score in scores]) for kind in KINDS},
                "bleu": sacrebleu.corpus_bleu(texts, [targets]).score,
                "gen_len": numpy.mean([length_of(ids, tokenizer) for ids in predictions])}
    return compute


def rows_of(tokenizer, rows):
    return [{"input_ids": tokenizer(PREFIX + source, max_length=SOURCE, truncation=True).input_ids,
             "labels": tokenizer(text_target=target, max_length=TARGET, truncation=True).input_ids}
            for source, target in rows]


def wanted(work, model, tokenizer, rows, beams, length):
    """Metrics and texts of Seq2SeqTrainer."""
    arguments = Seq2SeqTrainingArguments(output_dir=os.path.join(work, "unused"), predict_with_generate=True,
                                         generation_max_length=length, generation_num_beams=beams, use_cpu=True,
                                         per_device_eval_batch_size=8, report_to=[])
    model.generation_config.use_cache = False  # its cache needs as many layers of the encoder as of the decoder
    trainer = Seq2SeqTrainer(model=model, args=arguments, processing_class=tokenizer,
                             data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
                             compute_metrics=metrics_of(tokenizer))
    done = trainer.predict(rows_of(tokenizer, rows), metric_key_prefix="eval")
    ids = numpy.where(done.predictions >= 0, done.predictions, tokenizer.pad_token_id)
    return done.metrics, tokenizer.batch_decode(ids, skip_special_tokens=True)


def compare(got, want, name):
    """The loss is a mean over labels here, and over batches there."""
    names = [f"eval_{kind}" for kind in KINDS + ["bleu", "gen_len"]]
    worst = max((abs(got.get(n, math.nan) - want[n]) for n in names), default=math.nan)
    check(worst <= 1e-6, f"{name}: {[(n, got.get(n), want[n]) for n in names]}")
    print(f"{name}: rouge1 {want['eval_rouge1']:.3f}, rouge2 {want['eval_rouge2']:.3f}, bleu {want['eval_bleu']:.3f}, "
          f"length {want['eval_gen_len']:.2f}, within {worst:.1g}")
    return want["eval_rouge1"]


def make_rows():
    """Sources with the name of a topic among other words, and a short text about it, which a small model can learn."""
    draw, texts = random.Random(5), texts_of()
    topics = [" ".join(text[1].split()[:draw.randrange(2, 7)]) for text in texts[:TOPICS]]
    return [(f"{' '.join(draw.choice(texts)[0].split()[:4])} topic {at} .", topics[at])
            for at in (draw.randrange(TOPICS) for _ in range(ROWS + HELD))], texts


def gated_model(folder, tokenizer, vocab):
    """A T5 1.1 with random weights."""
    tokenizer.save_pretrained(folder)
    model = T5ForConditionalGeneration(T5Config(vocab_size=vocab, **SIZES, **GATED, num_decoder_layers=3))
    model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.2)
    model.save_pretrained(folder)


def sharded(path, txtrain, expected, training):
    """ZeRO stage 3: the texts of the ranks end after different numbers of steps, and some ranks have no rows."""
    early = path("trained/checkpoint-60")
    for ranks, rows, beams in ((2, 8, 1), (2, 5, 3), (3, 16, 1), (2, 1, 3)):
        got = txtrain(f"sharded {ranks} {rows}", launcher, "-n", str(ranks), zero_stage=3, do_eval=True,
                      model_name_or_path=early, generation_num_beams=beams, per_device_eval_batch_size=rows)
        compare(got, expected(early, beams)[0], f"ZeRO stage 3, {ranks} ranks, {rows} rows, {beams} beams")
    got = txtrain("sharded", launcher, "-n", "2", zero_stage=3, do_train=True, do_eval=True,
                  **{**training, "per_device_train_batch_size": 8, "max_steps": 40})
    compare(got, expected(path("sharded"))[0], "ZeRO stage 3, trained")


def main(work):
    path = lambda name: os.path.join(work, name)
    rows, texts = make_rows()
    rows, held = rows[:ROWS], rows[ROWS:]
    write_rows(path("train.jsonl"), rows, "jsonl")
    write_rows(path("held.jsonl"), held, "jsonl")
    tokenizer = make_tokenizer(texts, path("start"))
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(T5Config(vocab_size=len(tokenizer), **SIZES))
    model.save_pretrained(path("start"))
    common = dict(source_prefix=PREFIX, max_source_length=SOURCE, max_target_length=TARGET, device=device, threads=1,
                  per_device_eval_batch_size=8, validation_file=path("held.jsonl"), predict_with_generate=True)
    training = dict(train_file=path("train.jsonl"), per_device_train_batch_size=16, learning_rate=1e-2, max_steps=180,
                    lr_scheduler_type="constant", model_name_or_path=path("start"))

    def txtrain(name, *before, **given):
        done = run(*before, program, **{**common, **given}, output_dir=path(name))
        check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
        return read_json(path(name), "eval_results.json") if done.returncode == 0 else {}

    def expected(folder, beams=1, length=TARGET, adapter=None):
        loaded = T5ForConditionalGeneration.from_pretrained(folder)
        loaded = PeftModel.from_pretrained(loaded, adapter).merge_and_unload() if adapter else loaded
        return wanted(work, loaded, tokenizer, held, beams, length)

    gated_model(path("wide"), tokenizer, 3 * len(tokenizer))
    compare(txtrain("unknown", model_name_or_path=path("wide"), do_eval=True), expected(path("wide"))[0],
            "ids without a token")
    got = txtrain("trained", do_train=True, do_eval=True, eval_strategy="steps", save_strategy="steps", eval_steps=60,
                  save_steps=60, metric_for_best_model="rouge1", load_best_model_at_end=True, **training)
    history = [e for e in read_json(path("trained"), "trainer_state.json")["log_history"] if "eval_bleu" in e]
    best = max(history, key=lambda entry: entry["eval_rouge1"], default={})
    scores = [compare(entry, expected(path(f"trained/checkpoint-{entry['step']}"))[0], f"step {entry['step']}")
              for entry in history]
    check(len(set(scores)) == 3 and min(scores) > 5, f"rouge1 of three steps: {scores}")
    check(got.get("eval_rouge1") == best.get("eval_rouge1"), f"the best model has {best}, the last one {got}")

    if launcher:
        sharded(path, txtrain, expected, training)
    trained = path("trained")
    evaluated = dict(model_name_or_path=trained, do_eval=True)
    compare(txtrain("beams", generation_num_beams=3, generation_max_length=20, **evaluated),
            expected(trained, 3, 20)[0], "3 beams")
    got = txtrain("adapter", do_train=True, do_eval=True, lora_r=4, **{**training, "model_name_or_path": trained,
                                                                       "max_steps": 4})
    compare(got, expected(trained, adapter=path("adapter"))[0], "adapter")
    done = run(os.path.join(os.path.dirname(program), "txgen"), model=path("adapter"), save_merged=path("merged"))
    check(done.returncode == 0, f"--save_merged: {done.stderr.strip()}")
    compare(got, expected(path("merged"))[0], "merged adapter")
    GenerationConfig(eos_token_id=1, pad_token_id=0, decoder_start_token_id=0, num_beams=2, length_penalty=0.5,
                     min_new_tokens=6).save_pretrained(trained)
    want, lines = expected(trained, None)
    compare(txtrain("configured", **evaluated), want, "generation_config.json")
    if launcher:
        compare(txtrain("ranks", launcher, "-n", "2", **evaluated), want, "two ranks")
    txtrain("predicted", do_predict=True, test_file=path("held.jsonl"), model_name_or_path=trained, do_eval=True)
    with open(path("predicted/predict_results.txt"), encoding="utf-8") as file:
        got = [line.rstrip("\n").split("\t")[1] for line in file][1:]
    check(got == lines and len(set(got)) > 5, f"predictions: {got}, not {lines}")

    shutil.rmtree(path("start"))
    gated_model(path("start"), tokenizer, len(tokenizer))
    compare(txtrain("gated", do_train=True, do_eval=True, **training), expected(path("gated"))[0], "T5 1.1")


with tempfile.TemporaryDirectory() as folder:
    main(folder)
sys.exit(status())
