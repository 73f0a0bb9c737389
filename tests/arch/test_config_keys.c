/* SPDX-License-Identifier: Apache-2.0
 * The keys that published config.json files have, in sizes of this test: TX reads each, or a list names it. A key is
 * read if a value of a wrong type is refused. */
#include "models/arch/llama_config.h"
#include "tests/arch/config_text.h"

/* Keys without effect on the results for texts. */
static const char *const harmless[] = {
    /* names, versions, types of weights, and how programs run the model */
    "architectures", "auto_map", "transformers_version", "torch_dtype", "dtype", "use_cache", "cache_implementation",
    "pretraining_tp", "ep_size", "mamba_ssm_dtype", "language_model_only", "_attn_implementation_autoset",
    "for_llm_compressor",
    /* tensors say which weights are quantized; activations are not */
    "activation_scheme", "modules_to_not_convert",
    /* other parts and their tokens; the dimensions of positions of images */
    "vision_config", "image_token_id", "image_token_index", "video_token_id", "vision_start_token_id",
    "vision_end_token_id", "vision_token_id", "boi_token_index", "eoi_token_index", "mm_tokens_per_image",
    "projector_hidden_act", "vision_feature_layer", "vision_feature_select_strategy", "spatial_merge_size",
    "multimodal_projector_bias", "mrope_section", "mrope_interleaved", "audio_config", "audio_token_id", "boa_token_id",
    "boi_token_id", "eoi_token_id",
    /* multi-token prediction, which TX does not read */
    "use_mtp", "num_mtp_modules", "mtp_transformer_layers", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings",
    /* training that transformers does not have, either */
    "aux_loss_alpha", "seq_aux", "moe_use_aux_free", "moe_capacity", "moe_gate",
    /* noise of training that TX does not have */
    "input_jitter_noise",
    /* without effect if attention_k_eq_v is false */
    "num_global_key_value_heads",
    /* copies of other keys, or without effect in transformers */
    "experts_per_token", "initial_context_length", "shared_intermediate_size", "model_max_length", "rotary_pct",
    "use_embedding_sharing", "max_window_layers", "mlp_only_layers", "mamba_use_mlp", "mlp_expansion_factor",
    "shared_moe_mode", "qk_head_dim",
    /* the index of sparse attention, which chooses all positions */
    "index_share_for_mtp_iteration", "indexer_rope_interleave",
    /* lightning attention: sizes of computations */
    "block_size",
    /* Mamba-2: sizes of computations, new weights, and the inner size if mamba_d_ssm does not say it */
    "mamba_chunk_size", "chunk_size", "num_logits_to_keep", "time_step_floor", "time_step_max", "time_step_min",
    "time_step_rank", "mamba_expand", "expand", "rms_norm", "norm_before_gate", "residual_in_fp32",
    "rescale_prenorm_residual", "mamba_ssm_cache_dtype", "use_mamba_kernels"};

/* The same for keys next to text_config, and of Llama 4, whose losses of routers transformers does not have, either. */
static const char *const harmless_around[] = {"initializer_range"}, *const harmless_llama4[] = {"output_router_logits",
                                                                                                "router_aux_loss_coef",
                                                                                                "router_jitter_noise"};

#define SIZES(heads) "\"intermediate_size\": 96, " SIZES_OF_EXPERTS(heads)
#define SIZES_OF_EXPERTS(heads)                                                                            \
    "\"vocab_size\": 300, \"hidden_size\": 64, \"num_hidden_layers\": 4, "                                 \
    "\"num_attention_heads\": 8, \"num_key_value_heads\": " #heads ", \"max_position_embeddings\": 4096, " \
    "\"bos_token_id\": 0, \"eos_token_id\": 1, \"initializer_range\": 0.02, \"use_cache\": true, "         \
    "\"torch_dtype\": \"bfloat16\", \"transformers_version\": \"4.50.0\""
#define RMS "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-6, \"attention_dropout\": 0.0, \"attention_bias\": false"
#define THETA "\"rope_theta\": 10000, \"tie_word_embeddings\": false"
#define YARN                                                                                         \
    "\"rope_scaling\": {\"beta_fast\": 1.0, \"beta_slow\": 1.0, \"factor\": 32.0, \"mscale\": 1.0, " \
    "\"mscale_all_dim\": 1.0, \"original_max_position_embeddings\": 4096, \"type\": \"yarn\"}"
