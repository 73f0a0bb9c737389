/* SPDX-License-Identifier: Apache-2.0
 * The matrix as comma-separated values (RFC 4180): a header, then a row a device. */
#include "tools/topology/txtopo.h"

#include <string.h>

static void print_field(FILE *out, const char *text)
{
    const bool quoted = strpbrk(text, ",\"\r\n") != NULL;
    fputs(quoted ? "\"" : "", out);
    for (; *text; text++)
        fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
    fputs(quoted ? "\"" : "", out);
}

void tx_txtopo_csv(FILE *out, const tx_topology *t, bool links)
{
    static const tx_txtopo_column columns[] = {{"bus_id", TX_TXTOPO_BUS},        {"opencl", TX_TXTOPO_OPENCL},
                                               {"tx_device", TX_TXTOPO_ENGINE},  {"vendor", TX_TXTOPO_VENDOR},
                                               {"name", TX_TXTOPO_NAME},         {"system_name", TX_TXTOPO_SYSTEM},
                                               {"cpu_affinity", TX_TXTOPO_CPUS}, {"numa_affinity", TX_TXTOPO_NODES},
                                               {"gpu_numa", TX_TXTOPO_GPU_NUMA}, {"memory", TX_TXTOPO_BYTES}};
    tx_txtopo_sheet sheet = {.t = t,
                             .last = TX_TOPO_CPU,
                             .corner = "device",
                             .beside = columns,
                             .more = sizeof columns / sizeof columns[0],
                             .matrix = true,
                             .links = links};
    const tx_txtopo_table table = tx_txtopo_sheet_table(&sheet);
    char room[TX_TXTOPO_CELL];
    for (int32_t row = -1; row < table.rows; row++) {
        for (int32_t k = 0; k < table.columns; k++) {
            fputs(k > 0 ? "," : "", out);
            print_field(out, table.cell(table.of, row, k, room));
        }
        fputs("\r\n", out);
    }
}
