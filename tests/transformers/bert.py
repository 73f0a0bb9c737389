# SPDX-License-Identifier: Apache-2.0
"""Compares BERT, RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT, ELECTRA, ALBERT, MPNet, DeBERTa, ModernBERT, Nomic BERT
and their heads with transformers. Uses random weights of odd sizes and rows of different lengths. Compares logits, gradients and thirty
steps of AdamW, padding inside texts, files with old names, and folders of TX that transformers reads.

    bert.py BERT_STEPS [DEVICE]      exit status 77: transformers is not installed
"""
import os
import sys
import tempfile

from oracle import check, decayed, run, status

import torch
from safetensors.torch import load_file, save_file
from transformers import DebertaForMaskedLM, DebertaForSequenceClassification, DebertaForTokenClassification
from transformers import AlbertForMaskedLM, AlbertForSequenceClassification, AlbertForTokenClassification
from transformers import (BertForMaskedLM, BertForSequenceClassification, BertForTokenClassification,
                          CamembertForMaskedLM, CamembertForSequenceClassification, CamembertForTokenClassification,
                          DebertaV2ForMaskedLM, DebertaV2ForSequenceClassification, DebertaV2ForTokenClassification,
                          DistilBertForMaskedLM, DistilBertForSequenceClassification, DistilBertForTokenClassification,
                          ElectraForMaskedLM, ElectraForSequenceClassification, ElectraForTokenClassification,
                          ModernBertForMaskedLM, ModernBertForSequenceClassification,
                          ModernBertForTokenClassification,
                          MPNetForMaskedLM, MPNetForSequenceClassification, MPNetForTokenClassification,
                          NomicBertForMaskedLM, NomicBertForSequenceClassification, NomicBertForTokenClassification,
                          RobertaForMaskedLM, RobertaForSequenceClassification, RobertaForTokenClassification,
                          XLMRobertaForMaskedLM, XLMRobertaForSequenceClassification, XLMRobertaForTokenClassification)

torch.set_num_threads(1)
STEPS, BATCH, BLOCK, RATE = 30, 5, 19, 5e-4
BASE = dict(vocab_size=131, max_position_embeddings=23, hidden_size=30, intermediate_size=47, num_hidden_layers=3,
            num_attention_heads=5, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            attn_implementation="eager")
MODERN = dict(hidden_activation="gelu", pad_token_id=3, bos_token_id=1, eos_token_id=2, cls_token_id=1,
              sep_token_id=2, hidden_size=40, attn_implementation="sdpa")  # eager has NaN in padding
ALBERT = dict(classifier_dropout_prob=0.0, pad_token_id=0, bos_token_id=1, eos_token_id=2)
DEBERTA = dict(type_vocab_size=0, relative_attention=True, position_buckets=8, norm_rel_ebd="layer_norm",
               share_att_key=True, pos_att_type="p2c|c2p", position_biased_input=False, layer_norm_eps=1e-7)
FIRST = dict(type_vocab_size=0, relative_attention=True, pos_att_type=["c2p", "p2c"], position_biased_input=False,
             layer_norm_eps=1e-7)
