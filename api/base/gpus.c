/* SPDX-License-Identifier: Apache-2.0
 * Finds the files of GPUs in /dev, their vendors, and the packages of their OpenCL drivers. */
#define _GNU_SOURCE /* asprintf */
#include "api/base/gpus.h"

#include <glob.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEBIAN_12, DEBIAN_13, UBUNTU_24, DISTRIBUTIONS };

typedef struct vendor {
    unsigned id;
    const char *name, *package[DISTRIBUTIONS];
} vendor;

static const vendor vendors[] = {
#define X(id, name, ...) {id, name, {__VA_ARGS__}},
#include "api/base/gpus.def"
#undef X
};
enum { VENDORS = sizeof vendors / sizeof vendors[0] };

/* A file of a GPU. */
typedef struct gpu {
    char path[256];
    const vendor *vendor; /* NULL if it is unknown */
    bool denied;          /* the user may not open the file */
} gpu;

/* Reads the start of a file. Returns "" if it cannot be read. */
static const char *read_start(const char *root, const char *path, char *text, size_t size)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    FILE *file = fopen(whole, "r");
    const size_t length = file ? fread(text, 1, size - 1, file) : 0;
    text[length] = '\0';
    if (file)
        fclose(file);
    return text;
}

static const vendor *vendor_of(unsigned id)
{
    for (int i = 0; i < VENDORS; i++)
        if (vendors[i].id == id)
            return &vendors[i];
    return NULL;
}

/* The vendor of a render node: /sys has its PCI vendor. */
static const vendor *vendor_of_node(const char *root, const char *path)
{
    char file[300], text[32];
    const char *name = strrchr(path, '/');
    snprintf(file, sizeof file, "/sys/class/drm%.200s/device/vendor", name ? name : "");
    return vendor_of((unsigned)strtoul(read_start(root, file, text, sizeof text), NULL, 16));
}

/* Finds the first file of each pattern that belongs to a GPU, and prefers one that the user may not open. Render nodes
 * of virtual machines have no vendor of GPUs. /dev/dxg is the GPU of the Windows host (WSL). */
static bool find(const char *root, gpu *found)
{
    static const char *const patterns[] = {"/dev/nvidia[0-9]*", "/dev/dri/renderD*", "/dev/dxg"};
    bool any = false;
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        glob_t files = {0};
        char whole[512];
        snprintf(whole, sizeof whole, "%s%s", root, patterns[i]);
        const bool matched = glob(whole, 0, NULL, &files) == 0;
        for (size_t f = 0; matched && f < files.gl_pathc; f++) {
            const char *path = files.gl_pathv[f] + strlen(root);
            const vendor *v = i == 0 ? vendor_of(0x10de) : i == 1 ? vendor_of_node(root, path) : NULL;
            const bool denied = access(files.gl_pathv[f], R_OK | W_OK) != 0;
            if ((i == 1 && !v) || (any && (found->denied || !denied)))
                continue;
            any = true;
            *found = (gpu){.vendor = v, .denied = denied};
            snprintf(found->path, sizeof found->path, "%s", path);
        }
        globfree(&files);
    }
    return any;
}

bool tx_gpus_seen(const char *root)
{
    gpu found;
    return find(root, &found);
}

/* Returns the group of a file, or "video" if it has no name. */
static void group_of(const char *root, const char *path, char *group, size_t size)
{
    char whole[512];
    struct stat status;
    snprintf(whole, sizeof whole, "%s%s", root, path);
    const struct group *entry = stat(whole, &status) == 0 && status.st_gid ? getgrgid(status.st_gid) : NULL;
    snprintf(group, size, "%s", entry ? entry->gr_name : "video");
}

/* Returns the package of the vendor's driver on this distribution, or NULL if it is unknown. */
static const char *package_of(const char *root, const vendor *v)
{
    static const char *const names[DISTRIBUTIONS][2] = {
        [DEBIAN_12] = {"ID=debian", "VERSION_ID=\"12"},
        [DEBIAN_13] = {"ID=debian", "VERSION_ID=\"13"},
        [UBUNTU_24] = {"ID=ubuntu", "VERSION_ID=\"24"},
    };
    char text[4096];
    read_start(root, "/etc/os-release", text, sizeof text);
    for (int i = 0; v && i < DISTRIBUTIONS; i++)
        if (strstr(text, names[i][0]) && strstr(text, names[i][1]))
            return v->package[i];
    return NULL;
}

void tx_gpus_missing(const char *root, char *text, size_t size)
{
    gpu found;
    char group[64];
    if (!find(root, &found)) {
        snprintf(text, size, "no GPU: no /dev/nvidia* and no /dev/dri/renderD* of a GPU");
        return;
    }
    const char *name = found.vendor ? found.vendor->name : "Windows host's";
    const char *package = package_of(root, found.vendor);
    if (found.denied) {
        group_of(root, found.path, group, sizeof group);
        snprintf(text, size,
                 "no right to open %s (%s GPU): join its group by sudo usermod -aG %s $USER, and log in again",
                 found.path, name, group);
    } else
        snprintf(text, size, "the %s GPU (%s) has no OpenCL driver that works: install %s; clinfo lists what works",
                 name, found.path, package ? package : "the OpenCL driver of its vendor");
}
