/* SPDX-License-Identifier: Apache-2.0
 *
 * Many rows on a simulated card (stand_in.h): grids stay within NVIDIA's limits, long launches are split with the same
 * bits, and sorting the sources of scatter_add takes time proportional to their number.
 *
 *     test_long      exit status 77: there is no OpenCL device */
#include "backends/opencl/runtime/internal.h"
#include "backends/opencl/tune/trials.h"
#include "tests/opencl/stand_in.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COLUMNS = 4, TABLE = 50000 };

static tx_operand operand(tx_dtype dtype, tx_shape shape)
{
    return (tx_operand){.dtype = dtype, .shape = shape};
}

/* Row `i` reads, or is added to, row (i * 7919 % TABLE) of a table; every 16th is row 0. */
static int32_t index_of(int64_t i)
{
    return i % 16 ? (int32_t)(i * 7919 % TABLE) : 0;
}

/* Runs the command with `x` as its fp32 input number `in` and rows numbered as above; `y` receives output 0. Lowers
 * *seconds to the processor time of the run, which depends little on other processes. */
static tx_status run(tx_context *context, tx_command command, int in, const float *x, float *y, double *seconds)
{
    tx_probe probe = {.command = command};
    tx_probe_run opened = {.backend = NULL};
    TX_TRY(tx_probe_create(&probe));
    const tx_operand *rows = &probe.command.in[1 - in], *out = &probe.command.out[0];
    memcpy(probe.data + probe.command.in[in].offset, x, (size_t)tx_operand_bytes(&probe.command.in[in]));
    for (int64_t i = 0; i < tx_operand_count(rows); i++)
        ((int32_t *)(void *)(probe.data + rows->offset))[i] = index_of(i);
    tx_status status = tx_probe_open(&opened, &tx_cl_plain, context, &probe, NULL);
    TX_THEN(status, tx_probe_launch(&opened));
    TX_THEN(status, tx_cl_read(context, opened.memory, out->offset, y, tx_operand_bytes(out)));
    for (int i = 0; i < 3 && !status; i++) {
        const clock_t start = clock();
        status = tx_probe_launch(&opened);
        *seconds = fmin(*seconds, (double)(clock() - start) / CLOCKS_PER_SEC);
    }
    tx_probe_close(&opened);
    tx_probe_free(&probe);
    return status;
}

/* Whole numbers, so that sums are exact. */
static float *numbers(int64_t count)
{
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; x && i < count; i++)
        x[i] = (float)(i % 13 - 6);
    return x;
}

static bool gather_rows(tx_context *context, int64_t count)
{
    const tx_attrs attrs = {.control = -1};
    tx_command c = tx_probe_command(TX_OP_GATHER, &attrs);
    c.in[0] = operand(TX_F32, TX_SHAPE(TABLE, COLUMNS));
    c.in[1] = operand(TX_I32, TX_SHAPE(count));
    c.out[0] = operand(TX_F32, TX_SHAPE(count, COLUMNS));
    float *x = numbers(TABLE * COLUMNS), *y = numbers(count * COLUMNS);
    double seconds = INFINITY;
    bool good = x && y && run(context, c, 0, x, y, &seconds) == TX_OK;
    for (int64_t i = 0; good && i < count * COLUMNS; i++)
        good = y[i] == x[(int64_t)index_of(i / COLUMNS) * COLUMNS + i % COLUMNS];
    printf("%s  gather of %lld rows\n", good ? "ok" : "FAIL", (long long)count);
    free(x);
    free(y);
    return good;
}

static bool scatter_rows(tx_context *context, int64_t count, double *seconds)
{
    const tx_attrs attrs = {.control = -1, .rows = TABLE};
    tx_command c = tx_probe_command(TX_OP_SCATTER_ADD, &attrs);
    c.in[0] = operand(TX_I32, TX_SHAPE(count));
    c.in[1] = operand(TX_F32, TX_SHAPE(count, COLUMNS));
    c.out[0] = operand(TX_F32, TX_SHAPE(TABLE, COLUMNS));
    float *x = numbers(count * COLUMNS), *y = numbers(TABLE * COLUMNS), *want = calloc(TABLE * COLUMNS, sizeof *want);
    bool good = x && y && want && run(context, c, 1, x, y, seconds) == TX_OK;
    for (int64_t i = 0; good && i < count * COLUMNS; i++)
        want[(int64_t)index_of(i / COLUMNS) * COLUMNS + i % COLUMNS] += x[i];
    for (int64_t i = 0; good && i < TABLE * COLUMNS; i++)
        good = y[i] == want[i];
    printf("%s  scatter_add of %lld rows: %.2f ms\n", good ? "ok" : "FAIL", (long long)count, 1e3 * *seconds);
    free(x);
    free(y);
    free(want);
    return good;
}

