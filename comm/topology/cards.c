/* SPDX-License-Identifier: Apache-2.0
 * Measurements of GPUs from sysfs: hwmon has temperature and power of any driver (Documentation/hwmon/sysfs-interface),
 * amdgpu and i915 also report memory and use. txtopo --watch and the log of a run call it. */
#include "comm/topology/tx_topology.h"

#include "api/base/needs.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PATH_SIZE 512
#define CARD_NUMBERS 64 /* names are card0 to card63 */

/* The number in a file of a folder, or NaN. */
static double number_in(const char *folder, const char *name)
{
    char path[2 * PATH_SIZE], text[64], *end = text;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    const bool read = file && fgets(text, sizeof text, file);
    if (file)
        fclose(file);
    const double number = read ? strtod(text, &end) : (double)NAN;
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

static void read_hwmon(const char *device, tx_topo_card *card)
{
    static const char *const temperatures[] = {"temp1_input", "temp2_input", NULL};
    static const char *const powers[] = {"power1_average", "power1_input", NULL};
    static const char *const energies[] = {"energy1_input", "energy2_input", NULL};
    char path[2 * PATH_SIZE];
    snprintf(path, sizeof path, "%s/hwmon", device);
    DIR *folder = opendir(path);
    for (struct dirent *one; folder && (one = readdir(folder));) {
        if (strncmp(one->d_name, "hwmon", 5) != 0)
            continue;
        snprintf(path, sizeof path, "%s/hwmon/%.32s", device, one->d_name);
        card->temperature = 1e-3 * first_of(path, temperatures);
        card->power = 1e-6 * first_of(path, powers);
        card->energy = 1e-6 * first_of(path, energies);
    }
    if (folder)
        closedir(folder);
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
    return !isnan(c->memory) || !isnan(c->busy) || !isnan(c->temperature) || !isnan(c->power) || !isnan(c->energy);
}

/* The card of this name in an earlier measurement, or NULL. */
static const tx_topo_card *before_of(const tx_topo_cards *cards, const char *name)
{
    for (int32_t i = 0; i < cards->count; i++)
        if (strcmp(cards->card[i].name, name) == 0)
            return &cards->card[i];
    return NULL;
}

void tx_topo_cards_read(const char *root, tx_topo_cards *cards)
{
    TX_NEEDS(cards, );
    tx_topo_cards now = {.count = 0};
    char drm[PATH_SIZE], device[PATH_SIZE + 16], path[PATH_SIZE + 32];
    struct timespec clock;
    const char *set = root ? root : getenv("TX_SYS_ROOT");
    clock_gettime(CLOCK_MONOTONIC, &clock);
    now.seconds = (double)clock.tv_sec + 1e-9 * (double)clock.tv_nsec;
    for (int n = 0; n < CARD_NUMBERS && now.count < TX_TOPO_CARDS; n++) {
        tx_topo_card *c = &now.card[now.count];
        *c = (tx_topo_card){.temperature = (double)NAN, .power = (double)NAN, .energy = (double)NAN};
        snprintf(c->name, sizeof c->name, "card%d", n);
        snprintf(drm, sizeof drm, "%.400s/sys/class/drm/%s", set ? set : "", c->name);
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
        now.count += has_value(c);
    }
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
                fprintf(to, ", \"%s\": %.12g", values[v].key, values[v].value);
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
