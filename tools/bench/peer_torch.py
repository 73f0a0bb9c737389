#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of `txbench train` and `txbench generate` with --peer torch and torch-compile: the same model with
transformers and PyTorch.

    peer_torch.py train|generate {"model": CONFIG_JSON|DIR, "dtype": TYPE, "batch": ROWS, "block": TOKENS,
                                  "threads": N, "compile": BOOL, "gpu": BOOL, "method": METHOD}

It runs on the CPU or on the GPU that PyTorch finds, in eager mode with the default SDPA attention, or compiled by
torch.compile. Only an adapter has dropout. A
configuration gives random weights in fp32, a folder its weights in TYPE.

train uses random tokens and labels and clips the global gradient norm to 1. METHOD has
    precision     fp32, tf32, bf16 or fp16 (autocast)
    optim         an optimizer of transformers' Trainer, with optim_args
    checkpointing true for gradient checkpointing
    micro         micro-batches of a step
    adapter       peft's LoraConfig. The model's weights then have the type in which autocast computes.

generate continues random prompts greedily with key-value caches.

The script prints "ready VERSIONS". Then it reads a number of steps (train) or of new tokens (generate) from each line
of standard input, and prints "seconds WALL_CLOCK_SECONDS CPU_SECONDS".
"""
import json
import os
import sys
import time

try:
    import torch
    import transformers
except ImportError as error:
    sys.exit(f"peer_torch.py: {error}; install it (python3 -m venv torch; torch/bin/pip install torch transformers) "
             "and set TX_PYTHON=torch/bin/python")


def device_of(what):
    """Returns the device, whose kind must be that of TX's device."""
    if not what["gpu"]:
        return torch.device("cpu")
    if not torch.accelerator.is_available():
        sys.exit(f"peer_torch.py: TX runs on a GPU, but PyTorch {torch.__version__} finds none: install PyTorch for "
                 "this GPU, or use --device cpu")
    return torch.accelerator.current_accelerator()


def optimizer_of(model, name, args):
    """Returns the optimizer that transformers' Trainer makes for --optim and --optim_args."""
    try:
        arguments = transformers.TrainingArguments(output_dir=".", report_to="none", optim=name,
                                                   use_cpu=model.device.type == "cpu", optim_args=args or None)
    except ValueError:
        sys.exit(f"peer_torch.py: transformers has no optimizer {name}")
    kind, options = transformers.Trainer.get_optimizer_cls_and_kwargs(arguments)
    return kind([p for p in model.parameters() if p.requires_grad], **options)


def adapted(model, half, target_modules, modules_to_save, **settings):
    """Returns the model with an adapter of peft. The weights of the adapter are fp32."""
    try:
        import peft
    except ImportError as error:
        sys.exit(f"peer_torch.py: {error}; install it for --lora_r")
    names = target_modules if target_modules == "all-linear" else [name.strip() for name in target_modules.split(",")]
    saved = [name.strip() for name in modules_to_save.split(",") if name.strip()]
    config = peft.LoraConfig(target_modules=names, modules_to_save=saved or None, **settings)
    return peft.get_peft_model(model.to(half or torch.float32), config)


def trainer(model, what):
    batch, block, method = what["batch"], what["block"], what["method"]
    vocab, micro, precision = model.config.vocab_size, method["micro"], method["precision"]
    if precision == "tf32":
        torch.set_float32_matmul_precision("high")
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    of_texts = "SequenceClassification" in type(model).__name__
    if "adapter" in method:
        model = adapted(model, half, **method["adapter"])
    model.train()
    if method["checkpointing"]:
        model.gradient_checkpointing_enable()
    if what["compile"]:
        model.compile()
    device = model.device
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
    optimizer = optimizer_of(model, method["optim"], method["optim_args"])
    trained = [p for p in model.parameters() if p.requires_grad]
    extra = {} if of_texts else {"use_cache": False}

    def run(steps):
        for _ in range(steps):
            for _ in range(micro):
                tokens = torch.randint(0, vocab, (batch, block), device=device)
                labels = torch.randint(0, model.config.num_labels, (batch,), device=device) if of_texts else tokens
                with torch.autocast(device.type, dtype=half or torch.bfloat16, enabled=half is not None):
                    loss = model(input_ids=tokens, labels=labels, **extra).loss / micro
                scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            loss.item()
    return run


def generator(model, what):
    vocab, batch, block = model.config.vocab_size, what["batch"], what["block"]
    model.eval()
    if what["compile"]:
        model.compile()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0

    def run(count):
        tokens = torch.randint(0, vocab, (batch, block), device=model.device)
        with torch.no_grad():
            out = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=count, do_sample=False)
        assert out.shape[1] == block + count
    return run


def main():
    what = json.loads(sys.argv[2])
    torch.set_num_threads(what["threads"] or len(os.sched_getaffinity(0)))
    torch.manual_seed(1)
    device = device_of(what)
    if isinstance(what["model"], str):
        if not os.path.isdir(what["model"]):
            sys.exit(f"peer_torch.py: {what['model']} is not a folder")
        model = transformers.AutoModelForCausalLM.from_pretrained(what["model"], dtype=what["dtype"])
    else:
        config = transformers.AutoConfig.for_model(**what["model"])
        model = getattr(transformers, config.architectures[0])._from_config(config, dtype=torch.float32)
    run = {"train": trainer, "generate": generator}[sys.argv[1]](model.to(device), what)
    compiled = " compiled" if what["compile"] else ""
    versions = f"torch {torch.__version__}{compiled}, transformers {transformers.__version__}"
    where = torch.cuda.get_device_name() if device.type == "cuda" else device.type
    print(f"ready {versions}, {where}, {torch.get_num_threads()} threads", flush=True)
    for line in sys.stdin:
        begin, processor = time.perf_counter(), time.process_time()
        run(int(line))
        if device.type != "cpu":
            torch.accelerator.synchronize()
        print(f"seconds {time.perf_counter() - begin} {time.process_time() - processor}", flush=True)


main()
