# SPDX-License-Identifier: Apache-2.0
"""Quantizes tensors to 4 bits and compares with bitsandbytes. All codes and scales must be equal. Double
quantization must keep the scales as precisely as bitsandbytes, which uses the mean of a tensor instead of a group.

    nf4.py NF4_CODES      exit status 77: bitsandbytes is not installed
"""
import subprocess
import sys
import tempfile

from oracle import check, status

import bitsandbytes.functional as bnb
import torch

torch.manual_seed(3)
NORMAL = torch.randn(512 * 1024)
ZEROS = NORMAL.clone()
ZEROS[:640] = 0
CASES = {
    "normal": NORMAL * 0.02,
    "bf16": (NORMAL * 0.02).bfloat16().float(),
    "whole": torch.randint(-8, 9, (65536,)).float(),
    "uniform": torch.rand(65536) * 2 - 1,
    "outliers": torch.cat([NORMAL[:65536] * 10 ** torch.randn(65536), ZEROS[:65536]]),
    "tiny": NORMAL[:65536] * 1e-36,
    "odd": NORMAL[:64 * 1001],
}

with tempfile.TemporaryDirectory() as folder:
    for name, x in CASES.items():
        x.numpy().tofile(f"{folder}/in")
        if subprocess.run([sys.argv[1], f"{folder}/in", f"{folder}/out"], check=False).returncode:
            sys.exit(f"FAIL: {name}")
        with open(f"{folder}/out", "rb") as file:
            got = bytearray(file.read())
        blocks = x.numel() // 64
        codes = torch.frombuffer(got, dtype=torch.uint8, count=x.numel() // 2)
        scales = torch.frombuffer(got, dtype=torch.float32, offset=x.numel() // 2)
        want, state = bnb.quantize_4bit(x, quant_type="nf4", blocksize=64)
        check(torch.equal(codes, want.flatten()),
              f"{name}: {(codes != want.flatten()).sum().item()} bytes of codes differ")
        check(torch.equal(scales[:blocks], state.absmax), f"{name}: scales differ")
        _, nested = bnb.quantize_4bit(x, quant_type="nf4", blocksize=64, compress_statistics=True)
        theirs = bnb.dequantize_blockwise(nested.absmax, nested.state2) + nested.offset
        error, usual = (scales[blocks:] - state.absmax).norm(), (theirs - state.absmax).norm()
        check(bool(error <= 1.1 * usual),
              f"{name}: scales in 8 bits are off by {error:.3g}, bitsandbytes' by {usual:.3g}")
sys.exit(status())
