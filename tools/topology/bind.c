/* SPDX-License-Identifier: Apache-2.0
 * Prints the placement of ranks as a table and as command lines for launchers, numactl and hwloc-bind. */
#include "tools/topology/txtopo.h"
#include "tx_topology.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct places {
    const tx_topology *t;
    const tx_placement *p;
} places;

static const char *place_cell(const void *of, int32_t row, int32_t column, char room[TX_TXTOPO_CELL])
{
    static const char *const heads[] = {"Rank", "Device", "Bus ID", "TX device", "Cores", "CPUs", "Memory node", "NIC"};
    const tx_topology *t = ((const places *)of)->t;
    if (row < 0)
        return heads[column];
    const tx_topo_place *place = &((const places *)of)->p->places[row];
    const tx_topo_device *d = place->device < 0 ? NULL : &t->devices[place->device];
    char rank[16], cores[32], nic[64] = "";
    snprintf(rank, sizeof rank, "%" PRId32, row);
    snprintf(cores, sizeof cores, "%" PRId32 "%s", place->cores,
             place->shared ? " (shared)"
             : place->far  ? " (far)"
                           : "");
    if (place->nic >= 0)
        snprintf(nic, sizeof nic, "%s (%.40s)", t->devices[place->nic].label, t->devices[place->nic].system);
    const char *cells[] = {
        rank, d ? d->label : "cores", d ? d->bus : "", d ? d->engine : "cpu", cores, place->cpus, place->nodes, nic};
    snprintf(room, TX_TXTOPO_CELL, "%s", *cells[column] ? cells[column] : "-");
    return room;
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
                "\nWarning: %" PRId32 " ranks share cores with others: there are more ranks than %s (%" PRId32
                " cores in all).\n",
                shared, p->gpus > 0 ? "cores near their GPUs" : "usable cores", p->cores);
    else if (p->gpus == 0 && p->most_cores > p->least_cores)
        fprintf(out,
                "\nNote: ranks have %" PRId32 " to %" PRId32 " cores, and the slowest rank limits the speed; another "
                "number of ranks may divide the NUMA nodes evenly.\n",
                p->least_cores, p->most_cores);
    if (t->origin == TX_TOPO_ORIGIN_PASTED)
        fputs("\nNote: the matrix has no cores: each CPU in its affinities counts as a core.\n", out);
    if (far > 0)
        fprintf(out, "\nWarning: %" PRId32 " ranks have cores far from their GPUs: no near core is usable.\n", far);
    for (int32_t i = 0; i < t->note_count; i++)
        if (t->notes[i].warning)
            fprintf(out, "\nWarning: %s.\n", t->notes[i].text);
}

/* Prints each CPU for MPICH's hydra. Versions before 4.0 use only the first CPU of a range. */
static void print_list(FILE *out, const int32_t *cpus, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        fprintf(out, "%s%" PRId32, i > 0 ? "+" : "", cpus[i]);
}

/* Prints a hexadecimal mask with one bit per CPU, for Slurm. */
static void print_mask(FILE *out, const int32_t *cpus, int32_t count)
{
    fputs("0x", out);
    for (int32_t digit = cpus[count - 1] / 4; digit >= 0; digit--) {
        unsigned value = 0;
        for (int32_t i = 0; i < count; i++)
            value |= cpus[i] / 4 == digit ? 1u << cpus[i] % 4 : 0;
        fprintf(out, "%x", value);
    }
}

/* Prints a launcher's command line with one field per rank. */
static tx_status print_fields(FILE *out, const tx_placement *p, const char *who, const char *command,
                              const char *option, void (*print)(FILE *, const int32_t *, int32_t))
{
    fprintf(out, "\n%s:\n\n  %s -n %" PRId32 " %s:", who, command, p->ranks, option);
    for (int32_t r = 0; r < p->ranks; r++) {
        int32_t *cpus = NULL, count = 0;
        TX_TRY(tx_topo_set_parse(p->places[r].cpus, &cpus, &count));
        fputs(r > 0 ? "," : "", out);
        print(out, cpus, count);
        free(cpus);
    }
    fputs(" PROGRAM\n", out);
    return TX_OK;
}

/* Prints environment variables that make only the rank's GPU visible, if its vendor has such a variable. The GPU has
 * the number of the vendor's library, or else its index among the vendor's GPUs. */
static void print_visible(FILE *out, const tx_topology *t, int32_t device)
{
    static const struct {
        int32_t vendor;
        const char *system, *variable;
    } makers[] = {{0x10de, "nvml", "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES"},
                  {0x1002, "rsmi", "ROCR_VISIBLE_DEVICES"},
                  {0x8086, "ze", "ZE_AFFINITY_MASK"}};
    for (size_t i = 0; i < sizeof makers / sizeof makers[0] && device >= 0; i++) {
        const tx_topo_device *d = &t->devices[device];
        const size_t length = strlen(makers[i].system);
        int32_t before = 0;
        if (d->vendor_id != makers[i].vendor)
            continue;
        for (int32_t k = 0; k < device; k++)
            before += t->devices[k].kind == TX_TOPO_GPU && t->devices[k].vendor_id == d->vendor_id;
        if (strncmp(d->system, makers[i].system, length) == 0)
            fprintf(out, "%s=%s ", makers[i].variable, d->system + length);
        else
            fprintf(out, "%s=%" PRId32 " ", makers[i].variable, before);
    }
}

static void print_numactl(FILE *out, const tx_topology *t, const tx_topo_place *place)
{
    fputs("env ", out);
    print_visible(out, t, place->device);
    fprintf(out, "numactl --physcpubind=%s", place->cpus);
    if (*place->nodes)
        fprintf(out, " --membind=%s", place->nodes);
    fputs(" PROGRAM", out);
}

/* Prints " pu:0-5 pu:48-53": hwloc-bind accepts one range per word. */
static void print_objects(FILE *out, const char *type, const char *set)
{
    for (const char *at = set; *at;) {
        size_t length = strcspn(at, ",");
        fprintf(out, " %s:%.*s", type, (int)length, at);
        at += length + (at[length] == ',');
    }
}

static void print_each(FILE *out, const tx_topology *t, const tx_placement *p)
{
    fputs("\nOpen MPI's:\n\n  mpirun --bind-to none", out);
    for (int32_t r = 0; r < p->ranks; r++) {
        fputs(r > 0 ? " : -n 1 " : " -n 1 ", out);
        print_numactl(out, t, &p->places[r]);
    }
    fputs("\n\nWith numactl, a rank:\n\n", out);
    for (int32_t r = 0; r < p->ranks; r++) {
        fputs("  ", out);
        print_numactl(out, t, &p->places[r]);
        fprintf(out, "  # rank %" PRId32 "\n", r);
    }
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
    const places all = {topology, placement};
    tx_txtopo_print(out, &(tx_txtopo_table){8, placement->ranks, 1, place_cell, &all});
    print_warnings(out, topology, placement);
    status = print_fields(out, placement, "MPICH's launcher", "mpiexec", "-bind-to user", print_list);
    TX_THEN(status, print_fields(out, placement, "Slurm's, on one host", "srun", "--cpu-bind=mask_cpu", print_mask));
    if (!status)
        print_each(out, topology, placement);
    tx_placement_free(placement);
    return status;
}
