/* SPDX-License-Identifier: Apache-2.0
 * Writes and reads parameters of types Q8 (backends/q8.h) and MXFP4 (backends/nf4.h), slice by slice. Both have blocks
 * of 32, first all codes, then the scale of each block. */
#include "api/packed/q8.h"

#include "api/base/blocks.h"
#include "api/base/thread.h"
#include "api/plan/plan.h"
#include "backends/nf4.h"
#include "backends/q8.h"

#include <inttypes.h>
#include <stdlib.h>

#define SLICE (INT64_C(1) << 20) /* elements that are converted at once; whole blocks */
#define BLOCK_BYTES 34           /* of Q8_0 */
#define BLOCK TX_Q8_BLOCK
#define MOST_PARTS 64
_Static_assert(TX_E2M1_BLOCK == BLOCK, "both types have equal blocks");

/* Bytes of the codes and of the scale of a block. */
typedef struct sizes {
    int64_t codes, scale;
} sizes;

static sizes sizes_of(tx_dtype dtype)
{
    return dtype == TX_MXFP4 ? (sizes){BLOCK / 2, 1} : (sizes){BLOCK, (int64_t)sizeof(uint16_t)};
}

typedef struct slice {
    uint8_t codes[SLICE], scales[SLICE / BLOCK * sizeof(uint16_t)];
} slice;

/* Some blocks of a slice, for one thread: from fp32, or from Q8_0 if x is NULL. */
typedef struct job {
    tx_dtype dtype;
    const float *x;
    const uint8_t *blocks;
    uint8_t *codes, *scales;
    int64_t count;
} job;

/* A block of ggml has elements i and i + 16 in a byte, the lower bits first. Here a byte has neighbours. */
static void put_mxfp4(const float *x, uint8_t *codes, uint8_t *scale)
{
    uint8_t block[1 + BLOCK / 2], code[BLOCK];
    tx_block_write_mxfp4(x, NULL, BLOCK, block);
    for (int i = 0; i < BLOCK; i++)
        code[i] = block[1 + i % 16] >> i / 16 * 4 & 15;
    for (int i = 0; i < BLOCK / 2; i++)
        codes[i] = (uint8_t)(code[2 * i] << 4 | code[2 * i + 1]);
    *scale = block[0];
}

static void *convert(void *argument)
{
    const job *j = argument;
    const sizes of = sizes_of(j->dtype);
    for (int64_t b = 0; b < j->count; b++) {
        uint8_t own[BLOCK_BYTES], *codes = j->codes + b * of.codes, *scale = j->scales + b * of.scale;
        const uint8_t *block = j->x ? own : j->blocks + b * BLOCK_BYTES;
        if (j->dtype == TX_MXFP4) {
            put_mxfp4(j->x + b * BLOCK, codes, scale);
            continue;
        }
        if (j->x)
            tx_block_write_q8_0(j->x + b * BLOCK, NULL, BLOCK, own);
        memcpy(scale, block, (size_t)of.scale);
        memcpy(codes, block + of.scale, BLOCK);
    }
    return NULL;
}

static float value_at(tx_dtype dtype, const slice *s, int64_t i)
{
    if (dtype == TX_MXFP4)
        return tx_e2m1_value[s->codes[i / 2] >> (i % 2 ? 0 : 4) & 15] *
               tx_float_of(TX_E2M1_SCALE(s->scales[i / BLOCK]));
    return (float)(int8_t)s->codes[i] * tx_block_half(s->scales + i / BLOCK * (int64_t)sizeof(uint16_t));
}

static void convert_all(tx_dtype dtype, slice *s, const float *x, const uint8_t *blocks, int64_t count, int64_t threads)
{
    const sizes of = sizes_of(dtype);
    job part[MOST_PARTS];
    const int64_t parts = tx_min(tx_min(count, threads), MOST_PARTS);
    for (int64_t i = 0; i < parts; i++) {
        const int64_t first = count * i / parts, end = count * (i + 1) / parts;
        part[i] = (job){dtype,
                        x ? x + first * BLOCK : NULL,
                        blocks ? blocks + first * BLOCK_BYTES : NULL,
                        s->codes + first * of.codes,
                        s->scales + first * of.scale,
                        end - first};
    }
    tx_thread_each(convert, part, sizeof *part, (size_t)parts);
}

/* Transfers bytes of codes or scales. A write waits, because the slice is reused. */
static tx_status transfer(tx_model *model, int32_t index, bool out, int64_t at, void *data, int64_t bytes)
{
    if (!out)
        return tx_stored_read(model, TX_PARAM_WEIGHT, index, at, data, bytes);
    TX_TRY(tx_stored_write(model, TX_PARAM_WEIGHT, index, at, data, bytes));
    return model->engine->backend->finish(model->engine->context);
}

/* Transfers `count` elements from element `first` on. The scales follow even after a failure, because the ranks that
 * have shards read them collectively. */
static tx_status move(tx_model *model, int32_t index, bool out, int64_t first, int64_t count, slice *s)
{
    const tx_param_spec *spec = &model->param[index].spec;
    const sizes of = sizes_of(spec->dtype);
    const int64_t blocks = tx_shape_count(&spec->shape) / BLOCK, at = first / BLOCK, some = count / BLOCK;
    const tx_status codes = transfer(model, index, out, at * of.codes, s->codes, some * of.codes);
    const tx_status scales = transfer(model, index, out, blocks * of.codes + at * of.scale, s->scales, some * of.scale);
    return codes ? codes : scales;
}

static tx_status open_slice(const tx_model *model, int32_t index, slice **opened)
{
    *opened = malloc(sizeof **opened);
    return *opened ? TX_OK : tx_fail(TX_MEMORY, "no memory to convert parameter %s", model->param[index].name);
}

tx_status tx_q8_write(tx_model *model, int32_t index, int64_t first, int64_t count, const float *x,
                      const uint8_t *blocks)
{
    const tx_dtype dtype = model->param[index].spec.dtype;
    slice *s;
    if (first % BLOCK != 0 || count % BLOCK != 0)
        return tx_fail(TX_INVALID,
                       "parameter %s is stored in %s: write whole units of %d elements, not elements %" PRId64
                       " to %" PRId64,
                       model->param[index].name, tx_dtype_name(dtype), BLOCK, first, first + count - 1);
    TX_TRY(open_slice(model, index, &s));
    tx_status status = TX_OK;
    for (int64_t at = 0; at < count && !status; at += SLICE) {
        const int64_t now = tx_min(count - at, SLICE);
        convert_all(dtype, s, blocks ? NULL : x + at, blocks ? blocks + at / BLOCK * BLOCK_BYTES : NULL, now / BLOCK,
                    model->engine->threads);
        status = move(model, index, true, first + at, now, s);
    }
    free(s);
    return status;
}

tx_status tx_q8_read(tx_model *model, int32_t index, int64_t first, int64_t count, float *x)
{
    slice *s;
    const int64_t end = first + count, last = tx_round_up(end, BLOCK);
    tx_status status = open_slice(model, index, &s);
    for (int64_t at = first / BLOCK * BLOCK; at < last && s; at += SLICE) {
        const int64_t now = tx_min(last - at, SLICE), stop = tx_min(end, at + now);
        const tx_status moved = move(model, index, false, at, now, s);
        status = status ? status : moved;
        for (int64_t i = tx_max(first, at); i < stop && !status; i++)
            x[i - first] = value_at(model->param[index].spec.dtype, s, i - at);
    }
    free(s);
    return status;
}
