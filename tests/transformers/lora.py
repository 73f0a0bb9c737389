# SPDX-License-Identifier: Apache-2.0
"""Compares the training of adapters with peft: from a folder that peft wrote, on the same blocks, or on pairs of texts
with labels. Compares losses, the final adapter as peft loads it, and the logits of txgen with the adapter and of the
merged model. Adapters with any of peft's settings give peft's logits, or are refused with the name of the setting.

    lora.py TXTRAIN TXGEN DEVICE      exit status 77: peft is not installed, or there is no such device
"""
import inspect
import sys
import tempfile

from oracle import check, fit, log_of, need_device, run, status, succeed

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.optimizers import create_loraplus_optimizer
from peft.tuners.lora import layer as lora_layer
from peft.utils import loftq_utils
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (AutoModelForCausalLM, AutoModelForSequenceClassification, BertConfig, GPT2Config,
                          FalconH1Config, LlamaConfig, Mamba2Config, NemotronHConfig, Qwen2Config, Qwen3Config,
                          Qwen3NextConfig)

STEPS, BATCH, BLOCK, RATE = 30, 4, 24, 5e-3
EMBEDDING_RATE = 2e-3  # of LoRA+
LOSS, LOGITS, WEIGHTS = 1e-4, 1e-5, 1e-4
FAMILY = dict(vocab_size=257, max_position_embeddings=32, hidden_size=36, intermediate_size=55, num_hidden_layers=2,
              num_attention_heads=6, num_key_value_heads=2, bos_token_id=256, eos_token_id=256)
GPT2 = GPT2Config(vocab_size=257, n_positions=32, n_embd=36, n_layer=2, n_head=3, embd_pdrop=0.0, attn_pdrop=0.0,
                  resid_pdrop=0.0, bos_token_id=256, eos_token_id=256)
BERT = BertConfig(vocab_size=257, max_position_embeddings=32, hidden_size=36, intermediate_size=55, num_hidden_layers=2,
                  num_attention_heads=6, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=0)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "a", "cat", "dog", "bird", "saw", "fish", "and", "##s"]
