/* SPDX-License-Identifier: Apache-2.0
 * Chooses the types of tensors, as llama.cpp's quantizer does (ggml-org/llama.cpp, src/llama-quant.cpp), and converts
 * their rows. */
#include "models/gguf/gguf_mix.h"

#include "api/base/cores.h"
#include "api/base/thread.h"
#include "models/gguf/gguf.h"
#include "models/names.h"

#include <stdlib.h>
#include <string.h>

/* ---- Types ----------------------------------------------------------------------------------------------------- */

/* general.file_type, and the type of matrices without a rule. */
static const struct {
    int32_t file;
    tx_gguf_dtype dtype;
} mixes[] = {
    [TX_CONVERT_F32] = {0, TX_GGUF_F32},        [TX_CONVERT_F16] = {1, TX_GGUF_F16},
    [TX_CONVERT_Q8_0] = {7, TX_GGUF_Q8_0},      [TX_CONVERT_BF16] = {32, TX_GGUF_BF16},
    [TX_CONVERT_Q4_0] = {2, TX_GGUF_Q4_0},      [TX_CONVERT_Q4_1] = {3, TX_GGUF_Q4_1},
    [TX_CONVERT_Q5_0] = {8, TX_GGUF_Q5_0},      [TX_CONVERT_Q5_1] = {9, TX_GGUF_Q5_1},
    [TX_CONVERT_Q2_K] = {10, TX_GGUF_Q2_K},     [TX_CONVERT_Q3_K_S] = {11, TX_GGUF_Q3_K},
    [TX_CONVERT_Q3_K_M] = {12, TX_GGUF_Q3_K},   [TX_CONVERT_Q3_K_L] = {13, TX_GGUF_Q3_K},
    [TX_CONVERT_Q4_K_S] = {14, TX_GGUF_Q4_K},   [TX_CONVERT_Q4_K_M] = {15, TX_GGUF_Q4_K},
    [TX_CONVERT_Q5_K_S] = {16, TX_GGUF_Q5_K},   [TX_CONVERT_Q5_K_M] = {17, TX_GGUF_Q5_K},
    [TX_CONVERT_Q6_K] = {18, TX_GGUF_Q6_K},     [TX_CONVERT_IQ4_NL] = {25, TX_GGUF_IQ4_NL},
    [TX_CONVERT_IQ4_XS] = {30, TX_GGUF_IQ4_XS}, [TX_CONVERT_MXFP4_MOE] = {38, TX_GGUF_MXFP4},
};

int64_t tx_gguf_file_type(tx_convert_type type)
{
    return mixes[type].file;
}

/* Types for rows that are not whole blocks of a type. */
static const struct {
    tx_gguf_dtype from, to;
} fallbacks[] = {{TX_GGUF_Q2_K, TX_GGUF_Q4_0}, {TX_GGUF_Q3_K, TX_GGUF_Q4_0}, {TX_GGUF_Q4_K, TX_GGUF_Q5_0},
                 {TX_GGUF_Q5_K, TX_GGUF_Q5_1}, {TX_GGUF_Q6_K, TX_GGUF_Q8_0}, {TX_GGUF_IQ4_XS, TX_GGUF_IQ4_NL}};

static tx_gguf_dtype fit(tx_gguf_dtype dtype, int64_t width)
{
    for (size_t i = 0; i < sizeof fallbacks / sizeof fallbacks[0] && width % tx_gguf_block(dtype); i++)
        if (fallbacks[i].from == dtype)
            dtype = fallbacks[i].to;
    return width % tx_gguf_block(dtype) ? TX_GGUF_F16 : dtype;
}

/* ---- Rules ----------------------------------------------------------------------------------------------------- */

/* Kinds of tensors, by a part of their names. The first that fits counts. */
#define KIND_MAP(X)                     \
    X(VALUES, "attn_qkv.weight")        \
    X(VALUES, "attn_kv_b.weight")       \
    X(VALUES, "attn_v.weight")          \
    X(KEYS, "attn_k.weight")            \
    X(PROJECTION, "attn_output.weight") \
    X(DOWN, "ffn_down")

