# SPDX-License-Identifier: Apache-2.0
"""Training runs."""
import json
import logging
import os
import threading
import warnings
from collections import namedtuple

from ._library import (INVALID, Error, Guard, JobListener, RunStep, byref, c_int64, c_void_p, check, encode, lib,
                       own_process, put, text_of)

_log = logging.getLogger("tx")

#: The result of Trainer.train: steps done, mean training loss, and all metrics of all_results.json.
TrainOutput = namedtuple("TrainOutput", "global_step training_loss metrics")


class Callback:
    """What a run reports, between its steps. Subclass it and override what you need. `trainer` has stop() and save().

    An exception of a callback ends the run after the current step, with a checkpoint; train() then raises it."""

    def on_train_begin(self, trainer):
        """The first step is about to start."""

    def on_step_end(self, trainer, step):
        """A step is done. `step` is a dict: step, steps, epoch, loss, grad_norm, learning_rate, tokens, .."""

    def on_log(self, trainer, logs):
        """An entry of the loss history. `logs["loss"]` is the mean since the last entry."""

    def on_evaluate(self, trainer, step, metrics):
        """An evaluation after a step. `metrics` is a dict: eval_loss, eval_accuracy, .."""

    def on_save(self, trainer, folder):
        """A checkpoint or the model was written to a folder."""


def _metrics(figures, count):
    return {figures[i].name.decode(): figures[i].value for i in range(count)}


class Trainer:
    """A training run with the options of txtrain, which are those of transformers' TrainingArguments:

        trainer = tx.Trainer(model_name_or_path="gpt2", train_file="book.txt", output_dir="out", max_steps=100)
        print(trainer.train().training_loss)

    `txtrain --help all` lists the options. The library checks them when the trainer is made. An option that is None
    keeps its default. A list becomes values separated by commas. Messages go to the logger "tx"."""

    def __init__(self, *, callbacks=(), **options):
        self.options = {name: value for name, value in options.items() if value is not None}
        self.callbacks = list(callbacks)
        self._stop = self._save = False
        self._guard, self._metrics, self._busy = None, {}, threading.Lock()
        lib.tx_job_free(self._job())

    def stop(self):
        """Ends the run after the current step, with a checkpoint. Callbacks and other threads may call it. Callbacks
        see a step while the device computes the next one."""
        self._stop = True

    def save(self):
        """Saves a checkpoint after the current step."""
        self._save = True

    def _job(self):
        job = c_void_p()
        check(lib.tx_job_create(byref(job)))
        try:
            for name, value in self.options.items():
                check(lib.tx_job_set(job, encode(name), encode(text_of(value))))
        except BaseException:
            lib.tx_job_free(job)
            raise
        return job

    def _call(self, name, *arguments):
        for callback in self.callbacks:
            getattr(callback, name)(self, *arguments)

    def _take_save(self):
        wanted, self._save = self._save, False
        return wanted

    def _listener(self):
        def step_of(pointer, **more):
            return {**{name: getattr(pointer[0], name) for name, _ in RunStep._fields_}, **more}

        def log(_, step, loss):
            entry = step_of(step, loss=loss)
            _log.info("step %d/%d  loss %.4f", entry["step"], entry["steps"], loss)
            self._call("on_log", entry)

        def results(_, split, figures, count):
            self._metrics.update(_metrics(figures, count))

        types = dict(JobListener._fields_)
        functions = {
            "begin": lambda _: self._call("on_train_begin"),
            "step": lambda _, step: self._call("on_step_end", step_of(step)),
            "log": log,
            "evaluation": lambda _, step, figures, count: self._call("on_evaluate", step, _metrics(figures, count)),
            "saved": lambda _, folder: self._call("on_save", os.fsdecode(folder)),
            "results": results,
            "note": lambda _, line: _log.info("%s", line.decode(errors="replace")),
            "warn": lambda _, line: warnings.warn(line.decode(errors="replace"), stacklevel=3),
            "progress": lambda _, what, done, total: _log.debug("%s %d of %d", os.fsdecode(what), done, total),
            "stop": lambda _: int(self._stop or self._guard.error is not None),
            "save": lambda _: self._take_save(),
        }
        return put(JobListener(), **{name: types[name](self._guard(function)) for name, function in functions.items()})

    def train(self):
        """Runs the training, writes the model to output_dir, and returns a TrainOutput."""
        own_process()
        if not self._busy.acquire(blocking=False):
            raise Error("the trainer is running: make one for each run", INVALID)
        job, steps = None, c_int64()
        try:
            with Guard() as self._guard:
                job, listener = self._job(), self._listener()
                self._stop, self._metrics = False, {}
                check(lib.tx_job_listen(job, byref(listener)))
                check(lib.tx_job_run(job))
                done = lib.tx_job_step(job, byref(steps))
            return TrainOutput(done, self._metrics.get("train_loss"), self._metrics)
        finally:
            lib.tx_job_free(job)
            self._busy.release()
