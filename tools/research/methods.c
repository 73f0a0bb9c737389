/* SPDX-License-Identifier: Apache-2.0
 * txresearch methods: measures speed and memory of each training method on a device. */
#include "tools/bench/part.h"
#include "tools/bench/roofline.h"
#include "tools/research/research.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct settings {
    const char *config, *device;
    int64_t batch, block, steps, threads;
    double seconds;
    int32_t peer;
    bool json;
} settings;

static const tx_option options[] = {
    TX_BENCH_MODEL(AT),
    TX_BENCH_BATCH(AT),
    {TX_OPTION_INTEGER, "steps", AT(steps), 1, 1 << 20, "N", "steps of a measurement"},
    {TX_OPTION_REAL, "seconds", AT(seconds), 1, 1e6, "X", "time limit in seconds; later measurements are left out"},
    {TX_OPTION_CHOICE, "peer", AT(peer), .choices = "none|torch",
     .help = "program to compare with: GPT-2 of transformers on PyTorch with the same method, if it supports it"},
    TX_BENCH_DEVICE(AT),
    TX_BENCH_JSON(AT),
};

static const settings defaults = {
    .config = "gpt2", .device = "cpu", .batch = 4, .block = 256, .steps = 1, .seconds = 1800.0};

static const struct method {
    const char *name;
    int64_t times, over, micro;
    const char *needs, *options;
} methods[] = {
#define TX_METHOD(name, times, over, micro, needs, options) {name, times, over, micro, needs, options},
#include "tools/research/methods.def"
};
enum { METHODS = sizeof methods / sizeof methods[0], MOST_PARTS = METHODS + 2 };

typedef struct table {
    const settings *set;
    double begin;
    tx_json *parts, *rows;
    const tx_json *device; /* figures of txbench device */
} table;

static double left(const table *t)
{
    return t->set->seconds - (tx_now() - t->begin);
}

static tx_json *last_part(const table *t)
{
    return tx_json_at(t->parts, tx_json_size(t->parts) - 1);
}

static tx_status run_part(table *t, const char *name, tx_command_line *command, tx_part_state *state)
{
    const settings *set = t->set;
    TX_TRY(tx_command_line_add(command, "--json --threads %" PRId64 " --device", set->threads));
    TX_TRY(tx_command_line_add_word(command, set->device));
    fprintf(stderr, "[%4.0f of %.0f s] %s\n", set->seconds - left(t), set->seconds, name);
    return tx_part_run(t->parts, name, command, left(t), state);
}

/* Adds the options of the model and the batch to a command. */
static tx_status add_model(const settings *set, int64_t batch, tx_command_line *command)
{
    TX_TRY(tx_command_line_add(command, "--batch %" PRId64 " --block %" PRId64 " --config", batch, set->block));
    return tx_command_line_add_word(command, set->config);
}

/* Returns the number at a path of member names, such as "tx.tokens_per_second", or 0 if there is none. */
static double number_at(const tx_json *figures, const char *path)
{
    char name[64];
    double value = 0.0;
    const char *dot;
    for (; figures && (dot = strchr(path, '.')); path = dot + 1) {
        snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
        figures = tx_json_find(figures, name);
    }
    if (figures && tx_json_find(figures, path))
        tx_json_get_number(figures, path, -DBL_MAX, DBL_MAX, &value);
    return value;
}

static int64_t batch_of(const settings *set, const struct method *m)
{
    const int64_t batch = set->batch * m->times / m->over;
    return batch > 0 ? batch : 1;
}

/* Adds the part that ran last as a row of the table. */
static tx_status add_row(table *t, const struct method *m)
{
    const tx_json *part = last_part(t), *figures = tx_json_find(part, "figures");
    tx_json *row = tx_json_object();
    const char *text = "";
    const double rate = number_at(figures, "tx.tokens_per_second"), ratio = number_at(figures, "ratio");
    tx_json_get_string(part, "state", &text);
    tx_json_set_string(row, "method", m->name);
    tx_json_set_string(row, "state", text);
    tx_json_set_int(row, "batch", batch_of(t->set, m));
    tx_json_set_int(row, "micro_batches", m->micro);
    if (rate > 0.0) {
        tx_json *first = tx_json_at(t->rows, 0);
        const double bytes = number_at(figures, "memory.counted.total");
        const double base = first ? number_at(first, "tokens_per_second") : rate;
        const double base_bytes = first ? number_at(first, "bytes") : bytes;
        tx_json_set_number(row, "tokens_per_second", rate);
        tx_json_set_number(row, "samples_per_second", rate / (double)t->set->block);
        tx_json_set_int(row, "bytes", (int64_t)bytes);
        if (base > 0.0)
            tx_json_set_number(row, "speed", rate / base);
        if (base_bytes > 0.0)
            tx_json_set_number(row, "memory", bytes / base_bytes);
    }
    if (ratio > 0.0) {
        tx_json_set_number(row, "peer_tokens_per_second", number_at(figures, "peer.tokens_per_second"));
        tx_json_set_number(row, "ratio", ratio);
    }
    text = "";
    if (tx_json_has(part, "message"))
        tx_json_get_string(part, "message", &text);
    tx_json_set_string(row, "message", text);
    return tx_json_append(t->rows, row);
}

