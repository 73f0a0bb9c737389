/* SPDX-License-Identifier: Apache-2.0
 *
 * Llama (Touvron et al., LLaMA, 2023) and Mistral as Hugging Face stores them, and the parameters and files of their
 * variants. Projections are y = x W^T with W [out, in]. Files store q, k and v separately, and gate and up. Here each
 * group is one parameter, so that one matrix product computes it. The graph is in llama_graph.c. */
#include "models/arch/llama_family.h"
#include "models/arch/mixer.h"
#include "models/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Parameters -------------------------------------------------------------------------------------- */

const tx_stack_row tx_llama_rows[] = {
    OPENING_ROWS_WITH(HEAD_NORM_ROW("q_norm|k_norm.weight", QK_HEAD, ONES, IF(norms.heads))),
    {GATE_UP_PROJ, LAYER "mlp.gate_proj|up_proj.weight", {GATE_UP, WIDTH}, .split = 1},
    {GATE_UP_BIAS, LAYER "mlp.gate_proj|up_proj.bias", {GATE_UP}, ZEROS, IF(mlp.bias), .split = 1},
    {DOWN_PROJ, LAYER "mlp.down_proj.weight", {WIDTH, INNER}, .split = 2},
    {DOWN_BIAS, LAYER "mlp.down_proj.bias", {WIDTH}, ZEROS, IF(mlp.bias)},
    LAST_ROWS,
};

/* A parameter gate | up with this inner width. */
static int64_t gate_and_up(int64_t inner, int32_t dimension, tx_param_sections *sections)
{
    *sections = (tx_param_sections){2, dimension, {inner, inner}, {0}};
    return 2 * inner;
}

static int64_t extent_of(const tx_config *config, int64_t block, int32_t extent, int32_t dimension,
                         tx_param_sections *sections)
{
    const llama_config *c = llama_of(config);
    const int64_t size = head_size_of(c, block), heads = config->heads * size, of_kv = kv_heads_of(c, block) * size;
    switch (extent) {
    case QKV: /* perhaps q, k and v of a head together */
        if (c->attention.by_head || c->attention.by_group)
            return heads + 2 * of_kv;
        *sections = (tx_param_sections){3, dimension, {heads, of_kv, of_kv}, {size, size, size}};
        return heads + 2 * of_kv;
    case QK:
        *sections = (tx_param_sections){2, dimension, {heads, of_kv}, {size, size}};
        return heads + of_kv;
    case GATED_QKV:
        *sections = (tx_param_sections){3, dimension, {2 * heads, of_kv, of_kv}, {2 * size, size, size}};
        return 2 * (heads + of_kv);
    case QK_HEAD:
        *sections = (tx_param_sections){2, dimension, {size, size}, {0}};
        return 2 * size;
    case QK_WIDTH:
        *sections = (tx_param_sections){2, dimension, {heads, of_kv}, {0}};
        return heads + of_kv;
    case LATENT_QUERY:
        return c->latent.query_rank;
    case LATENT_KEY:
        return c->latent.rank + c->latent.rotated;
    case LATENT:
        return c->latent.rank;
    case KEYS_AND_VALUES:
        return config->heads * (c->latent.plain + c->latent.value);
    case VALUES:
        return config->heads * c->latent.value;
    case INDEX_QUERIES:
        return c->latent.index_heads * c->latent.index_size;
    case INDEX_HEADS:
        return c->latent.index_heads;
    case INDEX_SIZE:
        return c->latent.index_size;
    case QUERY_HEADS:
        return config->heads;
    case EMBED_WIDTH:
        return c->embedding.width ? c->embedding.width : config->width;
    case KEY_HEADS:
        return kv_heads_of(c, block);
    case HEAD_SIZE:
        return size;
    case POSITIONS:
        return c->max_position_embeddings + c->positions.first;
    case EXPERT_PAIR:
        return 2 * expert_size(c);
    case GATE_UP:
        return gate_and_up(mlp_size_of(c, block), dimension, sections);
    case EXPERT_GATE_UP:
        return gate_and_up(expert_size(c), dimension, sections);
    case SHARED_GATE_UP:
        return gate_and_up(shared_size(c), dimension, sections);
    case EXPERTS:
        return c->experts.count;
    case EXPERT_INNER:
        return expert_size(c);
    case SHARED_INNER:
        return shared_size(c);
    case ONE:
        return 1;
    case LABELS:
        return config->labels;
    case MIXER_INPUTS:
        tx_mixer_sections(c, true, dimension, sections);
        return tx_mixer_inputs(c);
    case MIXER_CHANNELS:
        tx_mixer_sections(c, false, dimension, sections);
        return tx_mixer_channels(c);
    case MIXER_TAPS:
        return c->mixer.taps;
    case MIXER_HEADS:
        return c->mixer.v_heads;
    case MIXER_TWO_HEADS: /* perhaps the numbers of each head of keys together */
        return c->mixer.joined ? 2 * c->mixer.v_heads : gate_and_up(c->mixer.v_heads, dimension, sections);
    case MIXER_VALUES:
        return tx_mixer_values(c);
    case MIXER_VALUE:
        return c->mixer.v_size;
    case LAYER_INPUT:
        return c->embedding.layer_width;
    case LAYER_INPUTS:
        return config->layers * c->embedding.layer_width;
    case STREAMS:
        return TX_LLAMA_STREAMS;
    case STREAM_PAIRS:
        return TX_LLAMA_STREAMS * TX_LLAMA_STREAMS;
    case OTHER_STREAMS:
        *sections = (tx_param_sections){3, dimension, {config->width, config->width, config->width}, {0}};
        return 3 * config->width;
    case LOW_RANK:
        return c->streams.low_rank;
    default:
        return extent == HEADS ? heads : mlp_size_of(c, block);
    }
}

