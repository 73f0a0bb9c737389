/* SPDX-License-Identifier: Apache-2.0
 * txbench copy: times copies on the device and between host and device, copies that overlap a product, and launches. */
#include "tools/bench/bench.h"
#include "tools/bench/roofline.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const tx_option options[] = {TX_BENCH_OPTIONS};

static const tx_bench_common defaults = TX_BENCH_DEFAULTS;

static const struct {
    const char *key;
    bool down, pinned;
} transfer_kinds[] = {
    {"to_device_pinned", true, true},
    {"to_device_pageable", true, false},
    {"from_device_pinned", false, true},
    {"from_device_pageable", false, false},
};
enum { TRANSFER_KINDS = sizeof transfer_kinds / sizeof transfer_kinds[0] };

#define MAX_SIZES 32
#define PRODUCT 1024 /* size of the product that a copy overlaps */
#define TRANSFERS 9  /* default number of runs per measurement */

typedef struct figures {
    tx_target target;
    tx_bench_peaks peaks;
    tx_timing copy[MAX_SIZES];
    int64_t bytes[MAX_SIZES];
    int32_t sizes;
    int64_t transfer_bytes;
    double transfer[TRANSFER_KINDS]; /* bytes per second */
    tx_beside beside;                /* runs is 0 if there was no time */
    double begin;
} figures;

static bool is_late(const figures *f, const tx_bench_common *common)
{
    return tx_now() - f->begin > common->seconds;
}

static tx_status measure_copies(figures *f, const tx_bench_common *common)
{
    const int64_t most = tx_bench_copy_most(&f->target.info, common->largest << 20);
    for (int64_t bytes = 1 << 16; bytes <= most && f->sizes < MAX_SIZES; bytes *= 4) {
        if (f->sizes > 0 && is_late(f, common))
            break;
        f->bytes[f->sizes] = bytes;
        TX_TRY(tx_bench_copy_once(&f->target, bytes, (int32_t)common->repeats, &f->copy[f->sizes]));
        f->sizes++;
    }
    return TX_OK;
}

/* Copies `bytes` once to warm up and then `repeats` times. Sets `rate` to the median in bytes per second. */
static tx_status time_transfer(const figures *f, tx_buffer *device, void *host, int64_t bytes, int kind,
                               int64_t repeats, double *rate)
{
    const tx_backend *b = f->target.backend;
    double seconds[TX_BENCH_PAIRS];
    for (int64_t i = -1; i < repeats; i++) {
        const double begin = tx_now();
        TX_TRY(transfer_kinds[kind].down ? b->write(f->target.context, TX_QUEUE_COMPUTE, device, 0, host, bytes)
                                         : b->read(f->target.context, device, 0, host, bytes));
        TX_TRY(b->finish(f->target.context));
        seconds[i < 0 ? 0 : i] = tx_now() - begin;
    }
    *rate = (double)bytes / tx_bench_median(seconds, repeats);
    return TX_OK;
}

static tx_status measure_transfers(figures *f, const tx_bench_common *common)
{
    const tx_backend *b = f->target.backend;
    const int64_t bytes = f->bytes[f->sizes - 1];
    int64_t repeats = is_late(f, common) ? 1 : common->repeats ? common->repeats : TRANSFERS;
    repeats = repeats > TX_BENCH_PAIRS ? TX_BENCH_PAIRS : repeats;
    tx_buffer *device = NULL, *pinned = NULL;
    void *pageable = malloc((size_t)bytes);
    tx_status status = pageable ? TX_OK : tx_fail(TX_MEMORY, "no host memory for %" PRId64 " bytes", bytes);
    TX_THEN(status, b->allocate(f->target.context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, bytes, &device));
    TX_THEN(status, b->allocate(f->target.context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_PINNED, bytes, &pinned));
    if (!status) {
        memset(pageable, 1, (size_t)bytes); /* the system allocates pages at their first write */
        memset(b->map(pinned), 1, (size_t)bytes);
    }
    for (int kind = 0; kind < TRANSFER_KINDS && !status; kind++)
        status = time_transfer(f, device, transfer_kinds[kind].pinned ? b->map(pinned) : pageable, bytes, kind, repeats,
                               &f->transfer[kind]);
    f->transfer_bytes = bytes;
    if (pinned)
        b->release(f->target.context, pinned);
    if (device)
        b->release(f->target.context, device);
    free(pageable);
    return status;
}

static tx_status measure_beside(figures *f)
{
    tx_command product;
    tx_bench_product_command(PRODUCT, PRODUCT, PRODUCT, false, false, TX_F32, TX_F32, &product);
    return tx_conformance_beside(&f->target, &product, f->transfer_bytes, &f->beside);
}

/* Returns the time of both at once over that of the longer one by itself; 1 is perfect overlap. */
static double beside_ratio(const tx_beside *b)
{
    return b->both / (b->copy > b->run ? b->copy : b->run);
}

static tx_json *beside_json(const figures *f)
{
    const tx_beside *b = &f->beside;
    return tx_json_pack("{s:I, s:f, s:i, s:f, s:f, s:f, s:I}", "bytes", f->transfer_bytes, "copy_seconds", b->copy,
                        "products", b->runs, "product_seconds", b->run, "both_seconds", b->both, "ratio",
                        beside_ratio(b), "transfers", b->transfers);
}

static tx_status print(const figures *f, bool json, char *const *argv)
{
    tx_json *all = tx_json_object(), *rows = tx_json_array();
    tx_json *peaks = tx_json_object(), *transfers = tx_json_object();
    tx_bench_json_head(all, "copy", argv, &f->target.info);
    tx_bench_peaks_json(&f->peaks, peaks);
    tx_json_set(all, "peaks", peaks);
    for (int32_t i = 0; i < f->sizes; i++) {
        const tx_timing *t = &f->copy[i];
        tx_json_append(rows, tx_json_pack("{s:I, s:f, s:f, s:f, s:s}", "bytes", f->bytes[i], "seconds", t->seconds,
                                          "spread", t->spread, "gbytes", t->gbytes, "variant", t->variant));
    }
    tx_json_set(all, "rows", rows);
    tx_json_set_int(transfers, "bytes", f->transfer_bytes);
    for (int kind = 0; kind < TRANSFER_KINDS; kind++)
        tx_json_set_number(transfers, transfer_kinds[kind].key, 1e-9 * f->transfer[kind]);
    tx_json_set(all, "transfer_gbytes", transfers);
    if (f->beside.runs > 0)
        tx_json_set(all, "beside", beside_json(f));
    return tx_bench_print(all, json, NULL);
}

static tx_status measure(figures *f, const tx_bench_common *common)
{
    TX_TRY(tx_bench_open(common, &f->target, &f->peaks));
    TX_TRY(measure_copies(f, common));
    TX_TRY(measure_transfers(f, common));
    return is_late(f, common) ? TX_OK : measure_beside(f);
}

static tx_status run(const void *settings, char *const *argv)
{
    const tx_bench_common *common = settings;
    figures f = {.begin = tx_now()};
    tx_status status = measure(&f, common);
    TX_THEN(status, print(&f, common->json, argv));
    if (f.target.context)
        tx_target_close(&f.target);
    return status;
}

TX_BENCH_COMMAND(
    copy, "",
    "Times copies on the device from 64 KiB on (bytes read and written), copies between host and device\n"
    "with pinned and pageable memory (bytes copied), a copy to the host in the second queue that overlaps\n"
    "products, and launches of a small operation. Prints medians.");