#define ROUTING                                                                                                 \
    "\"first_k_dense_replace\": 1, \"moe_intermediate_size\": 48, \"n_group\": 4, \"topk_group\": 2, "          \
    "\"n_routed_experts\": 16, \"n_shared_experts\": 1, \"num_experts_per_tok\": 2, \"norm_topk_prob\": true, " \
    "\"routed_scaling_factor\": 2.5, \"num_nextn_predict_layers\": 1"
#define LATENT \
    "\"kv_lora_rank\": 32, \"q_lora_rank\": 48, \"qk_nope_head_dim\": 16, \"qk_rope_head_dim\": 8, \"v_head_dim\": 16"
#define DEEPSEEK                                                                                                   \
    SIZES(8)                                                                                                       \
    ", " RMS ", " THETA ", " YARN ", " ROUTING ", " LATENT ", \"ep_size\": 1, \"moe_layer_freq\": 1, "             \
    "\"scoring_func\": \"sigmoid\", \"topk_method\": \"noaux_tc\", \"aux_loss_alpha\": 0.001, \"seq_aux\": true, " \
    "\"pretraining_tp\": 1"
#define INDEX "\"index_topk\": 2048, \"index_n_heads\": 4, \"index_head_dim\": 16"
#define FACTORS "\"short_factor\": [1, 1.1, 1.2, 1.3], \"long_factor\": [1, 2, 3, 4], \"type\": \"longrope\""
#define MROPE "\"rope_type\": \"default\", \"mrope_section\": [2, 1, 1], \"mrope_interleaved\": true"
#define IMAGES "\"image_token_id\": 290, \"video_token_id\": 291, \"vision_config\": {\"depth\": 27}"

