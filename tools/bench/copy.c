/* SPDX-License-Identifier: Apache-2.0
 * txbench copy: a device's copy rate, the way between host and device, also beside a product, and what a launch costs.
 */
#include "api/base/clock.h"
#include "tools/bench/bench.h"
#include "tools/bench/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMON(field) offsetof(tx_bench_common, field)
static const tx_option options[] = {TX_BENCH_OPTIONS(COMMON)};
#undef COMMON

static const tx_bench_common defaults = TX_BENCH_DEFAULTS;

const tx_cli tx_bench_copy_program = {
    .name = "txbench",
    .usage = "txbench copy [options]",
    .about =
        "Times copies on the device (bytes read and written), from 64 KiB on; between host and device (bytes moved),\n"
        "from pinned and from pageable memory; a copy to the host by the second queue beside products; and launches\n"
        "of a small operation. Medians.",
    .options = options,
    .count = (int32_t)(sizeof options / sizeof options[0]),
    .values = &defaults,
};

/* X(NAME, "in the table", "in JSON", to the device, pinned) */
#define WAY_MAP(X)                                                                  \
    X(DOWN_PINNED, "host to device, pinned", "to_device_pinned", true, true)        \
    X(DOWN_PAGEABLE, "host to device, pageable", "to_device_pageable", true, false) \
    X(UP_PINNED, "device to host, pinned", "from_device_pinned", false, true)       \
    X(UP_PAGEABLE, "device to host, pageable", "from_device_pageable", false, false)

enum way {
#define X(id, text, key, down, pinned) id,
    WAY_MAP(X)
#undef X
        WAYS
};

static const struct {
    const char *text, *key;
    bool down, pinned;
} ways[WAYS] = {
#define X(id, text, key, down, pinned) [id] = {text, key, down, pinned},
    WAY_MAP(X)
#undef X
};

#define MAX_SIZES 32
#define PRODUCT 1024 /* sides of the product that a copy is timed beside */
#define TRANSFERS 9  /* a measurement, where it is not said how many */

typedef struct figures {
    tx_target target;
    tx_bench_peaks peaks;
    tx_timing copy[MAX_SIZES];
    int64_t bytes[MAX_SIZES];
    int32_t sizes;
    int64_t transfer_bytes;
    double transfer[WAYS]; /* bytes a second */
    tx_beside beside;
} figures;

static tx_status measure_copies(figures *f, const tx_bench_common *common)
{
    const int64_t most = tx_bench_copy_most(&f->target.info, common->largest << 20);
    tx_status status = TX_OK;
    for (int64_t bytes = 1 << 16; bytes <= most && f->sizes < MAX_SIZES && !status; bytes *= 4) {
        f->bytes[f->sizes] = bytes;
        status = tx_bench_copy_once(&f->target, bytes, (int32_t)common->repeats, &f->copy[f->sizes]);
        f->sizes++;
    }
    return status;
}

/* Moves `bytes` once to warm up and then `repeats` times. */
static tx_status time_way(const figures *f, tx_buffer *device, void *host, int64_t bytes, enum way way, int64_t repeats,
                          double *rate)
{
    const tx_backend *b = f->target.backend;
    double seconds[TX_BENCH_PAIRS];
    tx_status status = TX_OK;
    for (int64_t i = -1; i < repeats && !status; i++) {
        const double begin = tx_now();
        status = ways[way].down ? b->write(f->target.context, TX_QUEUE_COMPUTE, device, 0, host, bytes)
                                : b->read(f->target.context, device, 0, host, bytes);
        if (!status)
            status = b->finish(f->target.context);
        seconds[i < 0 ? 0 : i] = tx_now() - begin;
    }
    if (!status)
        *rate = (double)bytes / tx_bench_median(seconds, repeats);
    return status;
}

