/* SPDX-License-Identifier: Apache-2.0
 * Placement of the ranks of one host on GPUs and cores. */
#include "comm/topology/placement.h"

#include "api/base/needs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Intermediate results. A group is a set of ranks that may use the same cores. */
typedef struct plan {
    const tx_topology *t;
    tx_placement *out;
    int32_t cores, groups;
    int32_t group[TX_TOPO_RANKS_MAX], borrowed[TX_TOPO_RANKS_MAX]; /* by rank */
    bool far[TX_TOPO_RANKS_MAX];                                   /* by group: no core near its GPUs is usable */
    /* By GPU: its group, and the number of cores near it. */
    int32_t gpu_group[TX_TOPO_DEVICES_MAX], gpu_cores[TX_TOPO_DEVICES_MAX];
    bool *allowed;                 /* [group * cores + core] */
    int32_t *owner;                /* by core */
    int32_t *domain;               /* by core, without GPUs: index of its NUMA node */
    const tx_topo_cpu **first;     /* by core: its first thread */
    int32_t *domain_cores, *users; /* by domain: cores, and ranks */
    int32_t *numbers;              /* buffer for a set of CPUs or NUMA nodes */
} plan;

static tx_status no_memory(int64_t ranks)
{
    return tx_fail(TX_MEMORY, "placement of %" PRId64 " ranks: out of memory", ranks);
}

/* Returns the number of cores in the topology. */
static int32_t count_cores(const tx_topology *topology)
{
    int32_t cores = 0;
    for (int32_t i = 0; i < topology->cpu_count; i++)
        cores = topology->cpus[i].core >= cores ? topology->cpus[i].core + 1 : cores;
    return cores;
}

/* ---- With GPUs ------------------------------------------------------------------------------- */

/* Allows the cores that have a thread in `set`. If there are none or the set is unknown, allows all cores. */
static tx_status allow_set(plan *p, const char *set, int32_t group, int32_t *near_cores)
{
    int32_t *numbers = NULL, count = 0, at = 0;
    bool *allowed = p->allowed + (int64_t)group * p->cores;
    TX_TRY(tx_topo_set_parse(set, &numbers, &count));
    *near_cores = 0;
    for (int32_t i = 0; i < p->t->cpu_count; i++) {
        while (at < count && numbers[at] < p->t->cpus[i].number)
            at++;
        if (at == count || numbers[at] != p->t->cpus[i].number || allowed[p->t->cpus[i].core])
            continue;
        allowed[p->t->cpus[i].core] = true;
        (*near_cores)++;
    }
    free(numbers);
    p->far[group] = *near_cores == 0 && *set;
    for (int32_t c = 0; *near_cores == 0 && c < p->cores; c++)
        allowed[c] = true;
    return TX_OK;
}

/* GPUs with the same affinity form one group. */
static tx_status group_gpus(plan *p)
{
    tx_status status = TX_OK;
    for (int32_t i = 0; !status && i < p->t->gpus; i++) {
        int32_t like = 0;
        while (like < i && strcmp(p->t->devices[like].cpus, p->t->devices[i].cpus) != 0)
            like++;
        p->gpu_group[i] = like < i ? p->gpu_group[like] : p->groups++;
        p->gpu_cores[i] = p->gpu_cores[like];
        if (like == i)
            status = allow_set(p, p->t->devices[i].cpus, p->gpu_group[i], &p->gpu_cores[i]);
        if (!status && p->gpu_cores[i] == 0)
            p->gpu_cores[i] = p->far[p->gpu_group[i]] ? 0 : p->cores;
    }
    return status;
}

static tx_status place_on_gpus(plan *p)
{
    tx_placement *out = p->out;
    int32_t chosen[TX_TOPO_DEVICES_MAX];
    tx_status status = group_gpus(p);
    out->gpus = out->ranks < p->t->gpus ? out->ranks : p->t->gpus;
    TX_THEN(status, tx_topo_choose_gpus(p->t, p->gpu_group, p->gpu_cores, out->gpus, chosen));
    for (int32_t r = 0; !status && r < out->ranks; r++) {
        int32_t gpu = chosen[(int64_t)r * out->gpus / out->ranks];
        out->places[r].device = gpu;
        out->places[r].nic = p->t->devices[gpu].nic;
        out->places[r].far = p->far[p->gpu_group[gpu]];
        p->group[r] = p->gpu_group[gpu];
    }
    return status;
}

/* ---- Without GPUs ---------------------------------------------------------------------------- */

/* Numbers the NUMA nodes in the order of cores and returns their number. Cores without a near NUMA node form one
 * domain per package. */
