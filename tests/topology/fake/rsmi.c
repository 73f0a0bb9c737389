/* SPDX-License-Identifier: Apache-2.0
 * A simulated librocm_smi64.so.1 for the AMD GPUs of classes.xml. FAKE_RSMI: "" four links between them; "fail":
 * queries fail; "far": links through another GPU; "parts": each GPU is two partitions. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static bool mode(const char *name)
{
    const char *wanted = getenv("FAKE_RSMI");
    return wanted && strcmp(wanted, name) == 0;
}

EXPORT int rsmi_init(uint64_t flags)
{
    return flags == 0 ? 0 : 1;
}

EXPORT int rsmi_shut_down(void)
{
    return 0;
}

EXPORT int rsmi_num_monitor_devices(uint32_t *count)
{
    *count = mode("parts") ? 4 : 2;
    return 0;
}

EXPORT int rsmi_dev_pci_id_get(uint32_t index, uint64_t *id)
{
    uint32_t gpu = mode("parts") ? index / 2 : index;
    *id = gpu == 0 ? 0x0a00 : 0x1100;
    *id |= (uint64_t)(mode("parts") ? index % 2 : 0) << 28;
    return 0;
}

EXPORT int rsmi_topo_get_link_type(uint32_t a, uint32_t b, uint64_t *hops, int *type)
{
    (void)a;
    (void)b;
    *hops = 1;
    *type = 2;
    return mode("fail") ? 8 : 0;
}

EXPORT int rsmi_topo_get_link_weight(uint32_t a, uint32_t b, uint64_t *weight)
{
    (void)a;
    (void)b;
    *weight = mode("far") ? 30 : 15;
    return 0;
}

EXPORT int rsmi_minmax_bandwidth_get(uint32_t a, uint32_t b, uint64_t *least, uint64_t *most)
{
    (void)a;
    (void)b;
    *least = 50000;
    *most = 200000;
    return 0;
}

EXPORT int rsmi_dev_memory_total_get(uint32_t index, int type, uint64_t *bytes)
{
    *bytes = index < 4 && type == 0 ? 34359738368ull : 0;
    return 0;
}

EXPORT int rsmi_is_P2P_accessible(uint32_t a, uint32_t b, bool *accessible)
{
    *accessible = a < b;
    return 0;
}
