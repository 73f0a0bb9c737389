/* SPDX-License-Identifier: Apache-2.0
 * Reads amounts of memory such as "8GiB" from options. */
#include "models/tx_options.h"

#include "api/base/needs.h"
#include "api/base/number.h"

#include <strings.h>

tx_status tx_read_bytes(const char *text, int64_t *bytes)
{
    TX_NEEDS(text && bytes, TX_INVALID);
    static const struct {
        const char *name;
        double bytes;
    } units[] = {
        {"", 1},     {"B", 1},    {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
        {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9},     {"TB", 1e12}};
    char *unit;
    const double number = tx_number_read(text, &unit);
    while (unit != text && *unit == ' ')
        unit++;
    for (size_t i = 0; i < sizeof units / sizeof units[0] && unit != text; i++) {
        const double value = number * units[i].bytes;
        if (strcasecmp(unit, units[i].name) == 0 && value >= 1 && value < 9e18) {
            *bytes = (int64_t)value;
            return TX_OK;
        }
    }
    return tx_fail(TX_INVALID, "\"%.40s\" is not an amount of memory: write 8GiB, 500MB or a number of bytes", text);
}
