/* SPDX-License-Identifier: Apache-2.0
 * Lists the OpenCL devices of all platforms, with the PCI addresses that their drivers report. Every query is tried
 * regardless of the extension list, because drivers answer some that they do not list. */
#define CL_TARGET_OPENCL_VERSION 120
#include "api/base/drivers.h"
#include "comm/topology/sources.h"

#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLATFORMS_MAX 32
#define DEVICES_MAX 256

/* Queries of extensions (cl_khr_pci_bus_info, cl_nv_device_attribute_query, cl_amd_device_attribute_query,
 * cl_intel_device_attribute_query). Their headers are not always installed. */
enum {
    PCI_BUS_INFO_KHR = 0x410F,
    PCI_BUS_NV = 0x4008,
    PCI_SLOT_NV = 0x4009,
    PCI_DOMAIN_NV = 0x400A,
    TOPOLOGY_AMD = 0x4037,
    BOARD_NAME_AMD = 0x4038,
    DEVICE_ID_INTEL = 0x4251
};

static bool query(cl_device_id device, cl_device_info what, void *value, size_t size)
{
    size_t given = 0;
    return clGetDeviceInfo(device, what, size, value, &given) == CL_SUCCESS && given == size;
}

static void query_text(cl_device_id device, cl_device_info what, char *text, size_t size)
{
    char long_text[1024] = "";
    if (clGetDeviceInfo(device, what, sizeof long_text - 1, long_text, NULL) == CL_SUCCESS)
        snprintf(text, size, "%.*s", (int)size - 1, long_text);
}

/* Reads the PCI address with the first query that succeeds. */
static void query_address(cl_device_id device, tx_topo_cl_device *d)
{
    cl_uint a[4], bus = 0, slot = 0, type = 0;
    unsigned char topology[24]; /* a union: a type (1 is PCIe), 17 unused bytes, then bus, device and function */
    d->has_bus = true;
    if (query(device, PCI_BUS_INFO_KHR, a, sizeof a)) {
        d->has_domain = true;
        d->domain = a[0];
        d->bus = a[1];
        d->slot = a[2];
        d->function = a[3];
    } else if (query(device, PCI_BUS_NV, &bus, sizeof bus) && query(device, PCI_SLOT_NV, &slot, sizeof slot)) {
        d->has_domain = query(device, PCI_DOMAIN_NV, &d->domain, sizeof d->domain); /* missing in old drivers */
        d->bus = bus;
        d->slot = slot >> 3;
        d->function = slot & 7;
    } else if (query(device, TOPOLOGY_AMD, topology, sizeof topology) && memcpy(&type, topology, sizeof type) &&
               type == 1) {
        d->bus = topology[21];
        d->slot = topology[22];
        d->function = topology[23];
    } else
        d->has_bus = false;
}

/* Returns true if the OpenCL backend would list this device. The backend numbers its devices in the same order. */
static bool usable(cl_device_id device)
{
    cl_bool available = CL_FALSE, compiler = CL_FALSE, little = CL_FALSE;
    query(device, CL_DEVICE_AVAILABLE, &available, sizeof available);
    query(device, CL_DEVICE_COMPILER_AVAILABLE, &compiler, sizeof compiler);
    query(device, CL_DEVICE_ENDIAN_LITTLE, &little, sizeof little);
    return available && compiler && little;
}

static void describe(cl_device_id device, tx_topo_cl_device *d)
{
    cl_device_type type = 0;
    cl_ulong memory = 0;
    cl_uint vendor = 0, intel = 0;
    char board[sizeof d->name] = "";
    query(device, CL_DEVICE_TYPE, &type, sizeof type);
    query(device, CL_DEVICE_GLOBAL_MEM_SIZE, &memory, sizeof memory);
    query(device, CL_DEVICE_VENDOR_ID, &vendor, sizeof vendor);
    query_text(device, CL_DEVICE_NAME, d->name, sizeof d->name);
    query_text(device, CL_DEVICE_VENDOR, d->vendor, sizeof d->vendor);
    d->gpu = type & (CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR);
    d->cpu = !d->gpu && type & CL_DEVICE_TYPE_CPU;
    d->memory = memory > INT64_MAX ? 0 : (int64_t)memory;
    d->vendor_id = vendor <= 0xFFFF ? (int32_t)vendor : 0;
    if (!d->gpu)
        return;
    query_address(device, d);
    if (query(device, DEVICE_ID_INTEL, &intel, sizeof intel) && intel <= 0xFFFF)
        d->device_id = (int32_t)intel;
    query_text(device, BOARD_NAME_AMD, board, sizeof board); /* the device name is only that of the chip, "gfx90a" */
    if (*board)
        memcpy(d->name, board, sizeof board);
}

/* Appends the devices of one platform. If the platform does not list its devices, none are added. */
static tx_status list_platform(cl_platform_id platform, int32_t number, tx_topo_cl_device **list, int32_t *count,
                               int32_t *engines)
{
    cl_device_id devices[DEVICES_MAX];
    cl_uint found = 0;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, DEVICES_MAX, devices, &found) != CL_SUCCESS)
        return TX_OK;
    if (found > DEVICES_MAX)
        found = DEVICES_MAX;
    tx_topo_cl_device *longer = realloc(*list, ((size_t)*count + found + 1) * sizeof *longer);
    if (!longer)
        return tx_fail(TX_MEMORY, "OpenCL devices: out of memory");
    *list = longer;
    for (cl_uint i = 0; i < found; i++) {
        tx_topo_cl_device *d = &longer[(*count)++];
        *d = (tx_topo_cl_device){.id = devices[i], .platform = number, .device = (int32_t)i, .engine = -1};
        describe(devices[i], d);
        if ((d->gpu || d->cpu) && usable(devices[i]))
            d->engine = (*engines)++;
    }
    return TX_OK;
}

static void load_drivers(void)
{
    cl_uint count = 0;
    clGetPlatformIDs(0, NULL, &count);
}

static tx_status list_in_process(tx_topo_cl_device **devices, int32_t *count)
{
    cl_platform_id platforms[PLATFORMS_MAX];
    cl_uint found = 0;
    tx_load_drivers("", load_drivers);
    cl_int code = clGetPlatformIDs(PLATFORMS_MAX, platforms, &found);
    if (code != CL_SUCCESS || found == 0)
        return tx_fail(TX_NOT_FOUND, "no OpenCL platform (clGetPlatformIDs: %d)", code);
    if (found > PLATFORMS_MAX)
        found = PLATFORMS_MAX;
    tx_topo_cl_device *list = NULL;
    int32_t listed = 0, engines = 0;
    for (cl_uint i = 0; i < found; i++) {
        tx_status status = list_platform(platforms[i], (int32_t)i, &list, &listed, &engines);
        if (status) {
            free(list);
            return status;
        }
    }
    *devices = list;
    *count = listed;
    return TX_OK;
}

static tx_status rehearse(const void *unused)
{
    tx_topo_cl_device *devices = NULL;
    int32_t count = 0;
    (void)unused;
    (void)list_in_process(&devices, &count);
    free(devices);
    return TX_OK;
}

tx_status tx_topo_cl_list(tx_topo_cl_device **devices, int32_t *count)
{
    TX_TRY(tx_rehearse_drivers(rehearse));
    return list_in_process(devices, count);
}
