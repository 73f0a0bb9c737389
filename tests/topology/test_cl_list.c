/* SPDX-License-Identifier: Apache-2.0
 * The properties that drivers of each vendor report for their OpenCL devices, and TX's use of them. The linker
 * redirects the calls of OpenCL to this file, where simulated devices answer as their vendors' drivers do. */
#include "tests/unit.h"

#include "backends/opencl/runtime/cl.h"
#include "comm/topology/sources.h"

#include <stdlib.h>
#include <string.h>

/* Queries of extensions. */
enum { KHR_BUS = 0x410F, NV_BUS = 0x4008, NV_SLOT, NV_DOMAIN, AMD_TOPOLOGY = 0x4037, AMD_BOARD, INTEL_ID = 0x4251 };

/* A device's answer to one query. */
typedef struct answer {
    cl_device_info what;
    size_t size;
    const void *value;
} answer;

/* clang-format off */
#define NUMBER(type, query, ...) {query, sizeof(type), &(const type){__VA_ARGS__}}
#define TEXT(query, text) {query, sizeof text, text}
/* clang-format on */
#define USABLE                                                                                 \
    NUMBER(cl_bool, CL_DEVICE_AVAILABLE, 1), NUMBER(cl_bool, CL_DEVICE_COMPILER_AVAILABLE, 1), \
        NUMBER(cl_bool, CL_DEVICE_ENDIAN_LITTLE, 1)

static const cl_uint intel_address[4] = {1, 0x3b, 2, 1};
static const unsigned char amd_address[24] = {[0] = 1, [21] = 0xc3, [22] = 4, [23] = 1}, amd_other[24] = {[0] = 2};

/* clang-format off */
static const answer devices[][12] = {
    /* cl_khr_pci_bus_info has priority over the vendor's extension. */
    {USABLE, NUMBER(cl_device_type, CL_DEVICE_TYPE, CL_DEVICE_TYPE_GPU), NUMBER(cl_uint, CL_DEVICE_VENDOR_ID, 0x8086),
     TEXT(CL_DEVICE_NAME, "Intel Arc"), {KHR_BUS, sizeof intel_address, intel_address},
     NUMBER(cl_uint, NV_BUS, 7), NUMBER(cl_uint, NV_SLOT, 7), NUMBER(cl_uint, INTEL_ID, 0x56a0)},
    {USABLE, NUMBER(cl_device_type, CL_DEVICE_TYPE, CL_DEVICE_TYPE_GPU), NUMBER(cl_uint, CL_DEVICE_VENDOR_ID, 0x10de),
     NUMBER(cl_uint, NV_BUS, 0xe1), NUMBER(cl_uint, NV_SLOT, 0x1a), NUMBER(cl_uint, NV_DOMAIN, 2),
     NUMBER(cl_ulong, CL_DEVICE_GLOBAL_MEM_SIZE, UINT64_C(150000000000))},
    /* An old driver of NVIDIA's knows no domains. */
    {NUMBER(cl_device_type, CL_DEVICE_TYPE, CL_DEVICE_TYPE_GPU), NUMBER(cl_uint, NV_BUS, 4),
     NUMBER(cl_uint, NV_SLOT, 0)},
    {USABLE, NUMBER(cl_device_type, CL_DEVICE_TYPE, CL_DEVICE_TYPE_GPU), NUMBER(cl_uint, CL_DEVICE_VENDOR_ID, 0x1002),
     TEXT(CL_DEVICE_NAME, "gfx90a"), TEXT(AMD_BOARD, "Made-up Instinct"),
     {AMD_TOPOLOGY, sizeof amd_address, amd_address}},
    /* No PCIe; an answer of another size than requested. */
    {USABLE, NUMBER(cl_device_type, CL_DEVICE_TYPE, CL_DEVICE_TYPE_ACCELERATOR), NUMBER(cl_uint, NV_BUS, 4),
     {AMD_TOPOLOGY, sizeof amd_other, amd_other}, {KHR_BUS, 8, intel_address}},
    /* The PCI address of a CPU is not queried. */
    {USABLE, NUMBER(cl_device_type, CL_DEVICE_TYPE, CL_DEVICE_TYPE_CPU), {KHR_BUS, sizeof intel_address, intel_address},
     NUMBER(cl_uint, CL_DEVICE_VENDOR_ID, 0x10006)},
};
/* clang-format on */
enum { DEVICES = sizeof devices / sizeof devices[0] };

cl_int __wrap_clGetPlatformIDs(cl_uint room, cl_platform_id *platforms, cl_uint *count);
cl_int __wrap_clGetPlatformIDs(cl_uint room, cl_platform_id *platforms, cl_uint *count)
{
    assert_true(room >= 1 || !platforms);
    if (platforms)
        platforms[0] = (cl_platform_id)&devices;
    *count = 1;
    return CL_SUCCESS;
}

cl_int __wrap_clGetDeviceIDs(cl_platform_id platform, cl_device_type type, cl_uint room, cl_device_id *ids,
                             cl_uint *count);
cl_int __wrap_clGetDeviceIDs(cl_platform_id platform, cl_device_type type, cl_uint room, cl_device_id *ids,
                             cl_uint *count)
{
    assert_ptr_equal(platform, &devices);
    assert_true(type == CL_DEVICE_TYPE_ALL && room >= DEVICES);
    for (int i = 0; i < DEVICES; i++)
        ids[i] = (cl_device_id)&devices[i];
    *count = DEVICES;
    return CL_SUCCESS;
}

cl_int __wrap_clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t room, void *value, size_t *size);
cl_int __wrap_clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t room, void *value, size_t *size)
{
    const answer *answers = (const answer *)device;
    for (int i = 0; i < 12 && answers[i].size; i++)
        if (answers[i].what == what) {
            if (room < answers[i].size)
                return CL_INVALID_VALUE;
            memcpy(value, answers[i].value, answers[i].size);
            if (size)
                *size = answers[i].size;
            return CL_SUCCESS;
        }
    return CL_INVALID_VALUE;
}

static void assert_place(const tx_topo_cl_device *d, bool domain_known, uint32_t domain, uint32_t bus, uint32_t slot,
                         uint32_t function)
{
    assert_true(d->has_bus);
    assert_int_equal(d->has_domain, domain_known);
    assert_int_equal(d->domain, domain);
    assert_int_equal(d->bus, bus);
    assert_int_equal(d->slot, slot);
    assert_int_equal(d->function, function);
}

static void places(void **state)
{
    tx_topo_cl_device *d = NULL;
    int32_t count = 0;
    assert_int_equal(tx_topo_cl_list(&d, &count), TX_OK);
    assert_int_equal(count, DEVICES);
    assert_place(&d[0], true, 1, 0x3b, 2, 1);
    assert_string_equal(d[0].name, "Intel Arc");
    assert_true(d[0].vendor_id == 0x8086 && d[0].device_id == 0x56a0);
    assert_place(&d[1], true, 2, 0xe1, 3, 2);
    assert_true(d[1].memory == INT64_C(150000000000) && d[1].vendor_id == 0x10de);
    assert_place(&d[2], false, 0, 4, 0, 0);
    assert_place(&d[3], false, 0, 0xc3, 4, 1);
    assert_string_equal(d[3].name, "Made-up Instinct");
    assert_true(d[4].gpu && !d[4].has_bus);
    assert_true(d[5].cpu && !d[5].gpu && !d[5].has_bus && d[5].vendor_id == 0);
    for (int32_t i = 0; i < count; i++)
        assert_int_equal(d[i].engine, i < 2 ? i : i == 2 ? -1 : i - 1); /* one is not usable */
    free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
