/* SPDX-License-Identifier: Apache-2.0
 *
 * Recurrent mixers in GGUF files: their layouts, and the layers that have them. */
#include "models/arch/llama_family.h"
#include "models/arch/mixer.h"
#include "models/gguf/gguf.h"

#include <inttypes.h>
#include <stdlib.h>

int64_t tx_mixer_gguf_inner(const tx_config *config)
{
    return tx_mixer_values(llama_of(config));
}

int64_t tx_mixer_gguf_none(const tx_config *config)
{
    (void)config;
    return 0;
}

/* ---- Layouts ------------------------------------------------------------------------------------------- */

/* GGUF files have the same numbers as a matrix. */
static void as_matrix(tx_gguf_layout *layout, int64_t rows, int64_t width)
{
    layout->shape = TX_SHAPE(rows, width);
    layout->rows = rows;
    layout->width = width;
}

/* llama.cpp repeats heads of keys as a whole, except in Qwen3-Next, whose file keeps the order. */
static void tile(const llama_config *c, tx_gguf_form form, int64_t keys, tx_gguf_layout *layout)
{
    if (c->mixer.kind != TX_MIXER_DELTA || c->mixer.joined || c->mixer.v_heads == c->mixer.k_heads)
        return;
    layout->form = form;
    layout->heads = c->mixer.k_heads;
    layout->values = c->mixer.v_heads / c->mixer.k_heads;
    layout->keys = keys;
}

static void lay_nets(const llama_config *c, tx_gguf_layout *layout)
{
    layout->form = TX_GGUF_NETS;
    layout->heads = c->mixer.k_heads;
    layout->keys = c->mixer.k_size;
    layout->values = tx_mixer_values(c) / c->mixer.k_heads;
    layout->shape.dim[0] = tx_mixer_channels(c);
}

void tx_mixer_gguf_lay(const tx_config *config, const tx_stack_row *row, int32_t section, tx_gguf_layout *layout)
{
    const llama_config *c = llama_of(config);
    const int64_t channels = tx_mixer_channels(c), values = tx_mixer_values(c);
    const bool mamba = c->mixer.kind == TX_MIXER_MAMBA2;
    (void)section;
    switch (row->slot) {
    case MIXER_IN:
        if (c->mixer.kind == TX_MIXER_DELTA && c->mixer.joined)
            lay_nets(c, layout);
        else
            tile(c, TX_GGUF_TILED, channels - values, layout);
        break;
    case MIXER_CONV:
        as_matrix(layout, channels, c->mixer.taps);
        tile(c, TX_GGUF_TILED, channels - values, layout);
        break;
    case MIXER_A_LOG:
        layout->change = TX_GGUF_DECAY;
        if (mamba)
            as_matrix(layout, c->mixer.v_heads, 1);
        tile(c, TX_GGUF_TILED, 0, layout);
        break;
    case MIXER_SKIP:
        as_matrix(layout, c->mixer.v_heads, 1);
        break;
    case MIXER_NORM:
        if (mamba)
            as_matrix(layout, c->mixer.k_heads, values / c->mixer.k_heads);
        break;
    case MIXER_GATE:
    case MIXER_RATES:
    case MIXER_DT_BIAS:
        tile(c, TX_GGUF_TILED, 0, layout);
        break;
    case MIXER_OUT:
        tile(c, TX_GGUF_TILED_COLUMNS, 0, layout);
        break;
    default:
        break;
    }
}

void tx_mixer_gguf_scale(tx_gguf_layout *layout, double factor)
{
    if (factor <= 0 || factor == 1)
        return;
    layout->change = TX_GGUF_SCALED;
    layout->factors[0].end = INT64_MAX;
    layout->factors[0].factor = factor;
}

/* ---- Checks -------------------------------------------------------------------------------------------- */

tx_status tx_mixer_gguf_check(const tx_gguf_exported *model)
{
    const llama_config *c = llama_of(model->config);
    if (tx_mixer_recurs(model->config) && !c->mixer.conv_bias)
        return tx_fail(TX_UNSUPPORTED, "llama.cpp does not compute Mamba-2 without biases of the convolution");
    return c->mixer.low <= 0 && c->mixer.high <= 0
               ? TX_OK
               : tx_fail(TX_UNSUPPORTED, "time_step_limit: llama.cpp computes as if it were 0 to infinity");
}

tx_status tx_mixer_gguf_check_mtp(const tx_gguf_file *file, const char *architecture)
{
    char key[TX_GGUF_KEY_ROOM];
    int64_t layers = 0;
    tx_gguf_key_of(key, architecture, "nextn_predict_layers");
    TX_TRY(TX_GGUF_OPTIONAL(int, file, key, 0, UINT32_MAX, &layers));
    return layers == 0 ? TX_OK
                       : tx_fail(TX_UNSUPPORTED,
                                 "%s: layers of multi-token prediction are not read: convert the model without them "
                                 "(convert_hf_to_gguf.py --no-mtp)",
                                 key);
}

/* ---- Layers -------------------------------------------------------------------------------------------- */

tx_status tx_mixer_gguf_list(const tx_gguf_file *file, const char *key, int64_t layers, double **numbers)
{
    tx_gguf_array array = {0};
    double same = 0;
    if (tx_gguf_get_array(file, key, false, &array))
        TX_TRY(tx_gguf_get_number(file, key, &same));
    const int64_t count = array.number ? array.count : layers;
    double *made = count == layers ? calloc((size_t)layers + 1, sizeof *made) : NULL;
    for (int64_t i = 0; i < layers && made; i++)
        made[i] = array.number ? array.number[i] : same;
    tx_gguf_array_free(&array);
    if (count != layers)
        return tx_fail(TX_FORMAT, "%s: %" PRId64 " layers instead of %" PRId64, key, count, layers);
    *numbers = made;
    return made ? TX_OK : tx_fail(TX_MEMORY, "no memory for a list of layers");
}

tx_status tx_mixer_gguf_layers(const tx_gguf_file *file, const char *architecture, tx_json *json, const char *recurrent,
                               const char *attending)
{
    char key[TX_GGUF_KEY_ROOM];
    int64_t layers;
    double *heads = NULL;
    TX_TRY(tx_json_get_int(json, "num_hidden_layers", 1, TX_LLAMA_LAYERS, &layers));
    TX_TRY(tx_mixer_gguf_list(file, tx_gguf_key_of(key, architecture, TX_GGUF_HEAD_COUNT "_kv"), layers, &heads));
    tx_json *list = tx_json_array(); /* `json` owns it before it is filled, so a failure leaks nothing */
    tx_status status = tx_json_set(json, "layer_types", list);
    for (int64_t i = 0; i < layers; i++)
        TX_THEN(status, tx_json_append_string(list, heads[i] != 0 ? attending : recurrent));
    free(heads);
    return status;
}