VARIANTS = {
    "two labels": (BertForSequenceClassification, {}),
    "five labels": (BertForSequenceClassification, dict(num_labels=5)),
    "tanh gelu, epsilon": (BertForSequenceClassification, dict(hidden_act="gelu_new", layer_norm_eps=1e-2)),
    "silu, three types": (BertForSequenceClassification, dict(hidden_act="silu", type_vocab_size=3)),
    "a head, odd width": (BertForSequenceClassification, dict(hidden_size=37, num_attention_heads=1)),
    "masked": (BertForMaskedLM, {}),
    "masked, one layer": (BertForMaskedLM, dict(num_hidden_layers=1, vocab_size=257, hidden_size=40)),
    "no padding": (BertForMaskedLM, dict(pad_token_id=None)),
    "RoBERTa": (RobertaForSequenceClassification, dict(type_vocab_size=1)),
    "RoBERTa, two types, silu": (RobertaForSequenceClassification, dict(num_labels=3, hidden_act="silu", hidden_size=37,
                                                                        num_attention_heads=1)),
    "RoBERTa, padding 3": (RobertaForSequenceClassification, dict(type_vocab_size=1, pad_token_id=3)),
    "RoBERTa, masked": (RobertaForMaskedLM, dict(type_vocab_size=1)),
    "RoBERTa, masked, tanh gelu": (RobertaForMaskedLM,
                                   dict(hidden_act="gelu_new", vocab_size=257, num_hidden_layers=1)),
    "BERT, tokens": (BertForTokenClassification, dict(num_labels=5, hidden_act="relu")),
    "RoBERTa, tokens": (RobertaForTokenClassification, dict(num_labels=3, type_vocab_size=1)),
    "XLM-RoBERTa": (XLMRobertaForSequenceClassification, dict(num_labels=3, type_vocab_size=1)),
    "XLM-RoBERTa, masked": (XLMRobertaForMaskedLM, dict(type_vocab_size=1)),
    "XLM-RoBERTa, tokens": (XLMRobertaForTokenClassification, dict(num_labels=5, type_vocab_size=1)),
    "CamemBERT": (CamembertForSequenceClassification, dict(type_vocab_size=1)),
    "CamemBERT, masked": (CamembertForMaskedLM, dict(type_vocab_size=1)),
    "CamemBERT, tokens": (CamembertForTokenClassification, dict(num_labels=4, type_vocab_size=1)),
    "DistilBERT": (DistilBertForSequenceClassification, dict(num_labels=3)),
    "DistilBERT, relu, one layer": (DistilBertForSequenceClassification, dict(activation="relu", num_hidden_layers=1)),
    "DistilBERT, masked": (DistilBertForMaskedLM, {}),
    "DistilBERT, tokens": (DistilBertForTokenClassification, dict(num_labels=5, hidden_size=37, num_attention_heads=1)),
    "ELECTRA": (ElectraForSequenceClassification, dict(num_labels=3, embedding_size=21)),
    "ELECTRA, embeddings of the width": (ElectraForSequenceClassification, dict(embedding_size=30, hidden_act="silu")),
    "ELECTRA, generator": (ElectraForMaskedLM, dict(embedding_size=13, hidden_act="relu")),
    "ELECTRA, generator of the width": (ElectraForMaskedLM, dict(embedding_size=30)),
    "ELECTRA, tokens": (ElectraForTokenClassification, dict(num_labels=5, embedding_size=44)),
    "ALBERT": (AlbertForSequenceClassification, dict(num_labels=3, embedding_size=13, **ALBERT)),
    "ALBERT, embeddings of the width, gelu": (AlbertForSequenceClassification, dict(
        ALBERT, embedding_size=30, hidden_act="gelu", type_vocab_size=3)),
    "ALBERT, masked": (AlbertForMaskedLM, dict(embedding_size=21, **ALBERT)),
    "ALBERT, tokens": (AlbertForTokenClassification, dict(num_labels=5, embedding_size=13, **ALBERT)),
    "ModernBERT": (ModernBertForSequenceClassification, dict(num_labels=3, **MODERN)),
    "ModernBERT, mean": (ModernBertForSequenceClassification,
                         dict(num_labels=3, classifier_pooling="mean", **MODERN)),
    "ModernBERT, near positions": (ModernBertForTokenClassification,
                                   dict(num_labels=5, num_hidden_layers=4, **dict(MODERN, local_attention=8))),
    "ModernBERT, masked, near positions": (ModernBertForMaskedLM, dict(MODERN, local_attention=6)),
    "DeBERTa": (DebertaV2ForSequenceClassification, dict(num_labels=3, **DEBERTA)),
    "DeBERTa, every distance, silu": (DebertaV2ForSequenceClassification,
                                      dict(DEBERTA, position_buckets=-1, max_relative_positions=11,
                                           pooler_hidden_act="silu", cls_dropout=0.0)),
    "DeBERTa, masked": (DebertaV2ForMaskedLM, DEBERTA),
    "DeBERTa, masked, without legacy": (DebertaV2ForMaskedLM, dict(DEBERTA, legacy=False)),
    "DeBERTa, tokens, own projections": (DebertaV2ForTokenClassification,
                                         dict(DEBERTA, num_labels=5, share_att_key=False, norm_rel_ebd="none",
                                              type_vocab_size=2, position_biased_input=True)),
    "DeBERTa 1": (DebertaForSequenceClassification, dict(FIRST, num_labels=3, pooler_hidden_act="gelu")),
    "DeBERTa 1, masked, near distances": (DebertaForMaskedLM, dict(FIRST, max_relative_positions=11)),
    "DeBERTa 1, tokens, types, positions": (DebertaForTokenClassification, dict(
        FIRST, num_labels=5, type_vocab_size=2, position_biased_input=True, pos_att_type="p2c|c2p")),
    "Nomic BERT": (NomicBertForSequenceClassification, dict(num_labels=3)),
    "Nomic BERT, masked, faster rotation": (NomicBertForMaskedLM, dict(
        hidden_size=40, rope_parameters=dict(rope_type="default", rope_theta=50.0))),
    "Nomic BERT, tokens": (NomicBertForTokenClassification, dict(num_labels=5, type_vocab_size=3)),
    "MPNet": (MPNetForSequenceClassification, dict(num_labels=3)),
    "MPNet, masked": (MPNetForMaskedLM, {}),
    "MPNet, tokens, far positions": (MPNetForTokenClassification, dict(num_labels=5, max_position_embeddings=160)),
}
# DistilBERT has its own names.
NAMES = dict(intermediate_size="hidden_dim", hidden_dropout_prob="dropout",
             attention_probs_dropout_prob="attention_dropout")


