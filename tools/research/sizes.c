/* SPDX-License-Identifier: Apache-2.0
 * txresearch sizes: measures the cost of model dimensions and batches that do not fill the tiles of kernels. */
#include "tools/bench/peaks.h"
#include "tools/bench/roofline.h"
#include "tools/bench/training.h"
#include "tools/research/research.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct settings {
    const char *config, *device;
    int64_t batch, block, threads, repeats;
    double seconds;
    int32_t dtype; /* a tx_dtype */
    bool json;
} settings;

static const tx_option options[] = {
    TX_BENCH_MODEL(AT),
    TX_BENCH_BATCH(AT),
    {TX_OPTION_CHOICE, "dtype", AT(dtype), .choices = "fp32|bf16|fp16", .help = "type of the operands"},
    {TX_OPTION_INTEGER, "repeats", AT(repeats), 0, 200, "N",
     "runs per measurement; 0 means as many as fit in half a second"},
    {TX_OPTION_REAL, "seconds", AT(seconds), 0, 1e6, "X",
     "start no new dimension after X seconds, and measure only two sizes of the current one"},
    TX_BENCH_DEVICE(AT),
    TX_BENCH_JSON(AT),
};

static const settings defaults = {.config = "gpt2", .device = "cpu", .batch = 4, .block = 256, .seconds = 1e6};

#define MOST 8  /* largest number of sizes of a dimension */
#define LEAST 2 /* number of sizes that are measured even if the time is over */

typedef struct sizes {
    const settings *set;
    const tx_config *config;
    tx_target target;
    int64_t size[MOST];
    double cost[MOST]; /* seconds for the same amount of useful work */
    int32_t count;
    double begin;
    tx_json *rows;
} sizes;

static bool is_late(const sizes *s)
{
    return tx_now() - s->begin > s->set->seconds;
}

/* ---- Measurements: seconds of a size, divided by its useful work -------------------------------------------- */

static tx_status product(const sizes *s, int64_t m, int64_t n, int64_t k, double *seconds)
{
    const tx_dtype dtype = (tx_dtype)s->set->dtype;
    tx_command command;
    tx_timing timing = {0};
    tx_bench_product_command(m, n, k, false, true, dtype, dtype, &command);
    TX_TRY(tx_conformance_time(&s->target, &command, (int32_t)s->set->repeats, &timing));
    *seconds = timing.seconds;
    return TX_OK;
}

/* Vocabulary: the logits of the same rows. */
static tx_status vocabulary(const sizes *s, int64_t size, double *seconds)
{
    return product(s, s->set->batch * s->set->block, size, s->config->width, seconds);
}

/* Width: a product with the same rows, per weight. */
static tx_status width(const sizes *s, int64_t size, double *seconds)
{
    TX_TRY(product(s, s->set->batch * s->set->block, 4 * size, size, seconds));
    *seconds /= (double)(size * size);
    return TX_OK;
}

/* Batch: a product, per row. */
static tx_status batch(const sizes *s, int64_t size, double *seconds)
{
    TX_TRY(product(s, size * s->set->block, 3 * s->config->width, s->config->width, seconds));
    *seconds /= (double)size;
    return TX_OK;
}

/* Head size: attention forward and backward, per column of all heads. */
static tx_status head_size(const sizes *s, int64_t size, double *seconds)
{
    const int64_t heads = s->config->width / size > 0 ? s->config->width / size : 1;
    *seconds = 0.0;
    for (int backward = 0; backward < 2; backward++) {
        tx_timing timing = {0};
        tx_command command;
        tx_bench_attention_command(s->set->batch, s->set->block, heads, heads, size, true, (tx_dtype)s->set->dtype,
                                   backward == 1, &command);
        TX_TRY(tx_conformance_time(&s->target, &command, (int32_t)s->set->repeats, &timing));
        *seconds += timing.seconds;
    }
    *seconds /= (double)(heads * size);
    return TX_OK;
}