# Configuration, and the arguments of LoraConfig.
CASES = {
    "gpt2": (GPT2, {}),
    "gpt2-more": (GPT2, dict(target_modules=["c_attn", "mlp.c_proj"], modules_to_save=["ln_f"], use_rslora=True)),
    "gpt2-all": (GPT2, dict(target_modules="all-linear")),
    "llama": (LlamaConfig(**FAMILY), {}),
    "llama-all": (LlamaConfig(**FAMILY, attention_bias=True),
                  dict(target_modules="all-linear", modules_to_save=["norm", "lm_head"])),
    "gpt2-dora": (GPT2, dict(target_modules="all-linear", use_dora=True)),
    "llama-dora": (LlamaConfig(**FAMILY, attention_bias=True),
                   dict(target_modules=["q_proj", "v_proj", "up_proj", "o_proj"], use_dora=True)),
    "llama-plus": (LlamaConfig(**FAMILY, attention_bias=True),
                   dict(target_modules=["q_proj", "up_proj", "embed_tokens"], bias="lora_only", plus=4.0)),
    "llama-plus-dora": (LlamaConfig(**FAMILY), dict(target_modules=["v_proj"], use_dora=True, plus=2.0)),
    "llama-odd": (LlamaConfig(**FAMILY), dict(target_modules=["k_proj", "up_proj", "o_proj"])),
    "llama-rules": (LlamaConfig(**FAMILY, attention_bias=True),
                    dict(target_modules=["q_proj", "v_proj", "up_proj"], rank_pattern={"q_proj": 6, "up_proj": 2},
                         alpha_pattern={"v_proj": 3}, layers_to_transform=[1], bias="all")),
    "llama-regex-dora": (LlamaConfig(**FAMILY),
                         dict(target_modules=r".*\.(q|v)_proj", exclude_modules=r".*\.0\..*v_proj",
                              rank_pattern={"v_proj": 2}, use_dora=True)),
    "llama-head": (LlamaConfig(**FAMILY), dict(target_modules=["q_proj", "lm_head", "embed_tokens"])),
    "qwen2-head": (Qwen2Config(**FAMILY, tie_word_embeddings=True), dict(target_modules=["q_proj", "lm_head"])),
    "qwen2-saved": (Qwen2Config(**FAMILY, tie_word_embeddings=True),
                    dict(target_modules=["q_proj"], modules_to_save=["embed_tokens"], ensure_weight_tying=True)),
    "llama-tokens": (LlamaConfig(**FAMILY), dict(target_modules=["q_proj"], trainable_token_indices=[
        *range(97, 105), 32, 110, 116])),
    "llama-tokens-by-name": (LlamaConfig(**FAMILY), dict(target_modules=["q_proj"], trainable_token_indices={
        "embed_tokens": [116, 32, 101, 97], "lm_head": [101, 5]})),
    "qwen2-tokens": (Qwen2Config(**FAMILY, tie_word_embeddings=True),
                     dict(target_modules=["q_proj", "v_proj"], trainable_token_indices=[116, 32, 101, 97])),
    "gpt2-tokens": (GPT2, dict(target_modules=["c_attn"], trainable_token_indices=[101, 32, 33])),
    "bert-tokens": (BERT, dict(trainable_token_indices=[4, 6, 9])),
    "llama-pissa": (LlamaConfig(**FAMILY), dict(target_modules=["q_proj", "v_proj", "up_proj", "down_proj"],
                                                init_lora_weights="pissa")),
    "gpt2-pissa-dora": (GPT2, dict(target_modules=["c_fc"], init_lora_weights="pissa", use_dora=True)),
    "llama-olora": (LlamaConfig(**FAMILY), dict(target_modules=["q_proj", "v_proj"], init_lora_weights="olora")),
    "qwen2": (Qwen2Config(**FAMILY, tie_word_embeddings=True), dict(r=5, lora_alpha=5)),
    "qwen3": (Qwen3Config(**FAMILY, head_dim=8), dict(target_modules=["q_proj", "k_proj", "v_proj"])),
    "qwen3_next": (Qwen3NextConfig(
        **FAMILY, head_dim=8, layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=6, mlp_only_layers=[0, 1]),
                   dict(target_modules=["in_proj_qkvz", "q_proj"])),
    "falcon_h1": (FalconH1Config(**FAMILY, mamba_d_ssm=36, mamba_n_heads=6, mamba_d_state=8),
                  dict(target_modules=["in_proj", "q_proj"])),
    "mamba2": (Mamba2Config(**FAMILY, num_heads=6, head_dim=12, n_groups=2, state_size=8),
               dict(target_modules=["in_proj"])),
    "nemotron_h": (NemotronHConfig(
        **FAMILY, layers_block_type=["linear_attention", "full_attention"], head_dim=8, mamba_num_heads=4,
        mamba_head_dim=6, n_groups=2, ssm_state_size=8), {}),
    "bert": (BERT, {}),
    "bert-all": (BERT, dict(target_modules="all-linear", use_rslora=True)),
    "bert-dora": (BERT, dict(target_modules=["query", "output.dense"], use_dora=True)),
}
# Settings of adapters of a Llama, which TX obeys, or refuses by this name.
SETTINGS = [
    (dict(init_lora_weights="gaussian"), None),
    (dict(init_lora_weights=False), None),
    (dict(init_lora_weights="orthogonal", fan_in_fan_out=True), None),
    (dict(init_lora_weights="lora_ga"), None),
    (dict(modules_to_save=["tokens", "layers.0.mlp"], use_rslora=True), None),
    (dict(modules_to_save=["self_attn"], target_modules=["q_proj", "down_proj"]), None),
    (dict(modules_to_save=["layernorm"], ensure_weight_tying=True), None),
    (dict(init_lora_weights="mica"), "init_lora_weights"),
    (dict(layer_replication=[(0, 2), (1, 2)]), "layer_replication"),
    (dict(alora_invocation_tokens=[5, 6]), "alora_invocation_tokens"),
]


SVD = torch.linalg.svd
# peft decomposes in fp32, which is too inexact for singular values that are close to each other.
torch.linalg.svd = lambda weight, **more: [part.float() for part in SVD(weight.double(), **more)]


def classifies(config):
    return isinstance(config, BertConfig)


def kind(config):
    return AutoModelForSequenceClassification if classifies(config) else AutoModelForCausalLM


LOFTQ = {"loftq_bits": 4, "loftq_iter": 1}
# peft computes LoftQ on a GPU, with the same codes as on the CPU.
on_cpu = {}
exec(inspect.getsource(loftq_utils).replace('"cuda"', '"cpu"'), on_cpu)
lora_layer.loftq_init = on_cpu["loftq_init"]


def load(config, folder):
    return kind(config).from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)


