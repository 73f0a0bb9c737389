/* SPDX-License-Identifier: Apache-2.0
 *
 * Ministral 8B (Mistral AI, 2024), a Mistral whose layers may have a window, and Ministral 3 (2025), whose queries grow
 * with the logarithm of their position beyond the original length. */
#include "models/arch/llama_family.h"

#include <math.h>

static const tx_config_key keys[] = {COMMON_KEYS, HEAD_DIM_KEY, WINDOW_KEY, {.name = NULL}};

static const llama_config ministral_defaults = {SIZES(tx_ministral, tx_llama_rows, 32000, 131072, 4096, 32, 32, 1, 2),
                                                REST(14336, 8, 1e-6, 1e4), .attention.windowed = true,
                                                .attention.window = 4096};

/* Files without rope_parameters have those of the published models. */
static const llama_config ministral3_defaults = {
    SIZES(tx_ministral3, tx_llama_rows, 131072, 262144, 4096, 34, 32, 1, 2),
    REST_OF(14336, 8, 1e-5, 0.02, YARN_ROPE(1e6, 16, 16384)),
    .padding = 12,
    .attention.head_dim = 128,
    .attention.windowed = true,
    .attention.scale_growth = 0.1};

static tx_status read(const tx_json *json, tx_config *config)
{
    TX_TRY(tx_llama_read(json, config));
    return tx_llama_read_growth(json, (llama_config *)config);
}

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

#define GROWTH "mistral3.attention.temperature_scale"
#define ALL "mistral3.rope.scaling.yarn_log_multiplier" /* mscale_all_dim; llama.cpp's mscale is 1 */

static void put(const tx_config *config, tx_gguf_writer *writer)
{
    tx_gguf_put_number(writer, GROWTH, llama_of(config)->attention.scale_growth);
    tx_gguf_put_number(writer, ALL, 1);
}

static tx_status check(const tx_gguf_exported *e)
{
    const llama_config *c = llama_of(e->config);
    if (c->attention.window > 0)
        return tx_fail(TX_UNSUPPORTED, "sliding_window: llama.cpp computes as if it were null");
    return c->positions.rope.type == TX_ROPE_YARN
               ? TX_OK
               : tx_fail(TX_UNSUPPORTED, "rope_parameters: llama.cpp computes llama_4_scaling_beta only with yarn");
}

/* Single precision has no more digits. */
static double rounded(double x)
{
    return round(x * 1e6) / 1e6;
}

static tx_status read_gguf(const tx_gguf_file *file, tx_json *json)
{
    tx_json *scaling;
    double growth = 0, all = 0;
    if (!tx_json_has(json, "rope_scaling"))
        return tx_fail(TX_UNSUPPORTED, "mistral3.rope.scaling.type: expected yarn");
    TX_TRY(tx_json_get(json, "rope_scaling", TX_JSON_OBJECT, &scaling));
    TX_TRY(TX_GGUF_OPTIONAL(number, file, GROWTH, &growth));
    TX_TRY(TX_GGUF_OPTIONAL(number, file, ALL, &all));
    TX_TRY(tx_json_set_number(scaling, "llama_4_scaling_beta", rounded(growth)));
    TX_TRY(tx_json_set_number(scaling, "mscale", 1));
    return tx_json_set_number(scaling, "mscale_all_dim", rounded(all));
}

const tx_architecture tx_ministral = {
    FAMILY("ministral", "Ministral", ministral_defaults, keys, "q_proj,v_proj", tx_llama_read_windows, tx_llama_write)};
const tx_architecture tx_ministral3 = {
    FAMILY("ministral3", "Ministral3", ministral3_defaults, keys, "q_proj,v_proj", read, tx_llama_write),
    GGUF("mistral3", .pairs = true, .level_yarn = true, .check = check, .put = put, .read = read_gguf)};