static tx_status measure_method(table *t, const struct method *m)
{
    const settings *set = t->set;
    bool has = true;
    if (*m->needs && tx_json_find(t->device, m->needs))
        tx_json_get_bool(t->device, m->needs, &has);
    if (!has || left(t) < 1.0) {
        TX_TRY(has ? tx_part_leave_out(t->parts, m->name, "the time is over")
                   : tx_part_leave_out(t->parts, m->name, "the device has no %s that TX uses", m->needs));
        return add_row(t, m);
    }
    tx_command_line command = {0};
    tx_part_state state;
    const double share = left(t) / (double)(METHODS - (m - methods));
    tx_status status = tx_command_line_add(&command, "txbench train --steps %" PRId64 " --pairs 3 --seconds %.1f %s",
                                           set->steps, share / 2, set->peer ? "--peer torch" : "");
    TX_THEN(status,
            tx_command_line_add(&command, "--gradient_accumulation_steps %" PRId64 " %s", m->micro, m->options));
    TX_THEN(status, add_model(set, batch_of(set, m), &command));
    TX_THEN(status, run_part(t, m->name, &command, &state));
    tx_command_line_free(&command);
    return status ? status : add_row(t, m);
}

static tx_status run_named(table *t, const char *name, bool model, double seconds)
{
    tx_command_line command = {0};
    tx_part_state state;
    tx_status status = tx_command_line_add(&command, "%s %s", model ? "txresearch" : "txbench", name);
    if (!status && model)
        status = tx_command_line_add(&command, "--seconds %.1f --repeats 3", seconds);
    if (!status && model)
        status = add_model(t->set, t->set->batch, &command);
    TX_THEN(status, run_part(t, name, &command, &state));
    tx_command_line_free(&command);
    return status;
}

/* Measures the device, then each method, then the cost of sizes. */
static tx_status measure_all(table *t)
{
    TX_TRY(run_named(t, "device", false, 0.0));
    t->device = tx_json_find(last_part(t), "figures");
    if (!t->device) {
        const char *message = "";
        tx_json_get_string(last_part(t), "message", &message);
        return tx_fail(TX_DEVICE, "%s", message);
    }
    for (int m = 0; m < METHODS; m++)
        TX_TRY(measure_method(t, &methods[m]));
    return left(t) > 1.0 ? run_named(t, "sizes", true, left(t) / 2)
                         : tx_part_leave_out(t->parts, "sizes", "the time is over");
}

static tx_status end(table *t, tx_json *figures)
{
    const settings *set = t->set;
    const tx_json *sizes = tx_json_find(last_part(t), "figures");
    tx_json_set(figures, "rows", tx_json_copy(t->rows));
    tx_json_set(figures, "sizes", sizes ? tx_json_copy(tx_json_find(sizes, "rows")) : tx_json_array());
    return tx_bench_print(tx_json_copy(figures), set->json, NULL);
}

static tx_status run(const void *settings_, char *const *argv)
{
    const settings *set = settings_;
    table t = {.set = set, .begin = tx_now(), .parts = tx_json_array(), .rows = tx_json_array()};
    tx_json *figures = tx_bench_figures(&tx_bench_methods.program, set);
    (void)argv;
    tx_status status = measure_all(&t);
    if (!status) {
        tx_part_facts(t.device, figures);
        status = end(&t, figures);
    }
    tx_json_free(figures);
    tx_json_free(t.parts);
    tx_json_free(t.rows);
    return status;
}

TX_BENCH_COMMAND(methods, "",
                 "Trains by each method of the guide to efficient training on a single GPU, separately and combined.\n"
                 "Prints samples and tokens per second and memory of each, relative to the first. Then measures the "
                 "cost of\nmodel dimensions and batches that do not fill tiles (txresearch sizes).");
