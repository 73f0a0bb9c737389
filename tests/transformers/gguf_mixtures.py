# SPDX-License-Identifier: Apache-2.0
"""Compares txconvert's GGUF files of mixtures of experts, of Gemma 4, and of types without RMS norms, as
gguf_hybrids.py does those of recurrent layers; also a file with a layer of multi-token prediction.

    gguf_mixtures.py TXCONVERT TXGEN TXTRAIN [NAME...]      exit status 77: gguf or transformers is not installed
"""
import os
import sys
import tempfile

from oracle import check, run, status

import gguf
import numpy as np
from gguf.scripts.gguf_new_metadata import MetadataDetails, copy_with_new_metadata
from gguf_hybrids import ARCHITECTURES, BASE, IDS, KEYS, TXCONVERT, TXGEN, compare, make_model
from gguf_llama import check_refused
from gguf_tokenizers import VOCAB
from transformers import (Cohere2Config, CohereConfig, DeepseekV2Config, DeepseekV3Config, Dots1Config,
                          Ernie4_5_MoeConfig, ExaoneMoeConfig, FalconConfig, Gemma4TextConfig, Gemma4UnifiedTextConfig,
                          Glm4MoeConfig, Glm4MoeLiteConfig, GraniteMoeSharedConfig, HunYuanMoEV1Config,
                          Llama4TextConfig, MiniCPM3Config, MiniMaxM2Config, Ministral3Config, OlmoConfig, PhimoeConfig,
                          StableLmConfig)

LATENT = dict(num_key_value_heads=4, q_lora_rank=32, kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=16,
              v_head_dim=24)
ROUTED = dict(n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=3, moe_intermediate_size=32, n_group=1,
              topk_group=1, first_k_dense_replace=1, routed_scaling_factor=1.5, norm_topk_prob=True)
GROUPS = dict(ROUTED, n_group=4, topk_group=2, n_shared_experts=2, first_k_dense_replace=2)
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=32, mscale=1.0,
            mscale_all_dim=1.0)
EXAONE = dict(head_dim=16, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, first_k_dense_replace=1,
              n_group=4, topk_group=2, routed_scaling_factor=2.5)
GEMMA = dict(head_dim=16, global_head_dim=32, sliding_window=16, final_logit_softcapping=20.0,
             vocab_size_per_layer_input=VOCAB, layer_types=["sliding_attention", "full_attention"] * 2)
FALCON = dict(vocab_size=VOCAB, hidden_size=64, num_hidden_layers=4, num_attention_heads=4, bos_token_id=1,
              eos_token_id=0, new_decoder_architecture=True, bias=False, ffn_hidden_size=96)
LLAMA4 = dict(BASE, head_dim=16, intermediate_size=32, intermediate_size_mlp=96, num_local_experts=4,
              num_experts_per_tok=1, pad_token_id=0)
