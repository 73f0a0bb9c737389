# SPDX-License-Identifier: Apache-2.0
"""Compares families that are variants of Llama with transformers: logits and gradients of random weights with the keys
of published configurations, folders that TX writes, steps of training, and greedy text.

    families.py MODEL_LOGITS TXTRAIN TXGEN [DEVICE [NAME...]]      exit status 77: transformers is not installed
"""
import sys
import tempfile

from oracle import check, read_json, run, status

import torch
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as DEFAULT_MODULES
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers import ApertusConfig, ArceeConfig, CohereConfig, GraniteMoeConfig, HeliumConfig, NemotronConfig
from transformers import (Ernie4_5Config, Exaone4Config, GemmaConfig, HunYuanDenseV1Config, Olmo3Config, OlmoeConfig,
                          PhiConfig, SeedOssConfig, Starcoder2Config)
from transformers import (Gemma2Config, Gemma3nTextConfig, Gemma3TextConfig, Gemma4TextConfig, Gemma4UnifiedTextConfig,
                          GptOssConfig, GPTNeoXConfig, GraniteConfig, LlamaConfig, Olmo2Config, Phi3Config,
                          SmolLM3Config, StableLmConfig)
from transformers import (BloomConfig, Cohere2Config, Cohere2MoeConfig, Ministral3Config, MinistralConfig, MptConfig,
                          NanoChatConfig, OlmoConfig)
from transformers import (DeepseekV2Config, DeepseekV32Config, DeepseekV3Config, Dots1Config, Ernie4_5_MoeConfig,
                          ExaoneMoeConfig, FlexOlmoConfig, Glm4MoeConfig, Glm4MoeLiteConfig, GlmMoeDsaConfig,
                          GraniteMoeSharedConfig, HunYuanMoEV1Config, MiniCPM3Config, MiniMaxM2Config, Mistral4Config, ModernBertDecoderConfig, PhimoeConfig)
from transformers import Llama4TextConfig, Mistral4ForCausalLM
from transformers import FalconConfig, Glm4Config, GlmConfig, GPTBigCodeConfig, GPTJConfig, GPTNeoConfig, OPTConfig
from random_models import compare, generate, gradients, make_model, train

AutoModelForCausalLM.register(Mistral4Config, Mistral4ForCausalLM, exist_ok=True)  # has it only in wrappers
BASE = dict(vocab_size=300, max_position_embeddings=48, hidden_size=48, intermediate_size=76, num_hidden_layers=3,
            num_attention_heads=6, num_key_value_heads=2, bos_token_id=1, eos_token_id=2, pad_token_id=0,
            attn_implementation="eager", experts_implementation="eager")
LONGROPE = dict(type="longrope", short_factor=[1.0, 1.02, 1.03], long_factor=[1.05, 1.5, 3.0])
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
# DeepSeek-V3's routing, and the sizes of latent attention.
ROUTED = dict(n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=3, moe_intermediate_size=20,
              first_k_dense_replace=1, n_group=1, topk_group=1, routed_scaling_factor=1.5, norm_topk_prob=True)
GROUPS = dict(ROUTED, n_group=4, topk_group=2)
LATENT = dict(num_key_value_heads=6, q_lora_rank=20, kv_lora_rank=28, qk_nope_head_dim=10, qk_rope_head_dim=6,
              v_head_dim=12)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=12, beta_fast=32.0,
            beta_slow=1.0)
# Two layers with a window before each without one. Rounding grows less with a large epsilon.
GEMMA4 = dict(num_hidden_layers=6, head_dim=12, global_head_dim=16, sliding_window=5, rope_parameters=None,
              rms_norm_eps=1.0, layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2, final_logit_softcapping=3.0,
              tie_word_embeddings=True)
LAYER_INPUTS = dict(GEMMA4, hidden_size_per_layer_input=10, vocab_size_per_layer_input=300)
# The same without heads of their own. The last tokens have no rows in the table of layers' embeddings.
GEMMA3N = dict({k: v for k, v in LAYER_INPUTS.items() if k != "global_head_dim"}, vocab_size_per_layer_input=250,
               laurel_rank=7)