def is_distilbert(kind):
    return kind.__name__.startswith("DistilBert")


def make_model(kind, changes):
    """A model whose logits depend on every parameter."""
    torch.manual_seed(0)
    keys = {**BASE, **changes}
    if is_distilbert(kind):
        keys = {NAMES.get(key, key): value for key, value in keys.items()} | dict(seq_classif_dropout=0.0)
    model = kind(kind.config_class(**keys)).train()
    with torch.no_grad():
        for name, p in model.named_parameters():
            is_norm = name.lower().replace("_", "").endswith("layernorm.weight")
            p.copy_(torch.randn_like(p) * 0.1 + (1.0 if is_norm else 0.0))
    return model


def make_data(model, kind):
    torch.manual_seed(1)
    config = model.config
    ids = torch.randint(0, config.vocab_size, (STEPS, BATCH, BLOCK))
    if config.pad_token_id is not None:
        ids[torch.rand(ids.shape) < 0.1] = config.pad_token_id
    types = torch.randint(0, max(getattr(config, "type_vocab_size", 1), 1), ids.shape)
    lengths = torch.randint(1, BLOCK + 1, (STEPS, BATCH))
    lengths[:, 0] = BLOCK
    if "Sequence" in kind.__name__:
        return ids, types, lengths, ids[:, :, 0] % config.num_labels  # what [CLS] sees
    hidden = (torch.rand(ids.shape) < 0.5) & (torch.arange(BLOCK) < lengths[..., None])
    count = config.num_labels if "Token" in kind.__name__ else config.vocab_size
    return ids, types, lengths, torch.where(hidden, (ids + 1) % count, torch.tensor(-100))


