# SPDX-License-Identifier: Apache-2.0
"""arguments.py TXTRAIN OPTIONS_MD: every option of the installed transformers' Seq2SeqTrainingArguments, and of
run_clm.py, is in docs/reference/options.md, and a file of their defaults, as to_dict() writes it, is accepted."""
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile

import oracle  # noqa: F401 (skips the test if a package is missing)

from transformers import Seq2SeqTrainingArguments
from transformers.trainer_pt_utils import AcceleratorConfig

txtrain, table = sys.argv[1:]
with open(table) as file:
    known = re.findall(r"^\| `(?:--)?(\w+)` \|", file.read(), re.M)
assert len(known) == len(set(known)), "a name is twice in the table"

# Options that run_clm.py adds.
run_clm = """model_name_or_path model_type config_overrides config_name tokenizer_name cache_dir use_fast_tokenizer
    model_revision token trust_remote_code dtype torch_dtype low_cpu_mem_usage use_auth_token dataset_name
    dataset_config_name train_file validation_file max_train_samples max_eval_samples streaming block_size
    overwrite_cache
    validation_split_percentage preprocessing_num_workers keep_linebreaks""".split()
fields = {field.name: field for field in dataclasses.fields(Seq2SeqTrainingArguments)}
missing = [name for name in [*fields, *run_clm] if name not in known]
assert not missing, f"not in {table}: {missing}"


def default(field):
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else None


