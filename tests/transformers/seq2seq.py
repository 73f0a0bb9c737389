# SPDX-License-Identifier: Apache-2.0
"""Trains small T5, T5 1.1 and mT5 by txtrain on summaries and translations, and in transformers on the same batches.
Compares 20 losses, eval_loss, a resumed run, which must give the same bytes, and the texts that txgen writes.

    seq2seq.py TXTRAIN TXGEN [DEVICE]      exit status 77: something is missing
"""
import json
import os
import random
import sys
import tempfile

from oracle import check, decayed, run, status
from training import Training, loads, mrpc, need

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import MT5ForConditionalGeneration, PreTrainedTokenizerFast, T5ForConditionalGeneration

torch.set_num_threads(1)
SOURCE, TARGET, BATCH, STEPS, SEED, RATE, DECAY = 40, 24, 4, 20, 3, 1e-3, 0.1
SIZES = dict(d_model=32, d_kv=12, d_ff=48, num_layers=2, num_heads=4, dropout_rate=0.0, decoder_start_token_id=0)
GATED = dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False)
VARIANTS = {  # model, its keys, the form of the data, options
    "T5": (T5ForConditionalGeneration, {}, "jsonl", dict(source_prefix="summarize: ")),
    "T5 1.1": (T5ForConditionalGeneration, dict(GATED, num_decoder_layers=3), "translation",
               dict(source_lang="en", target_lang="ro", source_prefix="translate: ")),
    "mT5": (MT5ForConditionalGeneration, GATED, "csv", dict(text_column="document", summary_column="summary",
                                                              pad_to_max_length="true")),
}

need()


def make_tokenizer(texts, folder):
    """As T5's: Unigram, <pad> 0, </s> 1 at the end of each text."""
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    made.train_from_iterator([t for pair in texts for t in pair], trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>"))
    made.post_processor = processors.TemplateProcessing("$A </s>", "$A </s> $B </s>", [("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    tokenizer.save_pretrained(folder)
    return tokenizer


def write_rows(path, rows, form):
    with open(path, "w", encoding="utf-8") as file:
        if form == "csv":
            file.write("id,document,summary\n")
        for i, (source, target) in enumerate(rows):
            quoted = [f'"{text}"' for text in (source.replace('"', '""'), target.replace('"', '""'))]
            file.write(f"{i},{','.join(quoted)}\n" if form == "csv" else json.dumps(
                {"translation": {"ro": target, "en": source}} if form == "translation" else
                {"text": source, "summary": target}) + "\n")


def loss_of(model, tokenizer, rows, prefix):
    source = tokenizer([prefix + s for s, _ in rows], max_length=SOURCE, truncation=True, padding=True,
                       return_tensors="pt")
    target = tokenizer(text_target=[t for _, t in rows], max_length=TARGET, truncation=True, padding=True,
                       return_tensors="pt")
    labels = target.input_ids.masked_fill(target.attention_mask == 0, -100)
    return model(input_ids=source.input_ids, attention_mask=source.attention_mask, labels=labels).loss, \
        (labels >= 0).sum().item()


def same_files(one, other):
    read = lambda *path: open(os.path.join(*path), "rb").read()
    return read(one, "model.safetensors") == read(other, "model.safetensors")


written = set()


def texts_agree(program, folder, device, model, tokenizer, sources, name):
    """Compares greedy texts and their ids, and those of beams, for several sources at once."""
    coded = [tokenizer(source).input_ids for source in sources]
    for beams in (1, 3):
        given = dict(model=folder, device=device, max_new_tokens=16, min_new_tokens=12, num_beams=beams, threads=1,
                     temperature=None if beams > 1 else 0)
        texts, ids = (run(program, *sum(([option, value] for value in values), []), **given) for option, values in (
            ("--prompt", sources), ("--ids", [" ".join(map(str, ids)) for ids in coded])))
        check(texts.returncode == 0 and ids.returncode == 0, f"{name}: {texts.stderr.strip()} {ids.stderr.strip()}")
        # transformers' cache has no room for more layers of the decoder than of the encoder.
        want = [model.generate(torch.tensor([source]), max_new_tokens=16, min_new_tokens=12, num_beams=beams,
                               do_sample=False, use_cache=False)[0, 1:].tolist() for source in coded]
        got = [list(map(int, line.split())) for line in ids.stdout.splitlines()]
        check(got == want, f"{name}: {beams} beams: {got} instead of {want}")
        want = [tokenizer.decode(ids, skip_special_tokens=True).strip() for ids in want]
        got = [text.strip() for text in (texts.stdout + "\n").split("\n\n")][:len(want)]
        check(got == want, f"{name}: {beams} beams: {got} instead of {want}")
        written.update(want)


def compare(work, program, generator, device, name, kind, keys, form, options):
    named = dict(task_name="seq2seq") if form == "csv" else {}  # else the model decides
    ending = "csv" if form == "csv" else "jsonl"
    train, held = (os.path.join(work, f"{name}.{part}.{ending}") for part in ("train", "held"))
    t = Training(program, name, work, steps=STEPS, batch=BATCH, rate=RATE, train_file=train, validation_file=held,
                 max_source_length=SOURCE, max_target_length=TARGET, device=device, seed=SEED,
                 per_device_eval_batch_size=8, weight_decay=DECAY, **options, **named)
    start = t.path("start")
    texts = [row[3:5] for row in mrpc()]
    random.Random(5).shuffle(texts)
    tokenizer = make_tokenizer(texts, start)
    torch.manual_seed(0)
    config = kind.config_class(vocab_size=len(tokenizer) + 3, **SIZES, **keys)
    model = kind(config)
    if keys:
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.2)
    model.save_pretrained(start)
    rows, dev = texts[:STEPS * BATCH], texts[200:230]
    write_rows(train, rows, form)
    write_rows(held, dev, form)
    end = t.train(start, save_strategy="steps", save_steps=12)
    prefix = options.get("source_prefix", "")
    said = t.compare(model.train(), lambda part: loss_of(model, tokenizer, [rows[n] for _, n in part], prefix)[0], 2e-5,
                     torch.optim.AdamW(decayed(model, DECAY), lr=RATE), learns=False)
    trained = loads(kind, end, name)
    with torch.no_grad():
        parts = [loss_of(trained.eval(), tokenizer, dev[i:i + 1], prefix) for i in range(len(dev))]
    loss = sum(p.item() * n for p, n in parts) / sum(n for _, n in parts)
    t.results(loss=loss)
    again = t.run("again", model_name_or_path=start, max_steps=STEPS, learning_rate=RATE, lr_scheduler_type="constant",
                  per_device_train_batch_size=BATCH, resume_from_checkpoint=os.path.join(end, "checkpoint-12"))
    check(same_files(end, again), f"{name}: the resumed run ends with other weights")
    with torch.no_grad():
        texts_agree(generator, end, device, trained, tokenizer, [prefix + source for source, _ in dev[:3]], name)
    print(f"{said}, eval_loss {loss:.4f}")


def main():
    device = (sys.argv[3:] or ["cpu"])[0]
    with tempfile.TemporaryDirectory() as work:
        for name, variant in VARIANTS.items():
            compare(work, *sys.argv[1:3], device, name, *variant)
    check(len(written) > 2, f"the texts are all {written}")
    return status()


if __name__ == "__main__":
    sys.exit(main())
