# SPDX-License-Identifier: Apache-2.0
"""Misuse of the Python module ends in exceptions, and Ctrl-C ends a run with its checkpoint.

    module_misuse.py SOURCE LIBTX [INTERRUPTS]
"""
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

import oracle
import numpy as np

SOURCE, LIBRARY = sys.argv[1], sys.argv[2]
INTERRUPTS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
TRAINS = """
import logging, sys, tx
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
options = dict(train_file=sys.argv[1], threads=1, block_size=16, per_device_train_batch_size=2, report_to="none",
               config_overrides="n_layer=1,n_embd=16,n_head=2,n_positions=64")
try:
    tx.Trainer(output_dir=sys.argv[2], max_steps=int(sys.argv[3]), logging_steps=1, **options).train()
    print("complete", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def start(*arguments):
    return subprocess.Popen([sys.executable, "-u", "-c", TRAINS, *map(str, arguments)], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def interrupted(folder, index, text):
    """A run that gets SIGINT from outside at some time after its first step."""
    out, draw = os.path.join(folder, f"run{index}"), random.Random(index)
    run = start(text, out, 10 ** 7)
    while "step " not in (line := run.stdout.readline()) and line:
        pass
    reader = threading.Thread(target=lambda: said.append(run.stdout.read()))
    said = []
    reader.start()
    time.sleep(draw.random())
    run.send_signal(signal.SIGINT)
    try:
        run.wait(60)
    except subprocess.TimeoutExpired:
        run.kill()
    reader.join()
    saved = [name for name in os.listdir(out) if os.path.exists(os.path.join(out, name, "trainer_state.json"))]
    oracle.check(saved and said[0].endswith("interrupted\n"), f"run {index}: checkpoints {saved}, {said[0][-200:]}")
    return bool(saved)


def raises(kind, what, call, *arguments, **named):
    try:
        made = call(*arguments, **named)
    except kind:
        return
    except BaseException as error:
        made = repr(error)
    oracle.check(False, f"{what}: {made!r:.200}")


def check_closed(tx, model):
    lm = tx.LM(model, threads=1)
    lm.generate("a", max_new_tokens=2)
    lm.decode([5])
    lm.close()
    lm.close()
    for name, call in {"generate": lambda: lm.generate("a"), "decode": lambda: lm.decode([5] * 100),
                       "encode": lambda: lm.encode("a"), "chat": lambda: lm.chat("a", template="chatml"),
                       "logits": lambda: lm.logits("a"), "perplexity": lambda: lm.perplexity("a b c"),
                       "save": lambda: lm.save(model + "2"), "vocab_size": lambda: lm.vocab_size,
                       "max_length": lambda: lm.max_length}.items():
        raises(tx.Error, f"{name} of a closed model", call)
    raises(tx.Error, "no model", lambda: tx.LM.__new__(tx.LM).generate("a"))


def check_use(tx, model):
    """A model in use: by its own callback, and by another thread."""
    lm, got = tx.LM(model, threads=1), []
    raises(tx.Error, "generate in a callback", lm.generate, "a", max_new_tokens=5,
           on_text=lambda *_: lm.generate("b", max_new_tokens=2) and None)
    raises(tx.Error, "close in a callback", lm.generate, "a", max_new_tokens=5, on_text=lambda *_: lm.close())

    def use():
        for _ in range(5):
            try:
                got.append(lm.generate("a b", max_new_tokens=20))
            except tx.Error as error:
                assert "in use" in str(error)
    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    oracle.check(got and set(got) == {lm.generate("a b", max_new_tokens=20)}, f"threads: {set(got)}")


def check_values(tx, model):
    lm = tx.LM(model, threads=1)
    for call in (lm.generate, lm.logits, lm.perplexity, lm.decode):
        raises(ValueError, f"{call.__name__} of fractions", call, [5.9, 6.7])
        raises(OverflowError, f"{call.__name__} of long ids", call, np.array([2 ** 32 + 5, 6]))
        raises(ValueError, f"{call.__name__} of rows", call, [[[5, 6], [7, 8]]])
    for kind, settings in [(tx.Error, {"max_new_tokens": 2 ** 64 + 3}), (tx.Error, {"max_new_tokens": 2 ** 40}),
                           (tx.Error, {"max_new_tokens": -7}), (tx.Error, {"seed": -1}),
                           (OverflowError, {"eos_token_id": 2 ** 32 + 2}), (tx.Error, {"eos_token_id": [*range(33)]}),
                           (ValueError, {"stop": "a\0b"}), (tx.Error, {"top_k": 1.5}), (TypeError, {"tok_k": 1})]:
        raises(kind, f"generate with {settings}", lm.generate, [5], **settings)
    raises(OverflowError, "perplexity", lm.perplexity, [5] * 9, stride=2 ** 64)
    raises(TypeError, "mixed prompts", lm.generate, ["a", [1, 2]])
    raises(ValueError, "a name with NUL", tx.LM, model + "\0x")
    raises(ValueError, "an option with NUL", tx.Trainer, output_dir="a\0b")
    raises(ValueError, "a folder with NUL", lm.save, "a\0b")
    raises(tx.Error, "threads", tx.LM, model, threads=2 ** 40)
    raises(TypeError, "an unknown option", tx.LM, model, thread=2)
    oracle.check(list(lm.generate(np.array([5, 6], dtype=np.int64), max_new_tokens=3)) ==
                 list(lm.generate([5, 6], max_new_tokens=3)), "int64 ids that fit")


def check_signals(tx, model):
    """A handler that raises, and Ctrl-C, end a generation."""
    lm, old = tx.LM(model, threads=1), signal.signal(signal.SIGALRM, lambda *_: 1 / 0)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    raises(ZeroDivisionError, "a handler", lm.generate, ["a"] * 50000, max_new_tokens=30, eos_token_id=[])
    signal.signal(signal.SIGALRM, old)
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    raises(KeyboardInterrupt, "Ctrl-C", lm.generate, ["a"] * 50000, max_new_tokens=30, eos_token_id=[])
    oracle.check(signal.getsignal(signal.SIGINT) is signal.default_int_handler, "the handler is not restored")


def check_fork(tx, model, lm):
    child = os.fork()
    if not child:
        for call in (lambda: lm.generate("a"), lambda: tx.LM(model), lambda: tx.Trainer(max_steps=1).train()):
            try:
                call()
                os._exit(1)
            except tx.Error:
                pass
        os._exit(0)
    ended = time.time() + 30
    while (done := os.waitpid(child, os.WNOHANG))[0] == 0 and time.time() < ended:
        time.sleep(0.05)
    oracle.check(done == (child, 0), f"a forked process: {done}")


def main():
    os.environ.update(TX_LIBRARY=LIBRARY, OMP_WAIT_POLICY="passive",
                      PYTHONPATH=os.path.join(SOURCE, "tools", "python"))
    sys.path.insert(0, os.environ["PYTHONPATH"])
    with tempfile.TemporaryDirectory() as folder:
        text, model = os.path.join(folder, "text"), os.path.join(folder, "model")
        with open(text, "w") as file:
            file.writelines(f"line {i}: the cat sat on the mat and looked at the birds\n" for i in range(300))
        said = start(text, model, 2).communicate()[0]
        assert said.endswith("complete\n"), said
        saved = sum(interrupted(folder, index, text) for index in range(INTERRUPTS))
        print(f"{saved} of {INTERRUPTS} runs that got SIGINT ended with a checkpoint")
        import tx
        check_closed(tx, model)
        check_use(tx, model)
        check_values(tx, model)
        check_signals(tx, model)
        check_fork(tx, model, tx.LM(model, threads=1))
    sys.exit(oracle.status())


main()
