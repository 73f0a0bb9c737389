# SPDX-License-Identifier: Apache-2.0
"""Learns from preferences with TRL's trainers and with txtrain, from the same model on the same data. Compares loss,
gradient norm and metrics of all steps, and those of the evaluation.

    dpo.py TXTRAIN LAUNCHER DEVICE      exit status 77: TRL is not installed, or there is no such device

LAUNCHER starts two ranks; "" if this build has none. TX_DPO_CASES names the cases to run; all without it."""
import contextlib
import io
import json
import os
import sys
import tempfile

from oracle import check, need_device, read_json, run, status

import datasets
import torch
import transformers
import trl.trainer.utils
from peft import LoraConfig, set_peft_model_state_dict
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers, decoders
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, RewardConfig, RewardTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

STEPS, BATCH, LENGTH, RATE = 20, 4, 40, 3e-4
LOSS, NORM, METRIC = 1e-5, 1e-5, 1e-5
METRICS = ("rewards/chosen", "rewards/rejected", "rewards/margins", "logps/chosen", "logps/rejected")
LOGITS = ("logits/chosen", "logits/rejected")
# TRL's classes, metrics and other defaults for each task.
METHODS = {
    "dpo": (DPOConfig, DPOTrainer, METRICS + LOGITS + ("entropy", "mean_token_accuracy"), {}),
    "cpo": (CPOConfig, CPOTrainer, METRICS + ("nll_loss",), {}),
    "simpo": (CPOConfig, CPOTrainer, METRICS + ("nll_loss",), dict(loss_type="simpo", cpo_alpha=0.0)),
    "orpo": (ORPOConfig, ORPOTrainer, METRICS + ("nll_loss", "log_odds_ratio", "log_odds_chosen"), {}),
    "kto": (KTOConfig, KTOTrainer, METRICS + LOGITS + ("kl", "entropy"), {}),
    "reward": (RewardConfig, RewardTrainer, ("min_reward", "mean_reward", "max_reward", "margin"), {}),
}
TEMPLATE = ("{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</s>{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")
ON_TWO_RANKS = ("sigmoid", "lora", "cpo", "simpo-lora", "orpo", "kto", "reward-llama")
LORA = dict(lora_r=4, lora_alpha=8)
# Options of both programs, and:
#   talk         The data are conversations.
#   implicit     Objects have no prompt.
#   unpaired     Completions have a label.
#   even         All sequences have one length, as the logits of TRL's CPO and ORPO include those of padding.
#   margins      Pairs have margins.
#   lora         An adapter is trained.
#   model        The kind of reward model.
#   unevaluated  TRL does not weight means of batches by their rows, so that batches that are not full differ.
#   double       TRL computes in fp64. The loss is so steep that TRL's gradient norms in fp32 differ by more than 1e-5.
CASES = {
    "sigmoid": dict(),
    "beta": dict(beta=0.2),
    "conversations": dict(talk=True),
    "implicit": dict(implicit=True, talk=True),
    "implicit-texts": dict(implicit=True),
    "truncated": dict(max_length=16),
    "accumulation": dict(gradient_accumulation_steps=2),
    "lora": dict(lora=True),
    "lora-precomputed": dict(lora=True, precompute_ref_log_probs=True),
    "precomputed": dict(precompute_ref_log_probs=True),
    "hinge": dict(loss_type="hinge", beta=0.05),
    "ipo": dict(loss_type="ipo"),
    "robust": dict(loss_type="robust", label_smoothing=0.2),
    "bco_pair": dict(loss_type="bco_pair"),
    "nca_pair": dict(loss_type="nca_pair"),
    "sppo_hard": dict(loss_type="sppo_hard"),
    "apo_zero": dict(loss_type="apo_zero"),
    "apo_down": dict(loss_type="apo_down"),
    "sigmoid_norm": dict(loss_type="sigmoid_norm", beta=2.0),
    "exo_pair": dict(loss_type="exo_pair", label_smoothing=0.1),
    "discopop": dict(loss_type="discopop", learning_rate=1e-5, double=True),
    "aot": dict(loss_type="aot", label_smoothing=0.1),
    "aot_unpaired": dict(loss_type="aot_unpaired"),
    "sft": dict(loss_type="sft", gradient_accumulation_steps=2),
    "ld_alpha": dict(ld_alpha=0.4),
    "ld_alpha-lora": dict(ld_alpha=0.0, lora=True, precompute_ref_log_probs=True),
    "use_weighting": dict(use_weighting=True),
    "use_weighting-list": dict(use_weighting=True, loss_type=["ipo", "robust"], label_smoothing=0.1,
                               loss_weights=[0.7, 0.5]),
    "list": dict(loss_type=["sigmoid", "bco_pair", "sft"], loss_weights=[0.8, 0.2, 1.0]),
    "list-lora": dict(loss_type=["ipo", "robust"], label_smoothing=0.1, lora=True, precompute_ref_log_probs=True),
    "forward_kl": dict(f_divergence_type="forward_kl", learning_rate=1e-5, double=True),
    "js_divergence": dict(f_divergence_type="js_divergence", loss_type="hinge"),
    "alpha_divergence": dict(f_divergence_type="alpha_divergence", f_alpha_divergence_coef=0.7,
                             learning_rate=3e-5),
    "cpo": dict(method="cpo"),
    "cpo-smoothed": dict(method="cpo", label_smoothing=0.1, cpo_alpha=0.5, talk=True),
    "cpo-hinge": dict(method="cpo", loss_type="hinge", gradient_accumulation_steps=2),
    "cpo-ipo": dict(method="cpo", loss_type="ipo", lora=True),
    "cpo-simpo": dict(method="cpo", loss_type="simpo", beta=2.0),
    "simpo": dict(method="simpo", beta=2.0, simpo_gamma=1.0),
    "simpo-lora": dict(method="simpo", beta=2.0, label_smoothing=0.1, lora=True),
    "alphapo": dict(method="simpo", beta=2.0, alpha=0.2),
    "cpo-even": dict(method="cpo", even=True),
    "orpo": dict(method="orpo"),
    "orpo-even": dict(method="orpo", even=True),
    "orpo-lora": dict(method="orpo", lora=True, implicit=True, talk=True),
    "kto": dict(method="kto", unpaired=True),
    "kto-pairs": dict(method="kto", desirable_weight=1.5, undesirable_weight=0.5, implicit=True, talk=True),
    "kto-truncated": dict(method="kto", unpaired=True, max_length=16, gradient_accumulation_steps=2),
    "kto-lora": dict(method="kto", unpaired=True, lora=True, beta=0.3),
    "kto-precomputed": dict(method="kto", unpaired=True, lora=True, precompute_ref_log_probs=True),
    "apo_zero_unpaired": dict(method="kto", loss_type="apo_zero_unpaired", unpaired=True),
    # Without the coefficient, nothing but rounding decides a bias that adds to all rewards.
    "reward": dict(method="reward", model="GPT2", center_rewards_coefficient=0.01),
    "reward-llama": dict(method="reward", model="Llama", margins=True, center_rewards_coefficient=0.05),
    "reward-qwen2": dict(method="reward", model="Qwen2", gradient_accumulation_steps=2, talk=True),
    "reward-qwen3": dict(method="reward", model="Qwen3", implicit=True, talk=True),
    "reward-lora": dict(method="reward", model="GPT2", lora=True),
    "reward-filtered": dict(method="reward", model="Llama", max_length=30, unevaluated=True),
    "orpo-truncated": dict(method="orpo", max_length=16, gradient_accumulation_steps=2),
}


