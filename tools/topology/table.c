/* SPDX-License-Identifier: Apache-2.0
 * Tables as text, and the one of devices with their matrix, which all formats draw. */
#include "tools/topology/txtopo.h"

#include <inttypes.h>
#include <string.h>

int tx_txtopo_width(const tx_txtopo_table *table, int32_t column)
{
    char room[TX_TXTOPO_CELL];
    size_t width = 0;
    for (int32_t row = 0; row < table->rows; row++) {
        const size_t length = strlen(table->cell(table->of, row, column, room));
        width = length > width ? length : width;
    }
    const size_t head = strlen(table->cell(table->of, -1, column, room));
    return (int)(width > 0 && head > width ? head : width);
}

void tx_txtopo_print(FILE *out, const tx_txtopo_table *table)
{
    char room[TX_TXTOPO_CELL];
    int widths[TX_TXTOPO_COLUMNS];
    for (int32_t k = 0; k < table->columns; k++)
        widths[k] = tx_txtopo_width(table, k);
    for (int32_t row = -1; row < table->rows; row++) {
        int gap = 0; /* spaces that are due before the next text, so that no line ends with some */
        for (int32_t k = 0; k < table->columns; k++) {
            const bool head = *table->cell(table->of, -1, k, room);
            const char *text = table->cell(table->of, row, k, room);
            if (!*text && head)
                text = "-";
            if (widths[k] == 0 || !*text)
                continue;
            const int rest = widths[k] - (int)strlen(text);
            const bool right = table->right >> k & 1;
            fprintf(out, "%*s%s", gap + (right ? rest : 0), "", text);
            gap = 2 + (right ? 0 : rest);
        }
        fputc('\n', out);
    }
}

const char *tx_txtopo_memory(int64_t bytes, char text[TX_TXTOPO_CELL])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes / 1024;
    size_t unit = 0;
    text[0] = '\0';
    for (; value >= 1000 && unit + 1 < sizeof units / sizeof units[0]; unit++)
        value /= 1024;
    if (bytes > 0)
        snprintf(text, TX_TXTOPO_CELL, value < 100 ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}

/* ---- Devices ------------------------------------------------------------------------------------------ */

static const char *number_text(int64_t number, int64_t least, char room[TX_TXTOPO_CELL])
{
    snprintf(room, TX_TXTOPO_CELL, "%" PRId64, number);
    return number < least ? "" : room;
}

static const char *field_text(const tx_topology *t, int32_t device, tx_txtopo_field field, char room[TX_TXTOPO_CELL])
{
    const tx_topo_device *d = &t->devices[device];
    const char *texts[] = {d->bus,    d->opencl, d->engine, d->system, d->nic < 0 ? "" : t->devices[d->nic].label,
                           d->vendor, d->name,   d->cpus,   d->nodes};
    switch (field) {
    case TX_TXTOPO_GPU_NUMA:
        return number_text(d->gpu_numa, 0, room);
    case TX_TXTOPO_BYTES:
        return number_text(d->memory, 1, room);
    case TX_TXTOPO_MEMORY:
        return tx_txtopo_memory(d->memory, room);
    case TX_TXTOPO_EMPTY:
        return "";
    default:
        return texts[field];
    }
}

static const char *sheet_cell(const void *of, int32_t row, int32_t column, char room[TX_TXTOPO_CELL])
{
    const tx_txtopo_sheet *s = of;
    const int32_t pairs = s->matrix ? s->count : 0;
    if (column > pairs) {
        const tx_txtopo_column *c = &s->beside[column - pairs - 1];
        return row < 0 ? c->head : field_text(s->t, s->list[row], c->field, room);
    }
    if (column > 0 && row >= 0)
        return s->pair ? s->pair(s, s->list[row], s->list[column - 1], room)
                       : tx_topo_cell(s->t, s->list[row], s->list[column - 1], s->links, room);
    return row < 0 && column == 0 ? s->corner : s->t->devices[s->list[row < 0 ? column - 1 : row]].label;
}

tx_txtopo_table tx_txtopo_sheet_table(tx_txtopo_sheet *s)
{
    s->count = 0;
    for (int32_t i = 0; i < s->t->device_count; i++)
        if (s->t->devices[i].kind <= s->last)
            s->list[s->count++] = i;
    tx_txtopo_table table = {.columns = 1 + (s->matrix ? s->count : 0) + s->more,
                             .rows = s->count,
                             .sparse = !s->matrix,
                             .cell = sheet_cell,
                             .of = s};
    for (int32_t k = 0; k < s->more && !s->matrix; k++)
        table.right |= s->beside[k].field == TX_TXTOPO_MEMORY ? 2u << k : 0;
    return table;
}

void tx_txtopo_devices(const tx_topology *t, tx_txtopo_sheet *sheet)
{
    static const tx_txtopo_column columns[] = {{"Bus ID", TX_TXTOPO_BUS},       {"OpenCL", TX_TXTOPO_OPENCL},
                                               {"TX device", TX_TXTOPO_ENGINE}, {"System", TX_TXTOPO_SYSTEM},
                                               {"NIC", TX_TXTOPO_NIC},          {"Vendor", TX_TXTOPO_VENDOR},
                                               {"Memory", TX_TXTOPO_MEMORY},    {"Name", TX_TXTOPO_NAME}};
    *sheet = (tx_txtopo_sheet){.t = t, .last = TX_TOPO_CPU, .corner = "Device", .beside = columns, .more = 8};
}
