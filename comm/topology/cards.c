/* SPDX-License-Identifier: Apache-2.0
 * Measurements of GPUs. sysfs has temperature and power of any driver (Documentation/hwmon/sysfs-interface), and memory
 * and use of amdgpu and i915. DRM's fdinfo has memory and engine times of each process that has opened a GPU
 * (Documentation/gpu/drm-usage-stats). txtopo --watch and the log of a run call it. */
#include "comm/topology/tx_topology.h"

#include "api/base/needs.h"
#include "api/base/number.h"

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PATH_SIZE 512
#define CARD_NUMBERS 64 /* names are card0 to card63 */
#define CLIENTS 1024    /* more are left out */

/* The number in a file of a folder, or NaN. */
static double number_in(const char *folder, const char *name)
{
    char path[2 * PATH_SIZE], text[64], *end = text;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    const bool read = file && fgets(text, sizeof text, file);
    if (file)
        fclose(file);
    const double number = read ? tx_number_read(text, &end) : (double)NAN;
    return end > text && isfinite(number) ? number : (double)NAN;
}

/* The first of several files that has a number. */
static double first_of(const char *folder, const char *const *names)
{
    double number = (double)NAN;
    for (; *names && isnan(number); names++)
        number = number_in(folder, *names);
    return number;
}

/* Finds the files of a folder that have names of this form. The caller frees them by globfree. */
static void find(const char *folder, const char *form, glob_t *found)
{
    char pattern[2 * PATH_SIZE];
    snprintf(pattern, sizeof pattern, "%s/%s", folder, form);
    *found = (glob_t){0};
    glob(pattern, GLOB_NOSORT, NULL, found);
}

static void read_hwmon(const char *device, tx_topo_card *card)
{
    static const char *const temperatures[] = {"temp1_input", "temp2_input", NULL};
    static const char *const powers[] = {"power1_average", "power1_input", NULL};
    static const char *const energies[] = {"energy1_input", "energy2_input", NULL};
    glob_t found;
    find(device, "hwmon/hwmon*", &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        card->temperature = 1e-3 * first_of(found.gl_pathv[i], temperatures);
        card->power = 1e-6 * first_of(found.gl_pathv[i], powers);
        card->energy = 1e-6 * first_of(found.gl_pathv[i], energies);
    }
    globfree(&found);
}

static void read_memory(const char *device, const char *drm, tx_topo_card *card)
{
    card->memory = number_in(device, "mem_info_vram_total");
    card->memory_used = number_in(device, "mem_info_vram_used");
    if (isnan(card->memory)) {
        card->memory = number_in(drm, "lmem_total_bytes");
        card->memory_used = card->memory - number_in(drm, "lmem_avail_bytes");
    }
}

/* ---- DRM's fdinfo ------------------------------------------------------------------------------------------ */

/* The lines of a client: an opened GPU, which several descriptors of several processes may share. */
typedef struct client {
    char bus[32];
    long long id;
    double bytes[2][2]; /* in the host's memory and the device's own: by the older keys, and by "resident" */
    tx_topo_engine engine[TX_TOPO_ENGINES];
} client;

/* A client that is added already. */
typedef struct added {
    char bus[32];
    long long id;
} added;

/* The engine of this name, or a free one; NULL if all others are taken. */
static tx_topo_engine *engine_of(tx_topo_engine *engines, const char *name)
{
    for (int i = 0; i < TX_TOPO_ENGINES; i++)
        if (!*engines[i].name || strncmp(engines[i].name, name, sizeof engines[i].name - 1) == 0) {
            snprintf(engines[i].name, sizeof engines[i].name, "%.23s", name);
            return &engines[i];
        }
    return NULL;
}

