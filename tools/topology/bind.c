/* SPDX-License-Identifier: Apache-2.0
 * Where ranks go: a table, a line for MPICH's mpiexec, and lines for hwloc-bind. */
#include "comm/topology/placement.h"
#include "tools/topology/txtopo.h"

#include <inttypes.h>
#include <string.h>

static const char *or_dash(const char *text)
{
    return *text ? text : "-";
}

/* The text of a column; `text` is room to make it in. */
typedef const char *(*column_text)(const tx_topology *t, const tx_topo_place *place, char text[64]);

static const char *device_text(const tx_topology *t, const tx_topo_place *place, char text[64])
{
    (void)text;
    return place->device < 0 ? "cores" : t->devices[place->device].label;
}

static const char *bus_text(const tx_topology *t, const tx_topo_place *place, char text[64])
{
    (void)text;
    return place->device < 0 ? "-" : or_dash(t->devices[place->device].bus);
}

static const char *engine_text(const tx_topology *t, const tx_topo_place *place, char text[64])
{
    (void)text;
    return place->device < 0 ? "cpu" : or_dash(t->devices[place->device].engine);
}

static const char *cores_text(const tx_topology *t, const tx_topo_place *place, char text[64])
{
    (void)t;
    snprintf(text, 64, "%" PRId32 "%s", place->cores, place->shared ? " (shared)" : place->far ? " (far)" : "");
    return text;
}

static const char *cpus_text(const tx_topology *t, const tx_topo_place *place, char text[64])
{
    (void)t;
    (void)text;
    return place->cpus;
}

static const char *nodes_text(const tx_topology *t, const tx_topo_place *place, char text[64])
{
    (void)t;
    (void)text;
    return or_dash(place->nodes);
}

static const char *nic_text(const tx_topology *t, const tx_topo_place *place, char text[64])
{
    if (place->nic < 0)
        return "-";
    snprintf(text, 64, "%s (%.40s)", t->devices[place->nic].label, t->devices[place->nic].system);
    return text;
}

static const struct {
    const char *head;
    column_text text;
} columns[] = {{"Device", device_text}, {"Bus ID", bus_text},        {"TX device", engine_text}, {"Cores", cores_text},
               {"CPUs", cpus_text},     {"Memory node", nodes_text}, {"NIC", nic_text}};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static void print_table(FILE *out, const tx_topology *t, const tx_placement *p)
{
    char text[64];
    size_t widths[COLUMNS];
    for (int k = 0; k < COLUMNS; k++) {
        widths[k] = strlen(columns[k].head);
        for (int32_t r = 0; r < p->ranks; r++) {
            size_t width = strlen(columns[k].text(t, &p->places[r], text));
            widths[k] = width > widths[k] ? width : widths[k];
        }
    }
    fputs("Rank", out);
    for (int k = 0; k < COLUMNS; k++)
        fprintf(out, "  %-*s", k + 1 < COLUMNS ? (int)widths[k] : 0, columns[k].head);
    for (int32_t r = 0; r < p->ranks; r++) {
        fprintf(out, "\n%4" PRId32, r);
        for (int k = 0; k < COLUMNS; k++)
            fprintf(out, "  %-*s", k + 1 < COLUMNS ? (int)widths[k] : 0, columns[k].text(t, &p->places[r], text));
    }
    fputc('\n', out);
}

static void print_warnings(FILE *out, const tx_topology *t, const tx_placement *p)
{
    int32_t shared = 0, far = 0;
    for (int32_t r = 0; r < p->ranks; r++) {
        shared += p->places[r].shared;
        far += p->places[r].far;
    }
    if (p->gpus > 0 && p->ranks > p->gpus)
        fprintf(out, "\nWarning: %" PRId32 " ranks share %" PRId32 " GPU%s.\n", p->ranks, p->gpus,
                p->gpus > 1 ? "s" : "");
    if (shared > 0)
        fprintf(out,
                "\nWarning: %" PRId32 " ranks share cores with others: there are more ranks than cores %s (%" PRId32
                " cores in all).\n",
                shared, p->gpus > 0 ? "near their GPUs" : "to be used", p->cores);
    else if (p->gpus == 0 && p->most_cores > p->least_cores)
        fprintf(out,
                "\nNote: ranks have %" PRId32 " to %" PRId32 " cores, and the slowest sets the pace; another number "
                "of ranks may divide the NUMA nodes evenly.\n",
                p->least_cores, p->most_cores);
    if (far > 0)
        fprintf(out, "\nWarning: %" PRId32 " ranks have cores far from their GPUs: none near may be used.\n", far);
    for (int32_t i = 0; i < t->note_count; i++)
        if (t->notes[i].warning)
            fprintf(out, "\nWarning: %s.\n", t->notes[i].text);
}

/* MPICH's hydra takes a field a rank; "+" joins the parts of a set. */
static void print_mpiexec(FILE *out, const tx_placement *p)
{
    fprintf(out, "\nMPICH's launcher:\n\n  mpiexec -n %" PRId32 " -bind-to user:", p->ranks);
    for (int32_t r = 0; r < p->ranks; r++) {
        fputs(r > 0 ? "," : "", out);
        for (const char *at = p->places[r].cpus; *at; at++)
            fputc(*at == ',' ? '+' : *at, out);
    }
    fputs(" PROGRAM\n", out);
}

/* " pu:0-5 pu:48-53": hwloc takes one range a word. */
static void print_objects(FILE *out, const char *type, const char *set)
{
    for (const char *at = set; *at;) {
        size_t length = strcspn(at, ",");
        fprintf(out, " %s:%.*s", type, (int)length, at);
        at += length + (at[length] == ',');
    }
}

static void print_hwloc(FILE *out, const tx_placement *p)
{
    fputs("\nWith hwloc, a rank:\n\n", out);
    for (int32_t r = 0; r < p->ranks; r++) {
        fputs("  hwloc-bind -p --cpubind", out);
        print_objects(out, "pu", p->places[r].cpus);
        if (*p->places[r].nodes) {
            fputs(" --membind", out);
            print_objects(out, "node", p->places[r].nodes);
        }
        fprintf(out, " -- PROGRAM  # rank %" PRId32 "\n", r);
    }
}

tx_status tx_txtopo_bind(FILE *out, const tx_topology *topology, int64_t ranks)
{
    tx_placement *placement = NULL;
    tx_status status = tx_placement_make(topology, ranks, &placement);
    if (status)
        return status;
    print_table(out, topology, placement);
    print_warnings(out, topology, placement);
    print_mpiexec(out, placement);
    print_hwloc(out, placement);
    tx_placement_free(placement);
    return TX_OK;
}
