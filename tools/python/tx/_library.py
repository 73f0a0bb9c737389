# SPDX-License-Identifier: Apache-2.0
"""The functions and structures of libtx's public headers that the package uses."""
import ctypes
import json
import operator
import os
import signal
import threading
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32,
                    c_int64, c_size_t, c_void_p)

_here = os.path.dirname(os.path.abspath(__file__))
lib = ctypes.CDLL(os.environ.get("TX_LIBRARY") or os.path.join(_here, "lib", "libtx.so.0"))
_free = ctypes.CDLL(None).free
_free.argtypes, _free.restype = [c_void_p], None


INVALID, NOT_FOUND = -1, -7  # of tx_status


class Error(Exception):
    """An error of the library. Its text says what is wrong and what to do; `status` is the library's status code."""

    def __init__(self, message, status):
        super().__init__(message)
        self.status = status


def check(status):
    """Raises the library's last message on this thread if a call has failed."""
    if status:
        raise Error(lib.tx_error().decode(errors="replace"), status)


def known(status):
    """The same for a call that sets an option by its name, which may be unknown: Python's error for it is TypeError."""
    if status == NOT_FOUND:
        raise TypeError(lib.tx_error().decode(errors="replace"))
    check(status)


class Guard:
    """A call of the library that runs Python code: callbacks, and the handlers of signals such as Ctrl-C, which Python
    may run at the first instruction of a callback. An exception must not pass through C, so the first one is kept, and
    the end of the `with` block raises it."""

    def __init__(self):
        self.error, self._handlers = None, {}

    def __call__(self, function):
        def call(*arguments):
            try:
                return function(*arguments)
            except BaseException as error:  # KeyboardInterrupt, too
                self.error = self.error or error
                return 0
        return call

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():  # the only one that runs handlers
            for number in signal.valid_signals():
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self(handler))
        return self

    def __exit__(self, *_):
        while self._handlers:
            signal.signal(*self._handlers.popitem())
        if self.error is not None:
            raise self.error


_process = []  # the one whose threads the library has started


def own_process():
    """Threads do not survive fork(): the library would wait for them for ever."""
    if not _process:
        _process.append(os.getpid())
    if _process[0] != os.getpid():
        raise Error('tx was used before this process was forked, and threads do not survive that; start processes with '
                    'multiprocessing.get_context("spawn")', INVALID)


def take(pointer, kind, count):
    """Copies `count` items that the library allocated, and frees them."""
    if not pointer:
        return b"" if kind is c_char else []
    try:
        return ctypes.string_at(pointer, count) if kind is c_char else (kind * count).from_address(pointer)[:]
    finally:
        _free(pointer)


def encode(value):
    """Text, a path or None as bytes for C."""
    data = None if value is None else os.fsencode(value)
    if data and b"\0" in data:
        raise ValueError(f"{value!r} contains a NUL character")
    return data


