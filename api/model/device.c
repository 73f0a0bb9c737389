/* SPDX-License-Identifier: Apache-2.0
 * The devices of all backends in one list. */
#define _GNU_SOURCE /* strcasestr */
#include "api/model/engine.h"

#include "api/base/drivers.h"
#include "api/base/needs.h"

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

/* Fails and lists the devices. If the name looks like a GPU, it adds a hint about drivers. */
static tx_status fail_without(const char *name)
{
    static const char *const gpus[] = {"gpu", "cuda", "hip", "rocm", "mps", "xpu", "metal", "nvidia", "amd", "opencl"};
    char list[1024] = "";
    int32_t count = 0;
    bool gpu = false;
    tx_status status = tx_device_count(&count);
    for (int32_t i = 0; i < count && !status; i++) {
        tx_device_info info;
        status = tx_device_get(i, &info);
        if (!status)
            tx_list_add(list, sizeof list, ", ", "%s (%s)", info.id, info.name);
    }
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++)
        gpu = gpu || strncmp(name, gpus[i], strlen(gpus[i])) == 0;
    if (tx_devices_missing())
        return tx_fail(TX_NOT_FOUND, "no device \"%s\": there are %s; %s", name, *list ? list : "none",
                       tx_devices_missing());
    return tx_fail(TX_NOT_FOUND, "no device \"%s\": there are %s%s", name, *list ? list : "none",
                   gpu ? "; TX uses all GPUs through OpenCL (opencl:0): install the OpenCL driver of the GPU's "
                         "vendor (clinfo lists the devices)"
                       : "");
}

tx_status tx_device_find(const char *name, int32_t *index)
{
    TX_NEEDS(name && index, TX_INVALID);
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
