#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds the commands of README.md, docs/ and docs/guides that run.py does not run. Each is in this table with a reason,
and the table has no others.

    not_run.py"""
import os
import sys

from run import ROOT, SCRIPTS

HUB = "downloads from a hub"
GPU = "needs a GPU by its number or name"
NOT_RUN = {  # document, and the start of the block
    ("docs/design/drivers.md", "for pack"): GPU,
    ("docs/design/drivers.md", "for form"): GPU,
    ("docs/guides/adapters.md", "txtrain --model_name_or_path story --train_file book.txt --lora_r 8 --qat"):
        "takes minutes; train_qat runs these steps on a smaller model",
    ("docs/guides/debugging.md", "txcheck ops"): GPU + "; txcheck_ops_opencl and _cpu run all ops",
    ("docs/guides/debugging.md", "txbench train"): GPU + "; bench_report_cpu runs them on the CPU",
    ("docs/guides/fit-a-bigger-model.md", "hf download"): HUB,
    ("docs/guides/inference.md", "txgen --model my-model --device opencl:0"): GPU + "; the page runs cpu=2,cpu=2",
    ("docs/guides/inference.md", "mpiexec"): GPU + "; test_ranks_generate runs ranks on CPUs",
    ("docs/guides/inference.md", "TX_PYTHON="): "needs llama-cpp-python",
    ("docs/guides/python.md", "import tx"): "needs the module and numpy; the test wheel trains by it",
    ("docs/guides/python.md", "lm ="): "needs the module and numpy; the test wheel generates by it",
    ("docs/guides/rewards.md", "txtrain"): "takes minutes; the page runs it with fewer steps, which are not shown",
    ("docs/guides/search.md", "txsearch"): "shows two options; the test search runs both on CPUs",
    ("docs/guides/serve.md", "client ="): "a part of a program; tests/serve/openai_client.py",
    ("docs/guides/serve.md", "answer ="): "a part of a program; tests/serve/tools_client.py",
    ("docs/guides/serve.md", "txlaunch -n 2 txserve"): GPU + "; serve_ranks runs ranks on CPUs",
    ("docs/guides/serve.md", "lm_eval"): HUB + "; tests/serve/lm_eval_harness.py scores a task without one",
    ("docs/guides/topology.md", "txbench copy"): GPU + "; bench_report_cpu runs it on the CPU",
    ("docs/guides/train-faster.md", "txbench train"): GPU + "; bench_report_cpu runs it on the CPU",
    ("docs/guides/train-faster.md", "txtok pack"): "needs Parquet files; the test txtok_pack packs some",
    ("docs/guides/train-faster.md", "txtune"): GPU + "; test_tune runs it with PoCL",
    ("docs/guides/your-gpu.md", "txtrain"): GPU + "; README.md runs the first line",
    ("docs/guides/your-gpu.md", "cmake"): "builds TX with more packages; the test opencl_shipped makes such programs",
    ("docs/guides/your-gpu.md", "mpiexec"): GPU + "; test_ranks_devices runs two kinds of devices",
    ("docs/recipes/README.md", "txtrain"): "docs_recipes trains each recipe on stand-ins",
}


def blocks(path):
    """The text of each block of commands that run.py leaves out."""
    kind, text = None, []
    with open(path) as file:
        for line in file:
            if not line.startswith("```"):
                text.append(line)
            elif kind is None:
                kind, text = line[3:].strip(), []
            else:
                shown = any(one.startswith("$ ") for one in text)
                if "```" + kind not in SCRIPTS and (kind in ("sh", "bash", "python") or shown and
                                                    not kind.startswith("console")):
                    yield "".join(text)
                kind = None


def main():
    folders = [os.path.join(ROOT, "docs", name) for name in ("", "guides", "design", "recipes")]
    documents = [os.path.join(ROOT, "README.md")] + [
        os.path.join(folder, name) for folder in folders for name in sorted(os.listdir(folder)) if name.endswith(".md")]
    faults, left = [], dict(NOT_RUN)
    for path in documents:
        name = os.path.relpath(path, ROOT)
        for text in blocks(path):
            rows = [row for row in NOT_RUN if row[0] == name and text.startswith(row[1])]
            if not rows:
                faults.append(f"{name}: no test runs this block: use ```sh run, or name a reason here:\n{text}")
            for row in rows:
                left.pop(row, None)
    faults += [f"{name}: no block begins with {start!r}" for name, start in left]
    print("\n".join(faults) or f"{len(NOT_RUN)} blocks are not run, each for a reason")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
