# SPDX-License-Identifier: Apache-2.0
"""Prints a line for each model of families.py of the test data. Its figures are the largest relative differences from
transformers in double precision, and in parentheses those of transformers in fp32. A figure holds if it is at most
1e-5; of models that amplify rounding, at most five times that of transformers. The columns: logits; losses of 20 steps
of AdamW, whose memory must be the planned one; gradients; greedy text; logits with caches; target modules of LoRA; the
folder that TX saves; and a GGUF file in txgen and in llama.cpp. Types that TX does not have must be refused with the
reason.

    every_family.py BIN MODEL_LOGITS CACHED_LOGITS BERT_STEPS [NAME...]    exit status 77: something is missing
"""
import copy
import importlib.util
import math
import os
import re
import sys
import tempfile

from oracle import DATA, check, decayed, fit, log_of, read_json, run, skip, status

import torch
import transformers
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as DEFAULT_MODULES
from safetensors.torch import load_file
from tokenizers import Tokenizer
import bert
import embedding
import t5
from gguf_llama import Model, llama_cpp, use_table_of_gelu
from gguf_tokenizers import VOCAB, save_tokenizer
from random_models import COMPUTED, LENGTH, gradients_of, ids_of, logits_of, run_logits, worst_of

BEST, STEPS, BATCH, RATE, DECAY, NEW = 1e-5, 20, 4, 2e-4, 0.1, 16
FAMILIES = os.path.join(DATA, "families.py")
# Tokens of the other parts of wrappers, which no text has.
OTHERS = {150: VOCAB - 2, 151: VOCAB - 1, 152: VOCAB - 4, 153: VOCAB - 3}
# Words of reasons why there is no GGUF file: a setting, or the whole type.
REASONS = ("llama.cpp", "not implemented", "cannot be written", "cannot store", "no equivalent", "GGUF files hold",
           "must be")
ABSENT = "nanochat", "flex_olmo", "opt_350m", "modernbert_decoder", "albert", "deberta"  # in llama.cpp
COLUMNS = "logits", "losses", "gradients", "greedy text", "caches", "LoRA", "saved", "GGUF"

if not os.path.exists(FAMILIES):
    skip(f"no {FAMILIES}")
torch.set_num_threads(1)
# Llama 4 of transformers 5.24 reads this member of its text's result, which lacks it.
transformers.modeling_outputs.MoeCausalLMOutputWithPast.image_outputs = None


def load_families():
    spec = importlib.util.spec_from_file_location("families_of_data", FAMILIES)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def resized(value, vocabulary):
    """Settings of a model with a vocabulary of this size."""
    if not isinstance(value, dict):
        return value
    return {key: vocabulary if key.startswith("vocab_size") else
            OTHERS.get(of, of) if key.endswith(("token_id", "token_index")) and isinstance(of, int) else
            resized(of, vocabulary) for key, of in value.items()}


def eager(model):
    """The model with plain code for attention and experts, which also computes in double precision."""
    model.set_attn_implementation("eager")
    if any("Experts" in type(part).__name__ for part in model.modules()):
        model.set_experts_implementation("eager")
    return model


def make(families, name, vocabulary=VOCAB):
    """A random model without dropout."""
    kind, settings, of_class = families.F_[name]
    families.F_[name] = kind, resized(settings, vocabulary), of_class
    model = families.make(name).float().eval()
    families.fill(model)
    for config in {id(c): c for c in (model.config, model.config.get_text_config())}.values():
        for key, value in vars(config).items():
            if "drop" in key and isinstance(value, float):
                setattr(config, key, 0.0)
    return eager(model)


def far(got, want):
    return ((got.double() - want).abs().max() / want.abs().max()).item()


def figure(name, column, got, own, most=BEST):
    check(got <= most or (own > most / 2 and got <= 5 * own),
          f"{name}: {column} differ by {got}, those of transformers by {own}")
    return f"{got:.1e} ({own:.1e})"


