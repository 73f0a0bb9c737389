/* SPDX-License-Identifier: Apache-2.0
 * The matrix as comma-separated values (RFC 4180): a header, then a row a device. */
#include "tools/topology/txtopo.h"

#include <inttypes.h>
#include <string.h>

static void print_field(FILE *out, const char *text)
{
    const bool quoted = strpbrk(text, ",\"\r\n") != NULL;
    fputs(quoted ? ",\"" : ",", out);
    for (; *text; text++)
        fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
    fputs(quoted ? "\"" : "", out);
}

void tx_txtopo_csv(FILE *out, const tx_topology *t, bool links)
{
    char cell[16], numa[16], memory[32];
    fputs("device", out);
    for (int32_t i = 0; i < t->device_count; i++)
        fprintf(out, ",%s", t->devices[i].label);
    fputs(",bus_id,opencl,tx_device,vendor,name,system_name,cpu_affinity,numa_affinity,gpu_numa,memory\r\n", out);
    for (int32_t a = 0; a < t->device_count; a++) {
        const tx_topo_device *d = &t->devices[a];
        numa[0] = memory[0] = '\0';
        if (d->gpu_numa >= 0)
            snprintf(numa, sizeof numa, "%" PRId32, d->gpu_numa);
        if (d->memory > 0)
            snprintf(memory, sizeof memory, "%" PRId64, d->memory);
        fputs(d->label, out);
        for (int32_t b = 0; b < t->device_count; b++)
            fprintf(out, ",%s", tx_topo_cell(t, a, b, links, cell));
        const char *fields[] = {d->bus,    d->opencl, d->engine, d->vendor, d->name,
                                d->system, d->cpus,   d->nodes,  numa,      memory};
        for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
            print_field(out, fields[i]);
        fputs("\r\n", out);
    }
}
