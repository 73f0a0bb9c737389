/* SPDX-License-Identifier: Apache-2.0
 * Combines adapters of one base model into one, as peft's add_weighted_adapter does. "linear" weights A and B by square
 * roots; "cat" concatenates them; "svd" decomposes the sum. The others prune A and B first (Yadav et al., TIES-Merging,
 * 2023; Yu et al., DARE, 2024). */
#include "models/tx_convert.h"

#include "api/base/file.h"
#include "api/base/needs.h"
#include "models/files/folder.h"
#include "models/lora/lora.h"
#include "models/tokenizer/hash.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 16 /* adapters */
#define PART_A ".lora_A.weight"
#define PART_B ".lora_B.weight"

typedef struct source {
    tx_lora *lora;
    tx_weights *weights;
    double weight;
} source;

typedef struct combine {
    const tx_combination *how;
    source source[MOST];
    int32_t count;
    const char **module; /* the names of all modules, in the files' order, without A or B; owned */
    int64_t *rank;       /* of each combined module */
    int32_t modules;
    int64_t most_rank;
} combine;

/* One module in the adapters that have it. */
typedef struct parts {
    int32_t count;
    int64_t in, out, rank[MOST];
    double scale[MOST]; /* the adapter's scale times its weight */
    float *a[MOST], *b[MOST];
} parts;

#define WORD(name, word) word,
static const char *const words[] = {TX_COMBINATION_MAP(WORD)};

static bool is_type(const combine *c, const char *word)
{
    return strcmp(words[c->how->type], word) == 0;
}

/* ---- Reading -------------------------------------------------------------------------------------------------- */

static tx_status open_source(const char *folder, source *s)
{
    TX_TRY(tx_lora_read(folder, &s->lora));
    if (s->lora->dora || tx_lora_takes_principal(s->lora) || s->lora->parameters)
        return tx_fail(TX_UNSUPPORTED, "%s: %s: such adapters cannot be combined", folder,
                       s->lora->dora         ? "use_dora"
                       : s->lora->parameters ? "target_parameters"
                                             : "init_lora_weights");
    return tx_lora_open_weights(folder, &s->weights);
}

static int32_t find_part(const source *s, const char *module, const char *part)
{
    char name[TX_WEIGHTS_NAME];
    const tx_weights_names names = {.rename = tx_lora_rename};
    snprintf(name, sizeof name, "%.200s%s", module, part);
    return tx_weights_find(s->weights, &names, name);
}

static tx_status add_module(combine *c, const char *name)
{
    for (int32_t i = 0; i < c->modules; i++)
        if (strcmp(c->module[i], name) == 0)
            return TX_OK;
    char *copy = strdup(name);
    if (!copy)
        return tx_fail(TX_MEMORY, "no memory for a name");
    c->module[c->modules++] = copy;
    return TX_OK;
}

/* Lists the modules of one adapter. Other tensors than A and B have no combination. */
static tx_status list_modules(combine *c, const source *s)
{
    for (int32_t t = 0; t < tx_weights_count(s->weights); t++) {
        char name[TX_WEIGHTS_NAME];
        const tx_st_tensor *tensor = tx_weights_tensor_at(s->weights, t);
        tx_lora_rename(NULL, tensor->name, name);
        char *a = strstr(name, PART_A), *b = strstr(name, PART_B), *end = a ? a : b;
        if (!end || tensor->rank != 2)
            return tx_fail(TX_UNSUPPORTED, "%s: %s: only A and B of linear layers can be combined",
                           tx_weights_path(s->weights), tensor->name);
        *end = '\0';
        if (a)
            TX_TRY(add_module(c, name));
        else if (find_part(s, name, PART_A) < 0)
            return tx_fail(TX_FORMAT, "%s: %s has no A", tx_weights_path(s->weights), tensor->name);
    }
    return TX_OK;
}