typedef enum kind { OTHER, VALUES, KEYS, PROJECTION, DOWN } kind;

static kind kind_of(const char *name)
{
#define X(kind, part)       \
    if (strstr(name, part)) \
        return kind;
    KIND_MAP(X)
#undef X
    return OTHER;
}

bool tx_gguf_is_values(const char *name)
{
    return kind_of(name) == VALUES;
}

/* Layers that a rule is for. MORE are the first and the last eighth and every third between them. */
typedef enum layers { ALL, FIRST_2, FIRST_4, SIXTEENTH, EIGHTH, MORE } layers;
/* Models that a rule is for. GROUPED: at least four query heads share a key head. EIGHT: 8 experts. FALCON: its
 * architecture. A rule for ANY is not for falcon's matrices `ffn_down` and `attn_output`. */
typedef enum models { ANY, GROUPED, PLAIN, WEIGHTED, EIGHT, FALCON } models;

/* The first rule that fits decides. EVERY stands for all types. */
#define EVERY -1
static const struct {
    int type;
    kind kind;
    models models;
    layers layers;
    tx_gguf_dtype dtype;
} rules[] = {
    {EVERY, VALUES, EIGHT, ALL, TX_GGUF_Q8_0},
    {EVERY, KEYS, EIGHT, ALL, TX_GGUF_Q8_0},
    {TX_CONVERT_Q2_K, PROJECTION, EIGHT, ALL, TX_GGUF_Q5_K},
    {TX_CONVERT_Q3_K_S, PROJECTION, EIGHT, ALL, TX_GGUF_Q5_K},
    {TX_CONVERT_Q3_K_M, PROJECTION, EIGHT, ALL, TX_GGUF_Q5_K},
    {TX_CONVERT_Q3_K_L, PROJECTION, EIGHT, ALL, TX_GGUF_Q3_K},
    {TX_CONVERT_Q4_K_S, PROJECTION, EIGHT, ALL, TX_GGUF_Q5_K},
    {TX_CONVERT_Q4_K_M, PROJECTION, EIGHT, ALL, TX_GGUF_Q5_K},
    {TX_CONVERT_IQ4_NL, PROJECTION, EIGHT, ALL, TX_GGUF_Q5_K},
    {TX_CONVERT_IQ4_XS, PROJECTION, EIGHT, ALL, TX_GGUF_Q5_K},
    {TX_CONVERT_Q2_K, VALUES, GROUPED, ALL, TX_GGUF_Q4_K},
    {TX_CONVERT_Q2_K, VALUES, ANY, ALL, TX_GGUF_Q3_K},
    {TX_CONVERT_Q2_K, DOWN, ANY, ALL, TX_GGUF_Q3_K},
    {TX_CONVERT_Q2_K, DOWN, FALCON, ALL, TX_GGUF_Q3_K},
    {TX_CONVERT_Q2_K, PROJECTION, ANY, ALL, TX_GGUF_Q3_K},
    {TX_CONVERT_Q3_K_M, VALUES, ANY, FIRST_2, TX_GGUF_Q5_K},
    {TX_CONVERT_Q3_K_M, VALUES, ANY, ALL, TX_GGUF_Q4_K},
    {TX_CONVERT_Q3_K_M, DOWN, ANY, SIXTEENTH, TX_GGUF_Q5_K},
    {TX_CONVERT_Q3_K_M, DOWN, ANY, ALL, TX_GGUF_Q4_K},
    {TX_CONVERT_Q3_K_M, DOWN, FALCON, SIXTEENTH, TX_GGUF_Q5_K},
    {TX_CONVERT_Q3_K_M, DOWN, FALCON, MORE, TX_GGUF_Q4_K},
    {TX_CONVERT_Q3_K_M, PROJECTION, ANY, ALL, TX_GGUF_Q4_K},
    {TX_CONVERT_Q3_K_L, VALUES, ANY, ALL, TX_GGUF_Q5_K},
    {TX_CONVERT_Q3_K_L, DOWN, ANY, ALL, TX_GGUF_Q5_K},
    {TX_CONVERT_Q3_K_L, DOWN, FALCON, ALL, TX_GGUF_Q4_K},
    {TX_CONVERT_Q3_K_L, PROJECTION, ANY, ALL, TX_GGUF_Q5_K},
    {TX_CONVERT_Q3_K_L, PROJECTION, FALCON, ALL, TX_GGUF_Q4_K},
    {TX_CONVERT_Q4_K_S, VALUES, ANY, FIRST_4, TX_GGUF_Q5_K},
    {TX_CONVERT_Q4_K_S, DOWN, ANY, EIGHTH, TX_GGUF_Q5_K},
    {TX_CONVERT_Q4_K_M, VALUES, ANY, MORE, TX_GGUF_Q6_K},
    {TX_CONVERT_Q4_K_M, DOWN, ANY, MORE, TX_GGUF_Q6_K},
    {TX_CONVERT_Q4_K_M, DOWN, FALCON, SIXTEENTH, TX_GGUF_Q6_K},
    {TX_CONVERT_Q4_K_M, DOWN, FALCON, MORE, TX_GGUF_Q5_K},
    {TX_CONVERT_Q5_K_M, VALUES, ANY, MORE, TX_GGUF_Q6_K},
    {TX_CONVERT_Q5_K_M, DOWN, ANY, MORE, TX_GGUF_Q6_K},
    {TX_CONVERT_Q5_K_M, DOWN, FALCON, MORE, TX_GGUF_Q6_K},
    {TX_CONVERT_IQ4_NL, VALUES, GROUPED, ALL, TX_GGUF_Q5_K},
    {TX_CONVERT_IQ4_NL, DOWN, PLAIN, EIGHTH, TX_GGUF_Q5_K},
    {TX_CONVERT_IQ4_XS, VALUES, GROUPED, ALL, TX_GGUF_Q5_K},
    {TX_CONVERT_IQ4_XS, DOWN, PLAIN, EIGHTH, TX_GGUF_Q5_K},
    {TX_CONVERT_Q4_0, DOWN, WEIGHTED, EIGHTH, TX_GGUF_Q4_1},
    {TX_CONVERT_Q5_0, DOWN, WEIGHTED, EIGHTH, TX_GGUF_Q5_1},
};