static const char *const published[] = {
    "{\"model_type\": \"gemma3\", \"boi_token_index\": 290, \"eoi_token_index\": 291, "
    "\"image_token_index\": 292, \"mm_tokens_per_image\": 256, \"vision_config\": {}, "
    "\"text_config\": {" SIZES(
        4) ", \"model_type\": \"gemma3_text\", \"attention_bias\": false, "
           "\"attention_dropout\": 0.0, \"attn_logit_softcapping\": null, \"cache_implementation\": \"hybrid\", "
           "\"final_logit_softcapping\": null, \"head_dim\": 16, \"hidden_activation\": \"gelu_pytorch_tanh\", "
           "\"query_pre_attn_scalar\": 16, \"rms_norm_eps\": 1e-6, \"rope_local_base_freq\": 10000, \"rope_scaling\": "
           "{\"factor\": 8.0, \"rope_type\": \"linear\"}, \"rope_theta\": 1000000, \"sliding_window\": 8, "
           "\"sliding_window_pattern\": 6}}",
    "{\"model_type\": \"mistral3\", \"image_token_index\": 10, \"multimodal_projector_bias\": false, "
    "\"projector_hidden_act\": \"gelu\", \"spatial_merge_size\": 2, \"vision_feature_layer\": -1, \"vision_config\": "
    "{}, \"text_config\": {" SIZES(
        4) ", \"model_type\": \"mistral\", \"head_dim\": 16, \"hidden_act\": \"silu\", "
           "\"rms_norm_eps\": 1e-5, \"attention_dropout\": 0.0, \"rope_theta\": 1e9, \"sliding_window\": null}}",
    "{\"model_type\": \"qwen2_5_vl\", " SIZES(
        2) ", \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-6, "
           "\"attention_dropout\": 0.0, \"vision_start_token_id\": 292, \"vision_end_token_id\": 293, "
           "\"vision_token_id\": "
           "294, \"sliding_window\": 32768, \"max_window_layers\": 4, \"use_sliding_window\": false, " THETA ", " IMAGES
           ", \"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [2, 1, 1]}}",
    "{\"model_type\": \"qwen3_vl\", \"tie_word_embeddings\": true, " IMAGES ", \"vision_start_token_id\": 292, "
    "\"text_config\": {" SIZES(2) ", " RMS ", \"model_type\": \"qwen3_vl_text\", \"head_dim\": 16, \"rope_theta\": "
                                  "5000000, \"rope_scaling\": {" MROPE "}}}",
    "{\"model_type\": \"qwen3_5\", \"tie_word_embeddings\": false, " IMAGES ", \"language_model_only\": false, "
    "\"text_config\": {" SIZES(
        2) ", " RMS ", \"model_type\": \"qwen3_5_text\", \"attn_output_gate\": true, "
           "\"full_attention_interval\": 4, \"head_dim\": 16, \"layer_types\": [\"linear_attention\", "
           "\"linear_attention\", \"linear_attention\", \"full_attention\"], \"linear_conv_kernel_dim\": 4, "
           "\"linear_key_head_dim\": 8, \"linear_num_key_heads\": 4, \"linear_num_value_heads\": 8, "
           "\"linear_value_head_dim\": 8, \"mamba_ssm_dtype\": \"float32\", \"mlp_only_layers\": [], "
           "\"mtp_num_hidden_layers\": 1, \"mtp_use_dedicated_embeddings\": false, \"output_gate_type\": \"swish\", "
           "\"rope_parameters\": {" MROPE ", \"partial_rotary_factor\": 0.5, \"rope_theta\": 10000000}}}",
    "{\"model_type\": \"qwen3_5_moe\", \"tie_word_embeddings\": false, " IMAGES ", \"text_config\": {" SIZES_OF_EXPERTS(
        2) ", " RMS ", \"model_type\": \"qwen3_5_moe_text\", \"attn_output_gate\": true, "
           "\"full_attention_interval\": 4, \"head_dim\": 16, \"layer_types\": [\"linear_attention\", "
           "\"linear_attention\", \"linear_attention\", \"full_attention\"], \"linear_conv_kernel_dim\": 4, "
           "\"linear_key_head_dim\": 8, \"linear_num_key_heads\": 4, \"linear_num_value_heads\": 8, "
           "\"linear_value_head_dim\": 8, \"mamba_ssm_dtype\": \"float32\", \"mlp_only_layers\": [], "
           "\"moe_intermediate_size\": 32, \"num_experts\": 8, \"num_experts_per_tok\": 2, "
           "\"shared_expert_intermediate_size\": 32, \"output_router_logits\": false, "
           "\"router_aux_loss_coef\": 0.001, \"mtp_num_hidden_layers\": 1, "
           "\"mtp_use_dedicated_embeddings\": false, "
           "\"rope_parameters\": {" MROPE ", \"partial_rotary_factor\": 0.25, \"rope_theta\": 10000000}}}",
    "{\"model_type\": \"deepseek_v3\", \"rope_interleave\": true, " DEEPSEEK "}",
    "{\"model_type\": \"kimi_k2\", \"auto_map\": {}, " DEEPSEEK "}",
    "{\"model_type\": \"deepseek_v32\", " INDEX ", " DEEPSEEK "}",
    /* without head_dim, which transformers replaces by qk_rope_head_dim */
    "{\"model_type\": \"glm_moe_dsa\", " SIZES(
        8) ", " RMS ", " ROUTING ", " LATENT ", " INDEX
           ", \"ep_size\": 1, \"index_share_for_mtp_iteration\": true, \"index_topk_freq\": 4, "
           "\"index_skip_topk_offset\": 3, \"indexer_rope_interleave\": true, \"moe_layer_freq\": 1, "
           "\"pretraining_tp\": 1, "
           "\"qk_head_dim\": 24, \"rope_interleave\": true, \"rope_parameters\": {\"rope_theta\": 8000000, "
           "\"rope_type\": "
           "\"default\"}, \"scoring_func\": \"sigmoid\", \"tie_word_embeddings\": false, \"topk_method\": "
           "\"noaux_tc\"}",
    "{\"model_type\": \"glm4_moe\", " SIZES(
        2) ", " RMS ", " THETA ", " ROUTING ", \"head_dim\": 16, "
           "\"partial_rotary_factor\": 0.5, \"use_qk_norm\": true, \"rope_scaling\": null, \"pad_token_id\": 2}",
    "{\"model_type\": \"minimax\", " SIZES(
        2) ", \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-5, "
           "\"attention_dropout\": 0.0, \"head_dim\": 16, \"num_local_experts\": 8, \"num_experts_per_tok\": 2, "
           "\"rotary_dim\": 8, \"router_aux_loss_coef\": 0.001, \"router_jitter_noise\": 0.0, "
           "\"output_router_logits\": false, \"layer_types\": [\"linear_attention\", \"linear_attention\", "
           "\"linear_attention\", \"full_attention\"], \"block_size\": 256, \"full_attn_alpha_factor\": 3.55, "
           "\"full_attn_beta_factor\": 1.0, \"linear_attn_alpha_factor\": 3.55, \"linear_attn_beta_factor\": 1.0, "
           "\"mlp_alpha_factor\": 3.55, \"mlp_beta_factor\": 1.0, \"postnorm\": true, \"sliding_window\": null, "
           "\"shared_intermediate_size\": 0, \"shared_moe_mode\": \"sigmoid\", " THETA "}",
    "{\"model_type\": \"minimax_m2\", " SIZES(
        2) ", \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-6, "
           "\"attention_dropout\": 0.0, \"head_dim\": 16, \"num_local_experts\": 8, \"num_experts_per_tok\": 2, "
           "\"rotary_dim\": 8, \"router_aux_loss_coef\": 0.001, \"router_jitter_noise\": 0.0, "
           "\"output_router_logits\": "
           "false, \"scoring_func\": \"sigmoid\", \"use_qk_norm\": true, \"qk_norm_type\": \"per_layer\", "
           "\"use_routing_bias\": true, \"use_mtp\": true, \"num_mtp_modules\": 3, \"mtp_transformer_layers\": 1, "
           "\"shared_intermediate_size\": 0, " THETA "}",
    "{\"model_type\": \"gpt_oss\", " SIZES(
        2) ", " RMS ", " THETA ", \"head_dim\": 8, \"experts_per_token\": 2, "
           "\"initial_context_length\": 4096, \"num_experts_per_tok\": 2, \"num_local_experts\": 4, "
           "\"output_router_logits\": false, \"router_aux_loss_coef\": 0.9, \"pad_token_id\": 2, \"sliding_window\": "
           "8, "
           "\"swiglu_limit\": 7.0, \"layer_types\": [\"sliding_attention\", \"full_attention\", \"sliding_attention\", "
           "\"full_attention\"], \"rope_scaling\": {\"beta_fast\": 32.0, \"beta_slow\": 1.0, \"factor\": 32.0, "
           "\"original_max_position_embeddings\": 4096, \"rope_type\": \"yarn\", \"truncate\": false}}",
    "{\"model_type\": \"ernie4_5_moe\", " SIZES(
        2) ", \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-5, "
           "\"use_bias\": false, \"moe_num_experts\": 8, \"moe_k\": 2, \"moe_num_shared_experts\": 2, "
           "\"moe_intermediate_size\": 32, \"moe_layer_start_index\": 1, \"moe_layer_end_index\": 3, "
           "\"moe_layer_interval\": 1, \"moe_use_aux_free\": true, \"moe_capacity\": [64, 64, 64], \"moe_gate\": "
           "\"topk\", " THETA "}",
    "{\"model_type\": \"cohere2\", " SIZES(
        2) ", \"hidden_act\": \"silu\", \"attention_bias\": false, "
           "\"attention_dropout\": 0.0, \"layer_norm_eps\": 1e-5, \"logit_scale\": 0.25, \"sliding_window\": 8, "
           "\"sliding_window_pattern\": 4, \"order_of_interleaved_layers\": \"local_attn_first\", "
           "\"position_embedding_type\": \"rope_gptj\", \"rotary_pct\": 1.0, \"use_embedding_sharing\": true, "
           "\"use_gated_activation\": true, \"use_parallel_block\": true, \"use_qk_norm\": false, \"rope_theta\": "
           "50000}",
    "{\"model_type\": \"ministral3\", " SIZES(
        2) ", \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-5, "
           "\"attention_dropout\": 0.0, \"head_dim\": 16, \"sliding_window\": null, \"tie_word_embeddings\": true, "
           "\"rope_parameters\": {\"beta_fast\": 32.0, \"beta_slow\": 1.0, \"factor\": 16.0, \"llama_4_scaling_beta\": "
           "0.1, "
           "\"mscale\": 1.0, \"mscale_all_dim\": 1.0, \"original_max_position_embeddings\": 4096, \"rope_theta\": 1e6, "
           "\"rope_type\": \"yarn\"}}",
    "{\"model_type\": \"qwen3_vl_moe\", \"tie_word_embeddings\": false, " IMAGES ", \"text_config\": {" SIZES(
        2) ", " RMS ", \"model_type\": \"qwen3_vl_moe_text\", \"head_dim\": 16, \"decoder_sparse_step\": 1, "
           "\"mlp_only_layers\": [], \"moe_intermediate_size\": 32, \"norm_topk_prob\": true, \"num_experts\": 8, "
           "\"num_experts_per_tok\": 2, \"rope_theta\": 5000000, \"rope_scaling\": {" MROPE "}}}",
    "{\"model_type\": \"apertus\", " SIZES(
        2) ", \"hidden_act\": \"xielu\", \"rms_norm_eps\": 1e-5, \"attention_dropout\": 0.0, \"attention_bias\": "
           "false, "
           "\"hidden_dropout\": 0.0, \"mlp_bias\": false, \"pad_token_id\": 3, \"post_norm\": false, \"qk_norm\": "
           "true, "
           "\"rope_scaling\": {\"factor\": 8.0, \"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0, "
           "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}, " THETA "}",
    "{\"model_type\": \"phimoe\", \"auto_map\": {}, " SIZES(
        2) ", \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-5, \"attention_dropout\": 0.0, \"attention_bias\": true, "
           "\"hidden_dropout\": 0.0, \"input_jitter_noise\": 0.01, \"lm_head_bias\": true, \"num_experts_per_tok\": 2, "
           "\"num_local_experts\": 4, \"original_max_position_embeddings\": 1024, \"output_router_logits\": false, "
           "\"router_aux_loss_coef\": 0.0, \"router_jitter_noise\": 0.01, \"sliding_window\": 131072, " THETA
           ", \"rope_scaling\": {\"long_mscale\": 1.24, \"short_mscale\": 1.24, " FACTORS "}}",
    "{\"model_type\": \"minicpm3\", \"auto_map\": {}, " SIZES(
        8) ", " RMS ", " LATENT ", \"dim_model_base\": 32, \"scale_depth\": 1.4, \"scale_emb\": 12, \"rope_scaling\": "
           "{\"original_max_position_embeddings\": 4096, " FACTORS "}}",
    "{\"model_type\": \"qwen3_next\", " SIZES(
        2) ", " RMS ", " THETA ", \"decoder_sparse_step\": 1, "
           "\"full_attention_interval\": 4, \"head_dim\": 16, \"linear_conv_kernel_dim\": 4, \"linear_key_head_dim\": "
           "8, "
           "\"linear_num_key_heads\": 4, \"linear_num_value_heads\": 8, \"linear_value_head_dim\": 8, "
           "\"mlp_only_layers\": [], \"moe_intermediate_size\": 32, \"norm_topk_prob\": true, \"num_experts\": 8, "
           "\"num_experts_per_tok\": 2, \"output_router_logits\": false, \"partial_rotary_factor\": 0.25, "
           "\"rope_scaling\": null, \"router_aux_loss_coef\": 0.001, \"shared_expert_intermediate_size\": 32, "
           "\"use_sliding_window\": false}",
    "{\"model_type\": \"falcon_h1\", " SIZES(
        2) ", " RMS ", " THETA ", \"attention_in_multiplier\": 1.0, "
           "\"attention_out_multiplier\": 0.9, \"embedding_multiplier\": 5.6, "
           "\"head_dim\": "
           "16, \"key_multiplier\": 0.39, \"lm_head_multiplier\": 0.039, \"mamba_chunk_size\": 128, "
           "\"mamba_conv_bias\": "
           "true, \"mamba_d_conv\": 4, \"mamba_d_head\": 8, \"mamba_d_ssm\": 64, \"mamba_d_state\": 16, "
           "\"mamba_expand\": "
           "2, \"mamba_n_groups\": 1, \"mamba_n_heads\": 8, \"mamba_norm_before_gate\": false, \"mamba_proj_bias\": "
           "false, \"mamba_rms_norm\": false, \"mamba_use_mlp\": true, \"mlp_bias\": false, \"mlp_expansion_factor\": "
           "8, "
           "\"mlp_multipliers\": [0.88, 0.58], \"num_logits_to_keep\": 1, \"pad_token_id\": 0, \"projectors_bias\": "
           "false, \"rope_scaling\": null, \"ssm_in_multiplier\": 1.25, \"ssm_multipliers\": [0.35, 0.25, 0.35, 0.5, "
           "0.35], \"ssm_out_multiplier\": 0.23, \"time_step_floor\": 0.0001, \"time_step_max\": 0.1, "
           "\"time_step_min\": 0.001, \"time_step_rank\": \"auto\"}",
    "{\"model_type\": \"mamba2\", \"vocab_size\": 300, \"hidden_size\": 64, \"num_hidden_layers\": 2, "
    "\"bos_token_id\": 0, "
    "\"eos_token_id\": 0, \"initializer_range\": 0.1, \"layer_norm_epsilon\": 1e-5, \"expand\": "
    "2, "
    "\"head_dim\": 16, \"num_heads\": 8, \"n_groups\": 1, \"state_size\": 16, \"conv_kernel\": 4, \"use_bias\": false, "
    "\"use_conv_bias\": true, \"hidden_act\": \"silu\", \"chunk_size\": 256, \"norm_before_gate\": true, \"rms_norm\": "
    "true, \"residual_in_fp32\": true, \"rescale_prenorm_residual\": false, \"tie_word_embeddings\": true, "
    "\"time_step_floor\": 0.0001, \"time_step_limit\": [0.0, 10.0], \"time_step_max\": 0.1, \"time_step_min\": 0.001, "
    "\"time_step_rank\": 4, \"use_cache\": true, \"torch_dtype\": \"float32\"}",
    "{\"model_type\": \"nemotron_h\", " SIZES(
        2) ", \"attention_bias\": false, \"attention_dropout\": 0.0, "
           "\"chunk_size\": 128, \"conv_kernel\": 4, \"expand\": 2, \"head_dim\": 16, \"hidden_dropout\": 0.0, "
           "\"hybrid_override_pattern\": \"ME*-\", \"layer_norm_epsilon\": 1e-5, \"mamba_head_dim\": 8, "
           "\"mamba_hidden_act\": "
           "\"silu\", \"mamba_num_heads\": 8, \"mamba_proj_bias\": false, \"mamba_ssm_cache_dtype\": \"float32\", "
           "\"mlp_bias\": "
           "false, \"mlp_hidden_act\": \"relu2\", \"moe_intermediate_size\": 32, "
           "\"moe_shared_expert_intermediate_size\": 32, "
           "\"n_group\": 1, \"n_groups\": 4, \"n_routed_experts\": 8, \"norm_topk_prob\": "
           "true, "
           "\"num_experts_per_tok\": 2, \"num_logits_to_keep\": 1, \"rescale_prenorm_residual\": "
           "true, "
           "\"residual_in_fp32\": false, \"routed_scaling_factor\": 2.5, \"ssm_state_size\": 16, \"time_step_floor\": "
           "0.0001, "
           "\"time_step_max\": 0.1, \"time_step_min\": 0.001, \"topk_group\": 1, \"use_bias\": false, "
           "\"use_conv_bias\": true, "
           "\"use_mamba_kernels\": true, \"tie_word_embeddings\": false}",
};