static tx_status read_part(const source *s, int32_t index, int64_t rows, int64_t columns, float **data)
{
    const tx_st_tensor *t = tx_weights_tensor_at(s->weights, index);
    const tx_shape shape = tx_st_shape(t), wanted = TX_SHAPE(rows, columns);
    if (!tx_shape_equal(&shape, &wanted))
        return tx_fail(TX_FORMAT, "%s: %s has another shape than its configuration or the other adapters say",
                       tx_weights_path(s->weights), t->name);
    *data = malloc((size_t)(rows * columns) * sizeof **data);
    return *data ? tx_weights_read_f32(s->weights, index, 0, rows * columns, *data)
                 : tx_fail(TX_MEMORY, "no memory for an adapter");
}

static void free_parts(parts *p)
{
    for (int32_t i = 0; i < p->count; i++) {
        free(p->a[i]);
        free(p->b[i]);
    }
}

static tx_status read_parts(const combine *c, const char *module, parts *p)
{
    *p = (parts){0};
    for (int32_t i = 0; i < c->count; i++) {
        const source *s = &c->source[i];
        const int32_t a = find_part(s, module, PART_A), b = find_part(s, module, PART_B), n = p->count;
        if (a < 0)
            continue;
        if (b < 0)
            return tx_fail(TX_FORMAT, "%s: %s has no B", tx_weights_path(s->weights), module);
        if (n == 0) {
            p->in = tx_st_shape(tx_weights_tensor_at(s->weights, a)).dim[1];
            p->out = tx_st_shape(tx_weights_tensor_at(s->weights, b)).dim[0];
        }
        TX_TRY(tx_lora_rank_of(s->lora, module, &p->rank[n], &p->scale[n]));
        p->scale[n] *= s->weight;
        p->count++;
        TX_TRY(read_part(s, a, p->rank[n], p->in, &p->a[n]));
        TX_TRY(read_part(s, b, p->out, p->rank[n], &p->b[n]));
    }
    return TX_OK;
}

/* ---- Base models ------------------------------------------------------------------------------------------------ */

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static bool share_module(const combine *c, const source *a, const source *b)
{
    for (int32_t i = 0; i < c->modules; i++)
        if (find_part(a, c->module[i], PART_A) >= 0 && find_part(b, c->module[i], PART_A) >= 0)
            return true;
    return false;
}

/* Fails if an adapter has another base than the first. A base may have several paths, so that only their last parts are
 * compared; then the adapters must share a module. */
static tx_status check_bases(const combine *c)
{
    const source *first = &c->source[0];
    for (int32_t i = 1; i < c->count; i++) {
        const source *s = &c->source[i];
        const char *a = first->lora->base ? first->lora->base : "", *b = s->lora->base ? s->lora->base : "";
        if (*a && strcmp(a, b) == 0)
            continue;
        if ((*a && *b && strcmp(last_name(a), last_name(b)) != 0) || !share_module(c, first, s))
            return tx_fail(
                TX_INVALID,
                "%s adapts the model \"%s\" and %s \"%s\": only adapters of one base model can be combined; if "
                "both are the same model, write one base_model_name_or_path into both " TX_LORA_CONFIG,
                c->how->adapter[0], a, c->how->adapter[i], b);
    }
    return TX_OK;
}

/* ---- Pruning and sums ------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    const float one = fabsf(*(const float *)a), other = fabsf(*(const float *)b);
    return (one < other) - (one > other);
}

/* Keeps the greatest values: density times their number, rounded down. Among equal ones, the first. */
static tx_status keep_greatest(float *data, int64_t count, double density)
{
    const int64_t kept = (int64_t)(density * (double)count);
    float *sorted = malloc((size_t)count * sizeof *sorted);
    if (!sorted)
        return tx_fail(TX_MEMORY, "no memory for an adapter");
    memcpy(sorted, data, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, by_size);
    const float least = kept ? fabsf(sorted[kept - 1]) : INFINITY;
    int64_t equal = 0;
    for (int64_t i = 0; i < kept; i++)
        equal += fabsf(sorted[i]) == least;
    for (int64_t i = 0; i < count; i++)
        if (fabsf(data[i]) < least || (fabsf(data[i]) == least && equal-- <= 0) || !kept)
            data[i] = 0;
    free(sorted);
    return TX_OK;
}

