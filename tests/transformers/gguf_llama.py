# SPDX-License-Identifier: Apache-2.0
"""A GGUF file in llama.cpp."""
import os

from oracle import check, run

import gguf
import numpy as np
import torch

try:
    import llama_cpp
    SILENT = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(SILENT, None)
except ImportError:
    llama_cpp = None


def check_refused(name, txconvert, folder, words):
    """txconvert refuses to make a GGUF file of the folder."""
    path = os.path.join(folder, "model.gguf")
    done = run(txconvert, folder, to=path)
    check(done.returncode == 1 and words in done.stderr and not os.path.exists(path),
          f"{name}: {done.returncode} {done.stderr.strip()}")


def table_of_gelu(x):
    """ggml computes GELU by a table of fp16 numbers, and always in its tanh form."""
    y = torch.nn.functional.gelu(x.half().float(), approximate="tanh").half().float()
    return torch.where(x.abs() < 10, y, x.clamp(min=0))


def use_table_of_gelu(model):
    for module in model.modules():
        for place in ("act", "act_fn", "gelu_impl", "intermediate_act_fn", "activation"):
            if "gelu" in type(getattr(module, place, None)).__name__.lower():
                delattr(module, place)
                setattr(module, place, table_of_gelu)


def bare_copy(path, to, without=()):
    """The file as llama.cpp's convert script writes it, without keys that only TX reads, and those of `without`."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(to, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if not key.startswith(("GGUF.", "sentence_transformers.", "general.architecture", "tokenizer.huggingface",
                               *without)):
            kind = field.types[0]
            writer.add_key_value(key, field.contents(), kind, field.types[-1] if kind == 9 else None)
    for t in reader.tensors:
        writer.add_tensor(t.name, t.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Model:
    def __init__(self, name, path):
        made = llama_cpp.llama_model_default_params()
        made.n_gpu_layers = 0
        self.name, self.model = name, llama_cpp.llama_model_load_from_file(path.encode(), made)
        check(self.model, f"{name}: llama.cpp does not load the file")
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)

    def tokenize(self, text):
        data, ids = text.encode(), (llama_cpp.llama_token * 256)()
        count = llama_cpp.llama_tokenize(self.vocab, data, len(data), ids, len(ids), True, True)
        return ids[:count]

    @staticmethod
    def batch(ids):
        made = llama_cpp.llama_batch_init(len(ids), 0, 1)
        made.n_tokens = len(ids)
        for i, token in enumerate(ids):
            made.token[i], made.pos[i], made.n_seq_id[i], made.seq_id[i][0], made.logits[i] = token, i, 1, 0, 1
        return made

    def embed(self, ids, width):
        """The embedding of a text, pooled as the file says."""
        now = llama_cpp.llama_context_default_params()
        now.n_threads, now.n_threads_batch, now.embeddings, now.flash_attn_type = 1, 1, True, 0
        context = llama_cpp.llama_init_from_model(self.model, now)
        batch = self.batch(ids)
        check(llama_cpp.llama_encode(context, batch) == 0, f"{self.name}: llama.cpp computes nothing")
        made = np.array(llama_cpp.llama_get_embeddings_seq(context, 0)[:width])
        llama_cpp.llama_batch_free(batch)
        llama_cpp.llama_free(context)
        return made

    def logits(self, ids, vocab, source=None):
        """The logits of all tokens; of an encoder and decoder those of the decoder's tokens for a source."""
        now = llama_cpp.llama_context_default_params()
        now.n_threads, now.n_threads_batch, now.type_k, now.type_v, now.flash_attn_type = 1, 1, 0, 0, 0
        context = llama_cpp.llama_init_from_model(self.model, now)
        for tokens, compute in ((source, llama_cpp.llama_encode), (ids, llama_cpp.llama_decode)):
            if tokens is None:
                continue
            batch = self.batch(tokens)
            check(compute(context, batch) == 0, f"{self.name}: llama.cpp computes nothing")
            llama_cpp.llama_batch_free(batch)
        made = np.array([llama_cpp.llama_get_logits_ith(context, i)[:vocab] for i in range(len(ids))])
        llama_cpp.llama_free(context)
        return made

    def free(self):
        llama_cpp.llama_model_free(self.model)