def train(model, data, dtype=torch.float64):
    """Losses, logits and gradients of the first step."""
    model = model.to(dtype)
    optimizer = torch.optim.AdamW(decayed(model, 0.01), lr=RATE)
    losses, first = [], None
    for ids, types, lengths, labels in zip(*data):
        mask = (torch.arange(BLOCK) < lengths[:, None]).long()
        typed = {} if is_distilbert(type(model)) else dict(token_type_ids=types)
        out = model(input_ids=ids, attention_mask=mask, labels=labels, **typed)
        optimizer.zero_grad()
        out.loss.backward()
        if first is None:
            first = {"logits": out.logits.detach().clone()}
            first |= {name: p.grad.clone() for name, p in model.named_parameters(remove_duplicate=False)}
        optimizer.step()
        losses.append(out.loss.item())
    return losses, first


def far(got, want):
    """The largest difference, of the size of the largest number."""
    return ((got.double() - want).abs().max() / want.abs().max()).item()


# The names of Nomic BERT in files, which TX has, and in transformers' class.
NOMIC = {"emb_ln": "embeddings.LayerNorm", "encoder.layers": "layers", "attn.Wqkv": "self_attn.q_proj|k_proj|v_proj",
         "attn.out_proj": "self_attn.o_proj", "fc12|fc11": "gate_proj|up_proj", "fc2": "down_proj",
         "norm1": "post_attention_layernorm", "norm2": "post_mlp_layernorm"}


def joined(name, theirs):
    """TX holds query, key and value as one."""
    for old, new in NOMIC.items() if name.startswith("nomic_bert.") else ():
        name = name.replace(old, new)
    if "|" not in name:
        return theirs[name]
    path = name.split(".")
    at = next(i for i, part in enumerate(path) if "|" in part)
    return torch.cat([theirs[".".join(path[:at] + [part] + path[at + 1:])] for part in path[at].split("|")])


def train_by_tx(program, folder, out, data, device):
    """The same by TX, which also saves the model."""
    with open(os.path.join(folder, "data"), "wb") as file:
        for step in zip(*data):
            for field in step:
                file.write(field.int().numpy().tobytes())
    return run(program, folder, os.path.join(folder, "data"), out, str(len(data[0])), str(BATCH), str(BLOCK), str(RATE),
               device)


def differences(losses, first, exact, data, kind):
    """How far logits, gradients and losses are from exact ones."""
    inside = (torch.arange(BLOCK) < data[2][0][:, None])[..., None]
    real = torch.ones(BATCH, 1) if "Sequence" in kind.__name__ else inside
    size = max(p.abs().max() for key, p in exact[1].items() if key != "logits")
    gradients = max(((g.double() - joined(key, exact[1])).abs().max() / size).item()
                    for key, g in first.items() if key != "logits")
    return (far(first["logits"] * real, exact[1]["logits"] * real), gradients,
            max(abs(a - b) for a, b in zip(exact[0], losses, strict=True)))


def compare(name, kind, changes, program, device, prepare=None):
    model = make_model(kind, changes)
    data = make_data(model, kind)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as out:
        model.save_pretrained(folder)
        if prepare:
            prepare(os.path.join(folder, "model.safetensors"))
        done = train_by_tx(program, folder, out, data, device)
        check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
        if done.returncode:
            return
        back, info = kind.from_pretrained(out, attn_implementation="eager", output_loading_info=True)
        check(not any(info.values()), f"{name}: loading what TX saved: {info}")
        check(all(torch.equal(a, b) for a, b in zip(back.state_dict().values(), model.state_dict().values())),
              f"{name}: what TX saved differs")
        exact = train(model, data)
        logits, gradients, curve = differences(list(map(float, done.stdout.split())),
                                               load_file(os.path.join(out, "first.safetensors")), exact, data, kind)
        check(logits <= 1e-5 and gradients <= 1e-4 and curve <= 1e-4,
              f"{name}: logits differ by {logits}, gradients by {gradients}, losses by {curve}")
        losses = exact[0]
        check(losses[-1] != losses[0], f"{name}: nothing was learned")
        trained = kind.from_pretrained(os.path.join(out, "trained")).state_dict()
        # The softmax does not see the keys' biases: their gradients are rounding errors, which Adam follows.
        moved = max(far(trained[key], p) for key, p in model.state_dict().items()
                    if not key.endswith(("key.bias", "k_lin.bias", "attn.k.bias", "key_proj.bias")))
        check(moved <= 1e-4, f"{name}: weights after {STEPS} steps differ by {moved}")
        print(f"{name}: logits {logits:.1e}, gradients {gradients:.1e}, losses {losses[0]:.3f} to {losses[-1]:.3f} "
              f"{curve:.1e}, trained weights {moved:.1e}")


