/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits for kernels and launches: the device's own, the kernel variant that TX_OCL_VARIANT requests, and the
 * smaller device that TX_OCL_LIMITS simulates.
 */
#include "backends/opencl/runtime/internal.h"

#include "api/base/environment.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The limits that can be simulated, with the strictest value that TX supports. The device's own value is the other
 * end of the range. It is the upper end except for ALIGN. */
enum limit { LOCAL, GROUP, ALLOCATION, ALIGN, LIMITS };
static const struct {
    const char *name;
    int64_t strictest;
} known[LIMITS] = {
    [LOCAL] = {"local", 16384},             /* bytes of local memory */
    [GROUP] = {"group", 1},                 /* work-items of a work-group */
    [ALLOCATION] = {"allocation", 1048576}, /* bytes in one allocation */
    [ALIGN] = {"align", 65536},             /* alignment of sub-buffers in bytes; a power of two */
};

/* ---- TX_OCL_LIMITS ----------------------------------------------------------------------------------------- */

/* Returns a whole number, or a share P/Q of `whole`; -1 if the text is neither. */
static int64_t read_number(const char *text, size_t length, int64_t whole)
{
    char digits[2][16];
    int used = 0;
    const int parts = sscanf(text, "%15[0-9]%n/%15[0-9]%n", digits[0], &used, digits[1], &used);
    if (parts < 1 || (size_t)used != length)
        return -1;
    const int64_t part = strtoll(digits[0], NULL, 10), of = parts > 1 ? strtoll(digits[1], NULL, 10) : 0;
    if (parts == 1)
        return part;
    return part <= of && of > 0 && of < 1000 ? whole / of * part : -1;
}

/* Reads one NAME=NUMBER of `length` characters into `value`, which holds the limits so far. */
static tx_status read_limit(const char *text, size_t length, const tx_device_info *info, int64_t value[LIMITS])
{
    const char *equals = memchr(text, '=', length);
    const size_t name = equals ? (size_t)(equals - text) : length;
    const int shown = length < 60 ? (int)length : 60;
    int i = 0;
    while (i < LIMITS && (strlen(known[i].name) != name || memcmp(known[i].name, text, name) != 0))
        i++;
    if (i == LIMITS)
        return tx_fail(TX_INVALID, "TX_OCL_LIMITS: \"%.*s\" is not a limit; use local, group, allocation or align",
                       shown, text);
    const int64_t whole = i == ALLOCATION ? info->memory : 0;
    const int64_t number = equals ? read_number(equals + 1, length - name - 1, whole) : -1;
    const int64_t low = i == ALIGN ? value[i] : known[i].strictest, high = i == ALIGN ? known[i].strictest : value[i];
    if (!(number >= low && number <= high) || (i == ALIGN && (number & (number - 1)) != 0))
        return tx_fail(TX_INVALID,
                       "TX_OCL_LIMITS: \"%.*s\": on this device %s must be a %s from %" PRId64 " to %" PRId64 "%s",
                       shown, text, known[i].name, i == ALIGN ? "power of two" : "number", low, high,
                       i == ALLOCATION ? ", or a share of its memory such as 1/4" : "");
    value[i] = number;
    return TX_OK;
}

static tx_status read_limit_list(const char *text, const tx_device_info *info, int64_t value[LIMITS])
{
    tx_status status = TX_OK;
    while (*text && status == TX_OK) {
        const size_t length = strcspn(text, ",");
        status = read_limit(text, length, info, value);
        text += length + (text[length] == ',');
    }
    return status;
}

/* Names the simulated limits, in the order of `known`. */
static void name_simulated(const int64_t own[LIMITS], const int64_t value[LIMITS], char *text, size_t size)
{
    text[0] = '\0';
    for (int i = 0; i < LIMITS; i++)
        if (value[i] != own[i])
            tx_list_add(text, size, ",", "%s=%" PRId64, known[i].name, value[i]);
}

/* ---- TX_OCL_VARIANT ---------------------------------------------------------------------------------------- */

/* Selects the variant of the kernels: by the type of the device unless the user sets TX_OCL_VARIANT. So GPU kernels
 * can be tested on a CPU. */
static tx_status read_variant(const tx_device_info *info, tx_cl_limits *limits)
{
    const char *wanted = getenv("TX_OCL_VARIANT");
    limits->cpu = info->type == TX_DEVICE_CPU;
    if (!wanted || !wanted[0])
        return TX_OK;
    limits->cpu = strcmp(wanted, "cpu") == 0;
    return limits->cpu || strcmp(wanted, "gpu") == 0
               ? TX_OK
               : tx_fail(TX_INVALID, "TX_OCL_VARIANT=%.60s is invalid; use cpu or gpu", wanted);
}

/* ---- The device -------------------------------------------------------------------------------------------- */

