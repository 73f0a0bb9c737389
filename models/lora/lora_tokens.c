/* SPDX-License-Identifier: Apache-2.0
 * Rows of single tokens that an adapter trains, peft's trainable_token_indices: the rows of an embedding, and those of
 * an output head. The rows are one parameter [rows, columns] that replaces them; the rest of the matrix is frozen. */
#include "models/lora/lora.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The tokens of a matrix ------------------------------------------------------------------------------ */

tx_status tx_lora_parse_tokens(const char *text, tx_json **json)
{
    const size_t room = strlen(text) + 3;
    char *list = malloc(room);
    if (!list)
        return tx_fail(TX_MEMORY, "no memory for an adapter");
    snprintf(list, room, strpbrk(text, "[{") ? "%s" : "[%s]", text);
    const tx_status status = tx_json_parse(list, strlen(list), TX_LORA_TOKEN_INDICES, json);
    free(list);
    return status;
}

static tx_status none_given(void)
{
    return tx_fail(TX_INVALID, TX_LORA_TOKEN_INDICES ": expected token ids, as 3,5 or {\"embed_tokens\": [3, 5]}");
}

static int by_token(const void *a, const void *b)
{
    const int64_t one = ((const tx_lora_token *)a)->token, other = ((const tx_lora_token *)b)->token;
    return (one > other) - (one < other);
}

/* Reads a list of token ids, sorted. */
static tx_status read_list(const tx_json *json, int64_t vocab, tx_lora_tokens *tokens)
{
    const size_t count = tx_json_size(json);
    if (tx_json_type_of(json) != TX_JSON_ARRAY || count == 0)
        return none_given();
    tokens->row = calloc(count, sizeof *tokens->row);
    if (!tokens->row)
        return tx_fail(TX_MEMORY, "no memory for token ids");
    for (size_t i = 0; i < count; i++) {
        tokens->row[i].place = (int64_t)i;
        TX_TRY(tx_json_as_int(tx_json_at(json, i), TX_LORA_TOKEN_INDICES, 0, vocab - 1, &tokens->row[i].token));
    }
    qsort(tokens->row, count, sizeof *tokens->row, by_token);
    for (size_t i = 1; i < count; i++)
        if (tokens->row[i].token == tokens->row[i - 1].token)
            return tx_fail(TX_INVALID, TX_LORA_TOKEN_INDICES ": %" PRId64 " occurs twice", tokens->row[i].token);
    tokens->count = (int64_t)count;
    return TX_OK;
}

/* The list of a module: all rules of a list are for the embedding; the keys of an object are ends of names. */
static const tx_json *list_of(const tx_json *json, const char *module, bool embedding)
{
    if (tx_json_type_of(json) != TX_JSON_OBJECT)
        return embedding ? json : NULL;
    for (void *i = tx_json_first(json); i; i = tx_json_next(json, i)) {
        const size_t length = strlen(tx_json_key(i)), all = strlen(module);
        if (length <= all && strcmp(module + all - length, tx_json_key(i)) == 0)
            return tx_json_value(i);
    }
    return NULL;
}

tx_status tx_lora_tokens_of(const tx_lora *lora, const tx_config *config, int32_t index, tx_lora_tokens *tokens)
{
    tx_param_spec spec;
    tx_json *json = NULL;
    *tokens = (tx_lora_tokens){0};
    if (!lora->tokens)
        return TX_OK;
    TX_TRY(config->architecture->param(config, index, tokens->module, &spec));
    char *end = strrchr(tokens->module, '.');
    if (spec.shape.rank != 2 || spec.logical.rank != 2 || strcmp(end, ".weight") != 0)
        return TX_OK;
    *end = '\0';
    tokens->columns = spec.shape.dim[1];
    TX_TRY(tx_lora_parse_tokens(lora->tokens, &json));
    const tx_json *list = list_of(json, tokens->module, index == 0);
    tx_status status = list ? read_list(list, spec.logical.dim[0], tokens) : TX_OK;
    tx_json_free(json);
    if (status)
        tx_lora_free_tokens(tokens);
    return status;
}

void tx_lora_free_tokens(tx_lora_tokens *tokens)
{
    free(tokens->row);
    tokens->row = NULL;
}

void tx_lora_name_of_tokens(const tx_lora_tokens *tokens, char name[TX_WEIGHTS_NAME])
{
    snprintf(name, TX_WEIGHTS_NAME, "%s" TX_LORA_TOKENS_DELTA, tokens->module);
}

/* ---- Tied heads ----------------------------------------------------------------------------------------- */

bool tx_lora_is_tied_head(const tx_config *config, const char *word, size_t length)
{
    char tensor[TX_WEIGHTS_NAME], param[TX_WEIGHTS_NAME] = "";
    if (config->architecture->head != TX_HEAD_CAUSAL_LM)
        return false;
    snprintf(tensor, sizeof tensor, "%.*s.weight", (int)length, word);
    config->architecture->rename(config, tensor, param);
    return param[0] == '\0';
}

