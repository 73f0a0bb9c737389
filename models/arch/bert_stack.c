/* SPDX-License-Identifier: Apache-2.0
 *
 * The encoder of BERT (Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers, 2019) and of the families
 * that changed little of it, as Hugging Face stores and computes them, with five heads or none.
 *
 * Post-norm blocks; learned positions and token types; bidirectional attention, keys from a row's length on masked;
 * projections y = x W^T + b with W [out, in]. Files store query, key and value separately. Here they are one parameter,
 * so that one matrix product computes them. The decoder of the masked head is the token embedding. The embedding of
 * padding gets no gradient. */
#include "models/arch/bert_stack.h"
#include "models/arch/labels.h"
#include "models/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const tx_bert_config *bert_of(const tx_config *config)
{
    return (const tx_bert_config *)config;
}

/* ---- Configuration ----------------------------------------------------------------------------------- */

const char *const tx_bert_acts[TX_BERT_ACTS] = {
    [TX_BERT_GELU] = "gelu", [TX_BERT_GELU_NEW] = "gelu_new", [TX_BERT_GELU_TANH] = "gelu_pytorch_tanh",
    [TX_BERT_SILU] = "silu", [TX_BERT_SWISH] = "swish",       [TX_BERT_RELU] = "relu"};

const tx_fixed_key tx_bert_fixed[] = {
    {"is_decoder", "false", "a decoder is not implemented"},
    {"add_cross_attention", "false", "cross-attention is not implemented"},
    {"tie_word_embeddings", "true", "an untied decoder is not implemented"},
    {.name = NULL},
};

tx_status tx_bert_read_rest(const tx_json *json, tx_config *config)
{
    tx_bert_config *c = (tx_bert_config *)config;
    if (!c->kind->has_embedding_size)
        c->embedding_size = config->width;
    c->projects = c->embedding_size != config->width;
    config->positions = c->max_position_embeddings - (c->kind->counts_tokens ? c->pad_token_id + 1 : 0);
    return tx_labels_read(json, config);
}

tx_status tx_bert_read(const tx_json *json, tx_config *config)
{
    tx_bert_config *c = (tx_bert_config *)config;
    const char *type = "absolute";
    TX_TRY(TX_JSON_OPTIONAL(string, json, "position_embedding_type", &type));
    if (strcmp(type, "absolute") != 0)
        return tx_fail(TX_UNSUPPORTED, "position_embedding_type: \"%.40s\" is not implemented, only \"absolute\"",
                       type);
    TX_TRY(TX_JSON_OPTIONAL(number, json, "classifier_dropout", 0, 0.999, &c->classifier_dropout));
    return tx_bert_read_rest(json, config);
}

tx_status tx_bert_write(const tx_config *config, tx_json *json)
{
    const double dropout = bert_of(config)->classifier_dropout;
    return dropout < 0.0 ? tx_json_set_null(json, "classifier_dropout")
                         : tx_json_set_number(json, "classifier_dropout", dropout);
}

/* The name of a key in the files of this family. */
static const char *key_of(const tx_config *config, size_t offset)
{
    const tx_config_key *key = config->architecture->keys;
    while (key->offset != offset)
        key++;
    return key->name;
}

tx_status tx_bert_check(const tx_config *config)
{
    const tx_bert_config *c = bert_of(config);
    if (config->width % config->heads != 0)
        return tx_fail(TX_INVALID, "%s: %" PRId64 " is not a multiple of %s, %" PRId64,
                       key_of(config, offsetof(tx_config, width)), config->width,
                       key_of(config, offsetof(tx_config, heads)), config->heads);
    if (c->pad_token_id >= config->vocab_size)
        return tx_fail(TX_INVALID, "pad_token_id: %" PRId64 " is not in the vocabulary of %" PRId64, c->pad_token_id,
                       config->vocab_size);
    if (c->kind->counts_tokens && (c->pad_token_id < 0 || config->positions < 1))
        return tx_fail(TX_INVALID, "pad_token_id: must be below max_position_embeddings - 1 and not null, because "
                                   "positions start after it");
    return TX_OK;
}

/* ---- Parameters -------------------------------------------------------------------------------------- */

