#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Learns from the completions of golden.json by txtrain and by TRL's GRPOTrainer, with the options that golden.json
lacks: losses, gradient norms, metrics and all weights after four steps agree, on one rank and on two. Rewards of a
reward model equal those that TRL computes for the same completions, and a classifier's those of transformers.

    rewards_trl.py TXTRAIN LAUNCHER DEVICE       exit status 77: TRL, the golden values or the device are absent
    rewards_trl.py --trl FOLDER CASE...          runs cases by TRL; on two ranks under torch.distributed.run
"""
import json
import math
import os
import sys
import tempfile

from oracle import DATA, check, need_device, read_json, run, skip, status

FOLDER = os.path.join(DATA, "grpo")
MODEL = os.path.join(FOLDER, "model")
TOLERANCE = 1e-5
BASE = {"num_generations": 4, "max_completion_length": 10, "per_device_train_batch_size": 6,
        "gradient_accumulation_steps": 2, "num_iterations": 2, "learning_rate": 1e-3, "lr_scheduler_type": "constant",
        # With a smaller one, the sign of a gradient that is rounding noise moves a weight as far as any other gradient.
        "adam_epsilon": 1e-5, "max_grad_norm": 1.0, "max_steps": 4, "seed": 42, "logging_steps": 1}
# A rank's rows are those of TRL if a generation batch is one micro-batch.
RANKS = {"gradient_accumulation_steps": 1}
CASES = {
    **{f"{loss}_{share}": {"loss_type": loss, "top_entropy_quantile": share}
       for loss, share in (("dapo", 0.2), ("dapo", 0.5), ("dapo", 1.0), ("grpo", 0.2), ("bnpo", 0.5), ("cispo", 0.5))},
    "luspo_0.5": {"loss_type": "luspo", "top_entropy_quantile": 0.5},
    "kl_0.2": {"loss_type": "dr_grpo", "top_entropy_quantile": 0.2, "beta": 0.04},
    "temperature_0.5": {"loss_type": "dapo", "top_entropy_quantile": 0.5, "temperature": 0.7, "entropy_coef": 0.05},
    "masked_0.5": {"loss_type": "grpo", "top_entropy_quantile": 0.5, "mask_truncated_completions": True},
    "bonus": {"loss_type": "grpo", "entropy_coef": 0.1},
    "bonus_0.2": {"loss_type": "dapo", "entropy_coef": 0.1, "top_entropy_quantile": 0.2, "beta": 0.04},
    "vespo": {"loss_type": "vespo", "beta": 0.04, "vespo_k_pos": 1.5, "vespo_lambda_pos": 2.5, "vespo_k_neg": 2.0,
              "vespo_lambda_neg": 1.0},
    "vespo_0.5": {"loss_type": "vespo", "top_entropy_quantile": 0.5, "entropy_coef": 0.02},
}
ON_RANKS = ("dapo_0.2", "dapo_0.5", "dapo_1.0", "bnpo_0.5", "bonus_0.2", "vespo_0.5")
ON_OPENCL = ("dapo_0.2", "dapo_0.5", "dapo_1.0", "bonus_0.2", "vespo_0.5")
# The greatest share of a sequence is a mean over the ranks, and TX counts tokens of all ranks together.
OTHER_ON_RANKS = ("clip_ratio/low_min", "clip_ratio/high_max")
LEFT_OUT = ("completions/", "num_tokens", "step_time", "epoch", "learning_rate", "profiling/", "total_flos")
CHAT = "{% for m in messages %}{{ m.role }} {{ m.content }} <eos> {% endfor %}"


def near(got, want):
    return abs(got - want) <= TOLERANCE * max(1.0, abs(want))


# ---- TRL -----------------------------------------------------------------------------------------------------------


def make_trainer(folder, options, **more):
    """A GRPOTrainer that reads completions in order instead of generating them."""
    import transformers
    import trl.trainer.grpo_trainer as module
    from datasets import Dataset
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    golden = read_json(FOLDER, "golden.json")
    texts, samples = [p["text"] for p in golden["prompts"]], golden["samples"]

    def rollout(prompts, trainer=None):
        del trainer
        rows = [texts.index(text) * 4 + (rank * len(prompts) + i) % 4 for i, text in enumerate(prompts)]
        return {"prompt_ids": [golden["prompts"][row // 4]["ids"] for row in rows],
                "completion_ids": [samples[row]["completion_ids"] for row in rows], "logprobs": None, "row": rows}

    def reward(index, name):
        def given(completions, row, **columns):
            del completions, columns
            return [samples[i]["rewards"][index] for i in row]
        given.__name__ = name
        return given

    module.shuffle_sequence_dict = lambda rows: rows
    config = module.GRPOConfig(
        output_dir=folder, model_init_kwargs={"dtype": "float32", "attn_implementation": "eager"}, weight_decay=0.0,
        optim="adamw_torch", shuffle_dataset=False, bf16=False, use_cpu=True, gradient_checkpointing=False,
        save_strategy="no", report_to="none", disable_tqdm=True, reward_weights=more.pop("reward_weights", [1.0, 0.5]),
        **options)
    more.setdefault("reward_funcs", [reward(0, "reward_a"), reward(1, "reward_b")])
    return module.GRPOTrainer(
        model=MODEL, args=config, train_dataset=Dataset.from_dict({"prompt": texts}), rollout_func=rollout,
        processing_class=transformers.PreTrainedTokenizerFast.from_pretrained(MODEL), **more)


def run_trl(folder, name):
    """Writes the log and the weights of a case."""
    from safetensors.torch import save_file
    folder = os.path.join(folder, name)
    os.makedirs(folder, exist_ok=True)
    options = {**BASE, **(RANKS if int(os.environ.get("WORLD_SIZE", "1")) > 1 else {}), **CASES[name]}
    trainer = make_trainer(folder, options)
    trainer.train()
    if int(os.environ.get("RANK", "0")) == 0:
        rows = [{key: value for key, value in row.items() if not key.startswith(LEFT_OUT)}
                for row in trainer.state.log_history if "loss" in row]
        with open(os.path.join(folder, "log.json"), "w", encoding="utf-8") as file:
            json.dump(rows, file)
        weights = trainer.accelerator.unwrap_model(trainer.model).state_dict()
        save_file({key: value.contiguous().clone() for key, value in weights.items()},
                  os.path.join(folder, "weights.safetensors"))


# ---- Training ------------------------------------------------------------------------------------------------------


def write_inputs(work):
    golden = read_json(FOLDER, "golden.json")
    with open(os.path.join(work, "prompts.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"prompt": prompt["text"]}) + "\n" for prompt in golden["prompts"])
    with open(os.path.join(work, "rollouts.jsonl"), "w", encoding="utf-8") as file:
        for sample in golden["samples"]:
            rewards = dict(zip(("reward_a", "reward_b"), sample["rewards"]))
            file.write(json.dumps({"completion_ids": sample["completion_ids"], "rewards": rewards}) + "\n")


def compare_all(names, start, device, work, ranks):
    folder = os.path.join(work, f"trl_{ranks}")
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", str(ranks)) if ranks > 1 else ()
    done = run(sys.executable, *torchrun, os.path.abspath(__file__), "--trl", folder, *names)
    if done.returncode:
        sys.exit(f"FAIL: TRL: {done.stderr[-2000:]}")
    for name in names:
        compare(name, start, device, work, ranks)


def compare(name, start, device, work, ranks):
    from safetensors.torch import load_file
    theirs, ours = os.path.join(work, f"trl_{ranks}", name), os.path.join(work, f"tx_{ranks}_{name}")
    options = {**BASE, **(RANKS if ranks > 1 else {}), **CASES[name], "reward_weights": [1.0, 0.5]}
    done = run(*start, task_name="grpo", model_name_or_path=MODEL, train_file=os.path.join(work, "prompts.jsonl"),
               rollout_file=os.path.join(work, "rollouts.jsonl"), max_seq_length=32, device=device, threads=1,
               save_strategy="no", output_dir=ours, **options)
    check(done.returncode == 0, f"{name}: status {done.returncode}: {done.stderr}")
    if done.returncode:
        return
    rows = [row for row in read_json(ours, "trainer_state.json")["log_history"] if "loss" in row]
    wanted = read_json(theirs, "log.json")
    check(len(rows) == len(wanted) == 4, f"{name}: {len(rows)} steps")
    worst = 0.0
    for step, (row, want) in enumerate(zip(rows, wanted), 1):
        for key, value in want.items():
            if value is not None and not (ranks > 1 and key in OTHER_ON_RANKS):
                got = row.get(key, math.nan)
                worst = max(worst, abs(got - value) / max(1.0, abs(value)))
                check(near(got, value), f"{name}, {ranks} ranks: step {step}: {key} {got}, not {value}")
    own, other = (load_file(os.path.join(*path)) for path in ((ours, "model.safetensors"),
                                                             (theirs, "weights.safetensors")))
    check(own.keys() == other.keys(), f"{name}: the names of the weights")
    off = max((own[key] - other[key]).abs().max().item() for key in other)
    check(off <= TOLERANCE, f"{name}, {ranks} ranks: weights differ by {off}")
    print(f"{name}, {ranks} ranks: metrics within {worst:.1e}, weights within {off:.1e}", flush=True)


# ---- Models as rewards ---------------------------------------------------------------------------------------------


def make_judges(work):
    """A reward model and a classifier, both with a tokenizer of their own."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2, "<cls>": 3, "user": 4, "assistant": 5,
             **{f"w{i}": 69 - i for i in range(3, 64)}}
    for name in ("judge", "critic"):
        inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
        inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        inner.post_processor = processors.TemplateProcessing(single="<cls> $A", special_tokens=[("<cls>", 3)])
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>",
                                                         unk_token="<unk>", cls_token="<cls>")
        tokenizer.chat_template = CHAT
        tokenizer.save_pretrained(os.path.join(work, name))
    torch.manual_seed(3)
    transformers.LlamaForSequenceClassification(transformers.LlamaConfig(
        vocab_size=72, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.3, num_labels=1, pad_token_id=0,
        eos_token_id=1, dtype="float32")).save_pretrained(os.path.join(work, "judge"))
    transformers.BertForSequenceClassification(transformers.BertConfig(
        vocab_size=72, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=128, initializer_range=0.3, num_labels=3, pad_token_id=0,
        id2label={0: "bad", 1: "fair", 2: "good"}, dtype="float32")).save_pretrained(os.path.join(work, "critic"))