/* Keeps random values and rescales them. The numbers follow from the seed, the module and the adapter. */
static void keep_random(float *data, int64_t count, double density, uint64_t state)
{
    for (int64_t i = 0; i < count; i++) {
        const double draw = (double)(tx_hash_draw(state + (uint64_t)i * TX_HASH_GOLDEN) >> 11) * 0x1p-53;
        data[i] = draw < density ? (float)(data[i] / density) : 0;
    }
}

/* Sums weight[k] * data[k]. With `signs`, only values of the sign that the unweighted sum has (or most of them have),
 * and divides by the number of these. */
static void sum_up(float *const *data, const double *weight, int32_t n, int64_t count, bool signs, bool frequency,
                   float *sum)
{
    for (int64_t i = 0; i < count; i++) {
        float all = 0, total = 0;
        int32_t kept = 0;
        for (int32_t k = 0; k < n; k++)
            all += frequency ? (float)((data[k][i] > 0) - (data[k][i] < 0)) : data[k][i];
        for (int32_t k = 0; k < n; k++) {
            const bool same = !signs || (all >= 0 ? data[k][i] > 0 : data[k][i] < 0);
            total += same ? data[k][i] * (float)weight[k] : 0;
            kept += same;
        }
        sum[i] = signs && kept > 1 ? total / (float)kept : total;
    }
}

static tx_status combine_elements(const combine *c, const char *module, float *const *data, const double *weight,
                                  int32_t n, int64_t count, float *sum)
{
    const tx_combination *how = c->how;
    const bool random = is_type(c, "dare_linear") || is_type(c, "dare_ties"),
               prunes = random || is_type(c, "ties") || is_type(c, "magnitude_prune"),
               signs = is_type(c, "ties") || is_type(c, "dare_ties");
    for (int32_t k = 0; k < n && prunes && how->density < 1; k++)
        if (random)
            keep_random(
                data[k], count, how->density,
                tx_hash_mix(how->seed ^ tx_hash_bytes(module, strlen(module)) ^ (uint64_t)k << 56 ^ (uint64_t)count));
        else
            TX_TRY(keep_greatest(data[k], count, how->density));
    sum_up(data, weight, n, count, signs, how->frequency, sum);
    return TX_OK;
}

/* ---- The combined A and B --------------------------------------------------------------------------------------- */

/* A: w[k] s[k] A[k] one below the other; B: B[k] side by side. */
static void concatenate(const parts *p, int64_t rank, float *a, float *b)
{
    int64_t first = 0;
    for (int32_t k = 0; k < p->count; first += p->rank[k++]) {
        for (int64_t i = 0; i < p->rank[k] * p->in; i++)
            a[first * p->in + i] = (float)p->scale[k] * p->a[k][i];
        for (int64_t o = 0; o < p->out; o++)
            memcpy(b + o * rank + first, p->b[k] + o * p->rank[k], (size_t)p->rank[k] * sizeof *b);
    }
}

/* The best approximation of the sum of all w s B A. */
static tx_status decompose(const parts *p, int64_t rank, float *a, float *b)
{
    const tx_lora pissa = {.init = (char *)(uintptr_t)TX_LORA_PISSA};
    float *sum = calloc((size_t)(p->in * p->out), sizeof *sum);
    if (!sum)
        return tx_fail(TX_MEMORY, "no memory for a weight");
    for (int32_t k = 0; k < p->count; k++)
        for (int64_t o = 0; o < p->out; o++)
            for (int64_t r = 0; r < p->rank[k]; r++) {
                const float factor = (float)p->scale[k] * p->b[k][o * p->rank[k] + r];
                for (int64_t i = 0; i < p->in; i++)
                    sum[o * p->in + i] += factor * p->a[k][r * p->in + i];
            }
    const tx_status status = tx_lora_principal(&pissa, &(tx_lora_weight){sum, p->out, p->in, false}, rank, 1, a, b);
    free(sum);
    return status;
}

