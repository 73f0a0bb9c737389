/* SPDX-License-Identifier: Apache-2.0
 * Combines the adapters of the command line into one, in a temporary folder that exists while the model is open. */
#include "tools/generate/txgen.h"

#include "tx_convert.h"
#include "tx_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tx_status combine(const txgen_settings *set, const char *folder)
{
    double weight[TXGEN_ADAPTERS];
    const tx_combination how = {.size = sizeof how,
                                .adapter = set->adapter.word,
                                .count = set->adapter.count,
                                .weight = set->adapter_weights ? weight : NULL,
                                .type = set->combination_type,
                                .density = 1};
    if (set->adapter_weights)
        TX_TRY(tx_options_numbers("adapter_weights", set->adapter_weights, set->adapter.count, weight));
    return tx_combine_adapters(&how, folder);
}

tx_status txgen_open_adapter(const txgen_settings *set, txgen_adapter *adapter)
{
    const char *temporary = getenv("TMPDIR");
    *adapter = (txgen_adapter){.folder = set->adapter.count ? set->adapter.word[0] : NULL};
    if (set->adapter.count < 2 && !set->adapter_weights)
        return TX_OK;
    snprintf(adapter->parent, sizeof adapter->parent, "%.4000s/txgen.XXXXXX",
             temporary && *temporary ? temporary : "/tmp");
    if (!mkdtemp(adapter->parent)) {
        const tx_status status = tx_fail(TX_IO, "%s: no temporary folder: set TMPDIR", adapter->parent);
        *adapter->parent = '\0';
        return status;
    }
    snprintf(adapter->path, sizeof adapter->path, "%s/adapter", adapter->parent);
    adapter->folder = adapter->path;
    return combine(set, adapter->path);
}

void txgen_close_adapter(txgen_adapter *adapter)
{
    char *name = strrchr(adapter->parent, '/');
    if (!name)
        return;
    *name = '\0';
    (void)tx_folder_remove(adapter->parent, name + 1);
}
