/* SPDX-License-Identifier: Apache-2.0
 * Which hosts are alike, and in what the others differ. */
#include "tools/topology/txtopo.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- Differences --------------------------------------------------------------------------------------- */

typedef struct comparison {
    FILE *out;
    const tx_topology *usual, *other;
    int32_t count;
} comparison;

enum { LINES = 20 }; /* printed at most */

TX_PRINTF(2, 3) static void tell(comparison *c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (c->out && c->count < LINES) {
        fputs("  ", c->out);
        vfprintf(c->out, format, arguments);
        fputc('\n', c->out);
    }
    va_end(arguments);
    c->count++;
}

/* Firmware and kernel keep a little for themselves, not always as much. */
static bool same_memory(int64_t a, int64_t b)
{
    return fabs((double)a - (double)b) <= 0.02 * fmax((double)a, (double)b);
}

static double gib(int64_t bytes)
{
    return (double)bytes / (1 << 30);
}

static const char *or_none(const char *set)
{
    return *set ? set : "none known";
}

static void compare_number(comparison *c, const char *what, int64_t usual, int64_t other)
{
    if (usual != other)
        tell(c, "%s: %" PRId64 ", not %" PRId64, what, other, usual);
}

static void compare_set(comparison *c, const char *label, const char *what, const char *usual, const char *other)
{
    if (strcmp(usual, other) != 0)
        tell(c, "%s: %s %s, not %s", label, what, or_none(other), or_none(usual));
}

/* The link of a device and those of the bridges above it: what came up with fewer lanes, or is slower. Speeds of the
 * moment are left out: idle links slow down. */
static void compare_links(comparison *c, const tx_topo_device *usual, const tx_topo_device *other)
{
    const tx_topo_node *u = &c->usual->nodes[usual->node], *o = &c->other->nodes[other->node];
    for (; u->kind >= TX_TOPO_BRIDGE && o->kind >= TX_TOPO_BRIDGE;
         u = &c->usual->nodes[u->parent], o = &c->other->nodes[o->parent]) {
        if (u->link.width != o->link.width)
            tell(c, "%s: the link of %s has %" PRId32 " lanes, not %" PRId32, other->label, o->bus, o->link.width,
                 u->link.width);
        if (u->link.speed_max < o->link.speed_max || u->link.speed_max > o->link.speed_max)
            tell(c, "%s: the link of %s can do %g GT/s, not %g", other->label, o->bus, o->link.speed_max,
                 u->link.speed_max);
    }
}

static void compare_device(comparison *c, const tx_topo_device *usual, const tx_topo_device *other)
{
    if (strcmp(usual->name, other->name) != 0 || strcmp(usual->vendor, other->vendor) != 0)
        tell(c, "%s: is %s %s, not %s %s", other->label, other->vendor, other->name, usual->vendor, usual->name);
    if (usual->kind != TX_TOPO_CPU && !same_memory(usual->memory, other->memory))
        tell(c, "%s: %.1f GiB, not %.1f GiB", other->label, gib(other->memory), gib(usual->memory));
    if ((usual->platform < 0) != (other->platform < 0))
        tell(c, "%s: is %s OpenCL device", other->label, other->platform < 0 ? "no" : "an");
    compare_set(c, other->label, "CPU affinity", usual->cpus, other->cpus);
    compare_set(c, other->label, "NUMA affinity", usual->nodes, other->nodes);
    compare_links(c, usual, other);
}

/* The devices of `one` that `two` has not, as far as bus ids tell. */
static void tell_missing(comparison *c, const tx_topology *one, const tx_topology *two, const char *what)
{
    for (int32_t i = 0; i < one->device_count; i++) {
        const tx_topo_device *d = &one->devices[i];
        bool there = !*d->bus;
        for (int32_t k = 0; k < two->device_count && !there; k++)
            there = strcmp(two->devices[k].bus, d->bus) == 0;
        if (!there)
            tell(c, "%s: %s %s %s", what, d->bus, d->vendor, d->name);
    }
}

static void compare_devices(comparison *c)
{
    const tx_topology *u = c->usual, *o = c->other;
    char usual[16], other[16];
    compare_number(c, "GPUs", u->gpus, o->gpus);
    compare_number(c, "NICs", u->nics, o->nics);
    compare_number(c, "CPU devices of OpenCL", u->cpu_devices, o->cpu_devices);
    if (c->count > 0) { /* who stands where cannot be compared then */
        tell_missing(c, u, o, "missing");
        tell_missing(c, o, u, "in addition");
        return;
    }
    for (int32_t i = 0; i < u->device_count; i++)
        compare_device(c, &u->devices[i], &o->devices[i]);
    for (int32_t a = 0; a < u->device_count; a++)
        for (int32_t b = a + 1; b < u->device_count; b++)
            if (strcmp(tx_topo_cell(u, a, b, true, usual), tx_topo_cell(o, a, b, true, other)) != 0)
                tell(c, "%s-%s: %s, not %s", o->devices[a].label, o->devices[b].label, other, usual);
}