/* A and B have room for `rank` rows and columns, and are zero. */
static tx_status combine_parts(const combine *c, const char *module, const parts *p, int64_t rank, float *a, float *b)
{
    double of_a[MOST], of_b[MOST];
    if (is_type(c, "cat")) {
        concatenate(p, rank, a, b);
        return TX_OK;
    }
    if (is_type(c, "svd"))
        return decompose(p, rank, a, b);
    for (int32_t k = 0; k < p->count; k++) {
        if (p->rank[k] != rank)
            return tx_fail(TX_INVALID, "%s: the adapters have different ranks: combine them by cat or svd", module);
        of_b[k] = sqrt(fabs(p->scale[k]));
        of_a[k] = p->scale[k] < 0 ? -of_b[k] : of_b[k];
    }
    TX_TRY(combine_elements(c, module, p->a, of_a, p->count, rank * p->in, a));
    return combine_elements(c, module, p->b, of_b, p->count, rank * p->out, b);
}

/* The rank of the combined module. A sum has no more singular values than inputs or outputs. */
static int64_t rank_of(const combine *c, const parts *p)
{
    int64_t sum = 0, most = 0;
    const int64_t least = p->in < p->out ? p->in : p->out;
    for (int32_t k = 0; k < p->count; k++) {
        sum += p->rank[k];
        most = p->rank[k] > most ? p->rank[k] : most;
    }
    if (is_type(c, "svd"))
        return c->how->rank ? c->how->rank : most < least ? most : least;
    return is_type(c, "cat") ? sum : most;
}

static tx_status write_module(const combine *c, int32_t i, tx_st_writer *writer)
{
    parts p;
    float *a = NULL, *b = NULL;
    const int64_t rank = c->rank[i];
    tx_status status = read_parts(c, c->module[i], &p);
    if (!status) {
        a = calloc((size_t)(rank * p.in), sizeof *a);
        b = calloc((size_t)(rank * p.out), sizeof *b);
        status =
            a && b ? combine_parts(c, c->module[i], &p, rank, a, b) : tx_fail(TX_MEMORY, "no memory for an adapter");
    }
    TX_THEN(status, tx_st_append(writer, a, (size_t)(rank * p.in) * sizeof *a));
    TX_THEN(status, tx_st_append(writer, b, (size_t)(rank * p.out) * sizeof *b));
    free_parts(&p);
    free(a);
    free(b);
    return status;
}

/* ---- Files ------------------------------------------------------------------------------------------------------ */

/* Describes the tensors, and finds all ranks. */
static tx_status describe(combine *c, tx_st_tensor *tensor, char (*name)[TX_WEIGHTS_NAME])
{
    for (int32_t i = 0; i < c->modules; i++) {
        parts p;
        const tx_status status = read_parts(c, c->module[i], &p);
        free_parts(&p);
        TX_TRY(status);
        if (is_type(c, "svd") && (c->how->rank > p.in || c->how->rank > p.out))
            return tx_fail(TX_INVALID, "svd_rank %" PRId64 ": at most %" PRId64 " for %s", c->how->rank,
                           p.in < p.out ? p.in : p.out, c->module[i]);
        c->rank[i] = rank_of(c, &p);
        c->most_rank = c->rank[i] > c->most_rank ? c->rank[i] : c->most_rank;
        snprintf(name[2 * i], TX_WEIGHTS_NAME, TX_LORA_PREFIX "%.200s" PART_A, c->module[i]);
        snprintf(name[2 * i + 1], TX_WEIGHTS_NAME, TX_LORA_PREFIX "%.200s" PART_B, c->module[i]);
        tensor[2 * i] = tx_weights_part(name[2 * i], TX_F32, &TX_SHAPE(c->rank[i], p.in));
        tensor[2 * i + 1] = tx_weights_part(name[2 * i + 1], TX_F32, &TX_SHAPE(p.out, c->rank[i]));
    }
    return TX_OK;
}

