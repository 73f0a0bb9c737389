# SPDX-License-Identifier: Apache-2.0
"""Compares the text of models that also read images with transformers: logits from files with the names of published
models and of transformers' classes, greedy text, losses of steps of training, the folders that are saved (as a whole,
as a text model, as an adapter), GGUF files, and chats by a template whose contents are lists. Gemma 3n needs timm;
without it, its other parts are made up, and TX trains a step.

    wrappers.py MODEL_LOGITS TXTRAIN TXGEN TXCONVERT CHAT_IDS [NAME...]      exit status 77: transformers is not installed
"""
import importlib.util
import json
import subprocess
import sys
import tempfile

from oracle import check, decayed, fit, log_of, read_json, run, status

import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file, save_file
from random_models import LENGTH, ids_of, logits_of, run_logits
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
# Llama 4 of transformers 5.24 reads this member of its text's result, which lacks it.
transformers.modeling_outputs.MoeCausalLMOutputWithPast.image_outputs = None
STEPS, BATCH, RATE, DECAY = 5, 2, 2e-3, 0.1
SIZES = dict(vocab_size=257, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=60, max_position_embeddings=64, bos_token_id=256, eos_token_id=256, pad_token_id=None)
VISION = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, image_size=28,
              patch_size=14)
QWEN_VISION = dict(depth=1, hidden_size=32, intermediate_size=48, num_heads=2, patch_size=14, out_hidden_size=48)
QWEN = dict(image_token_id=250, video_token_id=251, vision_start_token_id=252, vision_end_token_id=253)
# Configuration, class, settings, and those of the text.
WRAPPERS = {
    "gemma3": ("Gemma3", dict(vision_config=VISION, mm_tokens_per_image=4, image_token_index=250, boi_token_index=251,
                              eoi_token_index=252), dict(head_dim=16, query_pre_attn_scalar=16, sliding_window=5,
                                                         num_hidden_layers=6)),
    "gemma3n": ("Gemma3n", dict(
        vision_config=dict(architecture="resnet10t", hidden_size=512, model_args={}),
        audio_config=dict(hidden_size=32, input_feat_size=16, conf_num_attention_heads=2, conf_num_hidden_layers=1,
                          sscp_conv_channel_size=[4, 4])), dict(
            head_dim=16, sliding_window=5, num_hidden_layers=4, num_kv_shared_layers=2, intermediate_size=[60] * 4,
            layer_types=["sliding_attention", "full_attention"] * 2, hidden_size_per_layer_input=10, laurel_rank=6,
            vocab_size_per_layer_input=250, activation_sparsity_pattern=[0.9, 0.5, 0.0, 0.0], rms_norm_eps=1.0,
            pad_token_id=0)),
    "gemma4": ("Gemma4", dict(vision_config=dict(VISION, head_dim=16, num_key_value_heads=2,
                                                 position_embedding_size=40), audio_config=None, image_token_id=250,
                              boi_token_id=251, eoi_token_id=252),
               dict(head_dim=16, global_head_dim=24, sliding_window=5, num_hidden_layers=4, num_kv_shared_layers=2,
                    layer_types=["sliding_attention", "full_attention"] * 2, use_double_wide_mlp=True,
                    hidden_size_per_layer_input=10, vocab_size_per_layer_input=257, rms_norm_eps=1.0,
                    pad_token_id=0)),
    "gemma4_unified": ("Gemma4Unified", dict(
        vision_config=dict(patch_size=4, pooling_kernel_size=2, model_patch_size=8, mm_embed_dim=32, mm_posemb_size=20,
                           output_proj_dims=32),
        audio_config=dict(audio_embed_dim=20, audio_samples_per_token=20), image_token_id=250, boi_token_id=251,
        eoi_token_id=252), dict(
            head_dim=16, global_head_dim=24, sliding_window=5, attention_k_eq_v=True, num_global_key_value_heads=1,
            layer_types=["sliding_attention", "full_attention"], rms_norm_eps=1.0, pad_token_id=0)),
    "mistral3": ("Mistral3", dict(vision_config=dict(VISION, model_type="pixtral", head_dim=16), image_token_index=250),
                 dict(model_type="mistral", head_dim=16)),
    "mistral3, untied": ("Mistral3", dict(vision_config=dict(VISION, model_type="pixtral", head_dim=16),
                                          image_token_index=250, tie_word_embeddings=False), dict(
                         model_type="mistral", head_dim=8, sliding_window=None)),
    "llama4": ("Llama4", dict(
        vision_config=dict(VISION, intermediate_size=128, vision_output_dim=32, projector_input_dim=32,
                           projector_output_dim=32, pixel_shuffle_ratio=0.5), image_token_index=250,
        boi_token_index=251, eoi_token_index=252), dict(
            head_dim=16, intermediate_size=20, intermediate_size_mlp=60, num_local_experts=4, attention_chunk_size=10,
            interleave_moe_layer_step=2, no_rope_layer_interval=2)),
    "llava": ("Llava", dict(vision_config=dict(VISION, model_type="clip_vision_model"), image_token_index=250),
              dict(model_type="llama")),
    "llava_next": ("LlavaNext", dict(vision_config=dict(VISION, model_type="clip_vision_model"), image_token_index=250),
                   dict(model_type="mistral", head_dim=12)),
    "llava_onevision": ("LlavaOnevision", dict(vision_config=dict(VISION, model_type="siglip_vision_model"),
                                               image_token_index=250, video_token_index=251), dict(model_type="qwen2")),
    "internvl": ("InternVL", dict(vision_config=dict(VISION, model_type="internvl_vision", image_size=[28, 28],
                                                     patch_size=[14, 14]), image_token_id=250), dict(
                     model_type="qwen3", head_dim=16)),
    "idefics3": ("Idefics3", dict(vision_config=VISION, image_token_id=250), dict(model_type="llama")),
    "smolvlm": ("SmolVLM", dict(vision_config=VISION, image_token_id=250), dict(model_type="llama")),
    "qwen2_vl": ("Qwen2VL", dict(QWEN, vision_config=dict(depth=1, embed_dim=32, hidden_size=48, num_heads=2,
                                                          patch_size=14, mlp_ratio=2)),
                 dict(rope_parameters=dict(rope_type="default", rope_theta=1e6, mrope_section=[2, 2, 2]))),
    "qwen2_5_vl": ("Qwen2_5_VL", dict(QWEN, vision_config=QWEN_VISION, tie_word_embeddings=True),
                   dict(rope_parameters=dict(rope_type="default", rope_theta=1e6, mrope_section=[2, 2, 2]))),
    "qwen3_vl": ("Qwen3VL", dict(QWEN, vision_config=dict(QWEN_VISION, deepstack_visual_indexes=[0],
                                                          num_position_embeddings=16)),
                 dict(head_dim=16, rope_parameters=dict(rope_type="default", rope_theta=1e5, mrope_section=[3, 3, 2],
                                                        mrope_interleaved=True))),
    "qwen3_vl_moe": ("Qwen3VLMoe", dict(QWEN, vision_config=dict(QWEN_VISION, deepstack_visual_indexes=[0],
                                                                 num_position_embeddings=16)),
                     dict(head_dim=16, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20,
                          rope_parameters=dict(rope_type="default", rope_theta=1e5, mrope_section=[3, 3, 2],
                                               mrope_interleaved=True))),
    "kimi_k25": ("Kimi_K25", dict(
        vision_config=dict(VISION, pos_emb_height=4, pos_emb_width=4, pos_emb_time=2), projection_hidden_size=32,
        tie_word_embeddings=False), dict(
            model_type="deepseek_v3", num_key_value_heads=4, q_lora_rank=20, kv_lora_rank=28, qk_nope_head_dim=10,
            qk_rope_head_dim=6, v_head_dim=12, n_routed_experts=6, n_shared_experts=1, num_experts_per_tok=2,
            moe_intermediate_size=20, first_k_dense_replace=1, n_group=1, topk_group=1, routed_scaling_factor=1.5,
            tie_word_embeddings=False)),
    "qwen3_5": ("Qwen3_5", dict(QWEN, vision_config=dict(QWEN_VISION, num_position_embeddings=16)), dict(
        head_dim=16, layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8, rope_parameters=dict(
            rope_type="default", rope_theta=1e5, partial_rotary_factor=0.5, mrope_section=[2, 1, 1],
            mrope_interleaved=True))),
    "qwen3_5_moe": ("Qwen3_5Moe", dict(QWEN, vision_config=dict(QWEN_VISION, num_position_embeddings=16)), dict(
        head_dim=16, layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8, num_experts=5, num_experts_per_tok=2,
        moe_intermediate_size=20, shared_expert_intermediate_size=28, rope_parameters=dict(
            rope_type="default", rope_theta=1e5, partial_rotary_factor=0.5, mrope_section=[2, 1, 1],
            mrope_interleaved=True))),
}
TEMPLATE = ("{% for m in messages %}[{{ m.role }}]{% for part in m.content %}{% if part.type == 'text' %}"
            "{{ part.text }}{% else %}<image>{% endif %}{% endfor %}{{ eos_token }}{% endfor %}")