def make(folder, config, settings):
    """Makes the model, and an adapter whose B are not zero, so that all gradients count from the first step on."""
    torch.manual_seed(1)
    kind(config).from_config(config).save_pretrained(f"{folder}/model")
    model = load(config, f"{folder}/model")
    if not classifies(config):
        model.loss_type = "ForCausalLM"
    task = "SEQ_CLS" if classifies(config) else "CAUSAL_LM"
    arguments = dict(dict(r=4, lora_alpha=16, task_type=task), **settings)
    model = get_peft_model(model, LoraConfig(**arguments))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)
    model.save_pretrained(f"{folder}/begin")
    return model


def write_text(path):
    with open(path, "w", encoding="utf-8") as file:
        for i in range(150):
            file.write(f"line {i}: the {('cat', 'dog', 'bird')[i * i % 3]} saw {i % 7} fish\n")


def write_pairs(folder):
    """Writes pairs of several lengths, whose label is whether both name the same animal, and a tokenizer of their
    words."""
    made = Tokenizer(models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1",
                                                        [("[CLS]", 2), ("[SEP]", 3)])
    made.add_special_tokens(WORDS[:4])
    made.save(f"{folder}/model/tokenizer.json")
    with open(f"{folder}/texts.tsv", "w", encoding="utf-8") as file:
        file.write("label\tsentence1\tsentence2\n")
        for i in range(150):
            one, two = (WORDS[6 + k % 3] for k in (i, i * i % 5))
            file.write(f"{int(one == two)}\tthe {one}{' and a fish' * (i % 4)}\ta {two} saw cats\n")
    return made


def data(folder, config):
    """Returns txtrain's options, and a model's inputs for a list of samples."""
    if classifies(config):
        tokenizer = write_pairs(folder)
        with open(f"{folder}/texts.tsv", encoding="utf-8") as file:
            lines = [line.rstrip("\n").split("\t") for line in file][1:]
        tokenizer.enable_padding(length=BLOCK)
        rows = tokenizer.encode_batch([tuple(line[1:]) for line in lines])
        given = dict(input_ids=torch.tensor([r.ids for r in rows]),
                     token_type_ids=torch.tensor([r.type_ids for r in rows]),
                     attention_mask=torch.tensor([r.attention_mask for r in rows]),
                     labels=torch.tensor([int(line[0]) for line in lines]))
        told = ("--train_file", f"{folder}/texts.tsv", "--task_name", "mrpc", "--max_seq_length", str(BLOCK))
    else:
        write_text(f"{folder}/text.txt")
        with open(f"{folder}/text.txt", "rb") as file:
            ids = torch.tensor(list(file.read()))
        rows = ids[:len(ids) // BLOCK * BLOCK].reshape(-1, BLOCK)
        given = dict(input_ids=rows, labels=rows)
        told = ("--train_file", f"{folder}/text.txt", "--block_size", str(BLOCK))
    return told, lambda order: {key: value[order] for key, value in given.items()}


def train_ours(program, folder, device, out, *more):
    succeed(program, "--model_name_or_path", f"{folder}/begin", "--output_dir", f"{folder}/{out}", "--max_steps",
            str(STEPS), "--learning_rate", str(RATE),
        "--lr_scheduler_type", "constant", "--per_device_train_batch_size", str(BATCH), "--dump_order",
        f"{folder}/order", "--save_strategy", "no", "--device", device, *more)
    return log_of(f"{folder}/{out}")[:STEPS]


def train_theirs(folder, model, batch, plus=0):
    with open(f"{folder}/order", encoding="utf-8") as file:
        order = [int(line.split()[1]) for line in file]
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=RATE, weight_decay=0.0)
    if plus:
        optimizer = create_loraplus_optimizer(model, torch.optim.AdamW, lr=RATE, loraplus_lr_ratio=plus,
                                              loraplus_lr_embedding=EMBEDDING_RATE, weight_decay=0.0)
    model.train()
    return fit(optimizer, STEPS, lambda step: model(**batch(order[step * BATCH:(step + 1) * BATCH])).loss)


def greatest(a, b):
    return (a - b).abs().max().item()