static bool is_falcon(const tx_gguf_model *m)
{
    return strcmp(m->architecture, "falcon") == 0;
}

/* Models that llama.cpp calls 70B, whose values are few. */
static bool is_70b(const tx_gguf_model *m)
{
    static const char *const of[] = {"llama", "qwen2", "olmo", "deci"};
    for (size_t i = 0; i < sizeof of / sizeof of[0] && m->layers == 80; i++)
        if (strcmp(m->architecture, of[i]) == 0)
            return i > 0 || m->heads != m->kv_heads;
    return false;
}

static bool fits_model(const tx_gguf_model *m, kind of, models which)
{
    switch (which) {
    case ANY:
        return of == VALUES || !is_falcon(m);
    case GROUPED:
        return m->kv_heads > 0 && m->heads / m->kv_heads >= 4;
    case PLAIN:
        return !m->weighted;
    case WEIGHTED:
        return m->weighted;
    case EIGHT:
        return m->experts == 8 && (of != PROJECTION || !is_falcon(m));
    default:
        return is_falcon(m);
    }
}

static bool fits_layer(int64_t i, int64_t n, layers which)
{
    switch (which) {
    case FIRST_2:
        return i < 2;
    case FIRST_4:
        return i < 4;
    case SIXTEENTH:
        return i < n / 16;
    case EIGHTH:
        return i < n / 8;
    case MORE:
        return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
    default:
        return true;
    }
}