/* More than a quarter of a second of a card of four units: by several launches. */
static bool cut_product(void)
{
    static const tx_cl_gemm_case trial = {.batch = 1, .m = 1030, .n = 1030, .k = 2500, .from = TX_F32, .to = TX_F32};
    tx_context *context;
    stand_in.card = "plain";
    if (tx_cl_open(0, NULL, &context) != TX_OK)
        return printf("FAIL %s\n", tx_error()), false;
    stand_in.calls[STAND_IN_ENQUEUE] = 0;
    const tx_cl_builder asks = tx_cl_asker(context);
    const tx_status status = tx_cl_gemm_verify(&asks, "portable-tile-64x128x8", &trial, NULL);
    const long launches = stand_in.calls[STAND_IN_ENQUEUE];
    tx_cl_close(context);
    const bool good = status == TX_OK && launches > 1;
    printf("%s  a product of 5 GFLOP by %ld launches%s\n", good ? "ok" : "FAIL", launches, status ? tx_error() : "");
    return good;
}

/* Returns all memory of the command after a run whose launches do at most `work` operations, or NULL if it failed. */
static unsigned char *run_whole(tx_context *context, const tx_cl_forced *forced, tx_command command, double work,
                                int64_t *bytes, long *launches)
{
    tx_probe probe = {.command = command};
    tx_probe_run opened = {.backend = NULL};
    tx_status status = tx_probe_create(&probe);
    context->limits.launch_work = work;
    if (!status) {
        tx_probe_fill(&probe, TX_PROBE_ROUGH, (int32_t)command.in[0].shape.dim[1]);
        status = tx_probe_open(&opened, &tx_cl_plain, context, &probe, forced);
    }
    stand_in.calls[STAND_IN_ENQUEUE] = 0;
    TX_THEN(status, tx_probe_launch(&opened));
    *launches = stand_in.calls[STAND_IN_ENQUEUE];
    TX_THEN(status, tx_probe_read(&opened, probe.data));
    if (status)
        printf("FAIL %s\n", tx_error());
    *bytes = probe.bytes;
    tx_probe_close(&opened);
    if (status)
        tx_probe_free(&probe);
    return probe.data;
}

/* One row of the batch, so that launches are split only along heads and tiles: the same bits. */
static bool cut_attention(bool backward, int64_t batch, double work, long expected)
{
    enum { TOKENS = 40, HEADS = 2, D = 16 };
    const tx_cl_forced forced = {.begins = TX_CL_ATTENTION, .name = "gpu-8x16-8"};
    const tx_attrs attrs = {
        .control = -1, .attention.heads = HEADS, .attention.kv_heads = HEADS, .attention.causal = true, .scale = 0.25f};
    const tx_operand qkv = operand(TX_F32, TX_SHAPE(batch, TOKENS, 3 * HEADS * D)),
                     o = operand(TX_F32, TX_SHAPE(batch, TOKENS, HEADS * D)),
                     sums = operand(TX_F32, TX_SHAPE(batch, HEADS, TOKENS));
    tx_command c = tx_probe_command(backward ? TX_OP_ATTENTION_GRAD : TX_OP_ATTENTION, &attrs);
    tx_context *context;
    int64_t bytes = 0;
    long launches[2] = {0, 0};
    c.in[0] = backward ? o : qkv;
    if (backward) {
        c.in[1] = qkv;
        c.in[2] = o;
        c.in[3] = sums;
    }
    c.out[0] = backward ? qkv : o;
    c.out[1] = sums;
    stand_in.card = "plain";
    if (tx_cl_open(0, NULL, &context) != TX_OK)
        return printf("FAIL %s\n", tx_error()), false;
    unsigned char *whole = run_whole(context, &forced, c, 1e9, &bytes, &launches[0]),
                  *cut = run_whole(context, &forced, c, work, &bytes, &launches[1]);
    const bool good = whole && cut && memcmp(whole, cut, (size_t)bytes) == 0 && launches[0] == (backward ? 3 : 1) &&
                      launches[1] == expected;
    printf("%s  attention%s of %lld rows by %ld launches, and by %ld\n", good ? "ok" : "FAIL",
           backward ? "'s gradient" : "", (long long)batch, launches[0], launches[1]);
    free(whole);
    free(cut);
    tx_cl_close(context);
    return good;
}