static int64_t extent_of(const tx_config *config, int64_t block, int32_t extent, int32_t dimension,
                         tx_param_sections *sections)
{
    (void)block;
    const tx_bert_config *c = bert_of(config);
    if (extent == TX_BERT_QKV)
        *sections = (tx_param_sections){3, dimension, {config->width, config->width, config->width}, {0}};
    if (extent == TX_BERT_GATED)
        *sections = (tx_param_sections){2, dimension, {c->intermediate_size, c->intermediate_size}, {0}};
    if (extent == TX_BERT_QK)
        *sections = (tx_param_sections){2, dimension, {config->width, config->width}, {0}};
    return extent == TX_BERT_POSITIONS   ? c->max_position_embeddings
           : extent == TX_BERT_TYPES     ? c->type_vocab_size
           : extent == TX_BERT_EMBEDDING ? c->embedding_size
           : extent == TX_BERT_QKV       ? 3 * config->width
           : extent == TX_BERT_LABELS    ? config->labels
           : extent == TX_BERT_ONE       ? 1
           : extent == TX_BERT_BUCKETS   ? c->buckets
           : extent == TX_BERT_HEADS     ? config->heads
           : extent == TX_BERT_TWO       ? 2
           : extent == TX_BERT_QK        ? 2 * config->width
           : extent == TX_BERT_GATED     ? 2 * c->intermediate_size
                                         : c->intermediate_size;
}

const tx_stack_row *tx_bert_rows(const tx_config *config)
{
    return bert_of(config)->kind->rows[config->architecture->head];
}

int32_t tx_bert_params(const tx_config *config)
{
    return tx_stack_params(config, tx_bert_rows(config));
}

tx_status tx_bert_param(const tx_config *config, int32_t index, char name[TX_ARCH_NAME], tx_param_spec *spec)
{
    tx_stack_param(config, tx_bert_rows(config), extent_of, bert_of(config)->initializer_range, index, name, spec);
    spec->tied = index == 0 && config->architecture->head == TX_HEAD_MASKED_LM;
    return TX_OK;
}

int64_t tx_bert_embeddings(const tx_config *config)
{
    int64_t sum = 0;
    char name[TX_ARCH_NAME];
    tx_param_spec spec = {0};
    for (int32_t i = 0; spec.block == 0 && i < tx_bert_params(config) && !tx_bert_param(config, i, name, &spec); i++)
        if (tx_ends_with(name, "embeddings.weight"))
            sum += tx_shape_count(spec.logical.rank ? &spec.logical : &spec.shape);
    return sum;
}

/* ---- Graph ----------------------------------------------------------------------------------------- */

tx_tensor *tx_bert_norm(const tx_stack *b, tx_tensor *x, int32_t slot)
{
    tx_tensor *gamma = tx_tp_param(tx_stack_weight(b, slot));
    tx_tensor *beta = tx_stack_has(b, slot + 1) ? tx_tp_param(tx_stack_weight(b, slot + 1))
                                                : tx_fill(b->graph, TX_SHAPE(b->config->width), 0.0f);
    return tx_layer_norm(x, gamma, beta, (float)bert_of(b->config)->layer_norm_eps);
}

tx_tensor *tx_bert_linear(const tx_stack *b, tx_tensor *x, int32_t slot)
{
    return tx_stack_linear(b, x, slot, slot + 1);
}

tx_tensor *tx_bert_activate(int32_t act, tx_tensor *x)
{
    switch (act) {
    case TX_BERT_SILU:
    case TX_BERT_SWISH:
        return tx_silu(x);
    case TX_BERT_RELU:
        return tx_relu(x);
    case TX_BERT_TANH:
        return tx_tanh(x);
    default:
        return tx_gelu(x, act == TX_BERT_GELU);
    }
}

/* Without token_type_ids all tokens have type 0. */
static tx_tensor *token_types(const tx_stack *b)
{
    tx_tensor *types = tx_find_input(b->graph, "token_type_ids");
    return types ? types : tx_range(b->graph, *tx_tensor_shape(b->tokens), 0, 0);
}

/* Adds rows of a table that no rank divides to this rank's positions. */
static tx_tensor *add_rows_of(const tx_stack *b, tx_tensor *x, tx_tensor *indices, int32_t table, int64_t padding)
{
    tx_tensor *rows = tx_tp_param(tx_stack_weight(b, table));
    return tx_add(x, tx_tp_own_chunk(tx_embedding_padded(indices, rows, padding, NULL, NULL)));
}