PROCESSOR = '{"image_seq_length": 4,  "do_resize": true}'
TEXT = "".join(f"line {i}: the {('cat', 'dog', 'bird')[i * i % 3]} saw {i % 7} fish\n" for i in range(200)).encode()


def make(kind, settings, text):
    config = getattr(transformers, f"{kind}Config")(text_config={**SIZES, **text}, experts_implementation="eager",
                                                    **settings)
    torch.manual_seed(0)
    return drawn(kind, getattr(transformers, f"{kind}ForConditionalGeneration")(config).float().eval())


def drawn(kind, model):
    """The model with random weights."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * 0.1 + (1.0 if "norm" in name and kind != "Gemma3" else 0))
    return model


def add_files(folder):
    """A tokenizer of bytes, a file of the image processor, and a template whose contents are lists."""
    letters = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = Tokenizer(models.BPE(vocab=letters, merges=[]))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.add_special_tokens(["</s>"])
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>").save_pretrained(folder)
    with open(f"{folder}/preprocessor_config.json", "w", encoding="utf-8") as file:
        file.write(PROCESSOR)


def chat(folder, program):
    """A template in chat_template.json, and contents as a text and as parts."""
    with open(f"{folder}/chat_template.json", "w", encoding="utf-8") as file:
        json.dump({"chat_template": TEMPLATE}, file)
    parts = [{"role": role, "content": [{"type": "text", "text": text}, {"type": "text", "text": "!"}]}
             for role, text in (("user", "a cat"), ("assistant", "a dog"))]
    texts = [{"role": m["role"], "content": m["content"][0]["text"] + "!"} for m in parts]
    image = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    want = tokenizer.apply_chat_template(parts, chat_template=TEMPLATE)["input_ids"]
    lines = "".join(json.dumps({"messages": m}) + "\n" for m in (parts, texts, image))
    done = subprocess.run([program, folder, "-"], input=lines, capture_output=True, text=True, check=False)
    got = [json.loads(line) for line in done.stdout.splitlines()]
    check([line.get("ids") for line in got] == [want, want, []], f"chat: {got} {done.stderr}, not {want}")
    check("part 2 is of type \"image_url\"" in got[-1].get("error", ""), f"chat: a part of an image: {got[-1]}")


def near(name, got, want, most=1e-5):
    error = ((got.double() - want).abs().max() / want.abs().max()).item()
    check(error <= most, f"{name}: logits differ by {error}")
    return error


def loaded(name, folder, kind):
    """The model that transformers reads from the folder."""
    back, info = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True,
                                                             experts_implementation="eager")
    check(not any(info.values()), f"{name}: loading what TX saved: {info}")
    return back.float().eval()


def read_logits(name, folder, program, kind, want):
    """Compares logits of TX, and those of transformers on what TX saved."""
    with tempfile.TemporaryDirectory() as out:
        done = run_logits(program, folder, out, "cpu")
        check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
        if done.returncode == 0:
            error = near(name, load_file(f"{out}/logits.safetensors")["logits"], want)
            near(f"{name}, saved", logits_of(loaded(name, out, f"{kind}ForConditionalGeneration").double()), want, 1e-6)
            print(f"{name}: largest relative difference {error:.1e}")


def is_text(tensor):
    return "language_model" in tensor or "text_model" in tensor or tensor.startswith(
        ("model.layers", "model.embed_tokens", "model.norm", "lm_head"))


def train(name, model, kind, folder, programs):
    """Losses of steps, and what is saved: the whole folder, or the text model."""
    txtrain, txgen, txconvert = programs
    common = dict(model_name_or_path=folder, train_file=f"{folder}/text.txt", block_size=LENGTH,
                  per_device_train_batch_size=BATCH, max_steps=STEPS, train_sampling_strategy="sequential",
                  learning_rate=RATE, lr_scheduler_type="constant", weight_decay=DECAY, device="cpu")
    with open(f"{folder}/text.txt", "wb") as file:
        file.write(TEXT)
    outs = {form: f"{folder}/{form}" for form in ("whole", "text", "adapter")}
    adapter = dict(lora_r=4, lora_target_modules="q_b_proj,kv_b_proj" if kind == "Kimi_K25" else "q_proj,v_proj")
    for form, options in zip(outs, (dict(save_steps=STEPS), dict(save_text_only=True), adapter)):
        done = run(txtrain, output_dir=outs[form], **common, **options)
        check(done.returncode == 0, f"{name}: txtrain, {form}: {done.stderr.strip()}")
        if done.returncode:
            return

    tokens = transformers.AutoTokenizer.from_pretrained(folder)(TEXT.decode()).input_ids

    def loss_of(step):
        ids = torch.tensor(tokens[step * BATCH * LENGTH:(step + 1) * BATCH * LENGTH]).reshape(BATCH, LENGTH)
        return model(input_ids=ids, labels=ids).loss
    before = load_file(f"{folder}/model.safetensors")
    theirs = fit(torch.optim.AdamW(decayed(model, DECAY), lr=RATE), STEPS, loss_of)
    worst = max(abs(a - b) for a, b in zip(log_of(outs["whole"]), theirs))
    check(worst <= 1e-4, f"{name}: losses differ by {worst}")
    after = load_file(f"{outs['whole']}/model.safetensors")
    check(set(before) == set(after), f"{name}: other tensors: {set(before) ^ set(after)}")
    for tensor in before:
        check(before[tensor].shape == after[tensor].shape, f"{name}: {tensor} has another shape")
        same = before[tensor].dtype == after[tensor].dtype and torch.equal(before[tensor], after[tensor])
        kept = not is_text(tensor) or tensor.endswith(("layer_scalar", "e_score_correction_bias"))
        check(same == kept, f"{name}: {tensor} is {'kept' if same else 'changed'}")
    with open(f"{outs['whole']}/preprocessor_config.json", encoding="utf-8") as file:
        check(file.read() == PROCESSOR, f"{name}: the processor's file differs")
    whole = loaded(name, outs["whole"], f"{kind}ForConditionalGeneration")
    want = logits_of(whole.double())
    near(f"{name}, trained", logits_of(model.double()), want, 3e-4)  # the first steps of AdamW amplify rounding
    near(f"{name}, text", logits_of(loaded(name, outs["text"], "AutoModelForCausalLM").double()), want, 1e-6)
    check("vision_config" not in read_json(outs["text"], "config.json"), f"{name}: the text model has a vision_config")
    adapted = PeftModel.from_pretrained(loaded(name, folder, f"{kind}ForConditionalGeneration"), outs["adapter"])
    adapted = adapted.double().eval()
    check(not any("lora" in n and not is_text(n.removeprefix("base_model.model.")) for n, _ in adapted.named_modules()),
          f"{name}: the adapter changes other parts")
    done = run(txgen, model=outs["adapter"], save_merged=f"{folder}/merged")
    check(done.returncode == 0, f"{name}: txgen --save_merged: {done.stderr.strip()}")
    near(f"{name}, merged", logits_of(loaded(name, f"{folder}/merged", f"{kind}ForConditionalGeneration").double()),
         logits_of(adapted), 1e-5)
    row = ids_of(model)[0, :8]
    texts = []
    sources = [outs["whole"], outs["text"], f"{outs['whole']}/checkpoint-{STEPS}"]
    done = run(txconvert, outs["whole"], to=f"{folder}/model.gguf", outtype="f32")
    refused = {"Gemma3n": "GGUF files of this class are not implemented", "Llama4": "attention_chunk_size"}
    if kind in refused:
        check(refused[kind] in done.stderr, f"{name}: txconvert: {done.stderr.strip()}")
    else:
        check(done.returncode == 0, f"{name}: txconvert: {done.stderr.strip()}")
        sources.append(f"{folder}/model.gguf")
    for source in sources:
        done = run(txgen, model=source, ids=" ".join(map(str, row.tolist())), max_new_tokens=16, temperature=0,
                   device="cpu")
        texts.append(list(map(int, done.stdout.split())) if done.returncode == 0 else done.stderr)
    own = whole.float().generate(row[None], attention_mask=torch.ones_like(row[None]), max_new_tokens=16,
                                 do_sample=False, pad_token_id=0)[0, len(row):].tolist()
    check(texts == [own] * len(sources), f"{name}: greedy texts {texts}, not {own}")
    print(f"{name}: losses of {STEPS} steps within {worst:.1e}, {theirs[0]:.3f} -> {theirs[-1]:.3f}")


def read_old(name, model, kind, programs):
    """The form of early files: the settings of the text in the whole, positions of type mrope."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        config = read_json(folder, "config.json")
        text = config.pop("text_config")
        rope = text.pop("rope_parameters")
        text.update(rope_theta=rope["rope_theta"], rope_scaling=dict(type="mrope", mrope_section=rope["mrope_section"]))
        with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
            json.dump({**text, **config, "torch_dtype": "float32"}, file)
        add_files(folder)
        read_logits(f"{name}, old form", folder, programs[0], kind, logits_of(model.double()))
        chat(folder, programs[4])


