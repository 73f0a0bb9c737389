# SPDX-License-Identifier: Apache-2.0
"""wheel.py use FOLDER: trains and generates with the module tx. wheel.py compare FOLDER: compares with transformers."""
import os
import sys

folder = sys.argv[2]
model = os.path.join(folder, "model")
saved = os.path.join(folder, "results.npz")


def use():
    import numpy as np
    import tx

    class Watch(tx.Callback):
        def __init__(self, last=None, fails=False):
            self.seen, self.last, self.fails = {}, last, fails

        def note(self, name, value):
            self.seen.setdefault(name, []).append(value)

        def on_train_begin(self, trainer):
            self.note("begin", True)

        def on_step_end(self, trainer, step):
            self.note("step", step["step"])
            if self.fails:
                raise KeyError("mine")
            if step["step"] == self.last:
                trainer.stop()
            if step["step"] == 2:
                trainer.save()

        def on_log(self, trainer, logs):
            self.note("log", logs["loss"])

        def on_evaluate(self, trainer, step, metrics):
            self.note("eval", metrics["eval_loss"])

        def on_save(self, trainer, where):
            self.note("save", os.path.basename(where))

    def trainer(out, watch, **more):
        return tx.Trainer(callbacks=[watch], train_file=os.path.join(folder, "text"), output_dir=out, threads=1,
                          config_overrides="n_layer=2,n_embd=32,n_head=2,n_positions=64", max_steps=20, logging_steps=5,
                          learning_rate=1e-2, block_size=32, per_device_train_batch_size=4, disable_tqdm=True,
                          report_to=["tensorboard"], **more)

    watch = Watch()
    result = trainer(model, watch, eval_strategy="steps", eval_steps=10).train()
    assert result.global_step == 20 and result.metrics["train_loss"] == result.training_loss, result
    seen = watch.seen
    assert seen["step"] == list(range(1, 21)) and len(seen["log"]) == 4 and seen["log"][3] < seen["log"][0], seen
    assert seen["begin"] == [True] and len(seen["eval"]) >= 2, seen
    assert seen["save"][0] in ("checkpoint-3", "checkpoint-4") and seen["save"][-1] == "checkpoint-20", seen
    watch = Watch(last=3)
    stopped = trainer(os.path.join(folder, "stopped"), watch).train()
    assert 3 <= stopped.global_step < 20 and os.path.isdir(os.path.join(folder, "stopped", watch.seen["save"][-1]))
    failing = trainer(os.path.join(folder, "fails"), Watch(fails=True))
    for make, kind, text in [(failing.train, KeyError, "mine"),
                             (lambda: tx.Trainer(learning_rat=1), tx.Error, "did you mean --learning_rate?"),
                             (lambda: tx.LM(os.path.join(folder, "nowhere")), tx.Error, "nowhere"),
                             (lambda: tx.LM(model).generate("a", max_new_token=1), TypeError, "max_new_tokens")]:
        try:
            make()
        except kind as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"no {kind}")

    lm = tx.LM(model, threads=1)
    text = "the cat sat on the"
    ids = lm.encode(text)
    assert lm.decode(ids) == text and ids.dtype == np.int32
    logits = lm.logits(ids)
    assert logits.shape == (len(text), lm.vocab_size) and logits.dtype == np.float32
    assert (lm.logits(text) == logits).all()
    greedy = lm.generate(ids, max_new_tokens=12)
    pieces = []
    assert lm.generate(text, max_new_tokens=12, on_text=lambda index, piece: pieces.append(piece)) == "".join(pieces)
    assert lm.generate([text, "the dog"], max_new_tokens=12)[0] == lm.decode(greedy, skip_special_tokens=True)
    assert lm.generate(text, max_new_tokens=12, on_text=lambda index, piece: True) == pieces[0]
    drawn = lm.generate(text, max_new_tokens=12, temperature=0.9, seed=1)
    assert drawn == lm.generate(text, max_new_tokens=12, do_sample=True, temperature=0.9, seed=1)
    assert isinstance(lm.chat("the cat", template="chatml", max_new_tokens=5), str)
    assert lm.perplexity(text * 9).perplexity > 1
    lm.save(os.path.join(folder, "copy"))
    np.savez(saved, ids=ids, logits=logits, greedy=greedy)
    assert tx.topology()["devices"] is not None and tx.__version__[0].isdigit()


def compare():
    import numpy as np
    import torch
    from transformers import AutoModelForCausalLM
    ours = np.load(saved)
    for path in (model, os.path.join(folder, "copy")):
        theirs = AutoModelForCausalLM.from_pretrained(path)
        ids = torch.tensor(ours["ids"].astype(np.int64))[None]
        with torch.no_grad():
            far = np.abs(theirs(ids).logits[0].numpy() - ours["logits"]).max()
            new = theirs.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0)[0, ids.shape[1]:].tolist()
        assert far < 1e-4 and new == ours["greedy"].tolist(), (far, new, ours["greedy"])
        print(f"logits differ from transformers by {far:.1e}; the greedy ids are equal")
    compare_embeddings()


def compare_embeddings():
    """Mean pooling of a small BERT."""
    import glob
    import warnings

    import numpy as np
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast
    sys.path[:0] = glob.glob(os.path.join(folder, "venv/lib/python3*/site-packages/"))[:1] or []
    import tx
    bert = os.path.join(folder, "bert")
    os.makedirs(bert, exist_ok=True)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + letter for letter in letters)]
    with open(os.path.join(bert, "vocab.txt"), "w") as file:
        file.write("\n".join(words) + "\n")
    tokenizer = BertTokenizerFast(os.path.join(bert, "vocab.txt"))
    torch.manual_seed(1)
    theirs = BertModel(BertConfig(vocab_size=57, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                                  intermediate_size=64, max_position_embeddings=64)).eval()
    theirs.save_pretrained(bert)
    tokenizer.save_pretrained(bert)
    texts = ["a fox", "the cat sat on the mat", "dog"]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden, mask = theirs(**batch).last_hidden_state, batch["attention_mask"][..., None]
    want = ((hidden * mask).sum(1) / mask.sum(1)).numpy()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        embedder = tx.Embedder(bert, threads=1)
    assert any("mean of" in str(w.message) for w in warned), [str(w.message) for w in warned]
    got = embedder.embed(texts)
    assert got.shape == (3, 32) and np.abs(got - want).max() < 1e-5, np.abs(got - want).max()
    assert np.abs(embedder.embed("dog") - want[2]).max() < 1e-5
    print(f"embeddings differ from transformers by {np.abs(got - want).max():.1e}")


{"use": use, "compare": compare}[sys.argv[1]]()