/* Counted positions use the same padded lookup as tokens, so that the position of padding gets no gradient either. */
static tx_tensor *embed(tx_stack *b, tx_tensor **words)
{
    const tx_bert_config *c = bert_of(b->config);
    b->padding = c->pad_token_id;
    *words = tx_stack_weight(b, TX_BERT_WORD_TABLE);
    tx_tensor *x;
    if (c->kind->counts_tokens) {
        int32_t chunk;
        if (tx_graph_cp_size(b->graph, &chunk) > 1)
            tx_graph_fail(b->graph, tx_fail(TX_UNSUPPORTED,
                                            "%s: context parallelism divides rows, and positions are "
                                            "counted in whole ones",
                                            b->config->architecture->type));
        tx_tensor *positions = b->positions ? b->positions : tx_token_positions(b->tokens, (int32_t)b->padding);
        x = add_rows_of(b, tx_stack_embed(b, *words, NULL), positions, TX_BERT_POSITION_TABLE, b->padding);
    } else {
        const bool learned = tx_stack_has(b, TX_BERT_POSITION_TABLE);
        x = tx_stack_embed(b, *words, learned ? tx_stack_weight(b, TX_BERT_POSITION_TABLE) : NULL);
    }
    if (tx_stack_has(b, TX_BERT_TYPE_TABLE))
        x = add_rows_of(b, x, token_types(b), TX_BERT_TYPE_TABLE, -1);
    x = tx_stack_dropout(b, tx_bert_norm(b, x, TX_BERT_EMBED_NORM), c->hidden_dropout_prob);
    return c->projects ? tx_bert_linear(b, x, TX_BERT_PROJECT) : x;
}

tx_tensor *tx_bert_first_of(const tx_stack *b, tx_tensor *x)
{
    if (!x)
        return NULL;
    const tx_shape *shape = tx_tensor_shape(x);
    tx_tensor *first = tx_range(b->graph, TX_SHAPE(shape->dim[0]), 0, (int32_t)shape->dim[1]);
    return tx_gather(tx_reshape(x, TX_SHAPE(tx_shape_rows(shape), tx_shape_last(shape))), first);
}

/* The block's queries and keys of distances, or NULL: [2 T, 2 C], or [2 T, 3 C] with values that nobody uses. */
static tx_tensor *distances(tx_stack *b)
{
    const bool own = tx_stack_has(b, TX_BERT_DISTANCE_PROJ);
    if (!b->distances)
        return NULL;
    tx_tensor *x = tx_stack_dropout(b, b->distances, bert_of(b->config)->hidden_dropout_prob);
    if (bert_of(b->config)->kind->project_distances)
        return bert_of(b->config)->kind->project_distances(b, x);
    return tx_bert_linear(b, x, own ? TX_BERT_DISTANCE_PROJ : TX_BERT_QKV_PROJ);
}

static bool reads_a_text(const tx_config *config)
{
    const tx_head head = config->architecture->head;
    return head == TX_HEAD_SEQUENCE_CLASSIFICATION || head == TX_HEAD_MULTIPLE_CHOICE;
}

/* x [B, T, C] -> [B, T, C]. Sequence classification and multiple choice read only the first position of the last block.
 * After its attention that block therefore computes only [B, C]. */
static tx_tensor *transformer_block(tx_stack *b, tx_tensor *x, int64_t layer)
{
    const tx_bert_config *c = bert_of(b->config);
    const int32_t heads = tx_stack_heads_per_rank(b, c->base.heads, key_of(b->config, offsetof(tx_config, heads)));
    tx_attention_options options = {.heads = heads, .kv_heads = heads};
    tx_tensor *h = c->kind->project ? c->kind->project(b, x) : tx_bert_linear(b, x, TX_BERT_QKV_PROJ);
    const tx_relative_options relative = {
        .heads = heads, .scores = b->scores, .distances = distances(b), .dropout = c->attention_probs_dropout_prob};
    h = c->kind->bucket ? tx_relative_attention(b, h, NULL, NULL, &relative)
                        : tx_stack_attention(b, h, layer, &options, c->attention_probs_dropout_prob);
    if (reads_a_text(b->config) && layer + 1 == b->config->layers) {
        h = tx_bert_first_of(b, h);
        x = tx_bert_first_of(b, tx_stack_whole(b, x));
    }
    h = tx_bert_linear(b, h, TX_BERT_O_PROJ);
    x = tx_bert_norm(b, tx_add(tx_stack_dropout(b, h, c->hidden_dropout_prob), x), TX_BERT_ATTN_NORM);
    h = tx_bert_linear(b, tx_bert_activate(c->hidden_act, tx_bert_linear(b, x, TX_BERT_UP_PROJ)), TX_BERT_DOWN_PROJ);
    h = tx_stack_dropout(b, h, c->kind->undropped ? 0.0 : c->hidden_dropout_prob);
    return tx_bert_norm(b, tx_add(h, x), TX_BERT_MLP_NORM);
}