def compare(name, programs, folder, device, config, settings):
    txtrain, txgen = programs
    settings = dict(settings)
    plus = settings.pop("plus", 0)
    model = make(folder, config, settings)
    told, batch = data(folder, config)
    before = open(f"{folder}/model/model.safetensors", "rb").read()
    if plus:
        told += ("--loraplus_lr_ratio", str(plus), "--loraplus_lr_embedding", str(EMBEDDING_RATE))
    ours = train_ours(txtrain, folder, device, "out", *told)
    theirs = train_theirs(folder, model, batch, plus)
    off = max((abs(a - b) for a, b in zip(ours, theirs)), default=float("nan"))
    check(len(ours) == STEPS and off <= LOSS, f"{name}: losses differ by {off}: {ours[-1:]} and {theirs[-1:]}")
    check(before == open(f"{folder}/model/model.safetensors", "rb").read(), f"{name}: the model's file has changed")

    model.save_pretrained(f"{folder}/theirs")
    a, b = (load_file(f"{folder}/{where}/adapter_model.safetensors") for where in ("out", "theirs"))
    check(set(a) == set(b), f"{name}: tensors {sorted(set(a) ^ set(b))}")
    weights = max((greatest(a[key], b[key]) for key in set(a) & set(b)), default=float("nan"))
    check(weights <= WEIGHTS, f"{name}: adapters differ by {weights}")

    # The folder loads in peft, and everybody's logits are the same.
    loaded = PeftModel.from_pretrained(load(config, f"{folder}/model"), f"{folder}/out").eval()
    ids = torch.arange(3, 3 + BLOCK)[None] * 7 % 257
    text = " ".join(str(i) for i in ids[0].tolist())
    with torch.no_grad():
        wanted = loaded(input_ids=ids).logits
    succeed(txgen, "--adapter", f"{folder}/out", "--device", device, "--ids", text, "--logits", f"{folder}/logits")
    applied = greatest(load_file(f"{folder}/logits")["logits"], wanted)
    succeed(txgen, "--adapter", f"{folder}/out", "--save_merged", f"{folder}/merged")
    merged = load(config, f"{folder}/merged")
    with torch.no_grad():
        joined = greatest(merged.eval()(input_ids=ids).logits, wanted)
    check(applied <= LOGITS and joined <= LOGITS, f"{name}: logits differ by {applied}, merged ones by {joined}")
    print(f"{name}: losses {off:.1e}, adapters {weights:.1e}, logits {applied:.1e}, merged {joined:.1e}")


def fails(word, *command):
    done = run(*command)
    check(done.returncode == 1 and word in done.stderr,
          f"{' '.join(command)}: {done.returncode}, {done.stderr}, not {word}")