/* ---- Checks ---------------------------------------------------------------------------------------------- */

/* The lists of the embedding and of an output head that is tied to it, or NULL. */
static void tied_lists(const tx_config *config, const tx_json *json, const tx_json **embedding, const tx_json **head)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    *embedding = *head = NULL;
    if (tx_json_type_of(json) != TX_JSON_OBJECT || config->architecture->param(config, 0, name, &spec))
        return;
    *strrchr(name, '.') = '\0';
    *embedding = list_of(json, name, true);
    for (void *i = tx_json_first(json); i; i = tx_json_next(json, i))
        if (tx_lora_is_tied_head(config, tx_json_key(i), strlen(tx_json_key(i))))
            *head = tx_json_value(i);
}

static bool same_lists(const tx_json *a, const tx_json *b)
{
    char *one = a ? tx_json_text(a, TX_JSON_LINE) : NULL, *other = b ? tx_json_text(b, TX_JSON_LINE) : NULL;
    const bool same = one && other && strcmp(one, other) == 0;
    free(one);
    free(other);
    return same;
}

bool tx_lora_tokens_differ(const tx_lora *lora, const tx_config *config)
{
    const tx_json *embedding, *head;
    tx_json *json = NULL;
    if (!lora->tokens || tx_lora_parse_tokens(lora->tokens, &json))
        return false;
    tied_lists(config, json, &embedding, &head);
    const bool differ = head && !same_lists(embedding, head);
    tx_json_free(json);
    return differ;
}

/* peft's rows of an output head leave out its bias. */
static tx_status check_head(const tx_config *config, int32_t index, const char *module)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    TX_TRY(config->architecture->param(config, index, name, &spec));
    const bool is_head = spec.tied || spec.block == -1;
    for (int32_t p = 0; p < config->architecture->params(config) && is_head; p++) {
        TX_TRY(config->architecture->param(config, p, name, &spec));
        if (spec.block == -1 && spec.shape.rank == 1 && spec.logical.rank == 1)
            return tx_fail(TX_UNSUPPORTED, TX_LORA_TOKEN_INDICES ": %s: with it, peft leaves out %s", module, name);
    }
    return TX_OK;
}

/* Whether a key of an object is used: that of a matrix, or of a tied head with the embedding's tokens. */
static bool is_used(const tx_config *config, const tx_json *json, void *key)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    const tx_json *embedding, *head, *list = tx_json_value(key);
    tied_lists(config, json, &embedding, &head);
    bool used = head == list && same_lists(embedding, head);
    for (int32_t p = 0; p < config->architecture->params(config) && !used; p++) {
        if (config->architecture->param(config, p, name, &spec))
            return false;
        *strrchr(name, '.') = '\0';
        used = spec.shape.rank == 2 && spec.logical.rank == 2 && list_of(json, name, false) == list;
    }
    return used;
}

tx_status tx_lora_check_tokens(const tx_lora *lora, const tx_config *config)
{
    tx_json *json = NULL;
    if (!lora->tokens)
        return TX_OK;
    tx_status status = tx_lora_parse_tokens(lora->tokens, &json);
    const bool by_name = !status && tx_json_type_of(json) == TX_JSON_OBJECT;
    if (by_name && !tx_json_first(json))
        status = none_given();
    for (void *i = by_name ? tx_json_first(json) : NULL; i && !status; i = tx_json_next(json, i))
        if (!is_used(config, json, i))
            status = tx_fail(TX_INVALID, TX_LORA_TOKEN_INDICES ": %.60s is no embedding of tokens or output head of %s",
                             tx_json_key(i), config->architecture->class_name);
    tx_json_free(json);
    for (int32_t p = 0; p < config->architecture->params(config) && !status; p++) {
        tx_lora_tokens tokens;
        status = tx_lora_tokens_of(lora, config, p, &tokens);
        if (!status && tokens.count)
            status = check_head(config, p, tokens.module);
        tx_lora_free_tokens(&tokens);
    }
    return status;
}

/* ---- Graph ----------------------------------------------------------------------------------------------- */

/* Scatters rows first, .., first + count - 1 of the sorted tokens into a tensor that begins at token `start` and has
 * `span` rows. Its other rows are zero. Tokens with equal distances are one scatter; others are two halves. */
static tx_tensor *scatter(tx_tensor *rows, const tx_lora_token *row, int64_t count, int64_t start, int64_t span,
                          tx_graph *graph)
{
    const int64_t step = count > 1 ? row[1].token - row[0].token : 0;
    const int64_t next = count > 1 ? row[1].place - row[0].place : 0;
    int64_t same = 1;
    while (same < count && row[same].token - row[same - 1].token == step &&
           row[same].place - row[same - 1].place == next)
        same++;
    if (same == count) {
        rows = tx_gather(rows, tx_range(graph, TX_SHAPE(count), (int32_t)row[0].place, (int32_t)next));
        return tx_scatter_add(tx_range(graph, TX_SHAPE(count), (int32_t)(row[0].token - start), (int32_t)step), rows,
                              span);
    }
    tx_tensor *sum = NULL;
    for (int half = 0; half < 2; half++) {
        const int64_t first = half ? count / 2 : 0, n = half ? count - first : count / 2;
        const int64_t begin = row[first].token, own = row[first + n - 1].token - begin + 1;
        tx_tensor *part = tx_scatter_add(tx_range(graph, TX_SHAPE(own), (int32_t)(begin - start), 1),
                                         scatter(rows, row + first, n, begin, own, graph), span);
        sum = half ? tx_add(sum, part) : part;
    }
    return sum;
}

