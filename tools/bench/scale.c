/* SPDX-License-Identifier: Apache-2.0
 * The model of data-parallel training; its formulas are in the header. */
#include "tools/bench/scale.h"

#include "api/base/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_BYTES (INT64_C(25) << 20)
#define FIRST_BYTES (INT64_C(1) << 20)

/* ---- Compute ------------------------------------------------------------------------------------------- */

int32_t tx_scale_layer_of(const tx_config *config, const char *param)
{
    static const char block[] = "transformer.h.", head[] = "transformer.ln_f.";
    if (strncmp(param, block, sizeof block - 1) == 0)
        return (int32_t)strtol(param + sizeof block - 1, NULL, 10) + 1;
    return strncmp(param, head, sizeof head - 1) == 0 ? tx_scale_layers(config) - 1 : 0;
}

/* Elements of the matrices of the first block. */
static double matrices_of_a_block(const tx_config *config)
{
    double elements = 0.0;
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    for (int32_t i = 0; i < tx_arch_params(config) && !tx_arch_param(config, i, name, &spec); i++)
        if (tx_scale_layer_of(config, name) == 1 && spec.shape.rank == 2)
            elements += (double)tx_shape_count(&spec.shape);
    return elements;
}

void tx_scale_divide(const tx_config *config, int64_t block, double seconds, tx_scale_layer *layers)
{
    const double width = (double)config->width, depth = (double)config->layers;
    /* Multiply-adds a token: those with a block's matrices, attention's two products; the logits. */
    const double in_block = matrices_of_a_block(config) + 2.0 * width * (double)block;
    const double in_head = width * (double)tx_arch_padded_vocab(config);
    const double unit = seconds / (3.0 * (depth * in_block + in_head));
    const int32_t count = tx_scale_layers(config);
    for (int32_t i = 0; i < count; i++) {
        double work = i == 0 ? 0.0 : i == count - 1 ? in_head : in_block;
        layers[i] = (tx_scale_layer){.forward = unit * work, .backward = 2.0 * unit * work};
    }
}

/* ---- Schedule -------------------------------------------------------------------------------------------- */

/* Seconds from the step's beginning to the end of each layer's backward in the last micro-batch. */
static tx_status find_ready(const tx_config *config, const tx_scale_layer *layers, const tx_scale_split *split,
                            tx_scale_schedule *schedule, double **ready)
{
    const int32_t count = tx_scale_layers(config);
    double forward = 0.0, backward = 0.0;
    double *made = malloc((size_t)count * sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "no memory for %" PRId32 " layers", count);
    for (int32_t i = 0; i < count; i++) {
        forward += layers[i].forward;
        backward += layers[i].backward;
    }
    const double micro_batches = (double)split->accumulation;
    schedule->forward = micro_batches * forward;
    schedule->backward = micro_batches * backward;
    schedule->update = split->update;
    const double end = schedule->forward + schedule->backward;
    double at = end - backward;
    for (int32_t i = count - 1; i >= 0; i--) {
        at += layers[i].backward;
        made[i] = i ? fmin(at, end) : end; /* not past the end by rounding */
    }
    *ready = made;
    return TX_OK;
}

static int64_t gradient_bytes(const tx_param_spec *spec)
{
    int64_t blocks = (tx_shape_count(&spec->shape) + TX_PARAM_BLOCK - 1) / TX_PARAM_BLOCK;
    return blocks * TX_PARAM_BLOCK * (int64_t)sizeof(float);
}

/* Puts the parameters into buckets, the last of the arena first. */
static tx_status fill(const tx_config *config, const double *ready, const tx_scale_split *split,
                      tx_scale_schedule *schedule)
{
    const int64_t cap = split->cap ? split->cap : DEFAULT_BYTES;
    int64_t limit = split->cap ? split->cap : FIRST_BYTES;
    tx_scale_bucket *bucket = schedule->buckets;
    for (int32_t i = tx_arch_params(config) - 1; i >= 0; i--) {
        char name[TX_ARCH_NAME];
        tx_param_spec spec;
        tx_status status = tx_arch_param(config, i, name, &spec);
        if (status)
            return status;
        const int64_t bytes = gradient_bytes(&spec);
        if (bucket->bytes >= limit || (bucket->bytes > 0 && bytes > cap)) {
            bucket++;
            limit = cap;
        }
        bucket->bytes += bytes;
        bucket->sent = split->bf16 ? bucket->bytes / 2 : bucket->bytes;
        bucket->ready = ready[tx_scale_layer_of(config, name)];
    }
    schedule->count = (int32_t)(bucket - schedule->buckets) + 1;
    return TX_OK;
}

