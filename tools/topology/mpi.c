/* SPDX-License-Identifier: Apache-2.0
 * The topologies of all hosts under a launcher. The first rank of each host looks at it and tells the others in JSON;
 * rank 0 prints. A host that fails tells why instead, so that no rank waits for it. */
#include "comm/topology/measure.h"
#include "tools/topology/txtopo.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

typedef struct gathering {
    tx_comm *comm;
    tx_txtopo_host *hosts;
    int32_t count;
} gathering;

/* What this rank tells of its host: JSON, or why there is none. Allocated in words of 4 bytes, as it is sent; NULL: no
 * memory even for that. */
static char *look(void)
{
    tx_topology *topology = NULL;
    struct utsname names;
    char message[1024];
    char *json = tx_topology_live(NULL, &topology) ? NULL : tx_topology_json(topology, false);
    tx_topology_free(topology);
    if (!json)
        snprintf(message, sizeof message, "%s: %s", uname(&names) == 0 ? names.nodename : "a host", tx_error());
    const char *told = json ? json : message;
    char *text = calloc(strlen(told) / 4 + 1, 4);
    if (text)
        strcpy(text, told);
    free(json);
    return text;
}

/* Takes what rank 0 was told of a host. */
static tx_status keep(tx_txtopo_host *host, const char *text)
{
    if (text[0] == '{')
        return tx_topology_parse(text, strlen(text), "a host's topology", &host->topology);
    host->error = strdup(text);
    return host->error ? TX_OK : tx_fail(TX_MEMORY, "hosts: out of memory");
}

/* One rank's text to all of them. */
static tx_status hear(gathering *g, int32_t from, int32_t size, char *own)
{
    const int64_t words = ((int64_t)size + 3) / 4;
    char *text = from == g->comm->rank ? own : calloc((size_t)words, 4);
    if (!text)
        return tx_fail(TX_MEMORY, "a topology of %" PRId32 " bytes: out of memory", size);
    tx_status status = tx_comm_collect(g->comm, TX_BROADCAST, text, words, TX_I32, from);
    if (!status) {
        tx_txtopo_host *host = &g->hosts[g->count++];
        host->rank = from;
        if (g->comm->rank == 0)
            status = keep(host, text);
    }
    if (text != own)
        free(text);
    return status;
}

static tx_status gather(gathering *g)
{
    const bool first = g->comm->local_rank == 0;
    char *own = first ? look() : NULL;
    int32_t size = own ? (int32_t)strlen(own) + 1 : first ? -1 : 0;
    int32_t *sizes = calloc((size_t)g->comm->size, sizeof *sizes);
    g->hosts = calloc((size_t)g->comm->size, sizeof *g->hosts);
    tx_status status =
        sizes && g->hosts ? TX_OK : tx_fail(TX_MEMORY, "%" PRId32 " ranks: out of memory", g->comm->size);
    if (!status) {
        sizes[g->comm->rank] = size;
        status = tx_comm_collect(g->comm, TX_ALL_REDUCE, sizes, g->comm->size, TX_I32, 0);
    }
    for (int32_t r = 0; r < g->comm->size && !status; r++) {
        if (sizes[r] < 0)
            status = tx_fail(TX_MEMORY, "rank %" PRId32 ": out of memory", r);
        else if (sizes[r] > 0)
            status = hear(g, r, sizes[r], own);
    }
    free(sizes);
    free(own);
    return status;
}

/* ---- Printing ------------------------------------------------------------------------------------------------ */

static const char *name_of(const tx_txtopo_host *host)
{
    return host->topology && *host->topology->host ? host->topology->host : "?";
}

static tx_status print_rates(FILE *out, const gathering *g, const float *rates, bool partial)
{
    int32_t done = 0, ways = 0;
    double *all = calloc((size_t)g->count * (size_t)g->count, sizeof *all);
    if (!all)
        return tx_fail(TX_MEMORY, "rates between %" PRId32 " hosts: out of memory", g->count);
    for (int64_t i = 0; i < (int64_t)g->count * g->count; i++)
        if (rates[2 * i] > 0)
            all[ways++] = (double)rates[2 * i];
    const double usual = tx_topo_median(all, ways);
    free(all);
    fputs("\nMeasured between hosts, medians: MPI messages from memory to memory, one pair at a time:\n\n", out);
    fprintf(out, "%-20s %-20s %9s %9s\n", "From", "To", "GB/s", "us");
    for (int32_t a = 0; a < g->count; a++)
        for (int32_t b = 0; b < g->count; b++) {
            const float *rate = &rates[2 * ((int64_t)a * g->count + b)];
            if (!(rate[0] > 0))
                continue;
            done++;
            fprintf(out, "%-20s %-20s %9.3f %9.1f%s\n", name_of(&g->hosts[a]), name_of(&g->hosts[b]), (double)rate[0],
                    (double)rate[1], (double)rate[0] < 0.7 * usual ? "  slower than most" : "");
        }
    if (partial)
        fprintf(out, "\nStopped: %" PRId32 " of %" PRId32 " ways were measured.\n", done, g->count * (g->count - 1));
    return TX_OK;
}

static tx_status measure(FILE *out, const tx_txtopo_many *many, gathering *g)
{
    float *rates = NULL;
    if (g->count < 2) {
        if (g->comm->rank == 0)
            fputs("\nOne host: there is nothing to measure between hosts.\n", out);
        return TX_OK;
    }
    tx_status status = tx_txtopo_between(g->comm, g->hosts, g->count, many->stopped, &rates, many->partial);
    if (!status && g->comm->rank == 0)
        status = print_rates(out, g, rates, *many->partial);
    free(rates);
    return status;
}

/* Hosts that could not be looked at: the others are printed all the same. */
static tx_status first_failure(const gathering *g)
{
    int32_t failed = 0;
    const char *error = NULL;
    for (int32_t i = g->count - 1; i >= 0; i--) {
        error = g->hosts[i].error ? g->hosts[i].error : error;
        failed += g->hosts[i].error != NULL;
    }
    return failed ? tx_fail(TX_IO, "%" PRId32 " of %" PRId32 " hosts failed; %s", failed, g->count, error) : TX_OK;
}

tx_status tx_txtopo_mpi(FILE *out, const tx_txtopo_many *many, int *argc, char ***argv)
{
    gathering g = {0};
    tx_status status = tx_comm_default()->open(argc, argv, &g.comm);
    if (status)
        return status;
    status = gather(&g);
    if (!status && g.comm->rank == 0)
        status = tx_txtopo_kinds(out, g.hosts, g.count, many->links, many->underline);
    if (!status && many->measure)
        status = measure(out, many, &g);
    TX_THEN(status, first_failure(&g));
    for (int32_t i = 0; i < g.count; i++) {
        tx_topology_free(g.hosts[i].topology);
        free(g.hosts[i].error);
    }
    free(g.hosts);
    g.comm->table->close(g.comm);
    return status;
}