/* Published files as they are, and the numbers of their models' parameters, by transformers, whole and with fewer
 * layers.
 */
static const struct {
    const char *name;
    int64_t layers, params, params_of_layers;
} files[] = {
    {"deepseek-v2-lite", 2, 15706484224, 1085287424}, {"deepseek-v3", 4, 671026419200, 15111101696},
    {"gemma-3-4b", 6, 3880263168, 1237550592},        {"gemma-4-e2b", 25, 4628569379, 3577551129},
    {"glm-4.5-air", 2, 106852251264, 3826565248},     {"glm-4.7-flash", 2, 29943393920, 1354379840},
    {"gpt-oss-120b", 2, 116829156672, 7584430144},    {"llama-4-scout", 4, 107769861120, 10877383680},
    {"minimax-m2", 2, 228689764864, 8566633984},      {"qwen3-vl-4b", 2, 4022468096, 590820352},
    {"qwen3.5-27b", 4, 26895998464, 4064876704},      {"qwen3.5-35b-a3b", 4, 34660610688, 4381469760},
};

static tx_status read_copy(const tx_json *json)
{
    tx_config *config = NULL;
    const tx_status status = tx_config_of_json(tx_json_copy(json), &config);
    if (!status)
        tx_config_free(config);
    return status;
}