/* Initializes `b` and builds the graph up to the head. NULL on error. */
static tx_tensor *encode(tx_graph *graph, const tx_config *config, const tx_arch_options *options, tx_stack *b,
                         tx_tensor **words)
{
    if (tx_stack_open(graph, config, options, tx_bert_rows(config), b))
        return NULL;
    const tx_bert_kind *kind = bert_of(config)->kind;
    if (kind->block && b->parts > 1)
        tx_graph_fail(graph,
                      tx_fail(TX_UNSUPPORTED, "%s: tensor parallelism is not implemented", config->architecture->type));
    tx_tensor *x = embed(b, words);
    const int64_t t = tx_tensor_shape(b->tokens)->dim[1];
    tx_tensor *table = kind->table ? kind->table(b) : kind->bucket ? tx_stack_weight(b, TX_BERT_DISTANCE_TABLE) : NULL;
    if (kind->disentangled) {
        table = bert_of(config)->norms_distances ? tx_bert_norm(b, table, TX_BERT_DISTANCE_NORM) : table;
        b->distances = tx_relative_rows(b, table, kind->bucket);
        b->scores = tx_relative_scores(b, config->heads, t, NULL, tx_relative_mask(b));
    } else if (table) {
        b->scores =
            tx_relative_scores(b, config->heads, t, tx_relative_bias(b, table, kind->bucket), tx_relative_mask(b));
    }
    x = tx_stack_blocks(b, x, kind->block ? kind->block : transformer_block);
    x = x && tx_stack_has(b, TX_BERT_FINAL_NORM) ? tx_bert_norm(b, x, TX_BERT_FINAL_NORM) : x;
    return config->architecture->head == TX_HEAD_MASKED_LM ? x : tx_stack_whole(b, x);
}

tx_tensor *tx_bert_masked_logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options)
{
    const tx_bert_config *c = bert_of(config);
    tx_stack b;
    tx_tensor *words, *x = encode(graph, config, options, &b, &words);
    if (!x)
        return NULL;
    const int32_t act = c->kind->exact_gelu ? TX_BERT_GELU : c->kind->same_head ? c->head_act : c->hidden_act;
    x = tx_bert_activate(act, tx_bert_linear(&b, tx_stack_rows(&b, x), TX_BERT_HEAD_DENSE));
    x = tx_bert_norm(&b, x, TX_BERT_HEAD_NORM);
    return tx_linear(tx_tp_all_gather(x), words, tx_stack_weight(&b, TX_BERT_HEAD_BIAS), true);
}

/* The dropout of a classifier's head. */
static double head_dropout(const tx_bert_config *c)
{
    const bool tokens = c->base.architecture->head == TX_HEAD_TOKEN_CLASSIFICATION;
    return c->classifier_dropout < 0.0 || (tokens && c->kind->dropout_of_texts) ? c->hidden_dropout_prob
                                                                                : c->classifier_dropout;
}

tx_tensor *tx_bert_label_logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options)
{
    const tx_bert_config *c = bert_of(config);
    const tx_head head = config->architecture->head;
    const double dropout = head == TX_HEAD_QUESTION_ANSWERING ? c->qa_dropout : head_dropout(c);
    tx_stack b;
    tx_tensor *words, *x = encode(graph, config, options, &b, &words);
    if (x && c->kind->pool && reads_a_text(config))
        x = c->kind->pool(&b, x);
    if (!x)
        return NULL;
    if (c->kind->input_dropout && head == TX_HEAD_SEQUENCE_CLASSIFICATION)
        x = tx_stack_dropout(&b, x, dropout);
    if (c->pooler_dropout > 0.0 && reads_a_text(config))
        x = tx_stack_dropout(&b, x, c->pooler_dropout);
    if (tx_stack_has(&b, TX_BERT_HEAD_DENSE))
        x = tx_bert_activate(c->head_act, tx_bert_linear(&b, x, TX_BERT_HEAD_DENSE));
    if (tx_stack_has(&b, TX_BERT_HEAD_NORM))
        x = tx_bert_norm(&b, x, TX_BERT_HEAD_NORM);
    return tx_bert_linear(&b, tx_stack_dropout(&b, x, dropout), TX_BERT_HEAD_OUT);
}