/* Reads "drm-KEY: VALUE [UNIT]". drm-memory-REGION is the older name of drm-resident-REGION. */
static void read_client_line(const char *line, client *c)
{
    static const char *const own[] = {"vram", "local", "lmem"};
    char key[64] = "", value[64] = "", unit[8] = "";
    if (sscanf(line, "drm-%63[^:]: %63s %7s", key, value, unit) < 2)
        return;
    const double number = tx_number_read(value, NULL);
    const bool resident = strncmp(key, "resident-", 9) == 0;
    const char *region = resident ? key + 9 : strncmp(key, "memory-", 7) == 0 ? key + 7 : NULL;
    tx_topo_engine *engine;
    if (strcmp(key, "pdev") == 0)
        snprintf(c->bus, sizeof c->bus, "%.31s", value);
    else if (strcmp(key, "client-id") == 0)
        c->id = (long long)number;
    else if (strncmp(key, "engine-capacity-", 16) == 0 && (engine = engine_of(c->engine, key + 16)))
        engine->capacity = number;
    else if (strncmp(key, "engine-", 7) == 0 && strncmp(key, "engine-capacity", 15) != 0 &&
             (engine = engine_of(c->engine, key + 7)))
        engine->seconds = 1e-9 * number;
    else if (strncmp(key, "cycles-", 7) == 0 && (engine = engine_of(c->engine, key + 7)))
        engine->seconds = number; /* xe counts cycles */
    else if (strncmp(key, "total-cycles-", 13) == 0 && (engine = engine_of(c->engine, key + 13)))
        engine->total = number;
    bool device = false;
    for (size_t i = 0; region && i < sizeof own / sizeof own[0]; i++)
        device = device || strncmp(region, own[i], strlen(own[i])) == 0;
    if (region)
        c->bytes[resident][device] += number * (*unit == 'K' ? 0x1p10 : *unit == 'M' ? 0x1p20 : 1.0);
}

/* Adds a client to the card with its address. Integrated GPUs have no memory of their own. */
static void add_client(const client *c, tx_topo_card *cards, int32_t count)
{
    const double *bytes = c->bytes[c->bytes[1][0] + c->bytes[1][1] > 0.0];
    for (int32_t i = 0; i < count; i++) {
        tx_topo_card *card = &cards[i];
        if (strcmp(card->bus, c->bus) != 0)
            continue;
        card->client_memory += bytes[1] > 0.0 ? bytes[1] : bytes[0];
        card->clients++;
        for (int e = 0; e < TX_TOPO_ENGINES && *c->engine[e].name; e++) {
            tx_topo_engine *sum = engine_of(card->engine, c->engine[e].name);
            if (!sum)
                continue;
            sum->seconds += c->engine[e].seconds;
            sum->capacity = c->engine[e].capacity;
            sum->total = c->engine[e].total;
        }
    }
}

/* Adds the GPUs that a process has opened. */
static void read_process(const char *process, tx_topo_card *cards, int32_t count, added *seen, int32_t *seen_count)
{
    char path[2 * PATH_SIZE], target[16] = "", line[256];
    glob_t found;
    find(process, "fd/[0-9]*", &found);
    for (size_t f = 0; f < found.gl_pathc && *seen_count < CLIENTS; f++) {
        const char *opened = found.gl_pathv[f];
        if (readlink(opened, target, sizeof target - 1) < 9 || strncmp(target, "/dev/dri/", 9) != 0)
            continue;
        snprintf(path, sizeof path, "%s/fdinfo%s", process, strrchr(opened, '/'));
        FILE *file = fopen(path, "re");
        client c = {.id = -1};
        while (file && fgets(line, sizeof line, file))
            read_client_line(line, &c);
        if (file)
            fclose(file);
        int32_t i = 0;
        while (i < *seen_count && (seen[i].id != c.id || strcmp(seen[i].bus, c.bus) != 0))
            i++;
        if (c.id < 0 || i < *seen_count)
            continue;
        add_client(&c, cards, count);
        seen[i].id = c.id;
        memcpy(seen[i].bus, c.bus, sizeof c.bus);
        ++*seen_count;
    }
    globfree(&found);
}

static void read_clients(const char *root, bool all, tx_topo_cards *cards)
{
    int32_t seen = 0;
    added clients[CLIENTS];
    glob_t found;
    if (!cards->count)
        return;
    find(root, all ? "proc/[0-9]*" : "proc/self", &found);
    for (size_t i = 0; i < found.gl_pathc; i++)
        read_process(found.gl_pathv[i], cards->card, cards->count, clients, &seen);
    globfree(&found);
}

/* Uses the clients' memory and engine times for values that sysfs lacks. The busiest engine counts. */
static void use_clients(tx_topo_card *c, const tx_topo_card *before, double seconds)
{
    if (c->clients && isnan(c->memory_used))
        c->memory_used = c->client_memory;
    if (!isnan(c->busy) || !before || !(seconds > 0.0))
        return;
    for (int i = 0; i < TX_TOPO_ENGINES && *c->engine[i].name; i++)
        for (int k = 0; k < TX_TOPO_ENGINES; k++) {
            const tx_topo_engine *now = &c->engine[i], *then = &before->engine[k];
            if (strcmp(now->name, then->name) != 0 || now->seconds < then->seconds) /* a client has ended */
                continue;
            const double clock = now->total > 0.0 ? now->total - then->total : seconds;
            const double use = (now->seconds - then->seconds) / clock / (now->capacity > 1.0 ? now->capacity : 1.0);
            c->busy = !(c->busy >= use) ? fmin(use, 1.0) : c->busy;
        }
}