SOFT = dict(ROUTED, norm_topk_prob=False, topk_method="greedy")
# name: configuration and tokenizer
MODELS = {
    "deepseek_v3": (DeepseekV3Config(**{**BASE, **LATENT}, **GROUPS, rope_parameters=YARN), "llama3"),
    "deepseek_v3, one group, own scales": (DeepseekV3Config(**{**BASE, **LATENT}, **dict(
        ROUTED, norm_topk_prob=False, first_k_dense_replace=0), tie_word_embeddings=True, rope_parameters=dict(
            YARN, mscale=0.707, mscale_all_dim=0.707)), "llama3"),
    "deepseek_v2": (DeepseekV2Config(**{**BASE, **LATENT}, **SOFT), "llama3"),
    "deepseek_v2, lite": (DeepseekV2Config(**{**BASE, **LATENT, "num_hidden_layers": 27, "q_lora_rank": None}, **SOFT),
                          "llama3"),
    "glm4_moe_lite": (Glm4MoeLiteConfig(**{**BASE, **LATENT}, **ROUTED, rms_norm_eps=1e-6), "llama3"),
    "glm4_moe": (Glm4MoeConfig(**BASE, **ROUTED, head_dim=32, use_qk_norm=True, attention_bias=True), "llama3"),
    "glm4_moe, groups": (Glm4MoeConfig(**BASE, **GROUPS, head_dim=16, rope_parameters=dict(
        rope_type="default", rope_theta=1e4, partial_rotary_factor=0.25)), "llama3"),
    "dots1": (Dots1Config(**{**BASE, "num_key_value_heads": 4}, **GROUPS, head_dim=32), "llama3"),
    "minimax_m2": (MiniMaxM2Config(**BASE, head_dim=32, num_local_experts=8, num_experts_per_tok=3, rotary_dim=16),
                   "llama3"),
    "exaone_moe": (ExaoneMoeConfig(**BASE, **EXAONE, num_shared_experts=2, sliding_window=16), "llama3"),
    "ernie4_5_moe": (Ernie4_5_MoeConfig(**BASE, moe_num_experts=8, moe_k=3, moe_num_shared_experts=2,
                                        moe_intermediate_size=32, moe_layer_start_index=1, moe_layer_interval=1,
                                        tie_word_embeddings=False), "llama3"),
    "hunyuan_v1_moe": (HunYuanMoEV1Config(**BASE, head_dim=16, num_experts=8, moe_topk=3), "llama3"),
    "granitemoeshared": (GraniteMoeSharedConfig(**BASE, num_local_experts=8, num_experts_per_tok=3,
                                                shared_intermediate_size=64, embedding_multiplier=3.0,
                                                attention_multiplier=0.25, residual_multiplier=0.4,
                                                logits_scaling=2.0), "llama3"),
    "cohere2": (Cohere2Config(**BASE, sliding_window=16, logit_scale=0.25), "llama3"),
    "olmo": (OlmoConfig(**BASE, clip_qkv=1.5), "llama3"),
    "gemma4_text": (Gemma4TextConfig(**BASE, **GEMMA, hidden_size_per_layer_input=32, num_kv_shared_layers=0),
                    "pieces"),
    "gemma4_text, shared": (Gemma4TextConfig(**{**BASE, **GEMMA, "num_hidden_layers": 8,
                                                "layer_types": GEMMA["layer_types"] * 2},
                                             hidden_size_per_layer_input=32, num_kv_shared_layers=4,
                                             use_double_wide_mlp=True), "pieces"),
    "gemma4_text, experts": (Gemma4TextConfig(**BASE, **GEMMA, hidden_size_per_layer_input=0, enable_moe_block=True,
                                              num_experts=6, top_k_experts=2, moe_intermediate_size=32,
                                              num_kv_shared_layers=0, attention_k_eq_v=True,
                                              num_global_key_value_heads=1), "pieces"),
    "gemma4_unified_text": (Gemma4UnifiedTextConfig(**BASE, **{k: v for k, v in GEMMA.items() if "vocab" not in k},
                                                    attention_k_eq_v=True, num_global_key_value_heads=1), "pieces"),
    "falcon 2, 40B": (FalconConfig(**FALCON, num_kv_heads=2), "llama3"),
    "falcon 2, 11B": (FalconConfig(**FALCON, num_kv_heads=1, num_ln_in_parallel_attn=1, rope_parameters=dict(
        rope_type="default", rope_theta=5e5)), "llama3"),
    "ministral3": (Ministral3Config(**BASE, head_dim=32, rope_parameters=dict(YARN, llama_4_scaling_beta=0.2)),
                   "llama3"),
    "ministral3, other scales": (Ministral3Config(**BASE, tie_word_embeddings=True, head_dim=16, rope_parameters=dict(
        YARN, mscale_all_dim=0.5, llama_4_scaling_beta=0.1)), "llama3"),
    "stablelm": (StableLmConfig(**BASE, qk_layernorm=True, rope_parameters=dict(
        rope_type="default", rope_theta=1e4, partial_rotary_factor=0.25)), "llama3"),
    "cohere, 64 layers": (CohereConfig(**{**BASE, "num_hidden_layers": 64, "intermediate_size": 32}, use_qk_norm=True,
                                       logit_scale=0.25), "llama3"),
    "minicpm3": (MiniCPM3Config(**{**BASE, **LATENT}, scale_emb=12, scale_depth=1.4, dim_model_base=256,
                                tie_word_embeddings=False), "llama3"),
    "llama4_text": (Llama4TextConfig(**LLAMA4, interleave_moe_layer_step=2, rope_parameters=dict(
        rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=32)), "llama3"),
    "llama4_text, 128 experts": (Llama4TextConfig(**{**LLAMA4, "num_local_experts": 128}, use_qk_norm=False,
                                                  interleave_moe_layer_step=4), "llama3"),
    "olmo, not clipped": (OlmoConfig(**BASE, tie_word_embeddings=True), "llama3"),
}
ARCHITECTURES.update(deepseek_v2="deepseek2", deepseek_v3="deepseek2", glm4_moe_lite="deepseek2", glm4_moe="glm4moe",
                     minimax_m2="minimax-m2", exaone_moe="exaone-moe", ernie4_5_moe="ernie4_5-moe",
                     hunyuan_v1_moe="hunyuan-moe", granitemoeshared="granitemoe", gemma4_text="gemma4",
                     gemma4_unified_text="gemma4", ministral3="mistral3", llama4_text="llama4",
                     cohere="command-r")