static bool is_in(const char *const *list, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i], key) == 0)
            return true;
    return false;
}

#define IS_IN(list, key) is_in(list, sizeof(list) / sizeof(list)[0], key)
static bool is_harmless(const tx_json *object, const char *key)
{
    return IS_IN(harmless, key) || (tx_json_has(object, "text_config") && IS_IN(harmless_around, key)) ||
           (tx_json_has(object, "attention_chunk_size") && IS_IN(harmless_llama4, key));
}

/* Whether `whole` is refused if `key` of its member `object` has a value of a wrong type. */
static bool is_read(const tx_json *whole, tx_json *object, const char *key)
{
    static const char *const wrong[] = {"{\"wrong\": 1}", "\"wrong\"", "-0.5"};
    tx_json *kept = tx_json_copy(tx_json_find(object, key));
    bool refused = false;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        tx_json *value;
        assert_ok(tx_json_parse(wrong[i], strlen(wrong[i]), key, &value));
        assert_ok(tx_json_set(object, key, value));
        refused = refused || read_copy(whole) != TX_OK;
    }
    assert_ok(tx_json_set(object, key, kept));
    return refused;
}

static void check_keys(const tx_json *whole, tx_json *object)
{
    const tx_json *keys = tx_json_copy(object); /* because setting a member may move it */
    for (void *i = tx_json_first(keys); i; i = tx_json_next(keys, i)) {
        const char *key = tx_json_key(i);
        tx_json *inner;
        if (is_harmless(object, key))
            continue;
        if (!is_read(whole, object, key))
            fail_msg("%s is ignored", key);
        if (!tx_json_get(object, key, TX_JSON_OBJECT, &inner))
            check_keys(whole, inner);
    }
    tx_json_free((tx_json *)keys);
}