/* ---- Cards --------------------------------------------------------------------------------------------------- */

/* The last part of the target of a link: a PCI address, or the name of a driver. */
static void read_link(const char *path, char *text, size_t size)
{
    char target[PATH_SIZE];
    const ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = '\0';
    const char *slash = strrchr(target, '/');
    snprintf(text, size, "%.*s", (int)size - 1, slash ? slash + 1 : target);
}

static bool has_value(const tx_topo_card *c)
{
    return c->clients || !isnan(c->memory) || !isnan(c->busy) || !isnan(c->temperature) || !isnan(c->power) ||
           !isnan(c->energy);
}

/* The card of this name in an earlier measurement, or NULL. */
static const tx_topo_card *before_of(const tx_topo_cards *cards, const char *name)
{
    for (int32_t i = 0; i < cards->count; i++)
        if (strcmp(cards->card[i].name, name) == 0)
            return &cards->card[i];
    return NULL;
}

void tx_topo_cards_read(const char *root, bool all, tx_topo_cards *cards)
{
    TX_NEEDS(cards, );
    tx_topo_cards now = {.count = 0};
    char drm[PATH_SIZE], device[PATH_SIZE + 16], path[PATH_SIZE + 32];
    const char *set = root ? root : getenv("TX_SYS_ROOT");
    int32_t kept = 0;
    set = set ? set : "";
    now.seconds = tx_now();
    for (int n = 0; n < CARD_NUMBERS && now.count < TX_TOPO_CARDS; n++) {
        tx_topo_card *c = &now.card[now.count];
        *c = (tx_topo_card){.temperature = (double)NAN, .power = (double)NAN, .energy = (double)NAN};
        snprintf(c->name, sizeof c->name, "card%d", n);
        snprintf(drm, sizeof drm, "%.400s/sys/class/drm/%s", set, c->name);
        snprintf(device, sizeof device, "%s/device", drm);
        if (access(device, R_OK) != 0)
            continue;
        read_link(device, c->bus, sizeof c->bus);
        snprintf(path, sizeof path, "%s/driver", device);
        read_link(path, c->driver, sizeof c->driver);
        c->busy = 0.01 * number_in(device, "gpu_busy_percent");
        read_memory(device, drm, c);
        read_hwmon(device, c);
        /* Some drivers only count energy. */
        const tx_topo_card *before = before_of(cards, c->name);
        if (isnan(c->power) && before && now.seconds > cards->seconds && c->energy >= before->energy)
            c->power = (c->energy - before->energy) / (now.seconds - cards->seconds);
        now.count++;
    }
    read_clients(set, all, &now);
    for (int32_t i = 0; i < now.count; i++) {
        use_clients(&now.card[i], before_of(cards, now.card[i].name), now.seconds - cards->seconds);
        if (has_value(&now.card[i]))
            now.card[kept++] = now.card[i];
    }
    now.count = kept;
    *cards = now;
}

char *tx_topo_cards_json(const tx_topo_cards *cards)
{
    TX_NEEDS(cards, NULL);
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    for (int32_t i = 0; to && i < cards->count; i++) {
        const tx_topo_card *c = &cards->card[i];
        const struct {
            const char *key;
            double value;
        } values[] = {{"memory", c->memory},
                      {"memory_used", c->memory_used},
                      {"use", c->busy},
                      {"celsius", c->temperature},
                      {"watts", c->power}};
        fprintf(to, "%s{\"card\": \"%s\", \"bus\": \"%s\"", i ? ", " : "[", c->name, c->bus);
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++)
            if (!isnan(values[v].value))
                tx_print(to, ", \"%s\": %.12g", values[v].key, values[v].value);
        fputs("}", to);
    }
    if (to)
        fputs(cards->count ? "]" : "[]", to);
    if (to && fclose(to) == 0)
        return text;
    free(text);
    tx_fail(TX_MEMORY, "no memory for the measurements of GPUs");
    return NULL;
}