def compare_settings(txgen, folder):
    config = LlamaConfig(**FAMILY)
    torch.manual_seed(2)
    AutoModelForCausalLM.from_config(config).save_pretrained(f"{folder}/model")
    ids = torch.arange(3, 20)[None]
    adapt = (txgen, "--model", f"{folder}/model", "--ids", " ".join(map(str, ids[0].tolist())), "--logits",
             f"{folder}/logits", "--adapter")
    for i, (settings, key) in enumerate(SETTINGS):
        arguments = dict(dict(r=4, lora_alpha=8, task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"]),
                         **settings)
        model = get_peft_model(load(config, f"{folder}/model"), LoraConfig(**arguments))
        for weight in model.parameters():
            weight.data += 0.05 * weight.requires_grad * torch.randn_like(weight)
        model.save_pretrained(f"{folder}/{i}")
        if key:
            fails(key, *adapt, f"{folder}/{i}")
            continue
        succeed(*adapt, f"{folder}/{i}")
        with torch.no_grad():
            wanted = PeftModel.from_pretrained(load(config, f"{folder}/model"),
                                               f"{folder}/{i}").eval()(input_ids=ids).logits
        off = greatest(load_file(f"{folder}/logits")["logits"], wanted)
        check(off <= LOGITS, f"{settings}: logits differ by {off}")
    compare_merged(txgen, folder, config, adapt)


def compare_initial(txtrain, folder):
    """An adapter that takes over a part of the weights trains as in peft from the first step on, and peft loads it."""
    config = LlamaConfig(**FAMILY)
    torch.manual_seed(4)
    AutoModelForCausalLM.from_config(config).save_pretrained(f"{folder}/model")
    told, batch = data(folder, config)
    for kind in ("pissa", "olora", "loftq"):
        ours = train_ours(txtrain, folder, "cpu", kind, *told, "--model_name_or_path", f"{folder}/model", "--lora_r",
                          "4", "--lora_alpha", "6", "--lora_target_modules", "q_proj,v_proj,down_proj",
                          "--init_lora_weights", kind)
        model = load(config, f"{folder}/model")
        model.loss_type = "ForCausalLM"
        model = get_peft_model(model, LoraConfig(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj", "down_proj"],
                                                 init_lora_weights=kind, task_type="CAUSAL_LM",
                                                 loftq_config=LOFTQ if kind == "loftq" else {}))
        theirs = train_theirs(folder, model, batch)
        off = max((abs(a - b) for a, b in zip(ours, theirs)), default=float("nan"))
        ids = torch.arange(3, 20)[None]
        loaded = PeftModel.from_pretrained(load(config, f"{folder}/model"), f"{folder}/{kind}").eval()
        with torch.no_grad():
            logits = greatest(loaded(input_ids=ids).logits, model.eval()(input_ids=ids).logits)
        check(len(ours) == STEPS and off <= LOSS and logits <= WEIGHTS,
              f"{kind}: losses differ by {off}, logits {logits}")
        print(f"{kind}: losses {off:.1e}, logits {logits:.1e}")


def compare_tokens(txtrain, folder):
    """--trainable_token_indices begins with the rows of the model. peft trains the folder further alike."""
    config = Qwen2Config(**FAMILY, tie_word_embeddings=True)
    torch.manual_seed(4)
    AutoModelForCausalLM.from_config(config).save_pretrained(f"{folder}/model")
    told, batch = data(folder, config)
    for given in ("101,32,97", '{"embed_tokens": [101, 32], "lm_head": [97]}'):
        succeed(txtrain, "--model_name_or_path", f"{folder}/model", "--output_dir", f"{folder}/begin", "--lora_r", "4",
                "--overwrite_output_dir", "--trainable_token_indices", given, "--max_steps", "1", "--learning_rate",
                "0", *told)
        model = PeftModel.from_pretrained(load(config, f"{folder}/model"), f"{folder}/begin", is_trainable=True)
        rows = load_file(f"{folder}/begin/adapter_model.safetensors")[
            "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta"]
        table = load_file(f"{folder}/model/model.safetensors")["model.embed_tokens.weight"]
        check(torch.equal(rows, table[[101, 32, 97][:len(rows)]]), f"{given}: other rows than the model's")
        model.loss_type = "ForCausalLM"
        ours = train_ours(txtrain, folder, "cpu", "out", *told, "--overwrite_output_dir")
        theirs = train_theirs(folder, model, batch)
        off = max((abs(a - b) for a, b in zip(ours, theirs)), default=float("nan"))
        check(len(ours) == STEPS and off <= LOSS / 10, f"{given}: losses differ by {off}")
        print(f"--trainable_token_indices {given}: losses {off:.1e}")


def compare_merged(txgen, folder, config, adapt):
    """A sum in 16 bits is the one of fp32, rounded once, except for sums in another order."""
    succeed(txgen, "--model", f"{folder}/model", "--adapter", f"{folder}/0", "--save_merged", f"{folder}/bf16",
            "--dtype", "bfloat16")
    wanted = PeftModel.from_pretrained(load(config, f"{folder}/model"),
                                       f"{folder}/0").merge_and_unload().to(torch.bfloat16).state_dict()
    ours = load_file(f"{folder}/bf16/model.safetensors")
    off = sum((ours[name].to(torch.bfloat16) != wanted[name]).sum().item() for name in ours)
    check(set(ours) == set(wanted) and off <= 10, f"merged in bf16: {off} weights differ")

    weights = load_file(f"{folder}/0/adapter_model.safetensors")
    name = sorted(weights)[-1]
    for value, word, more in ((float("nan"), name, ()), (3e6, "too large for float16", ("--dtype", "float16"))):
        weights[name][:] = value
        save_file(weights, f"{folder}/0/adapter_model.safetensors")
        fails(word, *adapt, f"{folder}/0", *more)
    weights = load_file(f"{folder}/model/model.safetensors")
    weights["lm_head.weight"][0, 0] = 1e5
    save_file(weights, f"{folder}/model/model.safetensors")
    fails("lm_head.weight (F32) holds 100000", *adapt[:-1], "--dtype", "float16")


def main():
    *programs, device = sys.argv[1:]
    need_device(programs[0], device)
    for name, (config, settings) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            compare(name, programs, folder, device, config, settings)
    if device == "cpu":
        with tempfile.TemporaryDirectory() as folder:
            compare_settings(programs[1], folder)
            compare_initial(programs[0], folder)
        with tempfile.TemporaryDirectory() as folder:
            compare_tokens(programs[0], folder)
    return status()


if __name__ == "__main__":
    sys.exit(main())