def make_model(folder, kind=None):
    """A GPT-2 over bytes, with a chat template, or the reward model of a kind."""
    torch.manual_seed(1)
    if kind in (None, "GPT2"):
        config = transformers.GPT2Config(vocab_size=258, n_positions=128, n_embd=32, n_layer=2, n_head=2)
    else:
        config = getattr(transformers, f"{kind}Config")(
            vocab_size=258, max_position_embeddings=128, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, **(dict(head_dim=16) if kind == "Qwen3" else {}))
    config.update(dict(initializer_range=0.1, bos_token_id=256, eos_token_id=256, pad_token_id=257,
                       num_labels=1 if kind else 2))
    model = getattr(transformers, f"{kind}ForSequenceClassification" if kind else "GPT2LMHeadModel")(config)
    model.save_pretrained(folder)
    letters = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = Tokenizer(models.BPE(vocab=letters, merges=[]))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.add_special_tokens(["</s>", "<pad>"])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", pad_token="<pad>",
                                                     chat_template=TEMPLATE)
    tokenizer.save_pretrained(folder)


def sample(i, talk, implicit, unpaired=False, margins=False, even=False):
    animal, other = ("cat", "dog", "bird")[i % 3], ("fish", "cow")[i % 2]
    prompt, chosen, rejected = f"say {animal} {i % 7}:", f" {animal}" * (1 + i % 4), f" {other} or" * (1 + i % 3)
    if even:
        prompt, chosen, rejected = (text.ljust(14, ".")[:14] for text in (prompt, chosen, rejected))
    if talk:
        prompt = [{"role": "user", "content": prompt}]
        chosen, rejected = ([{"role": "assistant", "content": text.strip()}] for text in (chosen, rejected))
    if unpaired:  # each micro-batch has both kinds
        return {"prompt": prompt, "completion": rejected if i % 2 else chosen, "label": i % 2 == 0}
    if implicit:
        return {"chosen": prompt + chosen, "rejected": prompt + rejected}
    margin = dict(margin=(i % 5) / 10) if margins else {}
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected, **margin}


