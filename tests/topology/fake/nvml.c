/* SPDX-License-Identifier: Apache-2.0
 * A simulated libnvidia-ml.so.1 for the GPUs of classes.xml. FAKE_NVML selects its behaviour: "" direct links;
 * "switch"; "vm" hides ends of links; "lost": GPU 1 fails; "differ": other classes than the tree; "hidden": GPU 2 is
 * not listed; "dead": does not start. Built with FAKE_OLD it has only the oldest functions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct pci_info {
    char legacy[16];
    unsigned domain, bus, device, ids, subsystem;
    char id[32];
} pci_info;

static const unsigned buses[] = {0x03, 0x04, 0x07};
static char handles[3];
#define EXPORT __attribute__((visibility("default")))

static int mode(const char *name)
{
    const char *wanted = getenv("FAKE_NVML");
    return wanted && strcmp(wanted, name) == 0;
}

static int index_of(const char *device)
{
    return (int)(device - handles);
}

EXPORT int nvmlInit_v2(void)
{
    return mode("dead") ? 9 : 0;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = mode("hidden") ? 2 : 3;
    return 0;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, char **device)
{
    *device = &handles[index];
    return 0;
}

static void fill(pci_info *info, unsigned bus)
{
    memset(info, 0, sizeof *info);
    info->bus = bus;
    info->ids = 0x1db110deu;
    snprintf(info->id, sizeof info->id, "00000000:%02X:00.0", bus);
}

EXPORT int nvmlDeviceGetPciInfo_v3(char *device, pci_info *info)
{
    fill(info, buses[index_of(device)]);
    return 0;
}

#ifndef FAKE_OLD
/* links[a][k]: the GPU that link k of GPU a leads to; -1 off. */
static const int links[3][4] = {{1, 1, 2, -1}, {0, 0, -1, -1}, {0, -1, -1, -1}};

EXPORT int nvmlShutdown(void)
{
    return 0;
}

EXPORT int nvmlDeviceGetName(char *device, char *name, unsigned size)
{
    snprintf(name, size, "Made-up GPU %d", index_of(device));
    return 0;
}

EXPORT int nvmlDeviceGetMemoryInfo(char *device, unsigned long long *memory)
{
    memory[0] = 17179869184ull + (unsigned)index_of(device);
    return 0;
}

EXPORT int nvmlDeviceGetNvLinkState(char *device, unsigned link, int *on)
{
    int gpu = index_of(device);
    if (mode("lost") && gpu == 1)
        return 15;
    if (mode("switch") || mode("vm"))
        *on = link < (gpu == 2 ? 4u : 6u);
    else
        *on = link < 4 && links[gpu][link] >= 0;
    return link < 6 ? 0 : 2;
}

EXPORT int nvmlDeviceGetNvLinkVersion(char *device, unsigned link, unsigned *version)
{
    (void)device;
    (void)link;
    *version = 2;
    return 0;
}

EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(char *device, unsigned link, pci_info *info)
{
    if (mode("vm"))
        return 3;
    fill(info, mode("switch") ? 0xc0 : buses[links[index_of(device)][link]]);
    return 0;
}

EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(char *device, unsigned link, int *type)
{
    (void)device;
    (void)link;
    *type = mode("switch") ? 2 : 0;
    return mode("vm") ? 3 : 0;
}

EXPORT int nvmlDeviceGetP2PStatus(char *a, char *b, int access, int *status)
{
    *status = index_of(a) + index_of(b) == 1 ? 0 : access == 0 ? 1 : access == 1 ? 4 : 5;
    return 0;
}

EXPORT int nvmlDeviceGetTopologyCommonAncestor(char *a, char *b, int *level)
{
    *level = mode("differ") ? 50 : index_of(a) + index_of(b) == 1 ? 10 : 20;
    return 0;
}
#endif
