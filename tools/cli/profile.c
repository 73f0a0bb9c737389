/* SPDX-License-Identifier: Apache-2.0
 * Tables of time and devices. */
#include "tools/cli/profile.h"

#include "tools/cli/alive.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define GIB 1073741824.0

/* Sum over operations: seconds of all profiled runs, work of one optimizer step. */
typedef struct work {
    const char *op, *variant;
    tx_direction direction;
    int64_t operations;
    double seconds, flops, bytes;
} work;

static void add_work(work *to, const tx_profile_entry *entry, double runs)
{
    to->operations++;
    to->seconds += entry->seconds;
    to->flops += entry->flops * runs;
    to->bytes += entry->bytes * runs;
}

static void print_work(FILE *to, const char *name, const work *w, double total, double steps)
{
    double rate = w->seconds > 0.0 ? 1e-9 / w->seconds : 0.0;
    fprintf(to, "%-44s %6" PRId64 " %10.6f %6.1f %% %10.1f %9.1f\n", name, w->operations, w->seconds / steps,
            total > 0.0 ? 100.0 * w->seconds / total : 0.0, w->flops * rate, w->bytes * rate);
}

static int by_seconds(const void *a, const void *b)
{
    double x = ((const work *)a)->seconds, y = ((const work *)b)->seconds;
    return (x < y) - (x > y);
}

/* Returns the row of an entry's op, direction and kernel. Appends it if it is new. */
static work *row_of(work *rows, int32_t *count, const tx_profile_entry *entry)
{
    for (int32_t i = 0; i < *count; i++)
        if (rows[i].direction == entry->direction && strcmp(rows[i].op, entry->op) == 0 &&
            strcmp(rows[i].variant, entry->variant) == 0)
            return &rows[i];
    rows[*count] = (work){.op = entry->op, .variant = entry->variant, .direction = entry->direction};
    return &rows[(*count)++];
}

typedef struct sums {
    work by_class[TX_CLASS_COUNT][TX_DIRECTION_COUNT];
    work *by_kernel;
    int32_t kernels;
    double seconds;
    double steps;
} sums;

static tx_status collect(tx_profiled *plan_of, const void *context, sums *s)
{
    const tx_plan *plan;
    int64_t runs;
    size_t entries = 0;
    for (int32_t p = 0; (plan = plan_of(context, p, &runs)) != NULL; p++) {
        entries += (size_t)tx_plan_length(plan);
        s->steps = p == 0 ? (double)runs : s->steps;
    }
    s->by_kernel = calloc(entries, sizeof *s->by_kernel);
    if (!s->by_kernel)
        return tx_fail(TX_MEMORY, "profile: out of memory");
    for (int32_t p = 0; (plan = plan_of(context, p, &runs)) != NULL; p++)
        for (int32_t i = 0; i < tx_plan_length(plan) && runs > 0; i++) {
            tx_profile_entry entry;
            TX_TRY(tx_plan_profile_entry(plan, i, &entry));
            add_work(&s->by_class[entry.op_class][entry.direction], &entry, (double)runs);
            add_work(row_of(s->by_kernel, &s->kernels, &entry), &entry, (double)runs);
            s->seconds += entry.seconds;
        }
    qsort(s->by_kernel, (size_t)s->kernels, sizeof *s->by_kernel, by_seconds);
    return TX_OK;
}

static void print_sums(FILE *to, sums *s)
{
    const char *head = "%-44s %6s %10s %8s %10s %9s\n";
    fprintf(to, head, "op class, direction", "ops", "s/step", "share", "GFLOP/s", "GB/s");
    for (int c = 0; c < TX_CLASS_COUNT; c++)
        for (int d = 0; d < TX_DIRECTION_COUNT; d++) {
            const work *w = &s->by_class[c][d];
            char name[64];
            snprintf(name, sizeof name, "%s, %s", tx_class_name((tx_op_class)c), tx_direction_name((tx_direction)d));
            if (w->operations)
                print_work(to, name, w, s->seconds, s->steps);
        }
    fputc('\n', to);
    fprintf(to, head, "op, direction, kernel", "ops", "s/step", "share", "GFLOP/s", "GB/s");
    for (int32_t i = 0; i < s->kernels; i++) {
        const work *w = &s->by_kernel[i];
        char name[128];
        snprintf(name, sizeof name, "%s, %s, %s", w->op, tx_direction_name(w->direction), w->variant);
        print_work(to, name, w, s->seconds, s->steps);
    }
    fprintf(to, "\nprofiled steps %.0f, %.6f s a step in operations\n", s->steps, s->seconds / s->steps);
}

