/* SPDX-License-Identifier: Apache-2.0
 * Reads and writes the modules of sentence-transformers, and computes pooling and normalization. */
#include "models/gguf/gguf.h"

#include "api/base/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FILE_LIMIT ((int64_t)1 << 20)
#define MODULES "modules.json"
#define PROMPTS "config_sentence_transformers.json"
#define TYPE "sentence_transformers.models."
/* The value of masked positions for the maximum, below any hidden state. */
#define MASKED (-1e30f)

static const struct {
    const char *name, *key; /* in pooling_mode, and as a key of its own (until version 5) */
} modes[TX_POOL_MODES] = {[TX_POOL_CLS] = {"cls", "pooling_mode_cls_token"},
                          [TX_POOL_MAX] = {"max", "pooling_mode_max_tokens"},
                          [TX_POOL_MEAN] = {"mean", "pooling_mode_mean_tokens"},
                          [TX_POOL_MEAN_SQRT] = {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens"},
                          [TX_POOL_WEIGHTED] = {"weightedmean", "pooling_mode_weightedmean_tokens"},
                          [TX_POOL_LAST] = {"lasttoken", "pooling_mode_lasttoken"}};

/* ---- Reading ------------------------------------------------------------------------------------------- */

static tx_status add_mode(const tx_json *json, tx_pooling *p)
{
    const char *name;
    TX_TRY(tx_json_as_string(json, "pooling_mode", &name));
    for (int m = 0; m < TX_POOL_MODES; m++)
        if (strcmp(name, modes[m].name) == 0 && p->modes < TX_POOL_MODES) {
            p->mode[p->modes++] = (tx_pool_mode)m;
            return TX_OK;
        }
    return tx_fail(TX_UNSUPPORTED, "pooling_mode: \"%.40s\" is not implemented", name);
}

static tx_status read_modes(const tx_json *json, tx_pooling *p)
{
    const tx_json *list = tx_json_find(json, "pooling_mode");
    bool prompt = true;
    p->modes = 0;
    TX_TRY(TX_JSON_OPTIONAL(bool, json, "include_prompt", &prompt));
    p->skips_prompt = !prompt;
    if (list && tx_json_type_of(list) != TX_JSON_ARRAY)
        TX_TRY(add_mode(list, p));
    else if (list)
        for (size_t i = 0; i < tx_json_size(list); i++)
            TX_TRY(add_mode(tx_json_at(list, i), p));
    for (int m = 0; m < TX_POOL_MODES && !list; m++) {
        bool on = false;
        TX_TRY(TX_JSON_OPTIONAL(bool, json, modes[m].key, &on));
        if (on)
            p->mode[p->modes++] = (tx_pool_mode)m;
    }
    if (!p->modes)
        p->mode[p->modes++] = TX_POOL_MEAN;
    for (int32_t i = 0; i < p->modes && p->modes > 1; i++)
        if (p->mode[i] == TX_POOL_MAX)
            return tx_fail(TX_UNSUPPORTED, "pooling_mode: max together with another mode is not implemented");
    return TX_OK;
}

/* Reads a JSON file of a folder; `*json` is NULL if there is none. */
static tx_status read_file(const char *folder, const char *module, const char *name, tx_json **json)
{
    const char *path = TX_PATH(TX_PATH(folder, module), name);
    *json = NULL;
    return tx_file_exists(path) ? tx_json_read(path, FILE_LIMIT, json) : TX_OK;
}

static tx_status read_transformer(const char *folder, const char *path, tx_pooling *p)
{
    tx_json *json = NULL;
    bool lower = false;
    snprintf(p->transformer, sizeof p->transformer, "%s", path);
    TX_TRY(read_file(folder, path, "sentence_bert_config.json", &json));
    tx_status status = json ? TX_OK : TX_NOT_FOUND;
    TX_THEN(status, TX_JSON_OPTIONAL(int, json, "max_seq_length", 1, INT32_MAX, &p->max_seq_length));
    TX_THEN(status, TX_JSON_OPTIONAL(bool, json, "do_lower_case", &lower));
    tx_json_free(json);
    if (!status && lower)
        status =
            tx_fail(TX_UNSUPPORTED, "%s/sentence_bert_config.json: do_lower_case: true is not implemented", folder);
    return status == TX_NOT_FOUND ? TX_OK : status;
}

static tx_status read_dense(const char *folder, const char *path, tx_pooling *p)
{
    if (p->dense_count == TX_DENSE_MOST || p->normalize)
        return tx_fail(TX_UNSUPPORTED, "%s/" MODULES ": more than %d modules Dense, or one after Normalize", folder,
                       TX_DENSE_MOST);
    return tx_dense_read(TX_PATH(folder, path), &p->dense[p->dense_count++]);
}

static tx_status read_module(const char *folder, const tx_json *module, tx_pooling *p)
{
    const char *type, *path = "";
    tx_json *json = NULL;
    TX_TRY(tx_json_get_string(module, "type", &type));
    TX_TRY(TX_JSON_OPTIONAL(string, module, "path", &path));
    if (strlen(path) >= sizeof p->transformer || strstr(path, ".."))
        return tx_fail(TX_FORMAT, "%s/" MODULES ": path: \"%.80s\" is not a folder in the model's", folder, path);
    const char *dot = strrchr(type, '.'), *name = dot ? dot + 1 : type;
    if (strcmp(name, "Normalize") == 0)
        p->normalize = true;
    else if (strcmp(name, "Transformer") == 0)
        return read_transformer(folder, path, p);
    else if (strcmp(name, "Dense") == 0)
        return read_dense(folder, path, p);
    else if (strcmp(name, "Pooling") != 0)
        return tx_fail(TX_UNSUPPORTED, "%s/" MODULES ": the module %.60s is not implemented", folder, name);
    if (strcmp(name, "Pooling") != 0)
        return TX_OK;
    TX_TRY(read_file(folder, path, "config.json", &json));
    const tx_status status = json ? read_modes(json, p) : tx_fail(TX_NOT_FOUND, "config.json is missing");
    tx_json_free(json);
    return tx_fail_in(status, "%s/%s", folder, path);
}

tx_status tx_pooling_read(const char *folder, tx_pooling *pooling)
{
    tx_json *list = NULL;
    *pooling = (tx_pooling){.mode = {TX_POOL_MEAN}, .modes = 1};
    if (!folder)
        return TX_OK;
    if (tx_gguf_is_name(folder))
        return tx_gguf_get_pooling(folder, pooling);
    TX_TRY(read_file(folder, "", MODULES, &list));
    if (!list)
        return TX_OK;
    tx_status status = tx_json_type_of(list) == TX_JSON_ARRAY
                           ? TX_OK
                           : tx_fail(TX_FORMAT, "%s/" MODULES ": expected a list of modules", folder);
    for (size_t i = 0; i < tx_json_size(list) && !status; i++)
        status = read_module(folder, tx_json_at(list, i), pooling);
    tx_json_free(list);
    TX_TRY(status);
    pooling->given = true;
    return read_file(folder, "", PROMPTS, &pooling->prompts);
}

void tx_pooling_free(tx_pooling *pooling)
{
    tx_json_free(pooling->prompts);
    for (int32_t i = 0; i < pooling->dense_count; i++)
        tx_dense_free(&pooling->dense[i]);
    *pooling = (tx_pooling){0};
}

tx_status tx_pooling_prompt(const tx_pooling *pooling, const char *name, const char **prompt)
{
    tx_json *list = NULL;
    char names[256] = "";
    *prompt = "";
    if (pooling->prompts && !name)
        TX_TRY(TX_JSON_OPTIONAL(string, pooling->prompts, "default_prompt_name", &name));
    if (!name)
        return TX_OK;
    if (pooling->prompts && tx_json_has(pooling->prompts, "prompts"))
        TX_TRY(tx_json_get(pooling->prompts, "prompts", TX_JSON_OBJECT, &list));
    if (list && tx_json_find(list, name))
        return tx_json_get_string(list, name, prompt);
    for (void *i = list ? tx_json_first(list) : NULL; i; i = tx_json_next(list, i))
        tx_list_add(names, sizeof names, ", ", "%s", tx_json_key(i));
    return tx_fail(TX_NOT_FOUND, "the model has no prompt \"%.40s\"; its prompts are: %s", name,
                   *names ? names : "none");
}

/* ---- Writing ------------------------------------------------------------------------------------------- */

static tx_status add_module(tx_json *list, const char *path, const char *type)
{
    char name[16];
    const int64_t index = (int64_t)tx_json_size(list);
    snprintf(name, sizeof name, "%d", (int)index);
    return tx_json_append(list,
                          tx_json_pack("{s:I, s:s, s:s, s:s}", "idx", index, "name", name, "path", path, "type", type));
}

static tx_status fill_pooling(const tx_pooling *p, int64_t width, tx_json *json)
{
    TX_TRY(tx_json_set_int(json, "word_embedding_dimension", width));
    for (int m = 0; m < TX_POOL_MODES; m++) {
        bool on = false;
        for (int32_t i = 0; i < p->modes; i++)
            on = on || p->mode[i] == (tx_pool_mode)m;
        TX_TRY(tx_json_set_bool(json, modes[m].key, on));
    }
    return tx_json_set_bool(json, "include_prompt", !p->skips_prompt);
}

static tx_status write_files(const tx_pooling *p, int64_t width, int64_t max_seq_length, const char *folder,
                             tx_json *of[3])
{
    TX_TRY(add_module(of[0], "", TYPE "Transformer"));
    TX_TRY(add_module(of[0], "1_Pooling", TYPE "Pooling"));
    if (p->normalize)
        TX_TRY(add_module(of[0], "2_Normalize", TYPE "Normalize"));
    TX_TRY(fill_pooling(p, width, of[1]));
    TX_TRY(tx_json_set_int(of[2], "max_seq_length", max_seq_length));
    TX_TRY(tx_json_set_bool(of[2], "do_lower_case", false));
    TX_TRY(tx_folder_create(TX_PATH(folder, "1_Pooling")));
    if (p->normalize)
        TX_TRY(tx_folder_create(TX_PATH(folder, "2_Normalize")));
    if (p->prompts)
        TX_TRY(tx_json_write(TX_PATH(folder, PROMPTS), p->prompts, TX_JSON_PRETTY));
    TX_TRY(tx_json_write(TX_PATH(folder, "1_Pooling/config.json"), of[1], TX_JSON_PRETTY));
    TX_TRY(tx_json_write(TX_PATH(folder, "sentence_bert_config.json"), of[2], TX_JSON_PRETTY));
    return tx_json_write(TX_PATH(folder, MODULES), of[0], TX_JSON_PRETTY);
}

tx_status tx_pooling_write(const tx_pooling *pooling, int64_t width, int64_t max_seq_length, const char *folder)
{
    tx_json *of[] = {tx_json_array(), tx_json_object(), tx_json_object()};
    const tx_status status = write_files(pooling, width, max_seq_length, folder, of);
    for (int i = 0; i < 3; i++)
        tx_json_free(of[i]);
    return status;
}

/* ---- Graph --------------------------------------------------------------------------------------------- */

int64_t tx_pooling_width(const tx_pooling *pooling, int64_t width)
{
    return pooling->modes * width;
}

int64_t tx_dense_width(const tx_pooling *pooling, int64_t width)
{
    return pooling->dense_count ? pooling->dense[pooling->dense_count - 1].out : tx_pooling_width(pooling, width);
}

int64_t tx_pooling_values(const tx_pooling *pooling, int64_t block)
{
    return pooling->modes * block;
}

/* The weight of position t, if positions begin..length-1 are pooled. The sum over positions with these weights is the
 * result; for the maximum the value is added to the states. */
static double weight_of(tx_pool_mode mode, int64_t t, int64_t begin, int64_t length)
{
    const double count = (double)(length - begin), first = (double)begin + 1.0, last = (double)length;
    if (t < begin || t >= length)
        return mode == TX_POOL_MAX ? MASKED : 0.0;
    switch (mode) {
    case TX_POOL_CLS:
        return t == begin;
    case TX_POOL_LAST:
        return t == length - 1;
    case TX_POOL_MEAN:
        return 1.0 / count;
    case TX_POOL_MEAN_SQRT:
        return 1.0 / sqrt(count);
    case TX_POOL_WEIGHTED:
        return ((double)t + 1.0) / ((first + last) / 2.0 * count);
    default:
        return 0.0;
    }
}

void tx_pooling_fill(const tx_pooling *pooling, int64_t block, int64_t length, int64_t prompt, float *values)
{
    const int64_t begin = pooling->skips_prompt && prompt < length ? prompt : 0;
    for (int32_t m = 0; m < pooling->modes; m++)
        for (int64_t t = 0; t < block; t++)
            values[m * block + t] = (float)weight_of(pooling->mode[m], t, begin, length);
}

tx_tensor *tx_unit_rows(tx_graph *graph, tx_tensor *x)
{
    if (!x)
        return NULL;
    const tx_shape *shape = tx_tensor_shape(x);
    tx_tensor *squares = tx_reduce(x, TX_REDUCE_SUMSQ, TX_AXIS_LAST);
    /* PyTorch divides by max(norm, 1e-12). */
    tx_tensor *tiny = squares ? tx_fill(graph, *tx_tensor_shape(squares), 1e-24f) : NULL;
    return tx_mul(x, tx_broadcast(tx_rsqrt(tx_add(squares, tiny)), *shape, TX_AXIS_LAST));
}

tx_tensor *tx_pooling_graph(tx_graph *graph, const tx_pooling *pooling, tx_tensor *states)
{
    tx_tensor *values = tx_find_input(graph, "pooling");
    if (!states || !values)
        return NULL;
    const int64_t rows = tx_tensor_shape(states)->dim[0], block = tx_tensor_shape(states)->dim[1],
                  width = tx_tensor_shape(states)->dim[2];
    values = tx_reshape(values, TX_SHAPE(rows, pooling->modes, block));
    tx_tensor *y;
    if (pooling->mode[0] == TX_POOL_MAX) {
        tx_tensor *mask = tx_matmul(tx_fill(graph, TX_SHAPE(rows, width, 1), 1.0f), values, false, false);
        tx_tensor *columns = tx_transpose(tx_reshape(states, TX_SHAPE(rows, block, width, 1)));
        columns = tx_add(tx_reshape(columns, TX_SHAPE(rows, width, block)), mask);
        y = tx_reduce(columns, TX_REDUCE_MAX, TX_AXIS_LAST);
    } else {
        y = tx_matmul(values, states, false, false);
    }
    y = y ? tx_reshape(y, TX_SHAPE(rows, tx_pooling_width(pooling, width))) : NULL;
    return pooling->normalize && !pooling->dense_count ? tx_unit_rows(graph, y) : y;
}
