/* SPDX-License-Identifier: Apache-2.0
 * The hosts of a job, and the number of ranks on each. */
#include "tools/launch/txlaunch.h"
#include "tx_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT (1 << 20)

/* Adds a host H or H:SLOTS. `more` is "slots=N" or "". */
static tx_status add(tx_launch_hosts *hosts, const char *where, char *name, const char *more)
{
    char *colon = strrchr(name, ':'), *end = NULL;
    const char *slots = NULL;
    if (colon && colon == strchr(name, ':')) { /* several colons are an IPv6 address */
        *colon = 0;
        slots = colon + 1;
    }
    if (*more && strncmp(more, "slots=", 6) == 0)
        slots = more + 6;
    else if (*more)
        return tx_fail(TX_FORMAT, "%s: %s: \"%s\" is invalid: write a host as H, H:SLOTS or H slots=SLOTS", where, name,
                       more);
    long count = slots ? strtol(slots, &end, 10) : 0;
    if (slots && (end == slots || *end || count < 1 || count > 1000000))
        return tx_fail(TX_FORMAT, "%s: %s: \"%s\" is not a number of slots", where, name, slots);
    if (!*name || strlen(name) >= sizeof hosts->host->name || *name == '-')
        return tx_fail(TX_FORMAT, "%s: \"%.40s\" is not a host name", where, name);
    TX_TRY(tx_array_reserve(&hosts->host, &hosts->room, (size_t)hosts->count + 1, sizeof *hosts->host, "hosts"));
    tx_launch_host *host = &hosts->host[hosts->count++];
    *host = (tx_launch_host){.slots = (int32_t)count};
    snprintf(host->name, sizeof host->name, "%s", name);
    return TX_OK;
}

static tx_status read_list(tx_launch_hosts *hosts, char *list)
{
    for (char *name = list; name;) {
        char *comma = strchr(name, ',');
        if (comma)
            *comma++ = 0;
        TX_TRY(add(hosts, "--hosts", name, ""));
        name = comma;
    }
    return TX_OK;
}

static tx_status read_file(tx_launch_hosts *hosts, const char *path, char *text)
{
    static const char blank[] = " \t\r";
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        line[strcspn(line, "#")] = 0;
        char *name = line + strspn(line, blank);
        char *more = name + strcspn(name, blank);
        if (*more)
            *more++ = 0;
        more += strspn(more, blank);
        more[strcspn(more, blank)] = 0;
        if (*name)
            TX_TRY(add(hosts, path, name, more));
    }
    return hosts->count > 0 ? TX_OK : tx_fail(TX_FORMAT, "%s: the file has no hosts", path);
}

/* Divides the remaining ranks among the hosts without slots. The first hosts get one more if it does not divide. With
 * `per_host` each gets as many. */
static tx_status share(tx_launch_hosts *hosts, int32_t ranks, int32_t per_host)
{
    int64_t given = 0;
    int32_t open = 0;
    for (int32_t i = 0; i < hosts->count; i++) {
        given += hosts->host[i].slots;
        open += hosts->host[i].slots == 0;
    }
    int64_t left = given < ranks ? ranks - given : 0;
    for (int32_t i = 0, k = 0; i < hosts->count; i++)
        if (hosts->host[i].slots == 0) {
            hosts->host[i].slots = per_host ? per_host : (int32_t)(left / open + (k < left % open));
            k++;
        }
    if (open == 0 && given < ranks)
        return tx_fail(TX_INVALID, "the hosts have %" PRId64 " slots for %" PRId32 " ranks: add hosts or slots", given,
                       ranks);
    return TX_OK;
}

static tx_status read_hosts(const char *file, char *text, size_t size, int32_t ranks, int32_t per_host,
                            tx_launch_hosts *hosts)
{
    if (strlen(text) != size)
        return tx_fail(TX_FORMAT, "%s: not a list of hosts: it contains a NUL", file);
    TX_TRY(file ? read_file(hosts, file, text) : read_list(hosts, text));
    return share(hosts, ranks, per_host);
}

tx_status tx_launch_hosts_read(const char *list, const char *file, int32_t ranks, int32_t per_host,
                               tx_launch_hosts *hosts)
{
    tx_launch_hosts result = {0};
    char *text = NULL;
    size_t size = 0;
    if (!file && !list)
        return TX_OK;
    if (file)
        TX_TRY(tx_file_read_text(file, FILE_LIMIT, &text, &size));
    else if (!(text = strdup(list)))
        return tx_fail(TX_MEMORY, "--hosts: out of memory");
    tx_status status = read_hosts(file, text, file ? size : strlen(text), ranks, per_host, &result);
    free(text);
    if (status)
        tx_launch_hosts_free(&result);
    else
        *hosts = result;
    return status;
}

void tx_launch_hosts_free(tx_launch_hosts *hosts)
{
    free(hosts->host);
    *hosts = (tx_launch_hosts){0};
}

int32_t tx_launch_hosts_room(const tx_launch_hosts *hosts, int32_t ranks)
{
    int64_t room = 0;
    for (int32_t i = 0; i < hosts->count; i++)
        room += hosts->host[i].excluded ? 0 : hosts->host[i].slots;
    return hosts->count == 0 || room > ranks ? ranks : (int32_t)room;
}

tx_launch_host *tx_launch_host_of(const tx_launch_hosts *hosts, int32_t rank)
{
    for (int32_t i = 0; i < hosts->count; i++) {
        if (hosts->host[i].excluded)
            continue;
        if (rank < hosts->host[i].slots)
            return &hosts->host[i];
        rank -= hosts->host[i].slots;
    }
    return NULL;
}