# The first variant of a type of configuration trains too, and the first with ALiBi, and with experts next to an MLP.
# "eager" Falcons add ALiBi twice.
VARIANTS = {
    "phi3 as Phi-3-mini-4k": (Phi3Config, dict(rope_scaling=None, rope_theta=10000.0, sliding_window=2047,
                                               resid_pdrop=0.0, embd_pdrop=0.0)),
    "phi3 as Phi-4-mini, long": (Phi3Config, dict(
        rope_scaling=LONGROPE, partial_rotary_factor=0.75, original_max_position_embeddings=7, sliding_window=262144,
        tie_word_embeddings=True)),
    "phi3 as Phi-3.5-mini, short": (Phi3Config, dict(
        rope_scaling=dict(LONGROPE, short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.0, 2.0, 3.0, 4.0]),
        max_position_embeddings=4096, original_max_position_embeddings=1024)),
    "phi3, a part of each head, a window": (Phi3Config, dict(
        hidden_size=60, partial_rotary_factor=0.4, sliding_window=5, num_key_value_heads=6)),
    "olmo2": (Olmo2Config, dict(num_key_value_heads=2, rms_norm_eps=1e-6, rope_theta=500000, rope_scaling=None)),
    "olmo2, biases, tied": (Olmo2Config, dict(num_key_value_heads=None, attention_bias=True, tie_word_embeddings=True)),
    "smollm3": (SmolLM3Config, dict(
        no_rope_layers=[1, 1, 0], no_rope_layer_interval=4, rope_theta=5000000.0, rope_scaling=None, pretraining_tp=2,
        tie_word_embeddings=True, use_sliding_window=False, layer_types=["full_attention"] * 3)),
    "smollm3, its interval, windows": (SmolLM3Config, dict(
        no_rope_layer_interval=2, use_sliding_window=True, sliding_window=5, attention_bias=True, mlp_bias=True,
        tie_word_embeddings=False)),
    "granite as Granite 3.3": (GraniteConfig, dict(
        embedding_multiplier=12.0, attention_multiplier=0.015625, residual_multiplier=0.22, logits_scaling=8.0,
        rope_theta=10000000.0, tie_word_embeddings=True)),
    "granite, biases": (GraniteConfig, dict(
        attention_bias=True, mlp_bias=True, embedding_multiplier=3, logits_scaling=0.5)),
    "gemma2 as Gemma 2 2B": (Gemma2Config, dict(
        head_dim=16, query_pre_attn_scalar=256, rope_theta=10000.0, sliding_window=5, attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0, hidden_activation="gelu_pytorch_tanh", cache_implementation="hybrid",
        tie_word_embeddings=True)),
    "gemma2, strong caps": (Gemma2Config, dict(
        head_dim=12, query_pre_attn_scalar=24, sliding_window=4, attn_logit_softcapping=2.0,
        final_logit_softcapping=5.0, attention_bias=True, tie_word_embeddings=False)),
    "gpt_oss as gpt-oss-20b": (GptOssConfig, dict(
        head_dim=8, num_local_experts=5, num_experts_per_tok=2, sliding_window=5, rope_theta=150000, swiglu_limit=7.0,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"], attention_bias=True,
        experts_per_token=2, initial_context_length=4096, rope_scaling=dict(
            beta_fast=32.0, beta_slow=1.0, factor=32.0, original_max_position_embeddings=16, rope_type="yarn",
            truncate=False))),
    "gpt_oss, strong limits": (GptOssConfig, dict(
        head_dim=12, num_local_experts=3, num_experts_per_tok=1, sliding_window=4, swiglu_limit=0.7, swiglu_alpha=2.5)),
    "gemma3 as Gemma 3 1B": (Gemma3TextConfig, dict(
        head_dim=16, query_pre_attn_scalar=256, num_key_value_heads=1, rope_theta=1000000, rope_local_base_freq=10000,
        rope_scaling=None, sliding_window=5, sliding_window_pattern=2, hidden_activation="gelu_pytorch_tanh",
        attn_logit_softcapping=None, final_logit_softcapping=None, tie_word_embeddings=True)),
    "gemma3, scaled, capped logits, biases": (Gemma3TextConfig, dict(
        head_dim=12, query_pre_attn_scalar=24, sliding_window=4, final_logit_softcapping=3.0, attention_bias=True,
        tie_word_embeddings=False, layer_types=["full_attention", "sliding_attention", "full_attention"],
        rope_scaling=dict(rope_type="linear", factor=8.0))),
    "gemma3n as Gemma 3n E2B": (Gemma3nTextConfig, dict(
        GEMMA3N, num_kv_shared_layers=3, activation_sparsity_pattern=[0.95, 0.95, 0.5, 0.2, 0.0, 0.0],
        intermediate_size=[76] * 6)),
    "gemma3n, widths of layers": (Gemma3nTextConfig, dict(
        GEMMA3N, vocab_size_per_layer_input=300, num_kv_shared_layers=2, intermediate_size=[76, 60, 76, 90, 40, 76],
        activation_sparsity_pattern=[0.0, 0.3, 0.0, 0.6, 0.0, 0.1],
        layer_types=["full_attention", "sliding_attention"] * 3)),
    "gemma3n, its pattern, biases, untied": (Gemma3nTextConfig, dict(
        GEMMA3N, num_hidden_layers=11, num_kv_shared_layers=0, layer_types=None, attention_bias=True,
        altup_coef_clip=0.1, tie_word_embeddings=False)),
    "gemma4 as Gemma 4 E2B": (Gemma4TextConfig, dict(LAYER_INPUTS, num_kv_shared_layers=3, use_double_wide_mlp=True)),
    "gemma4 as Gemma 4 31B": (Gemma4TextConfig, dict(
        GEMMA4, hidden_size_per_layer_input=0, attention_k_eq_v=True, global_head_dim=320, num_global_key_value_heads=1,
        use_bidirectional_attention="vision")),
    "gemma4 as Gemma 4 26B-A4B": (Gemma4TextConfig, dict(
        GEMMA4, hidden_size_per_layer_input=0, num_hidden_layers=4, layer_types=GEMMA4["layer_types"][1:5],
        attention_k_eq_v=True, num_global_key_value_heads=3, enable_moe_block=True, num_experts=5, top_k_experts=2,
        moe_intermediate_size=20)),
    "gemma4, shared by most layers, biases, untied": (Gemma4TextConfig, dict(
        LAYER_INPUTS, num_kv_shared_layers=4, layer_types=["sliding_attention", "full_attention"] * 3,
        attention_bias=True, attention_k_eq_v=True, final_logit_softcapping=None, tie_word_embeddings=False)),
    "gemma4_unified as Gemma 4 12B": (Gemma4UnifiedTextConfig, dict(
        GEMMA4, attention_k_eq_v=True, num_global_key_value_heads=1)),
    "gemma4_unified, shared keys": (Gemma4UnifiedTextConfig, dict(
        GEMMA4, num_kv_shared_layers=3, use_double_wide_mlp=True)),
    "stablelm as StableLM 2 1.6B": (StableLmConfig, dict(
        num_key_value_heads=6, partial_rotary_factor=0.25, use_qkv_bias=True, layer_norm_eps=1e-5, rope_theta=10000,
        hidden_dropout=0.0, qk_layernorm=False, use_parallel_residual=False)),
    "stablelm, parallel": (StableLmConfig, dict(hidden_size=96, partial_rotary_factor=0.5, use_parallel_residual=True)),
    "stablelm, llama3": (StableLmConfig, dict(hidden_size=96, rope_parameters=dict(LLAMA3, partial_rotary_factor=0.5))),
    "gpt_neox, llama3": (GPTNeoXConfig, dict(hidden_size=96, rope_parameters=dict(LLAMA3, partial_rotary_factor=0.5))),
    "gpt_neox as Pythia": (GPTNeoXConfig, dict(
        rotary_pct=0.25, rotary_emb_base=10000, hidden_act="gelu", layer_norm_eps=1e-5, use_parallel_residual=True,
        hidden_dropout=0.0)),
    "gpt_neox, not parallel, without biases": (GPTNeoXConfig, dict(
        rotary_pct=1.0, rotary_emb_base=5000, hidden_act="gelu_fast", use_parallel_residual=False,
        attention_bias=False)),
    "gemma as Gemma 2B": (GemmaConfig, dict(head_dim=16, num_key_value_heads=1, hidden_act="gelu", rope_theta=10000.0,
                                            hidden_activation=None)),
    "seed_oss": (SeedOssConfig, dict(head_dim=12, attention_bias=True, attention_out_bias=False, attention_dropout=0.0,
                                     residual_dropout=0.0, mlp_bias=False, rope_scaling=dict(rope_type="default"))),
    "seed_oss, other biases": (SeedOssConfig, dict(head_dim=8, attention_bias=False, attention_out_bias=True,
                                                   mlp_bias=True)),
    "exaone4 as EXAONE 4 32B": (Exaone4Config, dict(
        head_dim=8, sliding_window=5, sliding_window_pattern="LLG", rope_theta=1000000,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"])),
    "exaone4 as EXAONE 4 1.2B": (Exaone4Config, dict(sliding_window=None, sliding_window_pattern=None,
                                                     layer_types=["full_attention"] * 3, tie_word_embeddings=True)),
    "starcoder2 as StarCoder 2 3B": (Starcoder2Config, dict(
        hidden_act="gelu_pytorch_tanh", norm_epsilon=1e-5, sliding_window=5, use_bias=True, residual_dropout=0.0,
        embedding_dropout=0.0, rope_theta=999999.4420358813, norm_type="layer_norm", mlp_type="default")),
    "starcoder2, without biases": (Starcoder2Config, dict(use_bias=False, sliding_window=None,
                                                          tie_word_embeddings=False)),
    "phi as Phi-2": (PhiConfig, dict(
        hidden_act="gelu_new", num_key_value_heads=None, partial_rotary_factor=0.5, qk_layernorm=False,
        resid_pdrop=0.0, embd_pdrop=0.0, layer_norm_eps=1e-5, rope_theta=10000.0)),
    "ernie4_5 as ERNIE 4.5 0.3B": (Ernie4_5Config, dict(head_dim=16, use_bias=False, rope_theta=500000,
                                                        tie_word_embeddings=True)),
    "ernie4_5, biases": (Ernie4_5Config, dict(head_dim=8, use_bias=True, tie_word_embeddings=False)),
    "hunyuan_v1_dense as Hunyuan 0.5B": (HunYuanDenseV1Config, dict(
        head_dim=16, attention_bias=False, use_qk_norm=True, tie_word_embeddings=True, rope_scaling=dict(
            alpha=1000.0, beta_fast=32, beta_slow=1, factor=1.0, mscale=1.0, mscale_all_dim=1.0, type="dynamic"))),
    "olmo3": (Olmo3Config, dict(
        num_key_value_heads=2, sliding_window=5, rope_theta=500000,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"], rope_scaling=dict(
            rope_type="yarn", factor=8.0, original_max_position_embeddings=16, attention_factor=1.2, beta_fast=32,
            beta_slow=1))),
    "olmoe as OLMoE 1B-7B": (OlmoeConfig, dict(num_key_value_heads=3, num_experts=5, num_experts_per_tok=2,
                                               norm_topk_prob=False, clip_qkv=None, rope_theta=10000.0)),
    "olmoe, all heads": (OlmoeConfig, dict(num_key_value_heads=6, num_experts=5, num_experts_per_tok=2)),
    "arcee as AFM 4.5B": (ArceeConfig, dict(head_dim=8, hidden_act="relu2", rope_theta=10000, attention_bias=False,
                                            rope_scaling=dict(rope_type="yarn", factor=20.0, beta_fast=32.0,
                                                              beta_slow=1.0, mscale=1.0,
                                                              original_max_position_embeddings=16))),
    "arcee, biases": (ArceeConfig, dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    "cohere, biases": (CohereConfig, dict(logit_scale=0.8, attention_bias=True, tie_word_embeddings=False)),
    "cohere as Command-R": (CohereConfig, dict(logit_scale=0.0625, layer_norm_eps=1e-5, rope_theta=8000000.0,
                                               use_qk_norm=False, attention_bias=False, tie_word_embeddings=True)),
    "granitemoe as Granite 3 1B": (GraniteMoeConfig, dict(
        num_local_experts=5, num_experts_per_tok=2, embedding_multiplier=12.0, attention_multiplier=0.015625,
        residual_multiplier=0.22, logits_scaling=6.0, rope_theta=10000, tie_word_embeddings=True)),
    "helium as Helium-1": (HeliumConfig, dict(head_dim=8, num_key_value_heads=6, rope_theta=100000.0)),
    "helium, biases": (HeliumConfig, dict(head_dim=8, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    "nemotron as Minitron": (NemotronConfig, dict(norm_eps=1e-5, partial_rotary_factor=0.5, rope_theta=10000.0,
                                                  hidden_act="relu2")),
    "nemotron, biases": (NemotronConfig, dict(attention_bias=True, mlp_bias=True, head_dim=12)),
    "apertus as Apertus 8B": (ApertusConfig, dict(
        hidden_act="xielu", mlp_bias=False, qk_norm=True, post_norm=False, rope_theta=12000000.0, rope_scaling=LLAMA3)),
    "apertus, biases, tied": (ApertusConfig, dict(
        num_key_value_heads=None, attention_bias=True, tie_word_embeddings=True)),
    "modernbert-decoder as Ettin": (ModernBertDecoderConfig, dict(
        num_hidden_layers=4, num_attention_heads=3, local_attention=10, global_attn_every_n_layers=3,
        global_rope_theta=160000.0, local_rope_theta=160000.0, hidden_activation="gelu", layer_norm_eps=1e-5,
        position_embedding_type="sans_pos")),
    "modernbert-decoder, listed layers, untied": (ModernBertDecoderConfig, dict(
        local_attention=8, tie_word_embeddings=False, layer_types=[
            "sliding_attention", "full_attention", "sliding_attention"], rope_parameters=dict(
                full_attention=dict(rope_type="default", rope_theta=5000.0),
                sliding_attention=dict(rope_type="default", rope_theta=700.0)))),
    "opt as OPT 125M": (OPTConfig, dict(
        ffn_dim=76, do_layer_norm_before=True, word_embed_proj_dim=48, dropout=0.0, prefix="</s>", pad_token_id=1,
        bos_token_id=2, activation_function="relu", _remove_final_layer_norm=False)),
    "opt as OPT 350M": (OPTConfig, dict(
        ffn_dim=76, do_layer_norm_before=False, word_embed_proj_dim=32, dropout=0.0)),
    "opt, wide embeddings, untied": (OPTConfig, dict(
        ffn_dim=76, word_embed_proj_dim=60, tie_word_embeddings=False)),
    "nanochat": (NanoChatConfig, dict(num_key_value_heads=6, hidden_act="relu2")),
    "nanochat, no cap, biases": (NanoChatConfig, dict(
        num_key_value_heads=2, final_logit_softcapping=None, attention_bias=True, tie_word_embeddings=True)),
    "opt, untied": (OPTConfig, dict(ffn_dim=100, word_embed_proj_dim=48, tie_word_embeddings=False)),
    "gpt_neo as GPT-Neo 125M": (GPTNeoConfig, dict(
        num_hidden_layers=4, attention_types=[[["global", "local"], 2]], window_size=5, intermediate_size=None,
        activation_function="gelu_new", attention_dropout=0, embed_dropout=0, resid_dropout=0)),
    "gpt_neo, other layers": (GPTNeoConfig, dict(
        num_attention_heads=4, attention_types=[[["local"], 2], [["global"], 1]], window_size=3)),
    "gpt_bigcode as StarCoder": (GPTBigCodeConfig, dict(
        n_inner=100, multi_query=True, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, activation_function="gelu")),
    "gptj as GPT-J 6B": (GPTJConfig, dict(
        num_attention_heads=3, rotary_dim=4, n_inner=None, tie_word_embeddings=False,
        activation_function="gelu_new")),
    "gptj, whole heads": (GPTJConfig, dict(num_attention_heads=2, rotary_dim=24, n_inner=90)),
    "glm as GLM-4 9B": (GlmConfig, dict(head_dim=16, partial_rotary_factor=0.5, rope_theta=10000.0,
                                        attention_bias=True)),
    "glm4 as GLM-4 0414": (Glm4Config, dict(head_dim=16, partial_rotary_factor=0.5, rope_theta=10000.0,
                                            attention_bias=False)),
    "glm4, llama3": (Glm4Config, dict(head_dim=16, rope_parameters=dict(LLAMA3, partial_rotary_factor=0.5))),
    "falcon as Falcon 7B": (FalconConfig, dict(
        multi_query=True, parallel_attn=True, bias=False, alibi=False, new_decoder_architecture=False,
        hidden_dropout=0.0, attention_dropout=0.0, layer_norm_epsilon=1e-5, apply_residual_connection_post_layernorm=False)),
    "bloom as BLOOM 560M": (BloomConfig, dict(
        n_embed=48, n_layer=3, num_attention_heads=6, n_inner=None, seq_length=48, attention_dropout=0.0,
        hidden_dropout=0.0, offset_alibi=100, pretraining_tp=1, skip_bias_add=True, slow_but_exact=False,
        attention_softmax_in_fp32=True, masked_softmax_fusion=True, bias_dropout_fusion=True)),
    "bloom, a power of two of heads, untied": (BloomConfig, dict(
        hidden_size=48, n_layer=3, n_head=4, num_attention_heads=4, seq_length=48, tie_word_embeddings=False)),
    "mpt as MPT 7B": (MptConfig, dict(
        d_model=48, n_heads=6, n_layers=3, num_attention_heads=6, max_seq_len=48, expansion_ratio=4, emb_pdrop=0,
        resid_pdrop=0, embedding_fraction=1.0, learned_pos_emb=True, logit_scale=None, no_bias=True,
        norm_type="low_precision_layernorm", attn_config=dict(
            alibi=True, alibi_bias_max=8, attn_impl="torch", attn_pdrop=0, attn_type="multihead_attention",
            attn_uses_sequence_id=False, clip_qkv=None, prefix_lm=False, qk_ln=False, softmax_scale=None))),
    "mpt, clipped": (MptConfig, dict(
        d_model=48, n_heads=3, n_layers=2, num_attention_heads=3, max_seq_len=48,
        attn_config=dict(clip_qkv=0.5, softmax_scale=0.3))),
    "falcon as Falcon-RW 1B": (FalconConfig, dict(
        alibi=True, bias=True, multi_query=False, parallel_attn=False, new_decoder_architecture=False,
        num_kv_heads=None, num_key_value_heads=None, hidden_size=64, num_attention_heads=8,
        attn_implementation="sdpa")),
    "falcon, ALiBi of other heads, parallel": (FalconConfig, dict(
        alibi=True, bias=False, multi_query=False, num_kv_heads=None, attn_implementation="sdpa")),
    "falcon, rotary heads with keys of their own": (FalconConfig, dict(bias=True, multi_query=False)),
    "falcon, biases, untied": (FalconConfig, dict(bias=True, tie_word_embeddings=False)),
    "falcon as Falcon 40B": (FalconConfig, dict(new_decoder_architecture=True, num_kv_heads=2, bias=False)),
    "falcon as Falcon 2 11B": (FalconConfig, dict(new_decoder_architecture=True, num_kv_heads=3, bias=True,
                                                  num_ln_in_parallel_attn=1)),
    "gpt_bigcode, all heads": (GPTBigCodeConfig, dict(
        multi_query=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)),
    "stablelm as StableLM 2 12B": (StableLmConfig, dict(
        hidden_size=96, partial_rotary_factor=0.25, qk_layernorm=True, use_parallel_residual=True)),
    "phi, normalised heads": (PhiConfig, dict(partial_rotary_factor=0.5, qk_layernorm=True, num_key_value_heads=3)),
    "cohere as Command-R+": (CohereConfig, dict(logit_scale=0.8, use_qk_norm=True, num_key_value_heads=3)),
    "cohere2 as Command-R7B": (Cohere2Config, dict(
        num_hidden_layers=4, logit_scale=0.25, sliding_window=5, sliding_window_pattern=4, rope_theta=50000.0,
        order_of_interleaved_layers="local_attn_first", position_embedding_type="rope_gptj", rotary_pct=1.0)),
    "olmo as OLMo 7B": (OlmoConfig, dict(num_key_value_heads=6, clip_qkv=None, rope_theta=10000.0)),
    "olmo, clipped, tied": (OlmoConfig, dict(clip_qkv=0.6, attention_bias=True, tie_word_embeddings=True)),
    "olmoe, clipped": (OlmoeConfig, dict(num_experts=5, num_experts_per_tok=2, clip_qkv=0.6)),
    "ministral as Ministral 8B": (MinistralConfig, dict(
        head_dim=12, sliding_window=5, layer_types=["sliding_attention", "full_attention", "sliding_attention"])),
    "ministral3 as Ministral 3 3B": (Ministral3Config, dict(
        head_dim=8, tie_word_embeddings=True, rope_parameters=dict(
            type="yarn", rope_type="yarn", rope_theta=1000000.0, factor=4.0, original_max_position_embeddings=7,
            max_position_embeddings=48, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
            llama_4_scaling_beta=0.1))),
    "glm4_moe as GLM-4.5": (Glm4MoeConfig, dict(
        ROUTED, head_dim=16, attention_bias=True, use_qk_norm=True, partial_rotary_factor=0.5, rope_theta=1000000,
        num_nextn_predict_layers=1)),
    "glm4_moe as GLM-4.5-Air, groups": (Glm4MoeConfig, dict(GROUPS, head_dim=8, use_qk_norm=False, n_shared_experts=2)),
    "dots1 as dots.llm1": (Dots1Config, dict(ROUTED, head_dim=8, sliding_window=None, rope_theta=10000000,
                                             n_shared_experts=2)),
    "dots1, groups, windows, no sums of 1": (Dots1Config, dict(GROUPS, sliding_window=5, max_window_layers=1,
                                                               norm_topk_prob=False, attention_bias=True)),
    "ernie4_5_moe as ERNIE 4.5 21B-A3B": (Ernie4_5_MoeConfig, dict(
        moe_num_experts=6, moe_k=3, moe_num_shared_experts=2, moe_intermediate_size=20, moe_layer_start_index=1,
        moe_layer_end_index=-1, moe_layer_interval=1, use_bias=False, rope_theta=500000, tie_word_embeddings=True)),
    "ernie4_5_moe, some layers, nothing shared": (Ernie4_5_MoeConfig, dict(
        num_hidden_layers=5, moe_num_experts=5, moe_k=2, moe_num_shared_experts=0, moe_intermediate_size=20,
        moe_layer_start_index=0, moe_layer_end_index=3, moe_layer_interval=2, tie_word_embeddings=False)),
    "hunyuan_v1_moe as Hunyuan-A13B": (HunYuanMoEV1Config, dict(
        head_dim=16, intermediate_size=20, num_experts=5, moe_topk=[2, 2, 2], use_qk_norm=True, rope_scaling=dict(
            alpha=1000.0, beta_fast=32, beta_slow=1, factor=1.0, mscale=1.0, mscale_all_dim=1.0, type="dynamic"))),
    "granitemoeshared": (GraniteMoeSharedConfig, dict(
        num_local_experts=5, num_experts_per_tok=2, shared_intermediate_size=28, embedding_multiplier=12.0,
        attention_multiplier=0.015625, residual_multiplier=0.22, logits_scaling=6.0, tie_word_embeddings=True)),
    "granitemoeshared, nothing shared": (GraniteMoeSharedConfig, dict(num_local_experts=3, num_experts_per_tok=1)),
    "minimax_m2 as MiniMax-M2": (MiniMaxM2Config, dict(
        head_dim=12, rotary_dim=6, intermediate_size=20, num_local_experts=5, num_experts_per_tok=2, rope_theta=5000000,
        scoring_func="sigmoid", use_qk_norm=True)),
    "exaone_moe as K-EXAONE": (ExaoneMoeConfig, dict(
        head_dim=8, sliding_window=5, num_experts=8, num_shared_experts=1, num_experts_per_tok=3,
        moe_intermediate_size=20, first_k_dense_replace=1, n_group=4, topk_group=2, routed_scaling_factor=2.5,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"])),
    "exaone_moe, listed layers": (ExaoneMoeConfig, dict(
        num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20, sliding_window_pattern=2,
        mlp_layer_types=["sparse", "dense", "sparse"], norm_topk_prob=False)),
    "flex_olmo": (FlexOlmoConfig, dict(num_experts=5, num_experts_per_tok=2)),
    "flex_olmo, all heads, sums of 1": (FlexOlmoConfig, dict(
        num_key_value_heads=6, num_experts=4, num_experts_per_tok=3, norm_topk_prob=True)),
    "deepseek_v2 as DeepSeek-V2": (DeepseekV2Config, dict(
        GROUPS, **LATENT, topk_method="group_limited_greedy", norm_topk_prob=False, n_shared_experts=2,
        rope_parameters=dict(YARN, mscale=0.707, mscale_all_dim=0.707))),
    "deepseek_v2 as DeepSeek-V2-Lite": (DeepseekV2Config, dict(
        LATENT, **dict(ROUTED, norm_topk_prob=False, routed_scaling_factor=1.0), q_lora_rank=None, v_head_dim=16,
        topk_method="greedy", rope_parameters=dict(YARN, mscale=0.707, mscale_all_dim=1.4))),
    "deepseek_v3 as DeepSeek-V3": (DeepseekV3Config, dict(
        GROUPS, **LATENT, rope_interleave=True, rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0))),
    "deepseek_v3 as Kimi K2": (DeepseekV3Config, dict(
        ROUTED, **LATENT, rope_parameters=dict(YARN, beta_fast=1.0, mscale=1.0, mscale_all_dim=1.0))),
    "deepseek_v3, halves, biases": (DeepseekV3Config, dict(
        ROUTED, **LATENT, rope_interleave=False, attention_bias=True, first_k_dense_replace=0,
        rope_parameters=dict(rope_type="linear", rope_theta=5000.0, factor=2.0))),
    "glm4_moe_lite as GLM-4.7-Flash": (Glm4MoeLiteConfig, dict(
        ROUTED, **dict(LATENT, v_head_dim=16), rms_norm_eps=1e-5)),
    "deepseek_v32 as DeepSeek-V3.2": (DeepseekV32Config, dict(
        GROUPS, **LATENT, index_topk=24, index_head_dim=14, index_n_heads=5,
        rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0))),
    "glm_moe_dsa as GLM-5.2": (GlmMoeDsaConfig, dict(
        ROUTED, **dict(LATENT, v_head_dim=16), index_topk=24, index_head_dim=12, index_n_heads=3, index_topk_freq=4,
        index_skip_topk_offset=1)),
    "glm_moe_dsa, listed, biases": (GlmMoeDsaConfig, dict(
        GROUPS, **LATENT, index_topk=48, index_head_dim=12, index_n_heads=3, attention_bias=True,
        indexer_types=["full", "shared", "full"])),
    "cohere2_moe as Command-A+": (Cohere2MoeConfig, dict(
        num_hidden_layers=4, head_dim=8, logit_scale=0.25, sliding_window=5, intermediate_size=20, num_experts=5,
        num_shared_experts=2, expert_selection_fn="sigmoid", prefix_dense_intermediate_size=36,
        first_k_dense_replace=1)),
    "cohere2_moe, RMS norms, softmax, a sum": (Cohere2MoeConfig, dict(
        num_hidden_layers=4, head_dim=12, logit_scale=0.5, sliding_window=5, sliding_window_pattern=2,
        intermediate_size=20, num_experts=4, num_experts_per_tok=3, num_shared_experts=1, rms_norm_eps=1e-6,
        shared_expert_combination_strategy="sum", first_k_dense_replace=2, prefix_dense_sliding_window_pattern=2)),
    "cohere2_moe, plain sigmoids, nothing shared": (Cohere2MoeConfig, dict(
        head_dim=8, logit_scale=0.25, intermediate_size=20, num_experts=4, expert_selection_fn="sigmoid",
        norm_topk_prob=False, tie_word_embeddings=False)),
    "phimoe as Phi-3.5-MoE": (PhimoeConfig, dict(
        num_local_experts=5, attention_bias=True, lm_head_bias=True, intermediate_size=20, sliding_window=30,
        router_jitter_noise=0.2, max_position_embeddings=4096, original_max_position_embeddings=1024,
        rope_scaling=dict(type="longrope", short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.0, 2.0, 3.0, 4.0],
                          short_mscale=1.2, long_mscale=1.2))),
    "phimoe, no biases": (PhimoeConfig, dict(num_local_experts=4, intermediate_size=20)),
    "mistral4 as Mistral 4": (Mistral4Config, dict(
        GROUPS, **LATENT, rope_parameters=dict(YARN, original_max_position_embeddings=7, mscale=1.0, mscale_all_dim=1.0,
                                               llama_4_scaling_beta=0.1, max_position_embeddings=48))),
    "mistral4, one group, halves, no sums of 1": (Mistral4Config, dict(
        ROUTED, **dict(LATENT, q_lora_rank=None), norm_topk_prob=False, rope_interleave=False, n_shared_experts=2)),
    "minicpm3 as MiniCPM3 4B": (MiniCPM3Config, dict(
        LATENT, scale_emb=12, scale_depth=1.4, dim_model_base=24, initializer_range=0.02, tie_word_embeddings=True,
        original_max_position_embeddings=7, rope_scaling=dict(LONGROPE))),
    "minicpm3, no scales": (MiniCPM3Config, dict(
        LATENT, q_lora_rank=None, v_head_dim=None, scale_emb=1, scale_depth=None, dim_model_base=None,
        attention_bias=True, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="dynamic", rope_theta=5000.0, factor=3.0))),
    "llama4 as Llama 4 Scout": (Llama4TextConfig, dict(
        num_hidden_layers=4, head_dim=8, intermediate_size=20, intermediate_size_mlp=76, num_local_experts=5,
        attention_chunk_size=7, floor_scale=7, attn_scale=0.3, rope_parameters=dict(LLAMA3, factor=16.0))),
    "llama4 as Llama 4 Maverick": (Llama4TextConfig, dict(
        num_hidden_layers=4, head_dim=8, intermediate_size=20, intermediate_size_mlp=36, num_local_experts=6,
        interleave_moe_layer_step=2, use_qk_norm=False, attention_chunk_size=10, floor_scale=24)),
    "llama4, several experts, no chunks": (Llama4TextConfig, dict(
        head_dim=12, intermediate_size=20, intermediate_size_mlp=36, num_local_experts=5, num_experts_per_tok=3,
        moe_layers=[0, 2], no_rope_layers=[1, 0, 1], attention_chunk_size=None, attn_temperature_tuning=False,
        attention_bias=True, tie_word_embeddings=True)),
    "llama as SmolLM2": (LlamaConfig, dict(
        is_llama_config=True, rope_interleaved=False, rope_theta=100000, rope_scaling=None, tie_word_embeddings=True,
        num_key_value_heads=3, pretraining_tp=1)),
    "llama as Falcon 3": (LlamaConfig, dict(
        head_dim=16, rope_theta=1000042, num_key_value_heads=2, activation="swiglu", attention_bias=False,
        mlp_bias=False)),
}


def leave_out(name, model, folder, txgen):
    """A file with the layer of multi-token prediction gives the same text, and a warning."""
    def text():
        return run(txgen, model=folder, ids="3 5 9", max_new_tokens=8, temperature=0, threads=1)
    path, without, last = f"{folder}/model.safetensors", text(), model.config.num_hidden_layers
    tensors = load_file(path)
    for tensor in ("eh_proj.weight", "enorm.weight", "mlp.experts.0.up_proj.weight"):
        tensors[f"model.layers.{last}.{tensor}"] = torch.ones(3, 5)
    save_file(tensors, path, metadata={"format": "pt"})
    with_it = text()
    check(without.returncode == 0 and with_it.stdout == without.stdout, f"{name}: other text with a further layer")
    check("3 tensors of multi-token prediction" in with_it.stderr, f"{name}: no warning: {with_it.stderr}")
    del tensors[f"model.layers.{last}.enorm.weight"]
    tensors[f"model.layers.{last + 1}.enorm.weight"] = torch.ones(3)
    save_file(tensors, path, metadata={"format": "pt"})
    check(text().returncode != 0, f"{name}: layers after that of multi-token prediction are accepted")


def keeps_index(name, model, txtrain, device):
    """Training in bf16 changes no weight of the index. More positions than it chooses are refused."""
    most = model.config.index_topk
    with tempfile.TemporaryDirectory() as folder:
        model.bfloat16().save_pretrained(f"{folder}/bf16")
        with open(f"{folder}/text", "w", encoding="utf-8") as file:
            file.write("some text " * 100)
        for block in most, most + 1:
            done = run(txtrain, "--bf16", model_name_or_path=f"{folder}/bf16", train_file=f"{folder}/text",
                       device=device, block_size=block, max_steps=2, output_dir=f"{folder}/run{block}")
            check((done.returncode == 0) == (block == most), f"{name}: rows of {block} tokens: {done.stderr.strip()}")
        check(f"the model's {most} positions (index_topk: " in done.stderr, f"{name}: no reason: {done.stderr.strip()}")
        before, after = (load_file(f"{folder}/{name}/model.safetensors") for name in ("bf16", f"run{most}"))
    index = [key for key in before if ".indexer." in key]
    check(len(index) == 5 * model.config.num_hidden_layers, f"{name}: {index}")
    check(all(torch.equal(before[key].float(), after[key].float()) for key in index), f"{name}: another index")
    key = "model.layers.0.self_attn.kv_b_proj.weight"
    check(not torch.equal(before[key].float(), after[key].float()), f"{name}: nothing was trained")


def default_adapter(name, kind, keys, txtrain, device):
    """Trains an adapter of the modules that TX chooses: peft's default, if it has one for the type."""
    with tempfile.TemporaryDirectory() as folder:
        AutoModelForCausalLM.from_config(kind(**keys)).save_pretrained(f"{folder}/model")
        with open(f"{folder}/text", "w", encoding="utf-8") as file:
            file.write("some text " * 100)
        done = run(txtrain, model_name_or_path=f"{folder}/model", train_file=f"{folder}/text", block_size=24, lora_r=2,
                   max_steps=1, output_dir=f"{folder}/run", device=device)
        check(done.returncode == 0, f"{name}: an adapter: {done.stderr.strip()}")
        if done.returncode == 0 and kind.model_type in DEFAULT_MODULES:
            chosen = read_json(f"{folder}/run", "adapter_config.json")["target_modules"]
            check(sorted(chosen) == sorted(DEFAULT_MODULES[kind.model_type]), f"{name}: an adapter of {chosen}")


def main():
    program, txtrain, txgen = sys.argv[1:4]
    device = (sys.argv[4:] or ["cpu"])[0]
    trained = set()
    for name, (kind, changes) in VARIANTS.items():
        if not name.startswith(tuple(sys.argv[5:]) or ""):
            continue
        with tempfile.TemporaryDirectory() as folder:
            model = make_model(kind(**{**BASE, **changes}))
            model.save_pretrained(folder)
            compare(name, model, folder, program, device)
            generate(name, model, folder, txgen, device)
            if "kv_lora_rank" in changes or "num_kv_shared_layers" in changes:  # beams reorder these caches, too
                generate(name, model, folder, txgen, device, beams=3)
            gradients(name, model, folder, program, device)
            if changes.get("num_nextn_predict_layers"):
                leave_out(name, model, folder, txgen)
        form = (kind, changes.get("alibi"), changes.get("enable_moe_block"))
        if form not in trained:
            trained.add(form)
            of_bytes = dict(vocab_size=257, bos_token_id=256, eos_token_id=256)
            if "vocab_size_per_layer_input" in changes:
                of_bytes["vocab_size_per_layer_input"] = changes["vocab_size_per_layer_input"] - 43
            train(name, kind, {**BASE, **changes, **of_bytes}, txtrain, device)
            default_adapter(name, kind, {**BASE, **changes, **of_bytes}, txtrain, device)
            if kind == DeepseekV32Config:
                keeps_index(name, make_model(kind(**{**BASE, **changes, **of_bytes})), txtrain, device)
    return status()


sys.exit(main())
