/* SPDX-License-Identifier: Apache-2.0
 * Gives ranks on devices of the same kind the same kernels. The autotuner of each rank may choose differently, since
 * its measurements depend on the load of the host, and kernels round differently. A run could then not be resumed bit
 * for bit, since its state holds one choice for each class of shapes. The cpu backend measures nothing, so its choices
 * stay with each rank. */
#include "models/job/plans.h"

#include "models/job/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICE = 256 }; /* bytes of a record for the name of the device */

/* The line of a text that has the same key as `line`, or NULL. */
static const char *find_line(const char *text, const char *line)
{
    const size_t key = strcspn(line, "\t\n") + 1;
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
        if (strncmp(text, line, key) == 0)
            return text;
    return NULL;
}

/* Appends the lines of `from` whose keys `to` does not have. */
static void add_lines(char *to, const char *from)
{
    for (; *from; from += strcspn(from, "\n"), from += *from == '\n')
        if (!find_line(to, from))
            strncat(to, from, strcspn(from, "\n") + 1);
}

/* Whether `all` contains all lines of `own`. */
static bool holds(const char *all, const char *own)
{
    for (; *own; own += strcspn(own, "\n"), own += *own == '\n') {
        const char *other = find_line(all, own);
        const size_t length = strcspn(own, "\n");
        if (!other || strncmp(other, own, length) != 0 || (other[length] && other[length] != '\n'))
            return false;
    }
    return true;
}

/* Collects the choices of all ranks on the same kind of device. If several ranks chose for one class of shapes, the
 * lowest rank's choice counts. The caller frees. */
static tx_status collect(const tx_job *j, const char *own, char **all)
{
    tx_comm *comm = j->comm;
    const tx_device_info *device = tx_engine_device(j->engine);
    int32_t together = (int32_t)strlen(own);
    TX_TRY(tx_comm_collect(comm, TX_ALL_REDUCE, &together, 1, TX_I32, 0));
    const size_t bytes = DEVICE + ((size_t)together + 8) / 4 * 4;
    char *records = calloc((size_t)comm->size, bytes), *created = calloc((size_t)comm->size, bytes);
    tx_status status = records && created ? TX_OK : tx_fail(TX_MEMORY, "no memory for the ranks' choices of kernels");
    if (!status) {
        char *mine = records + (size_t)comm->rank * bytes;
        snprintf(mine, DEVICE, "%.80s, %.80s, %.80s", device->platform, device->name, device->driver);
        snprintf(mine + DEVICE, bytes - DEVICE, "%s%s", own, *own && own[strlen(own) - 1] != '\n' ? "\n" : "");
        status = tx_comm_share(comm, records, bytes);
        for (int32_t r = 0; r < comm->size && !status; r++)
            if (strcmp(records + (size_t)r * bytes, mine) == 0)
                add_lines(created, records + (size_t)r * bytes + DEVICE);
    }
    free(records);
    return TX_RETURN(status, created, all, free);
}

tx_status tx_job_agree_on_kernels(tx_job *j)
{
    const bool measured = !tx_job_in_host(j);
    char *own = NULL, *all = NULL;
    if (j->comm->size == 1)
        return TX_OK;
    tx_status status = measured ? tx_engine_choices(j->engine, &own) : TX_OK;
    TX_THEN(status, collect(j, own ? own : "", &all));
    int32_t differing = !status && own && !holds(all, own) ? 1 : 0;
    if (!status && *all)
        status = tx_engine_choose(j->engine, all);
    TX_THEN(status, tx_comm_collect(j->comm, TX_ALL_REDUCE, &differing, 1, TX_I32, 0));
    if (!status && differing > 0) /* compiling communicates, so all ranks compile */
        status = tx_job_compile(j);
    free(own);
    free(all);
    return status;
}