static void compare_host(comparison *c)
{
    const tx_topology *u = c->usual, *o = c->other;
    char label[32];
    compare_number(c, "packages", tx_topo_packages(u), tx_topo_packages(o));
    compare_number(c, "cores", tx_topo_cores(u), tx_topo_cores(o));
    compare_number(c, "hardware threads", u->cpu_count, o->cpu_count);
    compare_number(c, "NUMA nodes", u->numa_count, o->numa_count);
    for (int32_t i = 0; i < u->numa_count && u->numa_count == o->numa_count; i++) {
        snprintf(label, sizeof label, "NUMA node %" PRId32, o->numa[i].number);
        compare_set(c, label, "CPUs", u->numa[i].cpus, o->numa[i].cpus);
        if (!same_memory(u->numa[i].memory, o->numa[i].memory))
            tell(c, "%s: %.1f GiB, not %.1f GiB", label, gib(o->numa[i].memory), gib(u->numa[i].memory));
    }
}

int32_t tx_txtopo_differ(FILE *out, const tx_topology *usual, const tx_topology *other)
{
    comparison c = {.out = out, .usual = usual, .other = other};
    compare_devices(&c);
    compare_host(&c);
    if (out && c.count > LINES)
        fprintf(out, "  and %" PRId32 " more\n", c.count - LINES);
    return c.count;
}

/* ---- Kinds ------------------------------------------------------------------------------------------------ */

typedef struct kind {
    int32_t first, count; /* its first host; how many hosts */
} kind;

/* The most common first, else in the order of hosts. */
static int compare_kinds(const void *left, const void *right)
{
    const kind *a = left, *b = right;
    return a->count != b->count ? b->count - a->count : a->first - b->first;
}

/* Sorts hosts into kinds; kind_of[host] is the first host of its kind, -1 for those that failed. */
static int32_t find_kinds(const tx_txtopo_host *hosts, int32_t count, kind *kinds, int32_t *kind_of)
{
    int32_t found = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t k = 0;
        kind_of[i] = -1;
        if (!hosts[i].topology)
            continue;
        while (k < found && tx_txtopo_differ(NULL, hosts[kinds[k].first].topology, hosts[i].topology) > 0)
            k++;
        if (k == found)
            kinds[found++] = (kind){.first = i};
        kinds[k].count++;
        kind_of[i] = kinds[k].first;
    }
    if (found > 0)
        qsort(kinds, (size_t)found, sizeof *kinds, compare_kinds);
    return found;
}

static const char *name_of(const tx_txtopo_host *host)
{
    return *host->topology->host ? host->topology->host : "without a name";
}

static void print_kind(FILE *out, const tx_txtopo_host *hosts, int32_t count, const kind *kinds, int32_t k,
                       const int32_t *kind_of)
{
    fprintf(out, "\nKind %" PRId32 ", %" PRId32 " host%s", k + 1, kinds[k].count, kinds[k].count == 1 ? "" : "s");
    for (int32_t i = 0; i < count; i++)
        if (kind_of[i] == kinds[k].first)
            fprintf(out, "%s%s", i == kinds[k].first ? ": " : ", ", name_of(&hosts[i]));
    fputc('\n', out);
    if (k == 0)
        return;
    fprintf(out, "Not as in kind 1%s:\n", 2 * kinds[0].count > count ? ", which most hosts are" : "");
    tx_txtopo_differ(out, hosts[kinds[0].first].topology, hosts[kinds[k].first].topology);
}

tx_status tx_txtopo_kinds(FILE *out, const tx_txtopo_host *hosts, int32_t count, bool links, bool underline)
{
    kind *kinds = calloc((size_t)count + 1, sizeof *kinds);
    int32_t *kind_of = calloc((size_t)count + 1, sizeof *kind_of);
    tx_status status =
        kinds && kind_of ? TX_OK : tx_fail(TX_MEMORY, "kinds of %" PRId32 " hosts: out of memory", count);
    if (!status) {
        int32_t found = find_kinds(hosts, count, kinds, kind_of);
        fprintf(out, "%" PRId32 " host%s", count, count == 1 ? "" : "s");
        if (count == 1 && found == 1)
            fprintf(out, ": %s", name_of(&hosts[0]));
        else if (found == 1)
            fputs(", all of one kind", out);
        else
            fprintf(out, ", %" PRId32 " kinds", found);
        fputs(".\n", out);
        for (int32_t k = 0; k < found; k++) {
            if (count > 1)
                print_kind(out, hosts, count, kinds, k, kind_of);
            fputc('\n', out);
            tx_txtopo_text(out, hosts[kinds[k].first].topology, links, underline);
        }
    }
    free(kinds);
    free(kind_of);
    return status;
}