static tx_json *work_json(const work *w, const char *op_class, const sums *s)
{
    const double rate = w->seconds > 0.0 ? 1e-9 / w->seconds : 0.0;
    tx_json *row = op_class ? tx_json_pack("{s:s}", "class", op_class)
                            : tx_json_pack("{s:s, s:s}", "op", w->op, "variant", w->variant);
    tx_json_set_string(row, "direction", tx_direction_name(w->direction));
    tx_json_set_int(row, "operations", w->operations);
    tx_json_set_number(row, "seconds", w->seconds / s->steps);
    tx_json_set_number(row, "share", s->seconds > 0.0 ? w->seconds / s->seconds : 0.0);
    tx_json_set_number(row, "gflops", w->flops * rate);
    tx_json_set_number(row, "gbytes", w->bytes * rate);
    return row;
}

tx_status tx_profile_json(tx_profiled *plan, const void *context, tx_json **profile)
{
    sums s = {0};
    tx_status status = collect(plan, context, &s);
    if (status) {
        free(s.by_kernel);
        return status;
    }
    tx_json *all = tx_json_object(), *classes = tx_json_array(), *kernels = tx_json_array();
    tx_json_set_int(all, "steps", (int64_t)s.steps);
    tx_json_set_number(all, "seconds", s.seconds / s.steps);
    for (int c = 0; c < TX_CLASS_COUNT; c++)
        for (int d = 0; d < TX_DIRECTION_COUNT; d++) {
            s.by_class[c][d].direction = (tx_direction)d;
            if (s.by_class[c][d].operations)
                tx_json_append(classes, work_json(&s.by_class[c][d], tx_class_name((tx_op_class)c), &s));
        }
    for (int32_t i = 0; i < s.kernels; i++)
        tx_json_append(kernels, work_json(&s.by_kernel[i], NULL, &s));
    tx_json_set(all, "classes", classes);
    status = tx_json_set(all, "kernels", kernels);
    free(s.by_kernel);
    return TX_RETURN(status, all, profile, tx_json_free);
}

tx_status tx_print_profile(FILE *to, tx_profiled *plan, const void *context, int64_t steps, const tx_traffic *traffic)
{
    if (steps < 1)
        return tx_fail(TX_INVALID, "profile: the first step only warms up; train for 2 steps or more");
    sums s = {0};
    tx_status status = collect(plan, context, &s);
    if (!status) {
        print_sums(to, &s);
        fprintf(to,
                "to device %" PRId64 " bytes a step, from device %" PRId64 " bytes a step, launches %" PRId64
                " a step, allocations from step 2 to the end %" PRId64 "\n",
                traffic->to_device / steps, traffic->from_device / steps, traffic->launches / steps,
                traffic->allocations);
    }
    free(s.by_kernel);
    return status;
}

static void print_device(FILE *to, const tx_device_info *d)
{
    fprintf(to, "%-10s %s, %s, driver %s, %d compute units, %.1f GiB, at most %.1f GiB in one piece, products in fp32",
            d->id, d->name, d->platform, d->driver, d->compute_units, (double)d->memory / GIB,
            (double)d->max_allocation / GIB);
    fprintf(to, "%s%s%s%s%s\n", d->tf32 ? ", tf32" : "", d->fp16 ? ", fp16" : "", d->bf16 ? ", bf16" : "",
            *d->units ? " by " : "", d->units);
}

tx_status tx_print_devices(FILE *to)
{
    int32_t count = 0, chosen;
    char reason[512];
    tx_device_info info;
    TX_TRY(tx_device_count(&count));
    for (int32_t i = 0; i < count; i++) {
        TX_TRY(tx_device_get(i, &info));
        print_device(to, &info);
    }
    if (tx_devices_missing())
        tx_warn(NULL, tx_devices_missing());
    TX_TRY(tx_device_choose(&chosen, reason, sizeof reason));
    TX_TRY(tx_device_get(chosen, &info));
    fprintf(to, "default    %s: %s\n", info.id, reason);
    return TX_OK;
}