static void test_keys(void **state)
{
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        tx_json *json;
        assert_ok(tx_json_parse(published[i], strlen(published[i]), "config.json", &json));
        assert_ok(read_copy(json));
        check_keys(json, json);
        tx_json_free(json);
    }
}

static void test_published(void **state)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[256], layers[48];
        tx_json *json;
        tx_config *config;
        snprintf(path, sizeof path, TX_SOURCE_DIR "/tests/arch/published/%s.json", files[i].name);
        assert_ok(tx_json_read(path, 1 << 16, &json));
        check_keys(json, json);
        tx_json_free(json);
        assert_ok(tx_config_read(path, &config));
        assert_int_equal(tx_arch_param_count(config), files[i].params);
        snprintf(layers, sizeof layers, "num_hidden_layers=%d", (int)files[i].layers);
        assert_ok(tx_config_override(config, layers));
        assert_int_equal(tx_arch_param_count(config), files[i].params_of_layers);
        tx_config_free(config);
    }
}

/* An override keeps what follows from other keys of the file. The numbers of parameters are those of the files with the
 * changed key. */
static void test_overrides(void **state)
{
    static const struct {
        const char *text, *overrides, *same;
    } cases[] = {
        {"{\"model_type\": \"qwen3_5_text\", \"num_hidden_layers\": 2, \"layer_types\": [\"full_attention\", "
         "\"linear_attention\"]}",
         "num_hidden_layers=1",
         "{\"model_type\": \"qwen3_5_text\", \"num_hidden_layers\": 1, \"layer_types\": [\"full_attention\"]}"},
        {"{\"model_type\": \"qwen3_moe\", \"mlp_only_layers\": [0]}", "num_hidden_layers=1",
         "{\"model_type\": \"qwen3_moe\", \"mlp_only_layers\": [0], \"num_hidden_layers\": 1}"},
        {"{\"model_type\": \"dots1\", \"num_local_experts\": 8}", "n_routed_experts=16,num_hidden_layers=2",
         "{\"model_type\": \"dots1\", \"n_routed_experts\": 16, \"num_hidden_layers\": 2}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tx_config *got, *want;
        assert_ok(read_text(cases[i].text, &got));
        assert_ok(tx_config_override(got, cases[i].overrides));
        assert_ok(read_text(cases[i].same, &want));
        assert_int_equal(tx_arch_param_count(got), tx_arch_param_count(want));
        tx_config_free(got);
        tx_config_free(want);
    }
    tx_config *rotated; /* the part of each head that rotates is a quotient */
    assert_ok(read_text("{\"model_type\": \"minimax_m2\", \"head_dim\": 128, \"rotary_dim\": 64}", &rotated));
    assert_ok(tx_config_override(rotated, "num_hidden_layers=2"));
    assert_true(((const llama_config *)rotated)->positions.rope.rotated == 0.5);
    tx_config_free(rotated);
}

/* Keys that name mathematics of which TX has one variant. */
static void test_other_mathematics(void **state)
{
    static const char *const bad[][2] = {
        {"\"model_type\": \"deepseek_v3\", \"scoring_func\": \"softmax\"", "scoring_func: expected \"sigmoid\""},
        {"\"model_type\": \"deepseek_v2\", \"scoring_func\": \"sigmoid\"", "scoring_func: expected \"softmax\""},
        {"\"model_type\": \"kimi_k2\", \"topk_method\": \"greedy\"", "topk_method: expected \"noaux_tc\""},
        {"\"model_type\": \"deepseek_v3\", \"moe_layer_freq\": 2", "moe_layer_freq: expected an integer from 1 to 1"},
        {"\"model_type\": \"deepseek_v32\", \"rope_interleave\": false", "rope_interleave: expected true"},
        {"\"model_type\": \"glm_moe_dsa\", \"q_lora_rank\": null", "q_lora_rank: queries without a latent"},
        {"\"model_type\": \"glm_moe_dsa\", \"index_topk_pattern\": \"FSF\"", "index_topk_pattern: 3 layers"},
        {"\"model_type\": \"minimax\", \"postnorm\": false", "postnorm: expected true"},
        {"\"model_type\": \"minimax_m2\", \"qk_norm_type\": \"per_head\"", "qk_norm_type: expected \"per_layer\""},
        {"\"model_type\": \"minimax_m2\", \"use_routing_bias\": false", "use_routing_bias: expected true"},
        {"\"model_type\": \"minimax_m2\", \"attn_type_list\": [1, 0]", "attn_type_list: only 1 is implemented"},
        {"\"model_type\": \"glm4_moe_lite\", \"partial_rotary_factor\": 0.5", "rotates whole heads"},
        {"\"model_type\": \"llama\", \"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e5m2\"}",
         "fmt: \"e5m2\" is not implemented"},
        {"\"model_type\": \"cohere2\", \"use_parallel_block\": false", "use_parallel_block: expected true"},
        {"\"model_type\": \"cohere2\", \"position_embedding_type\": \"alibi\"", "position_embedding_type: expected"},
        {"\"model_type\": \"qwen3_5_text\", \"output_gate_type\": \"sigmoid\"", "output_gate_type: expected"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[256];
        tx_config *config;
        snprintf(text, sizeof text, "{%s}", bad[i][0]);
        const tx_status status = read_text(text, &config);
        assert_true(status == TX_UNSUPPORTED || status == TX_FORMAT);
        assert_non_null(strstr(tx_error(), bad[i][1]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys), cmocka_unit_test(test_published),
                                       cmocka_unit_test(test_overrides), cmocka_unit_test(test_other_mathematics)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
