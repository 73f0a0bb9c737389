# SPDX-License-Identifier: Apache-2.0
"""tensorboard_reads.py TEST_TENSORBOARD: TensorBoard reads the same scalars as were written."""
import math
import struct
import subprocess
import sys
import tempfile

import oracle  # noqa: F401 (skips the test if a package is missing)

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

def single(value):
    return struct.unpack("f", struct.pack("f", value))[0]


with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.argv[1], folder], check=True)
    events = EventAccumulator(folder, size_guidance={"scalars": 0})
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == ["eval/loss", "train/learning_rate", "train/loss"]
    assert events.file_version == 2.0
    for tag, value in (("train/loss", lambda s: 10 / s), ("train/learning_rate", lambda s: 5e-5 * (200 - s))):
        points = events.Scalars(tag)
        assert [p.step for p in points] == list(range(1, 201))
        assert all(p.value == single(value(p.step)) and p.wall_time == 1.7e9 + p.step for p in points), tag
    first, second = events.Scalars("eval/loss")
    assert math.isnan(first.value) and second.value == -math.inf and second.step == 5000000000
print("TensorBoard reads the same 402 scalars")
