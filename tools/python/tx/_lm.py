# SPDX-License-Identifier: Apache-2.0
"""Language models: generation, chat, logits, perplexity; and embeddings."""
import ctypes
import json
import threading
import warnings
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char, c_char_p, c_float, c_int32, c_int64, c_size_t, c_void_p, sizeof
from functools import wraps

import numpy as np

from ._library import (INVALID, Conversation, Error, Guard, Ids, LmListener, LmOptions, Perplexity,
                       PerplexityResult, Prompt, Shape, TextInput, check, encode, known, lib, own_process, put, take,
                       text_of)


def _array(ids, least=1):
    """Token ids as a contiguous array of 32 bits: no copy if they are one already."""
    array = np.atleast_1d(ids)
    if array.ndim != 1 or array.size < least:
        raise ValueError(f"ids must be a flat list of token ids, at least {least}, not an array of shape {array.shape}")
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"ids must be integers that fit in 32 bits, not {array.dtype}")
    if array.size and not (-2 ** 31 <= int(array.min()) and int(array.max()) < 2 ** 31):
        raise OverflowError("ids must be integers that fit in 32 bits")
    return np.ascontiguousarray(array, dtype=np.int32)


def _alone(method):
    """A method that uses the handle: of an open model, in its own process, by one thread at a time."""
    @wraps(method)
    def call(self, *arguments, **named):
        with self._use():
            return method(self, *arguments, **named)
    return call


def _pointer(array, kind=c_int32):
    return array.ctypes.data_as(POINTER(kind))


class _Model:
    """What LM and Embedder have in common: the options, and the handle that the library frees."""
    _open = _free = None  # functions of the library
    _lm = _busy = None

    def __init__(self, model=None, *, adapter=None, batch_size=0, double_quant=False, keep_cache=True,
                 offload_folder=None, **options):
        """`adapter` is a folder of peft. `keep_cache` reuses the keys and values of a conversation. `options` are those
        of txgen: device, dtype, threads, load_in_4bit, device_map, offload_param, assistant_model, cache_type."""
        self.close()
        warn = dict(LmOptions._fields_)["warn"]
        self._warn = warn(lambda _, line: self._guard(warnings.warn)(line.decode(errors="replace"), stacklevel=4))
        how = put(LmOptions(), batch_size=batch_size, warn=self._warn, adapter=encode(adapter), keep_cache=keep_cache)
        options.update(model=model, bnb_4bit_use_double_quant=double_quant, nvme_path=offload_folder)
        how.texts = {encode(name): encode(text_of(value)) for name, value in options.items() if value is not None}
        for name, text in how.texts.items():
            known(lib.tx_lm_set(byref(how), name, text))
        made = c_void_p()
        own_process()
        self._busy = threading.Lock()
        with Guard() as self._guard:
            check(self._open(byref(how), byref(made)))
            self._lm = made

    @contextmanager
    def _use(self):
        if not self._lm:
            raise Error("the model is closed", INVALID)
        own_process()
        if not self._busy.acquire(blocking=False):
            raise Error("the model is in use: make one for each thread, and do not use it in its callbacks", INVALID)
        try:
            with Guard() as self._guard:
                yield
        finally:
            self._busy.release()

    def close(self):
        """Frees the model's memory. The model cannot be used afterwards."""
        if self._lm:
            with self._use():
                freed, self._lm = self._lm, None
                self._free(freed)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        try:
            self.close()
        except Error:  # of the process before a fork
            pass


class Embedder(_Model):
    """A sentence-transformers folder, or an encoder with mean pooling. Only one thread at a time may use it.

        vectors = tx.Embedder("all-MiniLM-L6-v2").embed(["a fox", "a cat"])
    """
    _open, _free = lib.tx_embedder_open, lib.tx_embedder_free

    @_alone
    def embed(self, texts, prompt=None):
        """The embeddings of texts as a float32 array [texts, width] that the library writes to directly; of a single
        text [width]. `prompt` is the name of a prompt in config_sentence_transformers.json, which is put before each
        text; without one, the model's default prompt is."""
        one = isinstance(texts, str)
        data = [text.encode() for text in ([texts] if one else texts)]
        inputs = (TextInput * len(data))(*[TextInput(text=text, size=len(text)) for text in data])
        before = c_char_p()
        if prompt is not None:
            check(lib.tx_embedder_prompt(self._lm, encode(prompt), byref(before)))
        vectors = np.empty((len(data), lib.tx_embedder_width(self._lm)), dtype=np.float32)
        check(lib.tx_embed(self._lm, inputs, len(data), before, _pointer(vectors, c_float)))
        return vectors[0] if one else vectors


