/* SPDX-License-Identifier: Apache-2.0
 * What was measured, as a table, and the line that is shown meanwhile. */
#include "tools/topology/txtopo.h"

#include "comm/topology/measure.h"

#include <inttypes.h>
#include <string.h>

static const char *end_text(const tx_topology *t, int32_t device)
{
    return device < 0 ? "host" : t->devices[device].label;
}

/* What stands beside a rate: the class of a pair; whether the NUMA node is the device's. */
static void class_text(const tx_topology *t, const tx_topo_copy *copy, char text[16])
{
    int32_t distance = tx_topo_copy_distance(t, copy);
    if (copy->kind == TX_TOPO_COPY_BETWEEN)
        tx_topo_cell(t, copy->from, copy->to, true, text);
    else
        snprintf(text, 16, "%s", distance < 0 ? "-" : distance == 0 ? "near" : "far");
}

/* The reason why there is no rate, or a copy from farther away that is faster. */
static const char *remark_text(const tx_topology *t, int32_t index, char room[TX_TXTOPO_CELL])
{
    const tx_topo_copy *copy = &t->copies[index];
    const int32_t beaten = tx_topo_copy_beaten(t, index);
    char class_[16];
    if (beaten < 0)
        return copy->failure;
    const tx_topo_copy *by = &t->copies[beaten];
    class_text(t, by, class_);
    if (copy->kind == TX_TOPO_COPY_BETWEEN)
        snprintf(room, TX_TXTOPO_CELL, "slower than %s to %s (%s, %.1f GB/s)", end_text(t, by->from),
                 end_text(t, by->to), class_, by->bandwidth);
    else
        snprintf(room, TX_TXTOPO_CELL, "slower than from NUMA node %" PRId32 ", which is far (%.1f GB/s)", by->numa,
                 by->bandwidth);
    return room;
}

static void print_methods(FILE *out, const tx_topology *t)
{
    fputs("\nMethods:\n\n", out);
    for (int m = 0; m < TX_TOPO_METHOD_COUNT; m++) {
        bool used = false;
        for (int32_t i = 0; i < t->copy_count; i++)
            used = used || t->copies[i].method == (tx_topo_method)m;
        if (used)
            fprintf(out, "  %-12s = %s\n", tx_topo_method_names[m], tx_topo_method_texts[m]);
    }
}

static const char *copy_cell(const void *of, int32_t row, int32_t column, char room[TX_TXTOPO_CELL])
{
    static const char *const heads[] = {"From", "To", "Class", "NUMA", "Method", "GB/s", "us", ""};
    const tx_topology *t = of;
    if (row < 0)
        return heads[column];
    const tx_topo_copy *copy = &t->copies[row];
    snprintf(room, TX_TXTOPO_CELL, "-");
    if (column == TX_TXTOPO_CLASS)
        class_text(t, copy, room);
    else if (column == TX_TXTOPO_NUMA && copy->numa >= 0)
        snprintf(room, TX_TXTOPO_CELL, "%" PRId32, copy->numa);
    else if (column == TX_TXTOPO_RATE && copy->bandwidth > 0)
        snprintf(room, TX_TXTOPO_CELL, copy->bandwidth < 1 ? "%.3f" : "%.1f", copy->bandwidth);
    else if (column == TX_TXTOPO_LATENCY && copy->latency > 0)
        snprintf(room, TX_TXTOPO_CELL, "%.1f", copy->latency);
    else if (column == TX_TXTOPO_METHOD)
        return tx_topo_method_names[copy->method];
    else if (column == TX_TXTOPO_REMARK)
        return remark_text(t, row, room);
    return column > TX_TXTOPO_TO ? room : end_text(t, column == TX_TXTOPO_TO ? copy->to : copy->from);
}

tx_txtopo_table tx_txtopo_copies(const tx_topology *t)
{
    return (tx_txtopo_table){.columns = 8, .rows = t->copy_count, .right = 3 << 5, .cell = copy_cell, .of = t};
}

void tx_txtopo_measured(FILE *out, const tx_topology *t)
{
    if (t->copies_planned == 0)
        return;
    const tx_txtopo_table table = tx_txtopo_copies(t);
    fputs("\nMeasured, medians; NUMA: the node whose CPUs copied and whose memory was used:\n\n", out);
    tx_txtopo_print(out, &table);
    print_methods(out, t);
    if (t->copy_count < t->copies_planned)
        fprintf(out, "\nStopped: %" PRId32 " of %" PRId32 " copies were measured.\n", t->copy_count, t->copies_planned);
}

void tx_txtopo_measuring(FILE *out, const tx_topology *t, const tx_topo_copy *next, int32_t done, int32_t count)
{
    fprintf(out, "\r\033[Kmeasuring %" PRId32 " of %" PRId32 ": %s to %s, %s", done + 1, count, end_text(t, next->from),
            end_text(t, next->to), tx_topo_method_names[next->method]);
    if (next->numa >= 0)
        fprintf(out, ", NUMA node %" PRId32, next->numa);
    fflush(out);
}