/* A card that is slower than is assumed: its second run shows it, and the third has more launches, of the same bits. */
static bool cut_by_time(void)
{
    enum { RUNS = 3, SIZE = 300 };
    const tx_attrs attrs = {.control = -1, .flat = true};
    const tx_operand matrix = operand(TX_F32, TX_SHAPE(SIZE, SIZE));
    tx_probe probe = {.command = tx_probe_command(TX_OP_MATMUL, &attrs)};
    tx_probe_run opened = {.backend = NULL};
    tx_context *context;
    long launches[RUNS];
    float *y[RUNS] = {NULL};
    probe.command.in[0] = probe.command.in[1] = probe.command.out[0] = matrix;
    stand_in.card = "plain";
    setenv("TX_GEMM", "portable-tile", 1);
    if (tx_probe_create(&probe) != TX_OK || tx_cl_open(0, NULL, &context) != TX_OK)
        return printf("FAIL %s\n", tx_error()), false;
    tx_probe_fill(&probe, TX_PROBE_EXACT, 0);
    tx_status status = tx_probe_open(&opened, &tx_cl_plain, context, &probe, NULL);
    stand_in.slow = 0.02;
    for (int i = 0; i < RUNS && !status; i++) {
        stand_in.calls[STAND_IN_ENQUEUE] = 0;
        status = tx_probe_launch(&opened);
        launches[i] = stand_in.calls[STAND_IN_ENQUEUE];
        y[i] = numbers(SIZE * SIZE);
        TX_THEN(status, tx_cl_read(context, opened.memory, probe.command.out[0].offset, y[i],
                                   SIZE * SIZE * (int64_t)sizeof(float)));
    }
    stand_in.slow = 0.0;
    tx_probe_close(&opened);
    tx_cl_close(context);
    unsetenv("TX_GEMM");
    const bool good = !status && launches[0] == 1 && launches[1] == 1 && launches[2] > 1 &&
                      memcmp(y[0], y[1], SIZE * SIZE * sizeof(float)) == 0 &&
                      memcmp(y[0], y[2], SIZE * SIZE * sizeof(float)) == 0;
    printf("%s  a slow product by %ld, %ld and %ld launches%s\n", good ? "ok" : "FAIL", launches[0], launches[1],
           launches[2], status ? tx_error() : "");
    for (int i = 0; i < RUNS; i++)
        free(y[i]);
    tx_probe_free(&probe);
    return good;
}

int main(void)
{
    int32_t devices = 0;
    tx_context *context;
    if (tx_cl_device_count(&devices) != TX_OK || devices == 0)
        return printf("skipped: no OpenCL device\n"), 77;
    bool good = true;
    for (int card = 0; card < 2; card++) {
        stand_in.card = card ? "h200" : NULL;
        double seconds[3] = {INFINITY, INFINITY, INFINITY};
        if (tx_cl_open(0, NULL, &context) != TX_OK)
            return printf("FAIL %s\n", tx_error()), 1;
        static const int64_t counts[] = {70001, 1 << 14, 1 << 17};
        good = gather_rows(context, counts[0]) && good;
        for (int i = 0; i < 3; i++)
            good = scatter_rows(context, counts[i], &seconds[i]) && good;
        tx_cl_close(context);
        /* A quadratic sort takes 64 times as long. Other processes may double the correct factor of 8 to 9. */
        const bool grows = seconds[2] <= 30.0 * seconds[1];
        printf("%s  8 times the sources take %.1f times as long\n", grows ? "ok" : "FAIL", seconds[2] / seconds[1]);
        good = good && grows;
    }
    good = cut_product() && good;
    good = cut_by_time() && good;
    good = cut_attention(false, 2, 120e3, 2) && good; /* by rows of the batch, then by heads and tiles */
    good = cut_attention(false, 1, 60e3, 4) && good;
    good = cut_attention(false, 1, 40e3, 6) && good;
    good = cut_attention(true, 1, 100, 1 + 10 + 6) && good;
    if (stand_in.broken[0])
        printf("FAIL %s\n", stand_in.broken);
    return good && !stand_in.broken[0] ? 0 : 1;
}
