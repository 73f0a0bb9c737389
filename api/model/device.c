/* SPDX-License-Identifier: Apache-2.0
 * The devices of all backends in one list. */
#define _GNU_SOURCE /* strcasestr */
#include "api/model/engine.h"

#include "api/base/drivers.h"
#include "api/base/gpus.h"
#include "api/base/needs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tx_status tx_device_locate(int32_t index, const tx_backend **backend, int32_t *local)
{
    int32_t backends = 0;
    const tx_backend *const *all = tx_backends(&backends);
    int32_t left = index;
    for (int32_t i = 0; i < backends && left >= 0; i++) {
        int32_t count = 0;
        TX_TRY(all[i]->device_count(&count));
        if (left < count) {
            *backend = all[i];
            *local = left;
            return TX_OK;
        }
        left -= count;
    }
    return tx_fail(TX_NOT_FOUND, "there is no device number %d", index);
}

tx_status tx_device_count(int32_t *count)
{
    TX_NEEDS(count, TX_INVALID);
    int32_t backends = 0, total = 0;
    const tx_backend *const *all = tx_backends(&backends);
    for (int32_t i = 0; i < backends; i++) {
        int32_t of_backend = 0;
        TX_TRY(all[i]->device_count(&of_backend));
        total += of_backend;
    }
    *count = total;
    return TX_OK;
}

const char *tx_devices_missing(void)
{
    return tx_driver_failure();
}

tx_status tx_device_get(int32_t index, tx_device_info *info)
{
    TX_NEEDS(info, TX_INVALID);
    const tx_backend *backend = NULL;
    int32_t local = 0;
    tx_status status = tx_device_locate(index, &backend, &local);
    return status == TX_OK ? backend->device_info(local, info) : status;
}

/* Whether `name` (see tx_device_find) selects this device. */
static bool matches(const tx_device_info *info, const char *name)
{
    if (strcmp(name, "gpu") == 0)
        return info->type == TX_DEVICE_GPU;
    const char *colon = strchr(name, ':');
    size_t backend = colon ? (size_t)(colon - name) : strlen(name);
    size_t own = strcspn(info->id, ":");
    if (own != backend || strncmp(info->id, name, backend) != 0)
        return false;
    if (!colon)
        return true;
    bool number = colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1);
    return number ? strcmp(info->id, name) == 0 : colon[1] && strcasestr(info->name, colon + 1);
}

/* Fails and lists the devices. If the name looks like a GPU and there is none, it adds the remedy. */
static tx_status fail_without(const char *name)
{
    static const char *const gpus[] = {"gpu", "cuda", "hip", "rocm", "mps", "xpu", "metal", "nvidia", "amd", "opencl"};
    char list[1024] = "", missing[512] = "";
    int32_t count = 0;
    bool wants_gpu = false, has_gpu = false;
    tx_status status = tx_device_count(&count);
    for (int32_t i = 0; i < count && !status; i++) {
        tx_device_info info;
        status = tx_device_get(i, &info);
        if (!status)
            tx_list_add(list, sizeof list, ", ", "%s (%s)", info.id, info.name);
        has_gpu = has_gpu || (!status && info.type == TX_DEVICE_GPU);
    }
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++)
        wants_gpu = wants_gpu || strncmp(name, gpus[i], strlen(gpus[i])) == 0;
    if (tx_devices_missing())
        snprintf(missing, sizeof missing, "; %s", tx_devices_missing());
    else if (wants_gpu && !has_gpu) {
        snprintf(missing, sizeof missing, "; TX uses GPUs through OpenCL: ");
        tx_gpus_missing("", missing + strlen(missing), sizeof missing - strlen(missing));
    }
    return tx_fail(TX_NOT_FOUND, "no device \"%s\": there are %s%s", name, *list ? list : "none", missing);
}

/* Explains in `reason` why no GPU was chosen, of those from `first` on. */
static tx_status explain(int32_t gpus, const tx_device_info *first, const tx_device_info *other, char *reason,
                         size_t size)
{
    int32_t backends;
    if (gpus)
        snprintf(reason, size, "there are several kinds of GPUs: select one by --device, %s (%s) or %s (%s)", first->id,
                 first->name, other->id, other->name);
    else if (tx_devices_missing())
        snprintf(reason, size, "no OpenCL device is used, because a driver failed");
    else if (tx_backends(&backends) && backends == 1)
        snprintf(reason, size, "this build has no OpenCL");
    else
        tx_gpus_missing("", reason, size);
    return TX_OK;
}

tx_status tx_device_choose(int32_t *index, char *reason, size_t size)
{
    tx_device_info info, first = {.id = ""}, other = {.id = ""};
    int32_t count = 0, gpus = 0;
    TX_NEEDS(index && reason && size, TX_INVALID);
    *index = 0; /* the cpu */
    if (tx_gpus_seen(""))
        TX_TRY(tx_device_count(&count));
    for (int32_t i = 0; i < count; i++) {
        TX_TRY(tx_device_get(i, &info));
        if (info.type != TX_DEVICE_GPU)
            continue;
        if (gpus++ == 0) {
            first = info;
            *index = i;
        } else if (strcmp(info.name, first.name) != 0 || strcmp(info.driver, first.driver) != 0)
            other = info;
    }
    if (gpus && !*other.id) {
        snprintf(reason, size, "the %s; --device cpu selects the processor", gpus == 1 ? "only GPU" : "first GPU");
        return TX_OK;
    }
    *index = 0;
    return explain(gpus, &first, &other, reason, size);
}

tx_status tx_device_find(const char *name, int32_t *index)
{
    char reason[512];
    TX_NEEDS(index, TX_INVALID);
    if (!name || strcmp(name, "auto") == 0)
        return tx_device_choose(index, reason, sizeof reason);
    /* Devices are queried one by one, so that "cpu" does not load every OpenCL driver. */
    for (int32_t i = 0;; i++) {
        const tx_backend *backend = NULL;
        tx_device_info info;
        int32_t local = 0;
        tx_status status = tx_device_locate(i, &backend, &local);
        if (status == TX_NOT_FOUND)
            return fail_without(name);
        TX_THEN(status, backend->device_info(local, &info));
        if (status != TX_OK)
            return status;
        if (matches(&info, name)) {
            *index = i;
            return TX_OK;
        }
    }
}