def old_names(path):
    """Writes names as in weights converted from TensorFlow, with the other tensors of such files."""
    state = load_file(path)
    state = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): p
             for name, p in state.items()}
    state["bert.embeddings.position_ids"] = torch.arange(23).float()[None]
    state["cls.seq_relationship.weight"] = torch.zeros(2, 30)
    save_file(state, path, {"format": "pt"})


def published(path):
    """Writes names as in RoBERTa's files, with a pooler, and with the decoder next to the embedding."""
    state = load_file(path)
    state["roberta.embeddings.position_ids"] = torch.arange(23).float()[None]
    state["roberta.pooler.dense.weight"] = torch.zeros(30, 30)
    state["roberta.pooler.dense.bias"] = torch.zeros(30)
    state["lm_head.decoder.weight"] = state["roberta.embeddings.word_embeddings.weight"].clone()
    save_file(state, path, {"format": "pt"})


def bare(path):
    """As the encoder alone is stored; the head keeps its names."""
    state = load_file(path)
    state = {name.removeprefix("bert.").removeprefix("distilbert.").removeprefix("electra."): p
             for name, p in state.items()}
    save_file(state, path, {"format": "pt"})


def discriminator(path):
    """As ELECTRA's published discriminators are, under a classifier."""
    state = load_file(path)
    state["discriminator_predictions.dense.weight"] = torch.zeros(30, 30)
    state["generator_lm_head.bias"] = torch.zeros(131)
    save_file(state, path, {"format": "pt"})


def projector(path):
    """As DistilBERT's published files are, with the decoder beside the embedding."""
    state = load_file(path)
    state["vocab_projector.weight"] = state["distilbert.embeddings.word_embeddings.weight"].clone()
    save_file(state, path, {"format": "pt"})


def stored_twice(path):
    state = load_file(path)
    state["cls.predictions.decoder.weight"] = state["bert.embeddings.word_embeddings.weight"].clone()
    state["cls.predictions.decoder.bias"] = state["cls.predictions.bias"].clone()
    save_file(state, path, {"format": "pt"})


def main():
    program, device = sys.argv[1], (sys.argv[2:] or ["cpu"])[0]
    for name, (kind, changes) in VARIANTS.items():
        compare(name, kind, changes, program, device)
    compare("old names", BertForSequenceClassification, {}, program, device, old_names)
    compare("masked, old names", BertForMaskedLM, {}, program, device, old_names)
    compare("RoBERTa, masked, as published", RobertaForMaskedLM, {}, program, device, published)
    compare("masked, stored twice", BertForMaskedLM, {}, program, device, stored_twice)
    compare("bare BERT", BertForTokenClassification, {}, program, device, bare)
    compare("bare DistilBERT", DistilBertForSequenceClassification, {}, program, device, bare)
    compare("bare ELECTRA", ElectraForTokenClassification, dict(embedding_size=21), program, device, bare)
    compare("DistilBERT, as published", DistilBertForMaskedLM, {}, program, device, projector)
    compare("ELECTRA, as published", ElectraForSequenceClassification, dict(embedding_size=21), program, device,
            discriminator)
    return status()


if __name__ == "__main__":
    sys.exit(main())