static tx_status write_weights(combine *c, const char *folder)
{
    tx_st_tensor *tensor = calloc((size_t)c->modules * 2, sizeof *tensor);
    char(*name)[TX_WEIGHTS_NAME] = malloc((size_t)c->modules * 2 * sizeof *name);
    tx_st_writer *writer = NULL;
    c->rank = calloc((size_t)c->modules, sizeof *c->rank);
    tx_status status =
        tensor && name && c->rank ? describe(c, tensor, name) : tx_fail(TX_MEMORY, "no memory for names");
    TX_THEN(status, tx_st_create(TX_PATH(folder, TX_LORA_WEIGHTS), tensor, c->modules * 2, &writer));
    for (int32_t i = 0; i < c->modules && !status; i++)
        status = write_module(c, i, writer);
    free(tensor);
    free(name);
    return tx_st_end(writer, status);
}

/* The configuration: that of the first adapter, with the exact modules, their ranks, and scale 1. */
static tx_status write_config(const combine *c, const char *folder)
{
    tx_json *json = NULL, *names = tx_json_array(), *ranks = tx_json_object();
    tx_status status = tx_json_read(TX_PATH(c->how->adapter[0], TX_LORA_CONFIG), INT64_C(1) << 24, &json);
    for (int32_t i = 0; i < c->modules && !status; i++) {
        status = tx_json_append_string(names, c->module[i]);
        if (c->rank[i] != c->most_rank)
            TX_THEN(status, tx_json_set_int(ranks, c->module[i], c->rank[i]));
    }
    for (const char *const *key = tx_lora_rule_keys; *key; key++)
        if (tx_json_has(json, *key) && strcmp(*key, "bias") != 0)
            TX_THEN(status, tx_json_set_null(json, *key));
    TX_THEN(status, tx_json_set(json, "alpha_pattern", tx_json_copy(ranks)));
    TX_THEN(status, tx_json_set(json, "rank_pattern", ranks));
    TX_THEN(status, tx_json_set(json, "target_modules", names));
    TX_THEN(status, tx_json_set_int(json, "r", c->most_rank));
    TX_THEN(status, tx_json_set_int(json, "lora_alpha", c->most_rank));
    TX_THEN(status, tx_json_set_bool(json, "use_rslora", false));
    TX_THEN(status, tx_json_write(TX_PATH(folder, TX_LORA_CONFIG), json, TX_JSON_PRETTY));
    tx_json_free(json);
    return status;
}

static tx_status read_all(combine *c)
{
    int32_t most = 0;
    for (int32_t i = 0; i < c->count; i++) {
        c->source[i].weight = c->how->weight ? c->how->weight[i] : 1;
        TX_TRY(open_source(c->how->adapter[i], &c->source[i]));
        most += tx_weights_count(c->source[i].weights);
    }
    c->module = calloc((size_t)most + 1, sizeof *c->module);
    if (!c->module)
        return tx_fail(TX_MEMORY, "no memory for names");
    for (int32_t i = 0; i < c->count; i++)
        TX_TRY(list_modules(c, &c->source[i]));
    return c->modules ? check_bases(c) : tx_fail(TX_FORMAT, "%s: the adapter is empty", c->how->adapter[0]);
}

tx_status tx_combine_adapters(const tx_combination *how, const char *folder)
{
    TX_NEEDS(how && folder && how->size == sizeof *how && how->adapter && how->count > 0, TX_INVALID);
    combine c = {.how = how, .count = how->count};
    if (how->count > MOST)
        return tx_fail(TX_UNSUPPORTED, "%d adapters: at most %d can be combined", how->count, MOST);
    if (tx_file_exists(TX_PATH(folder, TX_LORA_CONFIG)))
        return tx_fail(TX_INVALID, "%s: holds an adapter: give another folder", folder);
    tx_status status = read_all(&c);
    TX_THEN(status, tx_folder_create(folder));
    TX_THEN(status, write_weights(&c, folder));
    TX_THEN(status, write_config(&c, folder));
    for (int32_t i = 0; i < c.count; i++) {
        tx_lora_free(c.source[i].lora);
        tx_weights_close(c.source[i].weights);
    }
    for (int32_t i = 0; i < c.modules; i++)
        free((char *)(uintptr_t)c.module[i]);
    free(c.module);
    free(c.rank);
    return status;
}