KEYS.update({
    "deepseek_v3": {"attention.head_count_kv": 1, "attention.key_length": 80, "attention.value_length": 64,
                    "attention.key_length_mla": 48, "attention.value_length_mla": 24, "attention.kv_lora_rank": 64,
                    "attention.q_lora_rank": 32, "rope.dimension_count": 16, "leading_dense_block_count": 2,
                    "expert_gating_func": 2, "expert_group_count": 4, "expert_group_used_count": 2,
                    "expert_weights_norm": True, "expert_weights_scale": np.float32(1.5), "expert_shared_count": 2,
                    "rope.scaling.yarn_log_multiplier": np.float32(0.1), "expert_feed_forward_length": 32},
    "deepseek_v3, one group, own scales": {"rope.scaling.yarn_log_multiplier": np.float32(0.0707),
                                           "expert_weights_norm": False, "leading_dense_block_count": 0},
    "deepseek_v2": {"expert_gating_func": 1, "expert_weights_scale": np.float32(1.5)},
    "glm4_moe": {"rope.dimension_count": 16, "expert_gating_func": 2, "expert_shared_count": 1},
    "exaone_moe": {"attention.sliding_window": 16, "expert_shared_feed_forward_length": 64,
                   "expert_weights_scale": np.float32(2.5)},
    "ernie4_5_moe": {"interleave_moe_layer_step": 1, "leading_dense_block_count": 1, "expert_count": 8,
                     "expert_used_count": 3, "expert_shared_count": 2, "expert_shared_feed_forward_length": 64},
    "hunyuan_v1_moe": {"expert_shared_feed_forward_length": 96, "expert_feed_forward_length": 96},
    "granitemoeshared": {"expert_shared_feed_forward_length": 64},
    "gemma4_text": {"attention.key_length": 32, "attention.key_length_swa": 16, "rope.dimension_count": 32,
                    "rope.dimension_count_swa": 16, "embedding_length_per_layer_input": 32, "feed_forward_length": 96,
                    "attention.sliding_window_pattern": [True, False, True, False]},
    "gemma4_text, shared": {"feed_forward_length": [96] * 4 + [192] * 4, "attention.shared_kv_layers": 4},
    "gemma4_text, experts": {"attention.head_count_kv": [2, 1, 2, 1], "expert_count": 6, "expert_used_count": 2,
                             "embedding_length_per_layer_input": 0},
    "cohere2": {"logit_scale": 0.25, "attention.sliding_window": 16},
    "falcon 2, 40B": {"attention.head_count_kv": 2},
    "falcon 2, 11B": {"attention.head_count_kv": 1, "rope.freq_base": 5e5},
    "ministral3": {"attention.temperature_scale": np.float32(0.2), "rope.scaling.yarn_log_multiplier": 1,
                   "rope.scaling.original_context_length": 32},
    "minicpm3": {"attention.key_length": 48, "attention.value_length": 24, "attention.q_lora_rank": 32,
                 "rope.dimension_count": 16},
    "llama4_text": {"interleave_moe_layer_step": 2, "expert_feed_forward_length": 32, "feed_forward_length": 96,
                    "attention.sliding_window": 8192},
    "olmo": {"attention.clamp_kqv": 1.5, "attention.layer_norm_epsilon": np.float32(1e-5)},
    "minimax_m2": {"rope.dimension_count": 16, "expert_gating_func": 2, "expert_feed_forward_length": 96},
})
REFUSED = [
    (DeepseekV2Config(**{**BASE, **LATENT}, **dict(GROUPS, topk_method="group_limited_greedy", norm_topk_prob=False)),
     "n_group"),
    (DeepseekV2Config(**{**BASE, **LATENT, "q_lora_rank": None}, **SOFT), "q_lora_rank"),
    (DeepseekV3Config(**{**BASE, **LATENT}, **dict(ROUTED, n_shared_experts=0)), "n_shared_experts"),
    (DeepseekV3Config(**{**BASE, **LATENT}, **ROUTED, attention_bias=True), "attention_bias"),
    (DeepseekV3Config(**{**BASE, **LATENT}, **ROUTED, rope_interleave=False), "rope_interleave"),
    (DeepseekV3Config(**{**BASE, **LATENT}, **ROUTED,
                      rope_parameters={k: v for k, v in YARN.items() if "mscale" not in k}), "mscale_all_dim"),
    (Dots1Config(**BASE, **GROUPS, head_dim=16), "num_key_value_heads"),
    (FalconConfig(**{**FALCON, "new_decoder_architecture": False}, multi_query=False), "multi_query"),
    (Ministral3Config(**BASE, sliding_window=16), "sliding_window"),
    (CohereConfig(**BASE, use_qk_norm=True), "use_qk_norm"),
    (CohereConfig(**{**BASE, "num_hidden_layers": 64}), "use_qk_norm"),
    (PhimoeConfig(**BASE, num_local_experts=4), "RMS norms"),
    (MiniCPM3Config(**{**BASE, **LATENT}, scale_emb=12, scale_depth=1.4, dim_model_base=32), "dim_model_base"),
    (Llama4TextConfig(**LLAMA4, attention_chunk_size=16), "attention_chunk_size"),
    (Llama4TextConfig(**LLAMA4, use_qk_norm=False), "use_qk_norm"),
    (Llama4TextConfig(**LLAMA4, no_rope_layers=[1, 0, 1, 0]), "no_rope_layers"),
    (Llama4TextConfig(**LLAMA4, moe_layers=[0, 2]), "interleave_moe_layer_step"),
    (Cohere2Config(**BASE, sliding_window=16, layer_types=["full_attention", "sliding_attention"] * 2), "layer_types"),
    (Ernie4_5_MoeConfig(**BASE, moe_num_experts=8, moe_k=3, moe_intermediate_size=32, moe_layer_start_index=1,
                        moe_layer_interval=2), "had experts"),
    (Dots1Config(**{**BASE, "num_key_value_heads": 4}, **GROUPS, head_dim=16, sliding_window=8, max_window_layers=0),
     "sliding_window"),
]