/* The matrix with its trained rows: rows * (1 - trained) + trained rows. */
static tx_tensor *replace_rows(tx_graph *graph, const tx_lora_tokens *tokens, const tx_param_spec *of_weight,
                               tx_tensor *weight)
{
    char name[TX_WEIGHTS_NAME];
    const int64_t all = of_weight->shape.dim[0];
    const tx_param_spec spec = {
        .shape = TX_SHAPE(tokens->count, tokens->columns), .decay = true, .table = true, .block = of_weight->block};
    tx_lora_name_of_tokens(tokens, name);
    tx_tensor *rows = tx_param(graph, name, &spec), *ones = tx_fill(graph, TX_SHAPE(tokens->count, 1), -1.0f);
    tx_tensor *kept =
        tx_add(scatter(ones, tokens->row, tokens->count, 0, all, graph), tx_fill(graph, TX_SHAPE(all, 1), 1.0f));
    kept = tx_broadcast(tx_reshape(kept, TX_SHAPE(all)), of_weight->shape, TX_AXIS_LAST);
    return tx_add(tx_mul(weight, kept), scatter(rows, tokens->row, tokens->count, 0, all, graph));
}

tx_tensor *tx_lora_replace_rows(tx_graph *graph, const tx_config *config, const tx_arch_options *options, int32_t index,
                                tx_tensor *weight)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    tx_lora_tokens tokens;
    int32_t part;
    if (!weight || !config->lora || !config->lora->tokens || options->base)
        return weight;
    tx_status status = tx_lora_tokens_of(config->lora, config, index, &tokens);
    TX_THEN(status, config->architecture->param(config, index, name, &spec));
    if (!status && tokens.count && tx_graph_tp_size(graph, &part) > 1)
        status = tx_fail(TX_UNSUPPORTED, TX_LORA_TOKEN_INDICES ": tensor parallelism does not support it");
    if (status)
        tx_graph_fail(graph, status);
    else if (tokens.count)
        weight = replace_rows(graph, &tokens, &spec, weight);
    tx_lora_free_tokens(&tokens);
    return status ? NULL : weight;
}

/* ---- Weights --------------------------------------------------------------------------------------------- */

/* Copies each row from or to the matrix `param` of a model: to it if `to_matrix`. */
static tx_status copy_rows(tx_model *model, const tx_lora_tokens *tokens, int32_t param, bool to_matrix, float *rows)
{
    for (int64_t i = 0; i < tokens->count; i++) {
        const int64_t first = tokens->row[i].token * tokens->columns;
        float *row = rows + tokens->row[i].place * tokens->columns;
        TX_TRY(to_matrix ? tx_model_write_range(model, TX_PARAM_WEIGHT, param, first, tokens->columns, row)
                         : tx_model_read_range(model, TX_PARAM_WEIGHT, param, first, tokens->columns, row));
    }
    return TX_OK;
}

static tx_status init_rows(tx_model *model, const tx_lora_tokens *tokens, int32_t param)
{
    char name[TX_WEIGHTS_NAME];
    int32_t own;
    const int64_t count = tokens->count * tokens->columns;
    float *rows = malloc((size_t)count * sizeof *rows);
    tx_lora_name_of_tokens(tokens, name);
    tx_status status = rows ? tx_model_find(model, name, &own) : tx_fail(TX_MEMORY, "no memory for the rows of tokens");
    TX_THEN(status, copy_rows(model, tokens, param, false, rows));
    TX_THEN(status, tx_model_write_range(model, TX_PARAM_WEIGHT, own, 0, count, rows));
    free(rows);
    return status;
}

tx_status tx_lora_init_tokens(tx_model *model, const tx_config *config)
{
    tx_status status = TX_OK;
    for (int32_t index = 0; index < config->architecture->params(config) && !status; index++) {
        char name[TX_ARCH_NAME];
        tx_param_spec spec;
        tx_lora_tokens tokens;
        int32_t param;
        TX_TRY(tx_lora_tokens_of(config->lora, config, index, &tokens));
        if (!tokens.count)
            continue;
        status = config->architecture->param(config, index, name, &spec);
        TX_THEN(status, tx_model_find(model, name, &param));
        TX_THEN(status, init_rows(model, &tokens, param));
        tx_lora_free_tokens(&tokens);
    }
    return status;
}

tx_status tx_lora_write_rows(tx_model *model, const tx_lora_tokens *tokens, int32_t param, float *rows)
{
    return copy_rows(model, tokens, param, true, rows);
}