static int32_t number_domains(plan *p)
{
    int32_t count = 0;
    for (int32_t i = p->t->cpu_count - 1; i >= 0; i--)
        p->first[p->t->cpus[i].core] = &p->t->cpus[i];
    for (int32_t c = 0; c < p->cores; c++) {
        p->domain[c] = -1;
        for (int32_t k = 0; p->first[c] && k < c && p->domain[c] < 0; k++)
            if (p->first[k] && p->first[k]->numa == p->first[c]->numa && p->first[k]->package == p->first[c]->package)
                p->domain[c] = p->domain[k];
        if (p->first[c] && p->domain[c] < 0)
            p->domain[c] = count++;
    }
    return count;
}

static void place_on_cores(plan *p)
{
    const int32_t domains = number_domains(p), ranks = p->out->ranks;
    int32_t rank = 0;
    for (int32_t c = 0; c < p->cores; c++)
        if (p->domain[c] >= 0)
            p->domain_cores[p->domain[c]]++;
    /* Each rank is added to the domain with the most cores per rank. */
    for (int32_t r = 0; r < ranks; r++) {
        int32_t best = 0;
        for (int32_t d = 1; d < domains; d++)
            if ((int64_t)p->domain_cores[d] * (p->users[best] + 1) > (int64_t)p->domain_cores[best] * (p->users[d] + 1))
                best = d;
        p->users[best]++;
    }
    for (int32_t d = 0; d < domains && ranks >= domains; d++)
        for (int32_t k = 0; k < p->users[d]; k++)
            p->group[rank++] = d;
    for (int32_t r = 0; r < ranks && ranks < domains; r++)
        p->group[r] = r;
    for (int32_t c = 0; c < p->cores; c++) {
        const int32_t d = p->domain[c], group = ranks >= domains ? d : (int32_t)((int64_t)d * ranks / domains);
        if (d >= 0)
            p->allowed[(int64_t)group * p->cores + c] = true;
    }
}

/* Returns a NIC near the rank's memory, or any NIC if there is none. Among several, the one with the fewest users
 * is chosen. */
static int32_t nearest_nic(const plan *p, int32_t rank)
{
    const tx_topology *t = p->t;
    int32_t best = -1, best_users = 0;
    bool best_near = false;
    for (int32_t i = t->gpus; i < t->gpus + t->nics; i++) {
        int32_t users = 0;
        for (int32_t r = 0; r < rank; r++)
            users += p->out->places[r].nic == i;
        bool near = tx_topo_sets_meet(t->devices[i].nodes, p->out->places[rank].nodes);
        if (best < 0 || (near && !best_near) || (near == best_near && users < best_users)) {
            best = i;
            best_users = users;
            best_near = near;
        }
    }
    return best;
}

/* ---- Places ---------------------------------------------------------------------------------- */