def write_lines(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


class PlainLogProbs:
    """TRL's fused head of language models, whose sums are in fp32, in the type of the model."""

    @staticmethod
    def apply(hidden, weight, bias, targets, *_):
        logits = hidden @ weight.T
        logps = logits.log_softmax(-1)
        p = logps.exp()
        return (logps.gather(-1, targets[:, None])[:, 0], -(p * logps).sum(-1), (p * p).sum(-1).log(), logits.mean(-1),
                logits.argmax(-1) == targets)


@contextlib.contextmanager
def precision(trainer, double):
    """Lets a trainer compute in fp64."""
    if not double:
        yield
        return
    trainer.model.double()
    trainer.ref_model.double()
    fused, trl.trainer.utils._ChunkedLogProbFunction = trl.trainer.utils._ChunkedLogProbFunction, PlainLogProbs
    yield
    trl.trainer.utils._ChunkedLogProbFunction = fused


def by_trl(work, model, rows, held, method, options, lora, double=False):
    config, trainer_class, _, defaults = METHODS[method]
    arguments = config(
        output_dir=f"{work}/trl", use_cpu=True, bf16=False, gradient_checkpointing=False,
        max_steps=STEPS, per_device_eval_batch_size=BATCH, logging_steps=1,
        report_to=[], save_strategy="no", seed=1, disable_tqdm=True, weight_decay=0.0, max_grad_norm=1.0,
        train_sampling_strategy="sequential",
        **dict(dict(max_length=LENGTH, gradient_accumulation_steps=1, per_device_train_batch_size=BATCH,
                    learning_rate=RATE), **defaults, **options))
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    head = "SequenceClassification" if method == "reward" else "CausalLM"
    loader = getattr(transformers, f"AutoModelFor{head}")
    trainer = trainer_class(
        model=loader.from_pretrained(model), args=arguments,
        processing_class=tokenizer, train_dataset=datasets.Dataset.from_list(rows),
        eval_dataset=datasets.Dataset.from_list(held),
        peft_config=LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn"], fan_in_fan_out=True,
                               modules_to_save=["score"] if method == "reward" else None) if lora else None)
    if lora:  # TX's new adapter
        set_peft_model_state_dict(trainer.model, load_file(lora))
    with contextlib.redirect_stdout(io.StringIO()), precision(trainer, double):
        trainer.train()
        evaluated = trainer.evaluate()
    return [row for row in trainer.state.log_history if "loss" in row], evaluated


def by_tx(work, model, program, device, method, options, lora, start=()):
    out = f"{work}/tx"
    usual = dict(max_length=LENGTH, per_device_train_batch_size=BATCH, learning_rate=RATE, max_steps=STEPS,
                 output_dir=out)
    done = run(*start, program, task_name=method, model_name_or_path=model, train_file=f"{work}/train.jsonl",
               validation_file=f"{work}/held.jsonl", do_train=True, do_eval=True, overwrite_output_dir=True,
               train_sampling_strategy="sequential", threads=1, device=device, seed=1, per_device_eval_batch_size=BATCH,
               **dict(usual, **options), **(LORA if lora else {}))
    if done.returncode:
        return None, done.stderr.strip()
    with open(f"{out}/log.jsonl", encoding="utf-8") as file:
        return [row for row in map(json.loads, file) if "loss" in row], read_json(out, "eval_results.json")


