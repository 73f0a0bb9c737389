/* SPDX-License-Identifier: Apache-2.0
 * Files mapped into memory. */
#include "models/files/view.h"

#include "api/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a view does not let its users change is changed by its end. */
static void *owned(const tx_view *view)
{
    return (void *)(uintptr_t)view->data;
}

static tx_status read_whole(const char *path, tx_view *view)
{
    char *data;
    size_t size;
    tx_status status = tx_file_read(path, INT64_MAX, &data, &size);
    if (!status)
        *view = (tx_view){.data = data, .size = size};
    return status;
}

tx_status tx_view_open(const char *path, tx_view *view)
{
    struct stat info;
    void *data = MAP_FAILED;
    tx_view made = {.mapped = true};
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return read_whole(path, view);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    bool ok = descriptor >= 0 && fstat(descriptor, &info) == 0;
    if (ok)
        made.size = (size_t)info.st_size;
    if (ok && made.size > 0) {
        data = mmap(NULL, made.size, PROT_READ, MAP_PRIVATE, descriptor, 0);
        ok = data != MAP_FAILED;
        made.data = data;
    }
    int error = errno;
    if (descriptor >= 0)
        close(descriptor);
    if (!ok)
        return tx_fail(error == ENOENT || error == ENOTDIR ? TX_NOT_FOUND
                       : error == ENOMEM                   ? TX_MEMORY
                                                           : TX_IO,
                       "%s: cannot read: %s", path, strerror(error));
    *view = made;
    return TX_OK;
}

void tx_view_close(tx_view *view)
{
    if (!view->mapped)
        free(owned(view));
    else if (view->size > 0)
        munmap(owned(view), view->size);
    *view = (tx_view){0};
}
