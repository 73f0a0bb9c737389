/* SPDX-License-Identifier: Apache-2.0
 * Where hwloc looks for its plugins. PoCL hides them so that its own use of hwloc does not end in OpenCL again; TX
 * leaves hwloc's OpenCL plugin out by itself. */
#include "comm/topology/sources.h"

#include <stdlib.h>
#include <string.h>

static const char variable[] = "HWLOC_PLUGINS_PATH", nowhere[] = "/dev/null";

bool tx_topo_plugins_show(void)
{
    const char *path = getenv(variable);
    bool hidden = path && strcmp(path, nowhere) == 0;
    if (hidden)
        unsetenv(variable);
    return hidden;
}

void tx_topo_plugins_hide(bool hidden)
{
    if (hidden)
        setenv(variable, nowhere, 1);
}
