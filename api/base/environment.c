/* SPDX-License-Identifier: Apache-2.0
 * Reads settings from environment variables. */
#include "api/base/environment.h"

#include <errno.h>
#include <stdlib.h>

tx_status tx_environment_count(const char *name, int32_t least, int32_t otherwise, const char *meaning, int32_t *count)
{
    const char *text = getenv(name);
    char *end = NULL;
    *count = otherwise;
    if (!text || !*text)
        return TX_OK;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno || *end || value < least || value > INT32_MAX)
        return tx_fail(TX_INVALID, "%s=%.60s: expected %s", name, text, meaning);
    *count = (int32_t)value;
    return TX_OK;
}