/* Whether the model has an output head. */
static bool has_head(const tx_config *config)
{
    return config->architecture->head == TX_HEAD_CAUSAL_LM;
}

int32_t tx_llama_params(const tx_config *config)
{
    return tx_stack_params(config, llama_of(config)->rows);
}

tx_status tx_llama_param(const tx_config *config, int32_t index, char name[TX_ARCH_NAME], tx_param_spec *spec)
{
    tx_stack_param(config, llama_of(config)->rows, extent_of, llama_of(config)->initializer_range, index, name, spec);
    int64_t number;
    if (tx_stack_row_of(config, llama_of(config)->rows, index, &number)->slot == INPUTS_TABLE)
        spec->logical.dim[0] = layer_rows(llama_of(config));
    spec->tied = index == 0 && llama_of(config)->tie_word_embeddings && has_head(config);
    return TX_OK;
}

int64_t tx_llama_embeddings(const tx_config *config)
{
    const llama_config *c = llama_of(config);
    const int64_t positions = c->positions.learned ? c->max_position_embeddings + c->positions.first : 0;
    const int64_t width = c->embedding.width ? c->embedding.width : config->width;
    return config->vocab_size * width + positions * config->width +
           layer_rows(c) * config->layers * c->embedding.layer_width;
}

/* Weights of the experts that a token is not routed to. */
int64_t tx_llama_inactive(const tx_config *config)
{
    const llama_config *c = llama_of(config);
    int64_t layers = 0;
    for (int64_t i = 0; i < config->layers; i++)
        layers += is_sparse(config, i);
    const int64_t matrices = c->mlp.plain ? 2 : 3;
    return layers * (c->experts.count - c->experts.chosen) * matrices * config->width * expert_size(c);
}

/* ---- Files ------------------------------------------------------------------------------------------- */

static const char *name_of(const tx_config *config, int32_t slot)
{
    const tx_stack_row *row = llama_of(config)->rows;
    while (row->slot != slot)
        row++;
    return row->name;
}

/* The length of a name's first part, with its dot. */
static size_t first_part(const char *name)
{
    return strcspn(name, ".") + 1;
}

/* Whether the file of a base model ("embed_tokens.weight", as in Qwen3-Embedding) has the tensor: then its name lacks
 * the first part of the parameter's. */
static bool has_no_prefix(const tx_config *config, const char *tensor)
{
    for (const tx_stack_row *row = llama_of(config)->rows; row->name; row++) {
        const char *rest = row->name + first_part(row->name);
        if (row->slot != LM_HEAD && row->slot != SCORE && strncmp(tensor, rest, first_part(rest)) == 0)
            return true;
    }
    return false;
}

/* The layer in the name of a tensor, or -1. */
static int64_t layer_of(const char *tensor)
{
    static const char layers[] = "model.layers.";
    return tx_begins_with(tensor, layers) ? strtoll(tensor + strlen(layers), NULL, 10) : -1;
}

/* Tensors of multi-token prediction (DeepSeek-V3, 2024, section 2.2). */
bool tx_llama_leaves_out(const tx_config *config, const char *tensor)
{
    const int64_t layer = layer_of(tensor);
    if (tx_begins_with(tensor, "mtp.") || tx_begins_with(tensor, "model.mtp"))
        return true;
    return layer >= config->layers && layer < config->layers + llama_of(config)->mtp_layers;
}