static tx_status measure_transfers(figures *f, const tx_bench_common *common)
{
    const tx_backend *b = f->target.backend;
    const int64_t bytes = f->bytes[f->sizes - 1];
    int64_t repeats = common->repeats ? common->repeats : TRANSFERS;
    repeats = repeats > TX_BENCH_PAIRS ? TX_BENCH_PAIRS : repeats;
    tx_buffer *device = NULL, *pinned = NULL;
    void *pageable = malloc((size_t)bytes);
    tx_status status = pageable ? TX_OK : tx_fail(TX_MEMORY, "no host memory for %" PRId64 " bytes", bytes);
    if (!status)
        status = b->allocate(f->target.context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, bytes, &device);
    if (!status)
        status = b->allocate(f->target.context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_PINNED, bytes, &pinned);
    if (!status) {
        memset(pageable, 1, (size_t)bytes); /* the system gives pages when they are first written */
        memset(b->map(pinned), 1, (size_t)bytes);
    }
    for (int way = 0; way < WAYS && !status; way++)
        status = time_way(f, device, ways[way].pinned ? b->map(pinned) : pageable, bytes, (enum way)way, repeats,
                          &f->transfer[way]);
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

/* What both at once take, in shares of the longer of the two alone. */
static double beside_ratio(const tx_beside *b)
{
    return b->both / (b->copy > b->run ? b->copy : b->run);
}

static void print_text(const figures *f, const char *command)
{
    printf("%s\ndevice  %s: %s, driver %s\n", command, f->target.info.id, f->target.info.name, f->target.info.driver);
    tx_bench_peaks_text(&f->peaks);
    printf("\n%-28s %10s %13s %7s %14s\n", "copy on the device", "KiB", "median", "spread", "rate");
    for (int32_t i = 0; i < f->sizes; i++)
        printf("%-28s %10" PRId64 " %10.1f us %5.1f %% %9.2f GB/s\n", f->copy[i].variant, f->bytes[i] >> 10,
               1e6 * f->copy[i].seconds, 100.0 * f->copy[i].spread, f->copy[i].gbytes);
    printf("\n");
    for (int way = 0; way < WAYS; way++)
        printf("%-28s %10" PRId64 " %31.2f GB/s\n", ways[way].text, f->transfer_bytes >> 10, 1e-9 * f->transfer[way]);
    const tx_beside *b = &f->beside;
    printf("\ndevice to host beside products: copy %.2f ms, %d products %.2f ms, both %.2f ms, %.2f times the longer\n",
           1e3 * b->copy, b->runs, 1e3 * b->run, 1e3 * b->both, beside_ratio(b));
}

static tx_status copies_json(const figures *f, tx_json *rows)
{
    tx_status status = TX_OK;
    for (int32_t i = 0; i < f->sizes && !status; i++) {
        tx_json *row = tx_json_object();
        status = tx_json_set_int(row, "bytes", f->bytes[i]);
        if (!status)
            status = tx_json_set_number(row, "seconds", f->copy[i].seconds);
        if (!status)
            status = tx_json_set_number(row, "spread", f->copy[i].spread);
        if (!status)
            status = tx_json_set_number(row, "gbytes", f->copy[i].gbytes);
        tx_status set = tx_json_append(rows, row);
        status = status ? status : set;
    }
    return status;
}

static tx_status beside_json(const figures *f, tx_json *object)
{
    const tx_beside *b = &f->beside;
    tx_status status = tx_json_set_int(object, "bytes", f->transfer_bytes);
    if (!status)
        status = tx_json_set_number(object, "copy_seconds", b->copy);
    if (!status)
        status = tx_json_set_int(object, "products", b->runs);
    if (!status)
        status = tx_json_set_number(object, "product_seconds", b->run);
    if (!status)
        status = tx_json_set_number(object, "both_seconds", b->both);
    if (!status)
        status = tx_json_set_number(object, "ratio", beside_ratio(b));
    return status ? status : tx_json_set_int(object, "transfers", b->transfers);
}

static tx_status print_json(const figures *f, const char *command)
{
    tx_json *all = tx_json_object(), *peaks = tx_json_object(), *rows = tx_json_array(), *transfers = tx_json_object();
    tx_json *beside = tx_json_object();
    tx_status status = tx_bench_json_head(all, command, &f->target.info);
    if (!status)
        status = tx_json_set_string(all, "what", "copy");
    if (!status)
        status = tx_bench_peaks_json(&f->peaks, peaks);
    if (!status)
        status = copies_json(f, rows);
    if (!status)
        status = tx_json_set_int(transfers, "bytes", f->transfer_bytes);
    for (int way = 0; way < WAYS && !status; way++)
        status = tx_json_set_number(transfers, ways[way].key, 1e-9 * f->transfer[way]);
    if (!status)
        status = beside_json(f, beside);
    tx_status set = tx_json_set(all, "peaks", peaks);
    status = status ? status : set;
    set = tx_json_set(all, "rows", rows);
    status = status ? status : set;
    set = tx_json_set(all, "transfer_gbytes", transfers);
    status = status ? status : set;
    set = tx_json_set(all, "beside", beside);
    status = status ? status : set;
    if (!status)
        return tx_bench_print(all);
    tx_json_free(all);
    return status;
}

static tx_status measure(figures *f, const tx_bench_common *common, const char *command)
{
    tx_status status = tx_bench_open(common, &f->target, &f->peaks);
    if (!status)
        status = measure_copies(f, common);
    if (!status)
        status = measure_transfers(f, common);
    if (!status)
        status = measure_beside(f);
    if (status)
        return status;
    if (common->json)
        return print_json(f, command);
    print_text(f, command);
    return TX_OK;
}

int tx_bench_copy(int argc, char *const *argv)
{
    tx_bench_common common = defaults;
    int result = tx_options_parse(&tx_bench_copy_program, argc, argv, &common);
    if (result != TX_GO_ON)
        return result;
    char command[512];
    tx_bench_command(argc, argv, command, sizeof command);
    figures f = {0};
    tx_status status = measure(&f, &common, command);
    if (f.target.context)
        tx_target_close(&f.target);
    return status ? tx_complain(&tx_bench_copy_program, TX_EXIT_FAILURE, "%s", tx_error()) : 0;
}