/* ---- Dimensions ------------------------------------------------------------------------------------------- */

static void try_size(sizes *s, int64_t size)
{
    for (int32_t i = 0; i < s->count; i++)
        if (s->size[i] == size)
            return;
    if (size > 0 && s->count < MOST)
        s->size[s->count++] = size;
}

/* Selects the size itself, the next multiples of 8, 64 and 128, and an odd size. */
static void try_multiples(sizes *s, int64_t size)
{
    s->count = 0;
    try_size(s, size);
    for (int64_t of = 8; of <= 128; of *= of < 64 ? 8 : 2)
        try_size(s, (size + of - 1) / of * of);
    try_size(s, size | 1);
}

static tx_status measure(sizes *s, const char *name, int64_t own,
                         tx_status (*cost)(const sizes *s, int64_t size, double *seconds))
{
    double least = HUGE_VAL;
    for (int32_t i = 0; i < s->count; i++) {
        if (i >= LEAST && is_late(s)) {
            s->count = i;
            break;
        }
        const tx_status status = cost(s, s->size[i], &s->cost[i]);
        if (status)
            return tx_fail_in(status, "%s %" PRId64, name, s->size[i]);
        least = fmin(least, s->cost[i]);
    }
    for (int32_t i = 0; i < s->count; i++) {
        tx_json *row = tx_json_pack("{s:s, s:I, s:b, s:f}", "dimension", name, "size", s->size[i], "own",
                                    s->size[i] == own, "more_percent", 100.0 * (s->cost[i] / least - 1.0));
        TX_TRY(tx_json_append(s->rows, row));
    }
    return TX_OK;
}

static tx_status measure_all(sizes *s)
{
    static const int64_t heads[] = {32, 48, 64, 80, 96, 128};
    const tx_config *c = s->config;
    s->begin = tx_now();
    try_multiples(s, c->vocab_size);
    TX_TRY(measure(s, "vocabulary", c->vocab_size, vocabulary));
    if (!is_late(s)) {
        try_multiples(s, c->width);
        TX_TRY(measure(s, "width", c->width, width));
    }
    if (!is_late(s)) {
        s->count = 0;
        try_size(s, c->width / c->heads);
        for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
            if (heads[i] <= c->width)
                try_size(s, heads[i]);
        TX_TRY(measure(s, "head size", c->width / c->heads, head_size));
    }
    if (!is_late(s)) {
        s->count = 0;
        for (int64_t rows = 1; rows <= 2 * s->set->batch; rows *= 2)
            try_size(s, rows);
        try_size(s, s->set->batch);
        TX_TRY(measure(s, "batch", s->set->batch, batch));
    }
    return TX_OK;
}

static tx_status run(const void *settings_, char *const *argv)
{
    const settings *set = settings_;
    tx_config *config = NULL;
    sizes s = {.set = set, .rows = tx_json_array()};
    tx_status status = tx_bench_config(set->config, set->block, &config);
    s.config = config;
    const tx_open_options open = {.threads = (int32_t)set->threads, .profile = true};
    TX_THEN(status, tx_target_open(set->device, &open, &s.target));
    TX_THEN(status, measure_all(&s));
    tx_json *figures = tx_json_object();
    if (!status)
        tx_bench_json_head(figures, "sizes", argv, &s.target.info);
    tx_json_set(figures, "rows", s.rows);
    tx_target_close(&s.target);
    tx_config_free(config);
    if (!status)
        return tx_bench_print(figures, set->json, NULL);
    tx_json_free(figures);
    return status;
}

TX_BENCH_COMMAND(
    sizes, "",
    "Times products and attention with the dimensions of a model and with the next multiples of the sizes "
    "of tiles and\nvectors. Prints how much more time a size takes than the best one of its dimension, for "
    "the same useful work\n(logits of the same rows, products per weight, attention per column, products "
    "per row). TX itself pads\nvocabularies to a multiple of 128.");
