/* SPDX-License-Identifier: Apache-2.0
 * Writes the values of a configuration to a GGUF file. */
#include "models/gguf/gguf.h"

#include <math.h>
#include <string.h>

typedef struct putting {
    const tx_gguf_exported *model;
    const tx_gguf_family *family;
    tx_gguf_writer *writer;
} putting;

/* The name of the value in config.json, or NULL if a function computes it. */
static const char *name_of(const tx_gguf_exported *model, const tx_gguf_key *row)
{
    return row->value ? NULL : tx_gguf_name_of(model->config->architecture, row);
}

/* The value without one in config.json. */
static double usual_of(const tx_gguf_exported *model, const tx_gguf_key *row)
{
    return name_of(model, row) && row->otherwise == TX_GGUF_NOTHING ? 0 : tx_gguf_other_value(model->config, row);
}

tx_status tx_gguf_whole_of(const tx_gguf_exported *model, const tx_gguf_key *row, int64_t *whole, bool *has)
{
    const char *name = name_of(model, row);
    *has = name && tx_json_has(model->json, name);
    *whole = row->of_layer ? row->of_layer(model->config, 0) : (int64_t)usual_of(model, row);
    return *has ? tx_json_get_int(model->json, name, 0, UINT32_MAX, whole) : TX_OK;
}

static int64_t whole_in(const tx_config *config, const tx_gguf_key *row, int64_t whole, int64_t layer)
{
    return row->of_layer ? row->of_layer(config, layer) : row->in && !row->in(config, layer) ? 0 : whole;
}

/* Writes a whole number, or a list if layers differ. */
static void put_whole(const putting *p, const tx_gguf_key *row, const char *key, int64_t whole)
{
    const tx_config *config = p->model->config;
    int64_t layer = 0;
    while (layer < config->layers && whole_in(config, row, whole, layer) == whole)
        layer++;
    if (layer == config->layers) {
        tx_gguf_put_int(p->writer, key, whole);
        return;
    }
    tx_gguf_put_array(p->writer, key, TX_GGUF_VALUE_I32, config->layers);
    for (layer = 0; layer < config->layers; layer++)
        tx_gguf_add_i32(p->writer, (int32_t)whole_in(config, row, whole, layer));
}

static tx_status put_key(void *context, const tx_gguf_key *row)
{
    const putting *p = context;
    const tx_json *json = p->model->json;
    const char *name = name_of(p->model, row);
    char key[TX_GGUF_KEY_ROOM];
    double number = usual_of(p->model, row);
    int64_t whole;
    bool has = name && tx_json_has(json, name);
    tx_gguf_key_of(key, p->family->architecture, row->key);
    if (!has && row->otherwise == TX_GGUF_NOTHING && number == 0 && !row->of_layer)
        return TX_OK;
    if (row->kind == TX_GGUF_BOOL) {
        bool flag = number != 0;
        if (has)
            TX_TRY(tx_json_get_bool(json, name, &flag));
        tx_gguf_put_bool(p->writer, key, flag);
        return TX_OK;
    }
    if (row->kind == TX_GGUF_WORD) {
        const char *word;
        TX_TRY(tx_json_get_string(json, name, &word));
        tx_gguf_put_string(p->writer, key, word, strlen(word));
        return TX_OK;
    }
    if (row->kind == TX_GGUF_NUMBER) {
        if (has)
            TX_TRY(tx_json_get_number(json, name, -HUGE_VAL, HUGE_VAL, &number));
        tx_gguf_put_number(p->writer, key, number);
        return TX_OK;
    }
    TX_TRY(tx_gguf_whole_of(p->model, row, &whole, &has));
    put_whole(p, row, key, whole);
    return TX_OK;
}

tx_status tx_gguf_put_keys(const tx_gguf_exported *model, tx_gguf_writer *writer)
{
    putting p = {model, tx_gguf_family_of(model->config), writer};
    return tx_gguf_each_key(p.family, put_key, &p);
}