/* [B, T, C] */
tx_tensor *tx_bert_states(tx_graph *graph, const tx_config *config, const tx_arch_options *options)
{
    tx_stack b;
    tx_tensor *words;
    return encode(graph, config, options, &b, &words);
}

/* ---- Files ------------------------------------------------------------------------------------------- */

static bool begins_with_one(const char *name, const char *const *prefixes)
{
    while (*prefixes && !tx_begins_with(name, *prefixes))
        prefixes++;
    return *prefixes;
}

/* Returns true if the parameter is outside the blocks of this configuration. */
static bool has_row(const tx_config *config, const char *param)
{
    const tx_stack_row *row = tx_bert_rows(config);
    while (row->name && strcmp(row->name, param) != 0)
        row++;
    return row->name;
}

void tx_bert_rename(const tx_config *config, const char *tensor, char param[TX_WEIGHTS_NAME])
{
    static const char *const bare[] = {"embeddings", "encoder.",    "transformer.", "pooler.",
                                       "layers.",    "final_norm.", "emb_ln.",      NULL};
    const tx_bert_kind *kind = bert_of(config)->kind;
    const char *last = tx_ends_with(tensor, "LayerNorm.gamma")  ? "weight"
                       : tx_ends_with(tensor, "LayerNorm.beta") ? "bias"
                                                                : NULL;
    const size_t kept = last ? (size_t)(strrchr(tensor, '.') + 1 - tensor) : strlen(tensor);
    const bool is_bare = begins_with_one(tensor, bare) && !has_row(config, tensor);
    snprintf(param, TX_WEIGHTS_NAME, "%s%.*s%s", is_bare ? kind->prefix : "", (int)kept, tensor, last ? last : "");
    const bool of_a_head = begins_with_one(param, kind->heads);
    if (config->architecture->head == TX_HEAD_STATES && tx_begins_with(param, kind->prefix))
        memmove(param, param + strlen(kind->prefix), strlen(param + strlen(kind->prefix)) + 1);
    if (tx_ends_with(param, "embeddings.position_ids") || (of_a_head && !has_row(config, param)))
        param[0] = '\0'; /* published files have tensors that this head does not use */
}

bool tx_bert_is_of_head(const char *param)
{
    static const char *const heads[] = {
        "mpnet.pooler.", "bert.pooler.",    "roberta.pooler.", "classifier.",    "pre_classifier.", "cls.predictions.",
        "lm_head.",      "lm_predictions.", "vocab_",          "pooler.",        "generator_",      "sequence_summary.",
        "qa_outputs.",   "head.",           "decoder.",        "albert.pooler.", "predictions.",    NULL};
    return begins_with_one(param, heads);
}

tx_status tx_bert_check_ties(const tx_config *config, const tx_weights *weights)
{
    for (const tx_bert_tie *tie = bert_of(config)->kind->ties; tie->copy; tie++)
        TX_TRY(tx_arch_check_tied(weights, tie->copy, tie->of));
    return TX_OK;
}

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

#define TENSORS(slot, stem) TX_GGUF_NAME(TX_BERT_##slot, stem ".weight"), TX_GGUF_NAME(TX_BERT_##slot + 1, stem ".bias")
static const tx_gguf_name gguf_names[] = {
    TX_GGUF_NAME(TX_BERT_WORD_TABLE, TX_GGUF_EMBEDDING),
    TX_GGUF_NAME(TX_BERT_POSITION_TABLE, "position_embd.weight"),
    TX_GGUF_NAME(TX_BERT_TYPE_TABLE, TX_GGUF_TYPES),
    TENSORS(EMBED_NORM, "token_embd_norm"),
    TENSORS(QKV_PROJ, "blk.%d.attn_q|attn_k|attn_v"),
    TENSORS(O_PROJ, "blk.%d.attn_output"),
    TENSORS(ATTN_NORM, "blk.%d.attn_output_norm"),
    TENSORS(UP_PROJ, "blk.%d.ffn_up"),
    TENSORS(DOWN_PROJ, "blk.%d.ffn_down"),
    TENSORS(MLP_NORM, "blk.%d.layer_output_norm"),
    {.name = NULL},
};
static const tx_gguf_key gguf_keys[] = {TX_BERT_GGUF_KEYS, {.key = NULL}};
const tx_gguf_scheme tx_bert_gguf = {
    .rows = tx_bert_rows, .names = gguf_names, .keys = gguf_keys, .encoder = true, .token_types = true};