def made_up(name, text, programs):
    """The text in a folder with other tensors that belong to no model."""
    config = transformers.Gemma3nTextConfig(**{**SIZES, **text})
    torch.manual_seed(0)
    model = drawn("Gemma3n", transformers.Gemma3nForCausalLM(config).float().eval())
    others = {f"model.{part}.weight": torch.randn(5, 3).bfloat16()
              for part in ("vision_tower.timm_model.conv_stem", "audio_tower.a", "embed_vision.b", "embed_audio.c")}
    inner = {n.replace("model.", "model.language_model.", 1): t for n, t in model.state_dict().items()
             if n != "lm_head.weight"}
    with tempfile.TemporaryDirectory() as folder:
        save_file({**others, **inner}, f"{folder}/model.safetensors", metadata={"format": "pt"})
        with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
            json.dump({"model_type": "gemma3n", "architectures": ["Gemma3nForConditionalGeneration"],
                       "text_config": config.to_dict()}, file)
        add_files(folder)
        done = run_logits(programs[0], folder, f"{folder}/out", "cpu")
        check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
        near(name, load_file(f"{folder}/out/logits.safetensors")["logits"], logits_of(model.double()))
        with open(f"{folder}/text.txt", "wb") as file:
            file.write(TEXT)
        done = run(programs[1], model_name_or_path=folder, train_file=f"{folder}/text.txt", block_size=LENGTH,
                   max_steps=1, output_dir=f"{folder}/whole", device="cpu")
        check(done.returncode == 0, f"{name}: txtrain: {done.stderr.strip()}")
        after = load_file(f"{folder}/whole/model.safetensors")
    check(set(after) == {*others, *inner} and all(torch.equal(after[n], t) for n, t in others.items()),
          f"{name}: other tensors: {set(after) ^ {*others, *inner}}")
    print(f"{name}: timm is not installed: other parts are made up")


