# SPDX-License-Identifier: Apache-2.0
"""trackers.py BIN: Trackio and TensorBoard read the metrics of a run with --report_to trackio wandb; their values are
those of log.jsonl."""
import json
import os
import re
import subprocess
import sys
import tempfile

import oracle  # noqa: F401 (skips the test if a package is missing)

with tempfile.TemporaryDirectory() as folder:
    os.environ.update(TRACKIO_DIR=os.path.join(folder, "trackio"), TRACKIO_PROJECT_NAME="cats",
                      TRACKIO_STORAGE_MODE="sqlite")
    import trackio  # noqa: F401
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from trackio import fragments
    from trackio.sqlite_storage import SQLiteStorage

    with open(os.path.join(folder, "text"), "w") as file:
        file.write("".join(f"line {i}: the cat sat on the mat\n" for i in range(99)))

    def run(name):
        words = ["--config_overrides", "n_layer=1,n_embd=16,n_head=2,n_positions=32", "--train_file",
                 os.path.join(folder, "text"), "--max_steps", "12", "--logging_steps", "3", "--threads", "1",
                 "--eval_strategy", "steps", "--eval_steps", "6", "--report_to", "trackio", "wandb",
                 "--output_dir", os.path.join(folder, name) + "/"]
        done = subprocess.run([os.path.join(sys.argv[1], "txtrain"), *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    output = run("first")
    run("second")
    inbox = os.path.join(folder, "trackio", "inbox")
    assert fragments.import_inbox_dir() > 0 and not any(files for _, _, files in os.walk(inbox)), "not all is imported"
    runs = {record.get("name", record.get("run_name")): record for record in SQLiteStorage.get_run_records("cats")}
    assert set(runs) == {"first", "second"}, runs
    logs = SQLiteStorage.get_logs("cats", "first")
    with open(os.path.join(folder, "first", "log.jsonl")) as file:
        ours = [json.loads(line) for line in file]
    loss = {row["step"]: row["train/loss"] for row in logs if "train/loss" in row}
    eval_loss = {row["step"]: row["eval/loss"] for row in logs if "eval/loss" in row}
    rates = {row["step"]: row["train/learning_rate"] for row in logs if "train/learning_rate" in row}
    assert sorted(loss) == [3, 6, 9, 12] and sorted(eval_loss) == [6, 12], (loss, eval_loss)
    for row in ours:
        if "eval_loss" in row:
            assert abs(eval_loss[row["step"]] - row["eval_loss"]) < 1e-6, row
        elif row["step"] in rates:
            assert abs(rates[row["step"]] - row["learning_rate"]) < 1e-9, row
    mean = sum(row["loss"] for row in ours if row.get("step") in (1, 2, 3) and "loss" in row) / 3
    assert abs(loss[3] - mean) < 1e-5, (loss, mean)
    config = SQLiteStorage.get_run_config("cats", "first")
    assert config["max_steps"] == 12 and config["logging_steps"] == 3, config

    events = EventAccumulator(re.search(r"wandb sync (\S+)", output).group(1), size_guidance={"scalars": 0})
    events.Reload()
    board = {point.step: point.value for point in events.Scalars("train/loss")}
    assert sorted(board) == sorted(loss) and all(abs(board[s] - loss[s]) < 1e-5 for s in loss), (board, loss)
print(f"Trackio reads {len(loss)} losses and {len(eval_loss)} evaluations of each run")