tx_status tx_scale_schedule_make(const tx_config *config, const tx_scale_layer *layers, const tx_scale_split *split,
                                 tx_scale_schedule *schedule)
{
    tx_scale_schedule made = {0};
    double *ready = NULL;
    tx_status status = find_ready(config, layers, split, &made, &ready);
    if (status)
        return status;
    made.buckets = calloc((size_t)tx_arch_params(config), sizeof *made.buckets);
    status = made.buckets ? fill(config, ready, split, &made) : tx_fail(TX_MEMORY, "no memory for the list of buckets");
    free(ready);
    if (status)
        free(made.buckets);
    else
        *schedule = made;
    return status;
}

tx_status tx_scale_schedule_write(const char *path, const tx_scale_schedule *schedule)
{
    tx_file *file;
    char line[128];
    tx_status status = tx_file_create(path, &file);
    if (status)
        return status;
    int length = snprintf(line, sizeof line, "compute %.9g %.9g %.9g\n", schedule->forward, schedule->backward,
                          schedule->update);
    status = tx_file_append(file, line, (size_t)length);
    for (int32_t i = 0; i < schedule->count && !status; i++) {
        const tx_scale_bucket *bucket = &schedule->buckets[i];
        length = snprintf(line, sizeof line, "bucket %.9g %" PRId64 "\n", bucket->ready, bucket->sent);
        status = tx_file_append(file, line, (size_t)length);
    }
    if (!status)
        return tx_file_commit(file);
    tx_file_discard(file);
    return status;
}

/* ---- Prediction -------------------------------------------------------------------------------------------- */

const char *tx_scale_algorithm_name(tx_scale_algorithm algorithm)
{
    static const char *const name[] = {
#define X(id, text) [TX_SCALE_##id] = text,
        TX_SCALE_ALGORITHM_MAP(X)
#undef X
    };
    return name[algorithm];
}

/* Largest whole number whose power of two is at most `n`. */
static int32_t log2_floor(int64_t n)
{
    int32_t power = 0;
    while (n >> (power + 1))
        power++;
    return power;
}

/* Sum among `ranks`, each on a link of its own. */
static double sum_flat(const tx_scale_link *link, tx_scale_algorithm algorithm, int64_t ranks, double bytes)
{
    if (ranks < 2)
        return 0.0;
    const double n = (double)ranks, a = link->latency, whole = bytes / link->rate;
    const int32_t power = log2_floor(ranks);
    const bool even = ranks == INT64_C(1) << power;
    double most;
    switch (algorithm) {
    case TX_SCALE_RING:
        return 2.0 * (n - 1.0) * (a + whole / n);
    case TX_SCALE_TREE:
        return 2.0 * (power + !even) * (a + whole);
    case TX_SCALE_RABENSEIFNER:
        most = ldexp(1.0, power);
        return 2.0 * power * a + 2.0 * (most - 1.0) / most * whole + (even ? 0.0 : 2.0 * (a + whole));
    case TX_SCALE_EXCHANGE:
        return 2.0 * (a + (n - 1.0) * fmax(whole / n, link->gap));
    case TX_SCALE_ALGORITHMS:
        break;
    }
    return NAN;
}

double tx_scale_sum(const tx_scale_link *link, tx_scale_algorithm algorithm, int64_t ranks,
                    const tx_scale_bucket *bucket)
{
    const int64_t hosts = (ranks + link->host_ranks - 1) / link->host_ranks;
    const bool local = link->host_ranks > 1 && ranks > 1;
    return (local ? 2.0 * (double)bucket->bytes / link->local_rate : 0.0) +
           sum_flat(link, algorithm, hosts, (double)bucket->sent);
}

tx_scale_step tx_scale_predict(const tx_scale_schedule *schedule, const tx_scale_link *link,
                               tx_scale_algorithm algorithm, int64_t ranks, bool overlap)
{
    const double compute = schedule->forward + schedule->backward;
    double communication = 0.0, end = 0.0;
    for (int32_t i = 0; i < schedule->count; i++) {
        const tx_scale_bucket *bucket = &schedule->buckets[i];
        const double seconds = tx_scale_sum(link, algorithm, ranks, bucket);
        communication += seconds;
        end = fmax(end, overlap ? bucket->ready : compute) + seconds;
    }
    const double exposed = fmax(end - compute, 0.0), alone = compute + schedule->update;
    return (tx_scale_step){.communication = communication,
                           .exposed = exposed,
                           .seconds = alone + exposed,
                           .efficiency = alone / (alone + exposed)};
}
