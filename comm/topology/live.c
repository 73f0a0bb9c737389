/* SPDX-License-Identifier: Apache-2.0
 * Collects the topology of this machine: hwloc's tree, OpenCL devices, and information from the kernel and the
 * vendor libraries. A source that fails becomes a note. */
#include "comm/topology/sources.h"

#include "api/base/drivers.h"
#include "api/base/needs.h"

#include <stdlib.h>
#include <sys/utsname.h>

static void join_opencl(tx_draft *draft)
{
#ifdef TX_OPENCL
    tx_topo_cl_device *devices = NULL;
    int32_t count = 0;
    tx_status status = tx_topo_cl_list(&devices, &count);
    if (status == TX_NOT_FOUND)
        tx_draft_note(draft, true, "OpenCL: %s%s", tx_error(),
                      tx_driver_failure() ? "" : "; install a driver, or check OCL_ICD_VENDORS");
    else if (status)
        draft->status = status;
    else
        tx_topo_cl_join(draft, devices, count);
    free(devices);
#else
    tx_draft_note(draft, true, "OpenCL: this TX was built without it (TX_OPENCL=OFF); OpenCL devices are not listed");
#endif
}

tx_status tx_topology_live(const tx_topo_options *options, tx_topology **topology)
{
    TX_NEEDS(topology, TX_INVALID);
    static const tx_topo_options defaults = {.size = sizeof defaults};
    struct utsname names;
    tx_draft draft;
    bool local = false;
    if (!options)
        options = &defaults;
    if (options->size != sizeof *options)
        return tx_fail(TX_INVALID, "tx_topo_options: size is %zu, expected %zu", options->size, sizeof *options);
    tx_status status = tx_draft_begin(TX_TOPO_ORIGIN_LIVE, &draft);
    if (status)
        return status;
    draft.status = tx_topo_hwloc_read(NULL, 0, &draft, &local);
    if (draft.status)
        return tx_draft_finish(&draft, topology);
    if (local) {
        if (uname(&names) == 0)
            draft.t->host = tx_draft_text(&draft, names.nodename);
        if (!options->no_opencl)
            join_opencl(&draft);
        tx_topo_sysfs_pci(&draft, options->root);
        tx_topo_sysfs_xgmi(&draft, options->root);
        if (!options->no_vendor) {
            tx_topo_nvml(&draft);
            tx_topo_rsmi(&draft);
        }
    } else
        tx_draft_note(&draft, false,
                      "hwloc's environment variables name another machine; live devices are not queried");
    return tx_draft_finish(&draft, topology);
}