/* The type of a matrix inside a layer; `values` as in tx_gguf_choose. */
static tx_gguf_dtype by_rules(const tx_gguf_model *m, tx_convert_type type, const char *name, int32_t values)
{
    const char *layer = strstr(name, "blk.");
    const kind of = kind_of(name);
    const int64_t i = of == VALUES ? values : layer ? atoi(layer + strlen("blk.")) : 0;
    const int64_t n = of == VALUES ? m->values : m->layers;
    tx_gguf_dtype dtype = mixes[type].dtype;
    for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++)
        if ((rules[r].type == EVERY || rules[r].type == (int)type) && rules[r].kind == of &&
            fits_model(m, of, rules[r].models) && fits_layer(i, n, rules[r].layers)) {
            dtype = rules[r].dtype;
            break;
        }
    if (of == VALUES && is_70b(m) && (dtype == TX_GGUF_Q3_K || dtype == TX_GGUF_Q4_K))
        dtype = TX_GGUF_Q5_K;
    return dtype;
}

/* Vectors, biases, norms, tables of positions, routers, short convolutions, and decays of recurrent layers. */
static bool is_plain(const tx_gguf_tensor *t)
{
    static const char *const parts[] = {"position_embd.weight", TX_GGUF_TYPES,  "attn_rel_b.weight",
                                        ".ffn_gate_inp",        "_norm.weight", "ssm_conv1d.weight",
                                        "shortconv.conv.weight"};
    bool plain = t->rank < 2 || !tx_ends_with(t->name, ".weight");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        plain = plain || strstr(t->name, parts[i]);
    return plain;
}

tx_gguf_dtype tx_gguf_choose(const tx_gguf_model *model, tx_convert_type type, const tx_gguf_tensor *tensor,
                             int32_t values)
{
    const tx_gguf_dtype dtype = mixes[type].dtype;
    const int64_t width = tensor->dim[tensor->rank - 1];
    const bool embedding =
        strcmp(tensor->name, TX_GGUF_EMBEDDING) == 0 || strcmp(tensor->name, "per_layer_" TX_GGUF_EMBEDDING) == 0;
    if (is_plain(tensor))
        return TX_GGUF_F32;
    if (tx_gguf_block(dtype) == 1)
        return dtype;
    if (strcmp(tensor->name, "per_layer_model_proj.weight") == 0)
        return TX_GGUF_F32;
    if (strcmp(tensor->name, TX_GGUF_OUTPUT) == 0 || (embedding && model->tied)) {
        const bool eight = dtype == TX_GGUF_Q8_0 || dtype == TX_GGUF_MXFP4 || is_falcon(model);
        return fit(eight || width % tx_gguf_block(dtype) ? TX_GGUF_Q8_0 : TX_GGUF_Q6_K, width);
    }
    if (type == TX_CONVERT_MXFP4_MOE)
        return fit(tensor->rank == 3 ? TX_GGUF_MXFP4 : TX_GGUF_Q8_0, width);
    return fit(embedding ? dtype : by_rules(model, type, tensor->name, values), width);
}

/* ---- Rows ------------------------------------------------------------------------------------------------------ */

/* Elements for which a thread is worth its start. */
#define PART ((int64_t)1 << 15)

typedef struct job {
    tx_gguf_dtype dtype;
    const float *data, *importance;
    int64_t first, end, width; /* rows */
    uint8_t *bytes;
} job;

static void *encode(void *argument)
{
    const job *j = argument;
    const int64_t bytes = j->width / tx_gguf_block(j->dtype) * tx_gguf_block_bytes(j->dtype);
    for (int64_t row = j->first; row < j->end; row++)
        tx_gguf_encode(j->dtype, j->data + row * j->width, j->importance, j->width, j->bytes + row * bytes);
    return NULL;
}

void tx_gguf_encode_rows(tx_gguf_dtype dtype, const float *data, const float *importance, int64_t rows, int64_t width,
                         void *bytes)
{
    job jobs[TX_PARTS_MOST];
    int64_t count = rows * width / PART + 1;
    count = tx_min(count, tx_min(tx_cores(), TX_PARTS_MOST));
    for (int64_t i = 0; i < count; i++)
        jobs[i] = (job){.dtype = dtype,
                        .data = data,
                        .importance = importance,
                        .first = rows * i / count,
                        .end = rows * (i + 1) / count,
                        .width = width,
                        .bytes = bytes};
    tx_thread_each(encode, jobs, sizeof *jobs, (size_t)count);
}