static int compare_numbers(const void *left, const void *right)
{
    const int32_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* Returns the NUMA nodes of a rank's cores, or those of its device if they are unknown. */
static char *nodes_text(plan *p, int32_t rank)
{
    const tx_topology *t = p->t;
    int32_t count = 0, kept = 0;
    for (int32_t i = 0; i < t->cpu_count; i++)
        if ((p->owner[t->cpus[i].core] == rank || p->borrowed[rank] == t->cpus[i].core) && t->cpus[i].numa >= 0)
            p->numbers[count++] = t->cpus[i].numa;
    if (count > 0)
        qsort(p->numbers, (size_t)count, sizeof *p->numbers, compare_numbers);
    for (int32_t i = 0; i < count; i++)
        if (i == 0 || p->numbers[i] != p->numbers[i - 1])
            p->numbers[kept++] = p->numbers[i];
    int32_t device = p->out->places[rank].device;
    if (kept > 0 || device < 0)
        return tx_topo_set_text(p->numbers, kept);
    return strdup(t->devices[device].nodes);
}

static tx_status fill_place(plan *p, int32_t rank)
{
    tx_topo_place *place = &p->out->places[rank];
    int32_t count = 0;
    for (int32_t c = 0; c < p->cores; c++)
        place->cores += p->owner[c] == rank || p->borrowed[rank] == c;
    for (int32_t i = 0; i < p->t->cpu_count; i++)
        if (p->owner[p->t->cpus[i].core] == rank || p->borrowed[rank] == p->t->cpus[i].core)
            p->numbers[count++] = p->t->cpus[i].number;
    place->cpus = tx_topo_set_text(p->numbers, count);
    place->nodes = nodes_text(p, rank);
    if (!place->cpus || !place->nodes)
        return no_memory(p->out->ranks);
    if (place->device < 0)
        place->nic = nearest_nic(p, rank);
    return TX_OK;
}

static tx_status fill_places(plan *p)
{
    tx_placement *out = p->out;
    tx_status status = tx_topo_share_cores(p->group, out->ranks, p->allowed, p->cores, p->owner, p->borrowed);
    /* The owner of a borrowed core shares it too. */
    for (int32_t r = 0; !status && r < out->ranks; r++)
        if (p->borrowed[r] >= 0) {
            out->places[r].shared = true;
            out->places[p->owner[p->borrowed[r]]].shared = true;
        }
    for (int32_t r = 0; !status && r < out->ranks; r++) {
        status = fill_place(p, r);
        if (r == 0 || out->places[r].cores < out->least_cores)
            out->least_cores = out->places[r].cores;
        if (r == 0 || out->places[r].cores > out->most_cores)
            out->most_cores = out->places[r].cores;
    }
    return status;
}

/* ---- Creation -------------------------------------------------------------------------------- */

static tx_status make(plan *p)
{
    const size_t ranks = (size_t)p->out->ranks, cores = (size_t)p->cores, gpus = (size_t)p->t->gpus + 1;
    p->allowed = calloc((ranks > gpus ? ranks : gpus) * cores, sizeof *p->allowed);
    p->first = calloc(cores, sizeof *p->first);
    p->owner = calloc(4 * cores + (size_t)p->t->cpu_count, sizeof *p->owner);
    p->out->places = calloc(ranks, sizeof *p->out->places);
    if (!p->allowed || !p->first || !p->owner || !p->out->places)
        return no_memory(p->out->ranks);
    p->domain = p->owner + cores;
    p->domain_cores = p->domain + cores;
    p->users = p->domain_cores + cores;
    p->numbers = p->users + cores;
    for (int32_t r = 0; r < p->out->ranks; r++)
        p->out->places[r].device = p->out->places[r].nic = -1;
    if (p->t->gpus == 0)
        place_on_cores(p);
    tx_status status = p->t->gpus > 0 ? place_on_gpus(p) : TX_OK;
    return status ? status : fill_places(p);
}

tx_status tx_placement_make(const tx_topology *topology, int64_t ranks, tx_placement **placement)
{
    TX_NEEDS(topology && placement, TX_INVALID);
    plan p = {.t = topology, .cores = count_cores(topology)};
    if (ranks < 1 || ranks > TX_TOPO_RANKS_MAX)
        return tx_fail(TX_INVALID, "placement of %" PRId64 " ranks: a host has 1 to %d", ranks, TX_TOPO_RANKS_MAX);
    if (p.cores == 0)
        return tx_fail(
            TX_UNSUPPORTED,
            "%s: the topology does not list the CPU cores, so ranks cannot be placed; use hwloc's XML of the "
            "machine (lstopo --filter io:all FILE.xml)",
            *topology->file ? topology->file : "this machine");
    p.out = calloc(1, sizeof *p.out);
    if (!p.out)
        return no_memory(ranks);
    p.out->ranks = (int32_t)ranks;
    p.out->cores = p.cores;
    tx_status status = make(&p);
    free(p.allowed);
    free(p.first);
    free(p.owner); /* also frees the arrays that follow it */
    return TX_RETURN(status, p.out, placement, tx_placement_free);
}

static bool is_in(int32_t number, const int32_t *numbers, int32_t count)
{
    return bsearch(&number, numbers, (size_t)count, sizeof *numbers, compare_numbers) != NULL;
}

tx_status tx_placement_confine(tx_topology *topology, const char *cpus)
{
    int32_t *numbers = NULL, count = 0, left = 0, cores = 0;
    tx_status status = tx_topo_set_parse(cpus, &numbers, &count);
    if (status)
        return status;
    for (int32_t i = 0; i < topology->cpu_count; i++)
        left += is_in(topology->cpus[i].number, numbers, count);
    int32_t *core = calloc((size_t)count_cores(topology) + 1, sizeof *core); /* its new number plus 1 */
    if (!left)
        status = tx_fail(TX_UNSUPPORTED, "the topology contains none of the CPUs %s", cpus);
    else if (!core)
        status = tx_fail(TX_MEMORY, "the CPUs of a topology: out of memory");
    left = 0;
    for (int32_t i = 0; !status && i < topology->cpu_count; i++) {
        tx_topo_cpu cpu = topology->cpus[i];
        if (!is_in(cpu.number, numbers, count))
            continue;
        if (!core[cpu.core])
            core[cpu.core] = ++cores; /* contiguous */
        cpu.core = core[cpu.core] - 1;
        topology->cpus[left++] = cpu;
    }
    topology->cpu_count = status ? topology->cpu_count : left;
    free(core);
    free(numbers);
    return status;
}

void tx_placement_free(tx_placement *placement)
{
    if (!placement)
        return;
    for (int32_t r = 0; placement->places && r < placement->ranks; r++) {
        free(placement->places[r].cpus);
        free(placement->places[r].nodes);
    }
    free(placement->places);
    free(placement);
}