class Row:
    """The line of a model, one that generates texts."""
    states = False  # whether a GGUF file computes hidden states

    def __init__(self, families, name, work, programs):
        self.families, self.name, self.work, self.folder = families, name, work, os.path.join(work, "model")
        self.bin, self.logits_program, self.cached_program, self.steps_program = programs
        self.model = model = make(families, name)
        model.save_pretrained(self.folder)
        save_tokenizer(self.folder, "gpt2")
        self.want = self.outputs(model.double())
        self.own = far(self.outputs(model.float()), self.want)

    def path(self, name):
        return os.path.join(self.work, name)

    def outputs(self, model):
        return logits_of(model)

    def program(self, name, *words, **options):
        done = run(os.path.join(self.bin, name), *words, **options)
        check(done.returncode == 0, f"{self.name}: {name}: {done.stderr.strip()}")
        return done

    def logits(self):
        done = run_logits(self.logits_program, self.folder, self.path("saved"), "cpu")
        if done.returncode:
            check(False, f"{self.name}: {done.stderr.strip()}")
            return done.stderr.strip()
        return figure(self.name, "logits", far(load_file(self.path("saved/logits.safetensors"))["logits"], self.want),
                      self.own)

    def saved(self):
        """transformers loads the same weights and computes the same."""
        back, info = type(self.model).from_pretrained(self.path("saved"), output_loading_info=True)
        info["missing_keys"] = [key for key in info["missing_keys"] if not key.endswith(COMPUTED)]
        ours, theirs = back.state_dict(), self.model.state_dict()
        same = not any(info.values()) and set(ours) == set(theirs)
        same = same and all(torch.equal(ours[key], theirs[key]) for key in ours)
        check(same, f"{self.name}: transformers loads other weights: {info}")
        error = far(self.outputs(eager(back.eval().double())), self.want)
        check(error <= 1e-12, f"{self.name}: logits of what TX saved differ by {error}")
        return "equal" if same else "other"

    def gradients(self):
        ids = ids_of(self.model)
        want = gradients_of(self.model.double(), ids)
        own = worst_of(gradients_of(self.model.float(), ids), want)
        done = run_logits(self.logits_program, self.folder, self.path("gradients"), "cpu", -1)
        check(done.returncode == 0, f"{self.name}: gradients: {done.stderr.strip()}")
        ours = dict(type(self.model).from_pretrained(self.path("gradients")).named_parameters())
        self.model.zero_grad()
        return figure(self.name, "gradients", worst_of({n: p.detach() for n, p in ours.items()}, want), own)

    def train(self, **options):
        """A run of txtrain on one text. Returns its folder."""
        text = self.path("text.txt")
        with open(text, "w", encoding="utf-8") as file:
            file.writelines(f"line {i}: the {('cat', 'dog', 'bird')[i * i % 3]} saw {i % 7} fish\n" for i in range(400))
        out = self.path(f"run{len(os.listdir(self.work))}")
        done = self.program("txtrain", model_name_or_path=self.folder, train_file=text, output_dir=out,
                            block_size=LENGTH, per_device_train_batch_size=BATCH, save_strategy="no", profile=True,
                            train_sampling_strategy="sequential", learning_rate=RATE, lr_scheduler_type="constant",
                            weight_decay=DECAY, device="cpu", **dict(dict(max_steps=STEPS), **options))
        planned, counted = ([line.split()[place] for line in done.stdout.splitlines() if line.split()[:1] == ["total"]]
                            for place in (1, -1))
        check(len(planned) == 1 and planned == counted, f"{self.name}: memory: {planned} planned, {counted} counted")
        return out

    def losses(self):
        ours = log_of(self.train())
        with open(self.path("text.txt"), encoding="utf-8") as file:
            # That of transformers depends on the type of the model.
            tokens = Tokenizer.from_file(os.path.join(self.folder, "tokenizer.json")).encode(file.read()).ids

        def fitted(model):
            def loss_of(step):
                ids = torch.tensor(tokens[step * BATCH * LENGTH:(step + 1) * BATCH * LENGTH]).reshape(BATCH, LENGTH)
                return model(input_ids=ids, labels=ids).loss
            return fit(torch.optim.AdamW(decayed(model, DECAY), lr=RATE), STEPS, loss_of)
        exact = fitted(copy.deepcopy(self.model).double())
        own = max(abs(a - b) for a, b in zip(fitted(copy.deepcopy(self.model).float()), exact))
        worst = max(abs(a - b) for a, b in zip(ours, exact)) if len(ours) == STEPS else math.inf
        check(exact[-1] < exact[0], f"{self.name}: nothing was learned: {exact}")
        return figure(self.name, "losses", worst, own)

    def greedy(self):
        same = True
        before = 1 if self.model.config.is_encoder_decoder else 8
        for row in ids_of(self.model)[:, :8]:
            with torch.no_grad():
                want = self.model.float().generate(row[None], attention_mask=torch.ones_like(row[None]), pad_token_id=0,
                                                   max_new_tokens=NEW, do_sample=False)[0, before:].tolist()
            done = self.program("txgen", model=self.folder, ids=" ".join(map(str, row.tolist())), max_new_tokens=NEW,
                                temperature=0, device="cpu")
            check(done.stdout.split() == list(map(str, want)), f"{self.name}: greedy text {done.stdout}, not {want}")
            same = same and done.stdout.split() == list(map(str, want))
        return "equal" if same else "other"

    def caches(self):
        done = run(self.cached_program, self.folder, self.path("saved"), "cpu", str(LENGTH), "float32")
        check(done.returncode == 0, f"{self.name}: cached logits: {done.stderr.strip()}")
        return figure(self.name, "cached logits",
                      far(load_file(self.path("saved/logits.safetensors"))["logits"], self.want), self.own)

    def lora(self):
        usual = DEFAULT_MODULES.get(self.model.config.model_type)
        out = self.path("adapter")
        done = run(os.path.join(self.bin, "txtrain"), model_name_or_path=self.folder, train_file=self.path("text.txt"),
                   output_dir=out, block_size=LENGTH, lora_r=2, max_steps=1, device="cpu")
        if usual is None and "--lora_target_modules is missing" in done.stderr:
            return "none, peft has none"
        check(done.returncode == 0, f"{self.name}: an adapter: {done.stderr.strip()}")
        if done.returncode:
            return done.stderr.strip()
        chosen = read_json(out, "adapter_config.json")["target_modules"]
        text = chosen if isinstance(chosen, str) else ",".join(sorted(chosen))
        same = all(re.fullmatch(usual, f"model.language_model.layers.0.self_attn.{module}") for module in chosen) \
            if isinstance(usual, str) else usual is None or sorted(chosen) == sorted(usual)
        check(same, f"{self.name}: LoRA of {chosen}, peft's is {usual}")
        return text + (" = peft" if usual else ", peft has none")

    def gguf(self):
        path = self.path("model.gguf")
        done = run(os.path.join(self.bin, "txconvert"), self.folder, to=path, outtype="f32")
        if done.returncode:
            reason = done.stderr.strip().replace(self.folder, "").removeprefix("txconvert: ").removeprefix(": ")
            check(any(words in reason for words in REASONS), f"{self.name}: txconvert: {reason}")
            return "none: llama.cpp has no such type" if self.name in ABSENT else f"none: {reason}"
        ids = ids_of(self.model)[0]
        self.program("txgen", model=path, ids=" ".join(map(str, ids.tolist())), logits=self.path("logits"),
                     device="cpu", dtype="float32")
        text = figure(self.name, "logits of the GGUF file", far(load_file(self.path("logits"))["logits"], self.want[0]),
                      self.own)
        if llama_cpp is None or self.states:  # gguf_encoders.py compares those of llama.cpp
            return text + ("" if self.states else ", without llama.cpp")
        read, tabled = Model(self.name, path), copy.deepcopy(self.model).float()
        if not read.model:
            return f"{text}, llama.cpp does not load it"
        use_table_of_gelu(tabled)
        want = self.outputs(tabled)[0]
        exact = torch.equal(want, self.outputs(self.model.float())[0])
        error = far(torch.from_numpy(read.logits(ids.tolist(), VOCAB)), want)
        read.free()
        # llama.cpp truncates the ramp of yarn, and uses one eps for all norms, which txconvert says.
        warned = "its logits differ" in done.stderr
        most = 1 if warned else 1e-5 if exact else 1e-3
        check(error <= most, f"{self.name}: logits of llama.cpp differ by {error}")
        note = " (txconvert warns)" if warned else "" if exact else " (its table of GELU)"
        return f"{text}, llama.cpp {error:.1e}{note}"

    def line(self):
        # The folder of `logits` is read by `saved`.
        return [getattr(self, column)() for column in
                ("logits", "losses", "gradients", "greedy", "caches", "lora", "saved", "gguf")]


