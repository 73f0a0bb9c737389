/* SPDX-License-Identifier: Apache-2.0
 * Prints tables as text, and the table of devices. */
#include "tools/topology/txtopo.h"

#include <string.h>

/* Returns the width of a column, or 0 if it is empty in all rows. */
static int width_of(const tx_txtopo_table *table, int32_t column)
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
        widths[k] = width_of(table, k);
    for (int32_t row = -1; row < table->rows; row++) {
        int gap = 0; /* spaces to print before the next text, so that no line ends with spaces */
        for (int32_t k = 0; k < table->columns; k++) {
            const char *text = table->cell(table->of, row, k, room);
            if (widths[k] == 0)
                continue;
            text = *text ? text : "-";
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

enum { COLUMNS = 9, MEMORY = 7 };

static const char *device_cell(const void *of, int32_t row, int32_t column, char room[TX_TXTOPO_CELL])
{
    static const char *const heads[COLUMNS] = {"Device", "Bus ID", "OpenCL", "TX device", "System",
                                               "NIC",    "Vendor", "Memory", "Name"};
    const tx_topology *t = of;
    if (row < 0)
        return heads[column];
    const tx_topo_device *d = &t->devices[row];
    const char *const cells[COLUMNS] = {d->label,  d->bus,    d->opencl,
                                        d->engine, d->system, d->nic < 0 ? "" : t->devices[d->nic].label,
                                        d->vendor, "",        d->name};
    return column == MEMORY ? tx_txtopo_memory(d->memory, room) : cells[column];
}

void tx_txtopo_devices(FILE *out, const tx_topology *t)
{
    tx_txtopo_print(out, &(tx_txtopo_table){COLUMNS, t->device_count, 1u << MEMORY, device_cell, t});
}
