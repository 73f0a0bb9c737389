/* SPDX-License-Identifier: Apache-2.0
 * The matrix as comma-separated values (RFC 4180): a header, then a row a device. */
#include "tools/topology/txtopo.h"

#include <inttypes.h>
#include <string.h>

static void print_field(FILE *out, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++)
        fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
    fputc('"', out);
}

static void print_device(FILE *out, const tx_topo_device *d)
{
    const char *fields[] = {d->bus, d->opencl, d->engine, d->vendor, d->name, d->system, d->cpus, d->nodes};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        fputc(',', out);
        print_field(out, fields[i]);
    }
    if (d->gpu_numa >= 0)
        fprintf(out, ",%" PRId32, d->gpu_numa);
    else
        fputc(',', out);
    if (d->memory > 0)
        fprintf(out, ",%" PRId64 "\r\n", d->memory);
    else
        fputs(",\r\n", out);
}

void tx_txtopo_csv(FILE *out, const tx_topology *t, bool links)
{
    char cell[16];
    fputs("device", out);
    for (int32_t i = 0; i < t->device_count; i++)
        fprintf(out, ",%s", t->devices[i].label);
    fputs(",bus_id,opencl,tx_device,vendor,name,system_name,cpu_affinity,numa_affinity,gpu_numa,memory\r\n", out);
    for (int32_t a = 0; a < t->device_count; a++) {
        fputs(t->devices[a].label, out);
        for (int32_t b = 0; b < t->device_count; b++)
            fprintf(out, ",%s", tx_topo_cell(t, a, b, links, cell));
        print_device(out, &t->devices[a]);
    }
}