def main():
    programs = sys.argv[1:6]
    for name, (kind, settings, text) in WRAPPERS.items():
        if not name.startswith(tuple(sys.argv[6:]) or ""):
            continue
        if name == "gemma3n" and not importlib.util.find_spec("timm"):
            made_up(name, text, programs)
            continue
        model = make(kind, settings, text)
        want = logits_of(model.double())
        model.float()
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            add_files(folder)
            if name == "kimi_k25":  # transformers 5.24 saves other names than the published ones, which it reads
                saved = load_file(f"{folder}/model.safetensors")
                save_file({n.replace(".model.blocks.", ".model.layers."): t for n, t in saved.items()},
                          f"{folder}/model.safetensors", metadata={"format": "pt"})
            read_logits(name, folder, programs[0], kind, want)
            names = {n: t.contiguous().clone() for n, t in model.state_dict().items()}
            if model.config.tie_word_embeddings:
                del names["lm_head.weight"]
            saved = load_file(f"{folder}/model.safetensors")
            others = {n: t.bfloat16() if not is_text(n) else t for n, t in saved.items()}
            if name == "qwen3_vl_moe":  # published files have the transposes of the experts' matrices
                others = {n: t.transpose(1, 2).contiguous() if ".mlp.experts." in n else t for n, t in others.items()}
            if name != "kimi_k25":
                save_file(names, f"{folder}/model.safetensors", metadata={"format": "pt"})
                read_logits(f"{name}, modern names", folder, programs[0], kind, want)
            save_file(others, f"{folder}/model.safetensors", metadata={"format": "pt"})
            train(name, model, kind, folder, programs[1:4])
            if name in ("gemma3n", "gemma4"):  # published files have unused keys and values
                unused = {f"model.language_model.layers.{layer}.self_attn.{module}.weight": torch.ones(3)
                          for layer in (2, 3) for module in ("k_proj", "v_proj", "k_norm")}
                save_file({**others, **unused}, f"{folder}/model.safetensors", metadata={"format": "pt"})
                read_logits(f"{name}, unused keys and values", folder, programs[0], kind, want)
            save_file({**others, "model.third.weight": torch.ones(2)}, f"{folder}/model.safetensors",
                      metadata={"format": "pt"})
            done = run(programs[2], model=folder, ids="1 2", max_new_tokens=1)
            check(done.returncode != 0 and "unexpected model.third.weight" in done.stderr,
                  f"{name}: an unknown tensor: {done.stderr}")
        if name == "qwen2_5_vl":
            read_old(name, model, kind, programs)
    return status()


sys.exit(main())