def leave_out(name, config, kind):
    """A file whose last block is a layer of multi-token prediction."""
    with tempfile.TemporaryDirectory() as work:
        path, longer = os.path.join(work, "model.gguf"), os.path.join(work, "longer.gguf")
        make_model(os.path.join(work, "source"), config, kind)
        run(TXCONVERT, os.path.join(work, "source"), to=path, outtype="f32")
        reader = gguf.GGUFReader(path)
        arch, last = reader.fields["general.architecture"].contents(), config.num_hidden_layers
        more = [t._replace(name=t.name.replace(f"blk.{last - 1}.", f"blk.{last}.")) for t in reader.tensors
                if f"blk.{last - 1}." in t.name]
        reader.tensors += more + [more[0]._replace(name=f"blk.{last}.nextn.enorm.weight")]
        writer, count = gguf.GGUFWriter(longer, arch), gguf.GGUFValueType.UINT32
        copy_with_new_metadata(reader, writer, {
            f"{arch}.block_count": MetadataDetails(count, last + 1),
            f"{arch}.nextn_predict_layers": MetadataDetails(count, 1)}, [])
        texts = [run(TXGEN, model=p, ids=" ".join(map(str, IDS[:9])), max_new_tokens=8, temperature=0)
                 for p in (path, longer)]
        check(texts[0].returncode == 0 and texts[0].stdout == texts[1].stdout,
              f"{name}: a further layer: {texts[1].stdout} {texts[1].stderr.strip()}")


def main():
    only = sys.argv[4:]
    for name, model in MODELS.items():
        if not only or name.split(",")[0] in only:
            compare(name, *model)
    for name in "deepseek_v3", "glm4_moe":
        if not only or name in only:
            leave_out(name, *MODELS[name])
    for config, words in REFUSED:
        if not only or config.model_type in only:
            with tempfile.TemporaryDirectory() as work:
                make_model(work, config, "llama3")
                check_refused(config.model_type, TXCONVERT, work, words)
    return status()


if __name__ == "__main__":
    sys.exit(main())