/* Reads the device's own limits. Those that can be simulated are also stored in `own`. */
static void read_own(cl_device_id device, const tx_device_info *info, tx_cl_limits *limits, int64_t own[LIMITS])
{
    const int64_t bits = tx_cl_number(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, 0),
                  lanes = tx_cl_number(device, CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT, 0);
    size_t items[16] = {1, 1, 1};
    clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof items, items, NULL);
    limits->lanes = lanes >= 16 ? 16 : lanes >= 8 ? 8 : 4;
    memcpy(limits->max_item, items, sizeof limits->max_item);
    own[LOCAL] = tx_cl_number(device, CL_DEVICE_LOCAL_MEM_SIZE, 0);
    own[GROUP] = tx_cl_number(device, CL_DEVICE_MAX_WORK_GROUP_SIZE, 1);
    own[ALLOCATION] = info->max_allocation;
    own[ALIGN] = bits >= 8 ? bits / 8 : 1;
}

/* Assumed operations per second and unit, far below the rate of any device; tx_cl_replace_slow corrects them. If
 * the architecture is unknown, the driver may count smaller units. */
#define UNIT_RATE 4e9
#define UNKNOWN_UNIT_RATE 1e9

static double launch_work(const tx_cl_capabilities *can, const tx_cl_limits *limits)
{
    const double rate = can->architecture[0] ? UNIT_RATE : UNKNOWN_UNIT_RATE;
    return limits->cpu ? 0.0 : TX_CL_LAUNCH_SECONDS * rate * (double)can->units;
}

#define PATIENCE 300    /* launches take TX_CL_LAUNCH_SECONDS, but the estimates for the first may be wrong */
#define CACHE_MIB 1024  /* the kernels of a model take 5 to 50 */
#define MAX_COMPILERS 8 /* a compiler may use hundreds of megabytes */

tx_status tx_cl_read_limits(cl_device_id device, const tx_cl_capabilities *can, tx_device_info *info,
                            tx_cl_limits *limits)
{
    const char *wanted = getenv("TX_OCL_LIMITS");
    int64_t own[LIMITS], value[LIMITS];
    read_own(device, info, limits, own);
    limits->compute_units = can->units;
    memcpy(value, own, sizeof value);
    tx_status status = read_variant(info, limits);
    limits->launch_work = launch_work(can, limits);
    if (status == TX_OK && wanted)
        status = read_limit_list(wanted, info, value);
    TX_THEN(status, tx_environment_count("TX_OCL_COMPILERS", 1, MAX_COMPILERS,
                                         "how many programs are compiled at a time", &limits->compilers));
    TX_THEN(status, tx_environment_count("TX_OCL_TIMEOUT", 0, limits->cpu ? 0 : PATIENCE,
                                         "seconds without progress after which a run ends; 0 means no limit",
                                         &limits->patience));
    TX_THEN(status,
            tx_environment_count("TX_CACHE_SIZE", 0, CACHE_MIB,
                                 "MiB of compiled kernels that are kept; 0 means no limit", &limits->cache_mib));
    if (status != TX_OK)
        return status;
    name_simulated(own, value, limits->simulated, sizeof limits->simulated);
    limits->local_bytes = value[LOCAL];
    tx_cl_narrow(limits, (size_t)value[GROUP]);
    limits->max_allocation = info->max_allocation = value[ALLOCATION];
    limits->alignment = value[ALIGN];
    limits->libraries = value[LOCAL] == own[LOCAL] && value[GROUP] == own[GROUP];
    if (limits->simulated[0]) {
        char name[sizeof info->name];
        const int length = (int)(sizeof name - sizeof " (simulated: )" - strlen(limits->simulated));
        snprintf(name, sizeof name, "%.*s (simulated: %s)", length, info->name, limits->simulated);
        memcpy(info->name, name, sizeof name);
    }
    return TX_OK;
}

void tx_cl_narrow(tx_cl_limits *limits, size_t group)
{
    limits->max_group = group;
    for (int i = 0; i < 3; i++)
        limits->max_item[i] = limits->max_item[i] < group ? limits->max_item[i] : group;
}

/* ---- Fitting --------------------------------------------------------------------------------------------------- */

size_t tx_cl_group(const tx_cl_builder *b, size_t wanted)
{
    if (b->limits->cpu)
        return 1;
    size_t group = 1;
    while (group * 2 <= wanted && group * 2 <= b->limits->max_item[0])
        group *= 2;
    return group;
}

int64_t tx_cl_parts_per_launch(tx_cl_builder *b, int64_t count, double work)
{
    const tx_cl_limits *limits = b->limits;
    b->command->work = fmax(b->command->work, work);
    if (limits->launch_work <= 0.0)
        return count;
    const double launches = ceil(work / limits->launch_work);
    const int64_t share = launches < (double)count ? tx_cl_blocks(count, (int64_t)fmax(launches, 1.0)) : 1;
    return tx_cl_least(share, TX_CL_MOST_GROUPS);
}

bool tx_cl_fits(const tx_cl_limits *limits, const char *name, int64_t local_bytes, size_t group, char *why, size_t size)
{
    const size_t max_group = limits->max_item[0];
    const bool local_fits = local_bytes <= limits->local_bytes, group_fits = group <= max_group;
    if (why[0] == '\0' && !local_fits)
        snprintf(why, size, "%s needs %" PRId64 " KiB of local memory and the device has %" PRId64, name,
                 (local_bytes + 1023) / 1024, limits->local_bytes / 1024);
    else if (why[0] == '\0' && !group_fits)
        snprintf(why, size, "%s needs work-groups of %zu and the device takes %zu", name, group, max_group);
    return local_fits && group_fits;
}
