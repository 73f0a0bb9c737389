# SPDX-License-Identifier: Apache-2.0
"""foreign.py TXTRAIN FOREIGN_DEF: every option of the installed transformers' TrainingArguments is one of txtrain or stands in the
table of those it does not have, and a file that holds all their defaults is accepted but for the ones named here."""
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile

try:
    from transformers import TrainingArguments
except ImportError:
    print("skipped: no transformers")
    sys.exit(77)

txtrain, table = sys.argv[1:]
# A loss that is not finite is never hidden, whatever the Trainer's default says.
refused = {"logging_nan_inf_filter"}

with open(table) as file:
    foreign = re.findall(r'^X\("(\w+)"', file.read(), re.M)
assert foreign == sorted(foreign), "the table is not sorted"
assert len(foreign) == len(set(foreign)), "a name stands twice in the table"
help_text = subprocess.run([txtrain, "--help"], capture_output=True, text=True, check=True).stdout
own = re.findall(r"^  (?:-+\w+, )*--(\w+)", help_text, re.M)
both = set(own) & set(foreign)
assert not both, f"options of txtrain that stand in the table as well: {sorted(both)}"

# What run_clm.py adds.
run_clm = """model_name_or_path model_type config_overrides config_name tokenizer_name cache_dir use_fast_tokenizer
    model_revision token trust_remote_code dtype torch_dtype low_cpu_mem_usage use_auth_token dataset_name
    dataset_config_name train_file validation_file max_train_samples max_eval_samples streaming block_size overwrite_cache
    validation_split_percentage preprocessing_num_workers keep_linebreaks""".split()
fields = {field.name: field for field in dataclasses.fields(TrainingArguments)}
missing = [name for name in [*fields, *run_clm] if name not in own and name not in foreign]
assert not missing, f"neither options of txtrain nor in the table: {missing}"


def default(field):
    if field.default is not dataclasses.MISSING:
        return getattr(field.default, "value", field.default)
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else None


def accepts(arguments):
    """What txtrain says to a file of these options; nothing where it takes it."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "args.json")
        with open(path, "w") as file:
            json.dump(arguments, file)
        run = subprocess.run([txtrain, path, "--list_devices"], capture_output=True, text=True)
    assert run.returncode == (2 if run.stderr else 0), run.stderr
    return run.stderr


defaults = {name: default(field) for name, field in fields.items() if name in foreign}
complaint = accepts({name: value for name, value in defaults.items() if name not in refused})
assert not complaint, complaint
for name in refused:
    assert f"{name}: an option of transformers" in accepts({name: defaults[name]}), name
print(f"{len(fields)} options of TrainingArguments: {len(set(fields) & set(own))} of txtrain, the others in the table")