class LM(_Model):
    """A model on a device: a Hugging Face folder, a GGUF file, the output folder of a run, or the name of a model in
    Hugging Face's cache. The first call that computes reads the weights. Only one thread at a time may use it.

        lm = tx.LM("out")
        print(lm.generate("Once upon a time", max_new_tokens=50, temperature=0.8))
    """
    _open, _free = lib.tx_lm_open, lib.tx_lm_free

    @property
    @_alone
    def vocab_size(self):
        """Number of tokens that the logits score."""
        return lib.tx_lm_vocab_size(self._lm)

    @property
    @_alone
    def max_length(self):
        """The largest number of tokens in a context."""
        return lib.tx_lm_positions(self._lm)

    # ---- text and ids

    @_alone
    def encode(self, text):
        """The ids of a text with the special tokens that the model expects, as an int32 array."""
        return self._ids(text)

    def _ids(self, text_or_ids):
        if not isinstance(text_or_ids, str):
            return _array(text_or_ids)
        data, ids, count = text_or_ids.encode(), c_void_p(), c_int64()
        check(lib.tx_lm_encode(self._lm, data, len(data), byref(ids), byref(count)))
        return np.array(take(ids.value, c_int32, count.value), dtype=np.int32)

    @_alone
    def decode(self, ids, skip_special_tokens=False):
        """The text of ids. Bytes that are not UTF-8 become U+FFFD."""
        array, text, size = _array(ids, 0), c_void_p(), c_size_t()
        check(lib.tx_tokenizer_decode(self._tokenizer(), _pointer(array), array.size, skip_special_tokens,
                                      byref(text), byref(size)))
        return take(text.value, c_char, size.value).decode(errors="replace")

    def _tokenizer(self):
        tokenizer = c_void_p()
        check(lib.tx_lm_tokenizer(self._lm, byref(tokenizer)))
        return tokenizer

    # ---- generation

    def _settings(self, given):
        """tx_generation with the model's settings and those given; its `ends` have room for one more stop string."""
        model = lib.tx_lm_generation(self._lm)
        how = ctypes.create_string_buffer(ctypes.string_at(model, c_size_t.from_address(model).value))
        stop = given.pop("stop", None) or []
        for name in sorted(given, key="do_sample".__eq__):  # after those that imply it
            value = given[name]
            if name == "eos_token_id":
                value = _array([] if value is None else value, 0).tolist()
            known(lib.tx_generation_set(how, encode(name), encode(text_of(value))))
        how.texts = [encode(text) for text in ([stop] if isinstance(stop, str) else stop)]
        how.ends = (c_char_p * (len(how.texts) + 1))()
        for text in how.texts:
            check(lib.tx_generation_add_end(how, -1, text, how.ends))
        return how

    @_alone
    def generate(self, prompts, *, on_text=None, **settings):
        """Continues a prompt or a list of prompts, and returns the new texts.

        A prompt is a text, or a list or array of ids. Texts give texts, ids give int32 arrays. `settings` are fields
        of transformers' GenerationConfig (max_new_tokens, do_sample, temperature, top_k, top_p, num_beams, ..),
        `seed`, and `stop`, a text or list of texts. Without any, those of generation_config.json hold, and greedy
        decoding if there are none. `on_text(index, text)` receives each text as it grows; if it returns True,
        generation ends."""
        one = isinstance(prompts, str) or (len(prompts) > 0 and np.ndim(prompts[0]) == 0
                                           and not isinstance(prompts[0], str))
        several = [prompts] if one else list(prompts)
        texts = bool(several) and isinstance(several[0], str)
        if any(isinstance(p, str) != texts for p in several):
            raise TypeError("the prompts must be all texts or all ids")
        keep = [p.encode() if texts else _array(p) for p in several]
        made = (Prompt * len(keep))(*[
            Prompt(text=p, size=len(p)) if texts else Prompt(ids=_pointer(p), count=p.size) for p in keep])
        results = self._run(made, len(keep), self._settings(dict(settings)), on_text)
        found = [data.decode(errors="replace") if texts else np.array(ids, dtype=np.int32) for data, ids in results]
        return found[0] if one else found

    def _run(self, prompts, count, how, on_text=None):
        """Returns the new bytes and ids of each prompt."""
        results, guard, stopped = [(bytearray(), []) for _ in range(count)], self._guard, []

        def text(_, index, data, size):
            piece = data[:size]
            results[index][0].extend(piece)
            if on_text and on_text(index, piece.decode(errors="replace")):
                stopped.append(index)

        types = dict(LmListener._fields_)
        by_text = count > 0 and bool(prompts[0].text is not None or on_text)
        listener = LmListener(
            size=sizeof(LmListener), token=types["token"](guard(lambda _, index, id_: results[index][1].append(id_))),
            stop=types["stop"](guard(lambda _: bool(stopped) or guard.error is not None)))
        if by_text:
            listener.text = types["text"](guard(text))
        check(lib.tx_lm_generate(self._lm, prompts, count, how, byref(listener)))
        return results

    @_alone
    def chat(self, messages, *, template=None, tools=None, on_text=None, **settings):
        """The model's answer to a conversation: a text of the user, or a list of {"role": .., "content": ..}.

        The chat template is the model's own, or `template`: the name of a built-in one or a .jinja file. `tools` are
        passed to it. `on_text` and `settings` are those of generate()."""
        said = {"messages": [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)}
        if tools:
            said["tools"] = tools
        chat, encoder, ids, end = c_void_p(), c_void_p(), Ids(), c_int32(-1)
        try:
            check(lib.tx_chat_create(encode(template), self._tokenizer(), None, byref(chat)))
            check(lib.tx_encoder_create(self._tokenizer(), byref(encoder)))
            self._render(said, chat, encoder, ids)
            array = np.array(take(ids.id, c_int32, ids.count), dtype=np.int32)
            how = self._settings(dict(settings))
            check(lib.tx_generation_add_end(how, end, lib.tx_chat_end(chat, byref(end)), how.ends))
            prompt = (Prompt * 1)(Prompt(ids=_pointer(array), count=array.size))
            answer = bytes(self._run(prompt, 1, how, on_text or (lambda *_: False))[0][0])
            buffer = ctypes.create_string_buffer(answer)
            return buffer.raw[:lib.tx_chat_trim(chat, buffer, len(answer))].decode(errors="replace")
        finally:
            lib.tx_encoder_free(encoder)
            lib.tx_chat_free(chat)

    @staticmethod
    def _render(said, chat, encoder, ids):
        text, parsed, conversation = json.dumps(said).encode(), c_void_p(), Conversation()
        try:
            check(lib.tx_json_parse(text, len(text), b"messages", byref(parsed)))
            check(lib.tx_conversation_read(parsed, False, byref(conversation)))
            check(lib.tx_chat_prompt(chat, encoder, byref(conversation), byref(ids)))
        finally:
            lib.tx_conversation_free(byref(conversation))
            lib.tx_json_free(parsed)

    # ---- measures

    @_alone
    def logits(self, text_or_ids):
        """The logits of a text or of ids, as a float32 array that the library writes to directly: [tokens, vocab_size],
        or [labels] for a classifier."""
        ids = self._ids(text_or_ids)
        shape = Shape()
        check(lib.tx_lm_logits_shape(self._lm, ids.size, byref(shape)))
        logits = np.empty(shape.dim[1:shape.rank], dtype=np.float32)
        check(lib.tx_lm_logits(self._lm, _pointer(ids), ids.size, _pointer(logits, c_float)))
        return logits

    @_alone
    def perplexity(self, text_or_ids, *, max_length=0, stride=0, batch=0):
        """The perplexity of a text, by overlapping windows as in Hugging Face's guide. Returns an object with loss,
        perplexity, tokens, windows, max_length and stride."""
        ids, result = self._ids(text_or_ids), PerplexityResult()
        options = put(Perplexity(), max_length=max_length, stride=stride, batch=batch)
        check(lib.tx_lm_perplexity(self._lm, _pointer(ids), ids.size, byref(options), byref(result)))
        return result

    @_alone
    def save(self, folder):
        """Writes the model as a Hugging Face folder, with its adapter merged into the weights."""
        check(lib.tx_lm_save(self._lm, encode(folder)))