def complaint(arguments):
    """Returns txtrain's message on a file of these options, or an empty text if it accepts them."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "args.json")
        with open(path, "w") as file:
            json.dump(arguments, file)
        run = subprocess.run([txtrain, path, "--list_devices"], capture_output=True, text=True)
    assert run.returncode == (2 if run.stderr else 0), run.stderr
    return run.stderr


# Without accelerate the object cannot be made: its defaults are put in place by hand.
whole = object.__new__(Seq2SeqTrainingArguments)
for name, field in fields.items():
    setattr(whole, name, default(field))
whole.output_dir = "out"
arguments = whole.to_dict()
arguments["accelerator_config"] = AcceleratorConfig().to_dict()
arguments["report_to"] = []
arguments["logging_nan_inf_filter"] = True
assert not complaint(arguments), complaint(arguments)
arguments.update(report_to="", debug=[], hub_token="<HUB_TOKEN>", torch_compile=True, greater_is_better=False,
                 metric_for_best_model="loss")
assert not complaint(arguments), complaint(arguments)
arguments["accelerator_config"]["split_batches"] = True
arguments["push_to_hub"] = True
for name in ("split_batches", "push_to_hub"):
    assert f"{name}: TX does not support this option" in complaint(arguments), complaint(arguments)

# TRL's configurations, if it is installed. to_dict() writes a placeholder for every token.
try:
    from trl import DPOConfig, GRPOConfig, KTOConfig, RewardConfig, RLOOConfig, SFTConfig
    trl_kinds = DPOConfig, GRPOConfig, KTOConfig, RewardConfig, RLOOConfig, SFTConfig
except ImportError:
    trl_kinds = ()
for kind in trl_kinds:
    config = object.__new__(kind)
    for field in dataclasses.fields(kind):
        setattr(config, field.name, default(field))
    config.output_dir, config.model_init_kwargs = "out", None
    trl = config.to_dict()
    trl.update(accelerator_config=None, report_to=[], eos_token="<EOS_TOKEN>", pad_token="<PAD_TOKEN>", bf16=True)
    missing = [name for name in trl if name not in known and complaint({name: 1}).count("unknown option")]
    assert not missing, f"not in {table}: {missing}"
    assert not complaint(trl), complaint(trl)

# A file of `accelerate config`, and common keys of axolotl: each is read, or refused by its name with the reason.
accelerate = {"compute_environment": "LOCAL_MACHINE", "debug": False, "distributed_type": "MULTI_GPU",
              "downcast_bf16": "no", "enable_cpu_affinity": False, "gpu_ids": "all", "machine_rank": 0,
              "main_training_function": "main", "mixed_precision": "no", "num_machines": 1, "num_processes": 1,
              "rdzv_backend": "static", "same_network": True, "tpu_env": [], "tpu_use_cluster": False,
              "tpu_use_sudo": False, "use_cpu": False, "dynamo_config": {"dynamo_backend": "INDUCTOR"}}
assert not complaint(accelerate), complaint(accelerate)
assert not complaint({"mixed_precision": "bf16", "num_processes": 2}), complaint({"mixed_precision": "bf16"})
assert "--tensor_parallel" in complaint({"distributed_type": "MEGATRON_LM"})
for name, value in (("num_machines", 2), ("debug", True), ("main_process_ip", "10.0.0.1")):
    assert re.search(f"{name}( true|: TX does not support this option: )", complaint({name: value})), name
try:
    from accelerate.commands.config.config_args import ClusterConfig
except ImportError:
    ClusterConfig = None
for field in dataclasses.fields(ClusterConfig) if ClusterConfig else ():
    assert field.name in ("commands", "command_file") or "unknown" not in complaint({field.name: 1}), field.name

# txlaunch reads each option of `accelerate launch` and torchrun, or refuses it with the reason.
try:
    from accelerate.commands.launch import launch_command_parser
    from torch.distributed.run import get_args_parser
    parsers = launch_command_parser(), get_args_parser()
except ImportError:
    parsers = ()
launcher = os.path.join(os.path.dirname(txtrain), "txlaunch")
for name in {text for parser in parsers for action in parser._actions for text in action.option_strings}:
    if name.startswith("--") and name != "--help" and os.path.exists(launcher):
        run = subprocess.run([launcher, name + "=zz", "false.py"], capture_output=True, text=True)
        assert "unknown option" not in run.stderr, run.stderr
axolotl = {"base_model": "gpt2", "tokenizer_type": "AutoTokenizer", "load_in_8bit": False, "load_in_4bit": True,
           "strict": False, "dataset_prepared_path": "prepared", "val_set_size": 0.0, "output_dir": "out",
           "adapter": "qlora", "lora_r": 8, "lora_alpha": 16, "lora_dropout": 0.05, "lora_modules_to_save": ["lm_head"],
           "sequence_len": 512, "sample_packing": True, "pad_to_sequence_len": True, "wandb_project": None,
           "wandb_watch": "x", "gradient_accumulation_steps": 4, "micro_batch_size": 2, "num_epochs": 3,
           "optimizer": "adamw_torch", "lr_scheduler": "cosine", "learning_rate": 2e-4, "train_on_inputs": False,
           "group_by_length": False, "bf16": True, "tf32": False, "gradient_checkpointing": True, "logging_steps": 1,
           "flash_attention": True, "warmup_ratio": 0.1, "weight_decay": 0.0, "special_tokens": {}, "plugins": []}
assert not complaint(axolotl), complaint(axolotl)
for name, value in (("datasets", [{"path": "a", "type": "alpaca"}]), ("val_set_size", 0.1), ("evals_per_epoch", 4),
                    ("saves_per_epoch", 1), ("lora_target_linear", True), ("rl", "dpo"), ("plugins", ["a"]),
                    ("special_tokens", {"pad_token": "<pad>"}), ("train_on_inputs", True), ("s2_attention", True)):
    assert f"{name}: TX does not support this option: " in complaint({name: value}), complaint({name: value})
assert "base_model" not in complaint({"base_model": "a", "micro_batch_size": 3, "nothing": 1})
# Names of the command line hold in a file; null asks for nothing; one option under two names is refused if they differ.
assert not complaint({"lr": 1e-3, "max-length": 9, "dataset_num_proc": 2, "no_such_option": None})
assert "given twice" in complaint({"max_length": 9, "max_seq_length": 8})
assert not complaint({"max_length": 9, "max_seq_length": 9})
assert "no_such_option" in complaint({"no_such_option": 0})
print(f"{len(fields)} options of Seq2SeqTrainingArguments and {len(run_clm)} of run_clm.py, all in the table; "
      "their defaults are accepted")