/* Whether files have keys and values of a layer that uses those of an earlier one. */
static bool is_unused(const tx_config *config, const char *tensor)
{
    const int64_t layer = layer_of(tensor);
    return layer >= 0 && layer < config->layers && !has_keys(config, layer) &&
           (strstr(tensor, ".self_attn.k_") || strstr(tensor, ".self_attn.v_"));
}

/* Whether a tensor follows from the configuration: causal masks and rope frequencies of old files, and the decays of
 * lightning attention. */
static bool is_computed(const char *tensor)
{
    static const char *const ends[] = {".attn.bias", ".attention.bias", ".masked_bias",    ".slope_rate",
                                       ".key_decay", ".query_decay",    ".diagonal_decay", NULL};
    for (int i = 0; ends[i]; i++)
        if (tx_ends_with(tensor, ends[i]))
            return true;
    return strstr(tensor, ".rotary_emb.inv_freq");
}

/* Skips a copy of a tied head, keys and values that are not used, the layers of multi-token prediction, and tensors
 * that follow from the configuration. */
void tx_llama_rename(const tx_config *config, const char *tensor, char param[TX_WEIGHTS_NAME])
{
    const char *embedding = name_of(config, EMBED);
    const bool is_copy =
        strcmp(tensor, name_of(config, LM_HEAD)) == 0 && (llama_of(config)->tie_word_embeddings || !has_head(config));
    if (is_copy || is_computed(tensor) || is_unused(config, tensor) || tx_llama_leaves_out(config, tensor))
        param[0] = '\0';
    else if (has_no_prefix(config, tensor))
        snprintf(param, TX_WEIGHTS_NAME, "%.*s%s", (int)first_part(embedding), embedding, tensor);
    else
        snprintf(param, TX_WEIGHTS_NAME, "%s", tensor);
}

tx_status tx_llama_check_weights(const tx_config *config, const tx_weights *weights)
{
    return llama_of(config)->tie_word_embeddings
               ? tx_arch_check_tied(weights, name_of(config, LM_HEAD), name_of(config, EMBED))
               : TX_OK;
}

bool tx_llama_is_of_head(const char *param)
{
    return strcmp(param, "score.weight") == 0;
}

/* ---- Llama and Mistral --------------------------------------------------------------------------------- */

static const tx_config_key llama_keys[] = {COMMON_KEYS, HEAD_DIM_KEY, BIAS_KEY, MLP_BIAS_KEY, {.name = NULL}};
static const tx_config_key mistral_keys[] = {COMMON_KEYS, HEAD_DIM_KEY, WINDOW_KEY, {.name = NULL}};

static const llama_config llama_defaults = {SIZES(tx_llama, tx_llama_rows, 32000, 2048, 4096, 32, 32, 1, 2),
                                            REST(11008, 0, 1e-6, 1e4)};
static const llama_config mistral_defaults = {SIZES(tx_mistral, tx_llama_rows, 32000, 131072, 4096, 32, 32, 1, 2),
                                              REST(14336, 8, 1e-6, 1e4), .attention.windowed = true,
                                              .attention.window = 4096};

static const tx_preset llama_presets[] = {
    {"tinyllama-1.1b", "hidden_size=2048,intermediate_size=5632,num_hidden_layers=22,num_attention_heads=32,"
                       "num_key_value_heads=4,rms_norm_eps=1e-5"},
    {"llama-3-8b", "vocab_size=128256,max_position_embeddings=8192,intermediate_size=14336,num_key_value_heads=8,"
                   "rms_norm_eps=1e-5,rope_theta=500000,bos_token_id=128000,eos_token_id=128001"},
    {.name = NULL},
};
static const tx_preset mistral_presets[] = {
    {"mistral-7b",
     "vocab_size=32768,max_position_embeddings=32768,rms_norm_eps=1e-5,rope_theta=1e6,sliding_window=null"},
    {.name = NULL},
};

ALL_HEADS(tx_llama, "llama", "Llama", llama_defaults, llama_keys, tx_llama_read,
          GGUF("llama", .pairs = true, .rope_factors = true, .without = {TX_GGUF_EXPERTS, TX_GGUF_WINDOW}),
          .presets = llama_presets);
ALL_HEADS(tx_mistral, "mistral", "Mistral", mistral_defaults, mistral_keys, tx_llama_read,
          GGUF("llama", .pairs = true, .rope_factors = true, .with = TX_GGUF_WINDOW, .without = {TX_GGUF_EXPERTS}),
          .presets = mistral_presets);