class Embedder(Row):
    """The line of a model of states. Gradients are part of the losses."""

    def outputs(self, model):
        with torch.no_grad():
            return model(ids_of(model)).last_hidden_state.double()

    def losses(self):
        def save(folder, decodes, vocabulary):
            make(self.families, self.name, vocabulary).save_pretrained(folder)
        texts = [(row[3], row[4], row[0]) for row in embedding.mrpc()[:90]]
        said = embedding.compare(self.work, "MultipleNegativesRankingLoss", "pairs", "mean" if "gemma" in self.name else
                                 "lasttoken", texts, [os.path.join(self.bin, name) for name in ("txtrain", "txgen")] +
                                 ["cpu"], decodes=True, save=save, most=1e-3, learns=False)
        return said.rpartition("within ")[2] + " of sentence-transformers"

    def line(self):
        return [self.logits(), self.losses(), *["-"] * 4, self.saved(), self.gguf()]


class Trained(Row):
    """The line of an encoder, and of one with a decoder: bert.py and t5.py compare a run of steps."""

    def outputs(self, model):
        ids = ids_of(model)
        with torch.no_grad():
            more = dict(decoder_input_ids=ids[:, :9]) if model.config.is_encoder_decoder else {}
            return model(input_ids=ids, **more).logits.double()

    def gguf(self):
        if not self.model.config.is_encoder_decoder:  # files have the encoder without its head
            with torch.no_grad():
                runs = [part.base_model(ids_of(part)).last_hidden_state.double()
                        for part in (copy.deepcopy(self.model).double(), copy.deepcopy(self.model).float())]
            self.want, self.own, self.states = runs[0], far(*runs[::-1]), True
        return super().gguf()

    def line(self):
        module, kind = (t5, None) if self.model.config.is_encoder_decoder else (bert, type(self.model))
        of_kind = [kind] if kind else []
        data = tuple(part[:STEPS] for part in module.make_data(self.model, *of_kind))
        done = module.train_by_tx(self.steps_program, self.folder, self.path("saved"), data, "cpu")
        check(done.returncode == 0, f"{self.name}: {done.stderr.strip()}")
        if done.returncode:
            return [done.stderr.strip()]
        runs = {dtype: module.train(copy.deepcopy(self.model), data, dtype) for dtype in (torch.float64, torch.float32)}
        exact, ours = runs[torch.float64], (list(map(float, done.stdout.split())),
                                            load_file(self.path("saved/first.safetensors")))
        got, own = (module.differences(*of, exact, data, *of_kind) for of in (ours, runs[torch.float32]))
        logits, gradients, losses = (figure(self.name, column, *pair) for column, pair in
                                     zip(("logits", "gradients", "losses"), zip(got, own)))
        return [logits, losses, gradients, "-" if kind else self.greedy(), "-", "-", self.saved(), self.gguf()]


def line_of(families, name, programs):
    """The cells of a name, or the reason of a refusal."""
    with tempfile.TemporaryDirectory() as work:
        folder, model = os.path.join(work, "refused"), make(families, name)
        model.save_pretrained(folder)
        done = run_logits(programs[1], folder, os.path.join(work, "out"), "cpu")
        if "TX has no such type, because" in done.stderr:
            return ["refused: " + done.stderr.strip().partition("TX has no such type, because ")[2].partition(";")[0]]
        kind = Embedder if type(model).__name__.endswith("Model") else Row if model.can_generate() and \
            not model.config.is_encoder_decoder else Trained
        return kind(families, name, work, programs).line()


def main():
    programs, only = sys.argv[1:5], sys.argv[5:]
    families = load_families()
    print("name", *COLUMNS, sep=" | ")
    for name in families.F_:
        if not only or name in only:
            try:
                cells = line_of(families, name, programs)
            except Exception as error:  # the other lines are printed nevertheless
                check(False, f"{name}: {type(error).__name__}: {error}")
                continue
            print(name, *cells, sep=" | ", flush=True)
    return status()


if __name__ == "__main__":
    sys.exit(main())