def wanted_rewards(work, prompts, texts):
    """The rewards by TRL of the judge, and of each label of the critic by transformers."""
    import torch
    import transformers
    trainer = make_trainer(os.path.join(work, "unused"), {**BASE, "max_steps": 1}, reward_weights=[1.0],
                           reward_funcs=[os.path.join(work, "judge")])
    chats = isinstance(prompts[0], list)
    completions = [[{"role": "assistant", "content": text}] for text in texts] if chats else texts
    inputs = [{"prompt": prompt} for prompt in prompts]
    rewards = trainer._calculate_rewards(inputs, prompts, completions, [[1]] * len(texts))[:, 0].tolist()
    folder = os.path.join(work, "critic")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    critic = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    scores = []
    for text in texts:
        with torch.no_grad():
            scores.append(critic(**tokenizer(text, return_tensors="pt")).logits[0].softmax(-1)[2].item())
    return rewards, scores


def compare_judges(txtrain, launcher, device, work, chats):
    prompts = os.path.join(work, f"judged_{chats}.jsonl")
    texts = [p["text"] for p in read_json(FOLDER, "golden.json")["prompts"]]
    with open(prompts, "w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"prompt": [{"role": "user", "content": text}] if chats else text + " "}) + "\n")
    funcs = ",".join(f"model:{os.path.join(work, name)}" for name in ("judge", "critic"))
    config = {"critic": {"label": "good", "prompt": False, "special_tokens": True}}
    template = os.path.join(work, "template.jinja")
    with open(template, "w", encoding="utf-8") as file:
        file.write(CHAT)
    for ranks in (1, 2) if launcher and device == "cpu" else (1,):
        start = [*launcher.split(), "-n", "2", txtrain] if ranks > 1 else [txtrain]
        folder = os.path.join(work, f"judged_{chats}_{ranks}")
        done = run(*start, task_name="grpo", model_name_or_path=MODEL, train_file=prompts, reward_funcs=funcs,
                   reward_config=json.dumps(config), num_generations=4, per_device_train_batch_size=24 // ranks,
                   max_completion_length=10, max_seq_length=40, max_steps=1, log_completions=True, device=device,
                   threads=1, save_strategy="no", seed=5, output_dir=folder,
                   chat_template=template if chats else None)
        check(done.returncode == 0, f"judges: status {done.returncode}: {done.stderr}")
        if done.returncode:
            return
        with open(os.path.join(folder, "completions", "completions_00001.jsonl"), encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        if ranks == 1:
            wanted = wanted_rewards(work, [row["prompt"] for row in rows], [row["completion"] for row in rows])
        check(len(rows) == 24 and len({row["judge"] for row in rows}) > 12, f"judges: {len(rows)} completions")
        for row, judge, critic in zip(rows, *wanted):
            check(near(row["judge"], judge), f"chats {chats}: the judge gives {row['judge']}, not {judge}")
            check(near(row["critic"], critic), f"chats {chats}: the critic gives {row['critic']}, not {critic}")
        print(f"models as rewards, chats {chats}, {ranks} ranks: {len(rows)} completions", flush=True)


def main(txtrain, launcher, device):
    if not os.path.exists(os.path.join(FOLDER, "golden.json")):
        skip(f"no {FOLDER}/golden.json")
    need_device(txtrain, device)
    import trl  # noqa: F401 (skips without it)
    with tempfile.TemporaryDirectory() as work:
        write_inputs(work)
        make_judges(work)
        for chats in (False, True):
            compare_judges(txtrain, launcher, device, work, chats)
        names = tuple(CASES) if device == "cpu" else ON_OPENCL
        compare_all(names, [txtrain], device, work, 1)
        if launcher:
            compare_all([name for name in ON_RANKS if name in names], [*launcher.split(), "-n", "2", txtrain], device,
                        work, 2)
    return status()


if __name__ == "__main__":
    if sys.argv[1] == "--trl":
        for case in sys.argv[3:]:
            run_trl(sys.argv[2], case)
    else:
        sys.exit(main(*sys.argv[1:]))