def text_of(value):
    """An option's value as on a command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return json.dumps(value)
    if isinstance(value, (list, tuple)):
        return ",".join(text_of(item) for item in value)
    if isinstance(value, float):
        return repr(float(value))
    return os.fspath(value) if hasattr(value, "__fspath__") else str(value)


def put(structure, **values):
    """Sets fields of a structure, and its size. ctypes would cut an integer that does not fit."""
    structure.size = ctypes.sizeof(structure)
    for name, value in values.items():
        if hasattr(value, "__index__") and not isinstance(value, bool):
            value = operator.index(value)
        setattr(structure, name, value)
        if type(value) is int and getattr(structure, name) != value:
            raise OverflowError(f"{name}: {value} is out of range")
    return structure


# ---- tx_train.h ----------------------------------------


class RunStep(Structure):
    """tx_run_step: one finished optimizer step."""
    _fields_ = [("step", c_int64), ("steps", c_int64), ("epoch", c_double), ("loss", c_double),
                ("grad_norm", c_double), ("learning_rate", c_double), ("tokens", c_int64), ("padded_tokens", c_int64),
                ("tokens_per_second", c_double), ("loss_scale", c_double), ("skipped", c_int64), ("dropped", c_int64),
                ("waited", c_double), ("seconds_left", c_double)]


class Figure(Structure):
    _fields_ = [("name", c_char_p), ("value", c_double), ("digits", c_int32)]


class JobListener(Structure):
    _fields_ = [("size", c_size_t), ("context", c_void_p), ("begin", CFUNCTYPE(None, c_void_p)),
                ("step", CFUNCTYPE(None, c_void_p, POINTER(RunStep))),
                ("log", CFUNCTYPE(None, c_void_p, POINTER(RunStep), c_double)),
                ("evaluation", CFUNCTYPE(None, c_void_p, c_int64, POINTER(Figure), c_int32)),
                ("saved", CFUNCTYPE(None, c_void_p, c_char_p)),
                ("results", CFUNCTYPE(None, c_void_p, c_char_p, POINTER(Figure), c_int32)),
                ("note", CFUNCTYPE(None, c_void_p, c_char_p)), ("warn", CFUNCTYPE(None, c_void_p, c_char_p)),
                ("progress", CFUNCTYPE(None, c_void_p, c_char_p, c_int64, c_int64)),
                ("stop", CFUNCTYPE(c_int, c_void_p)), ("save", CFUNCTYPE(c_bool, c_void_p))]


# ---- tx_generate.h ----------------------------------------


_warn = CFUNCTYPE(None, c_void_p, c_char_p)


class LmOptions(Structure):
    _fields_ = [("size", c_size_t), ("model", c_char_p), ("device", c_char_p), ("threads", c_int64),
                ("batch_size", c_int64), ("dtype", c_char_p), ("warn", _warn), ("context", c_void_p),
                ("adapter", c_char_p), ("load_in_4bit", c_bool), ("double_quant", c_bool), ("keep_cache", c_bool),
                ("device_map", c_char_p), ("offload_params", c_int), ("offload_folder", c_char_p),
                ("progress", c_void_p), ("assistant_model", c_char_p), ("cache_type", c_char_p),
                ("ranks", c_void_p)]


class Prompt(Structure):
    _fields_ = [("text", c_char_p), ("size", c_size_t), ("ids", POINTER(c_int32)), ("count", c_int64)]


class LmListener(Structure):
    _fields_ = [("size", c_size_t), ("context", c_void_p), ("begin", CFUNCTYPE(None, c_void_p, c_int64)),
                ("token", CFUNCTYPE(None, c_void_p, c_int64, c_int32)),
                ("text", CFUNCTYPE(None, c_void_p, c_int64, POINTER(c_char), c_size_t)),
                ("end", CFUNCTYPE(None, c_void_p, c_int64)), ("stop", CFUNCTYPE(c_bool, c_void_p)),
                ("done", CFUNCTYPE(None, c_void_p, c_int64, c_double))]


class Perplexity(Structure):
    _fields_ = [("size", c_size_t), ("max_length", c_int64), ("stride", c_int64), ("batch", c_int64)]


class PerplexityResult(Structure):
    """tx_perplexity_result."""
    _fields_ = [("loss", c_double), ("perplexity", c_double), ("windows", c_int64), ("tokens", c_int64),
                ("max_length", c_int64), ("stride", c_int64)]


class Shape(Structure):
    _fields_ = [("rank", c_int32), ("dim", c_int64 * 5)]


class TextInput(Structure):
    """tx_text_input of tx_classify.h."""
    _fields_ = [("text", c_char_p), ("size", c_size_t), ("second", c_char_p), ("second_size", c_size_t),
                ("tokens", c_int64), ("truncated", c_bool), ("ids", c_void_p)]


# ---- tx_text.h and tx_chat.h ----------------------------------------


class Ids(Structure):
    _fields_ = [("id", c_void_p), ("count", c_size_t), ("room", c_size_t), ("drain", c_void_p), ("context", c_void_p)]


class Conversation(Structure):
    _fields_ = [("said", c_void_p), ("learnt", c_void_p), ("count", c_size_t), ("room", c_size_t), ("prompt", c_size_t),
                ("form", c_int), ("weighted", c_bool), ("ignored", c_char * 200), ("suffix", c_int), ("lost", c_size_t)]


def _declare(names, *arguments, result=c_int):
    for name in names.split():
        function = getattr(lib, "tx_" + name)
        function.argtypes, function.restype = arguments, result


_declare("error", result=c_char_p)
_declare("job_create", POINTER(c_void_p))
_declare("job_free lm_free embedder_free chat_free encoder_free json_free topology_free", c_void_p, result=None)
_declare("job_run", c_void_p)
_declare("job_set", c_void_p, c_char_p, c_char_p)
_declare("job_listen", c_void_p, POINTER(JobListener))
_declare("job_step", c_void_p, POINTER(c_int64), result=c_int64)
_declare("lm_open embedder_open", POINTER(LmOptions), POINTER(c_void_p))
_declare("lm_set", POINTER(LmOptions), c_char_p, c_char_p)
_declare("lm_vocab_size lm_positions embedder_width", c_void_p, result=c_int64)
_declare("lm_generation", c_void_p, result=c_void_p)
_declare("generation_set", c_void_p, c_char_p, c_char_p)
_declare("generation_add_end", c_void_p, c_int32, c_char_p, POINTER(c_char_p))
_declare("lm_tokenizer encoder_create topology_live", c_void_p, POINTER(c_void_p))
_declare("lm_encode", c_void_p, c_char_p, c_size_t, POINTER(c_void_p), POINTER(c_int64))
_declare("lm_generate", c_void_p, POINTER(Prompt), c_int64, c_void_p, POINTER(LmListener))
_declare("lm_logits_shape", c_void_p, c_int64, POINTER(Shape))
_declare("lm_logits", c_void_p, POINTER(c_int32), c_int64, POINTER(c_float))
_declare("lm_perplexity", c_void_p, POINTER(c_int32), c_int64, POINTER(Perplexity), POINTER(PerplexityResult))
_declare("lm_save", c_void_p, c_char_p)
_declare("embedder_prompt", c_void_p, c_char_p, POINTER(c_char_p))
_declare("embed", c_void_p, POINTER(TextInput), c_int64, c_char_p, POINTER(c_float))
_declare("tokenizer_decode", c_void_p, POINTER(c_int32), c_size_t, c_bool, POINTER(c_void_p), POINTER(c_size_t))
_declare("json_parse", c_char_p, c_size_t, c_char_p, POINTER(c_void_p))
_declare("chat_create", c_char_p, c_void_p, c_void_p, POINTER(c_void_p))
_declare("chat_prompt", c_void_p, c_void_p, POINTER(Conversation), POINTER(Ids))
_declare("chat_end", c_void_p, POINTER(c_int32), result=c_char_p)
_declare("chat_trim", c_void_p, c_char_p, c_size_t, result=c_size_t)
_declare("conversation_read", c_void_p, c_bool, POINTER(Conversation))
_declare("conversation_free", POINTER(Conversation), result=None)
_declare("topology_read", c_char_p, POINTER(c_void_p))
_declare("topology_json", c_void_p, result=c_void_p)


def own_text(pointer):
    """A text that the library allocated."""
    if not pointer:
        check(1)
    text = ctypes.string_at(pointer)
    _free(pointer)
    return text.decode()


__all__ = [name for name in globals() if not name.startswith("_")]
__all__ += ["byref"]