def far(got, want, floor=1.0):
    """The greatest difference, relative to the value or to `floor`."""
    return max(abs(a - b) / max(floor, abs(b)) for a, b in zip(got, want, strict=True))


def compare(name, method, got, want, evaluated, wanted, even=False):
    keys = METHODS[method][2] + (LOGITS if even else ())
    # Rows of KTO have no mean over kinds of completions that a micro-batch lacks.
    check(all((key in a) == (key in b) for a, b in zip(got, want) for key in keys) and
          (method == "kto" or all(key in row for row in want for key in keys)), f"{name}: no metric")
    loss, norm = (far([row[key] for row in got], [row[key] for row in want], floor)
                  for key, floor in (("loss", 0.1), ("grad_norm", 0.1)))
    metric = max(far([a[key]], [b[key]]) for a, b in zip(got, want) for key in keys if key in a and key in b)
    others = {"kto": (), "reward": ("accuracy",)}.get(method, ("rewards/accuracies",))
    accuracy = max([abs(a[key] - b[key]) for a, b in zip(got[1:], want[1:]) for key in others], default=0.0)
    held = max((far([evaluated[f"eval_{key}"]], [wanted[f"eval_{key}"]])
                for key in keys + ("loss",) + others if f"eval_{key}" in wanted), default=0.0)
    check(len(got) == STEPS and loss <= LOSS and norm <= NORM and metric <= METRIC and accuracy <= 1e-6 and
          held <= METRIC, f"{name} is not as TRL's")
    print(f"{name}: loss differs by {loss:.1e}, gradient norm by {norm:.1e}, metrics by {metric:.1e}, accuracies by "
          f"{accuracy:.1e}, evaluation by {held:.1e}", flush=True)


def main():
    program, launcher, device = sys.argv[1:4]
    wanted = os.environ.get("TX_DPO_CASES", "").split() or CASES
    need_device(program, device)
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as work:
        for name in wanted:
            options = dict(CASES[name])
            talk, implicit, lora = (options.pop(key, False) for key in ("talk", "implicit", "lora"))
            method, unpaired, margins, even, kind = (
                options.pop(*key) for key in (("method", "dpo"), ("unpaired", False), ("margins", False),
                                              ("even", False), ("model", None)))
            model = f"{work}/{kind or 'model'}"
            if not os.path.exists(model):
                make_model(model, kind)
            rows = [sample(i, talk, implicit, unpaired, margins, even) for i in range(STEPS * BATCH * 2)]
            held = [sample(i, talk, implicit, unpaired, margins, even) for i in range(1000, 1000 + 4 * BATCH)]
            write_lines(f"{work}/train.jsonl", rows)
            write_lines(f"{work}/held.jsonl", held)
            unevaluated, double = (options.pop(key, False) for key in ("unevaluated", "double"))
            own, begin = dict(options), None
            if lora:
                new = dict(own, learning_rate=0, max_steps=1, output_dir=f"{work}/new")
                by_tx(work, model, program, device, method, new, lora)
                begin = f"{work}/new/adapter_model.safetensors"
            want, evaluated = by_trl(work, model, rows, held, method, options, begin, double)
            evaluated = {} if unevaluated else evaluated
            got, result = by_tx(work, model, program, device, method, own, lora)
            if got is None:
                check(False, f"{name}: {result}")
                continue
            compare(name, method, got, want, result, evaluated, even)
            if launcher and name in ON_TWO_RANKS:
                own["per_device_train_batch_size"] = BATCH // 2
                parts = dict(own, gradient_accumulation_steps=2)  # means over the tokens of a micro-batch
                want, evaluated = by_trl(work, model, rows, held, method, parts, begin)
                got, result = by_tx(work, model, program, device, method, own, lora, (launcher, "-n", "2"))
                check(got is not None, f"{name} on two ranks: {result}")
                if got is not None:
                    compare(f"{name} on two ranks", method, got, want, result, evaluated)
    return status()


if __name__ == "__main__":
    sys.exit(main())
