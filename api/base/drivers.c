/* SPDX-License-Identifier: Apache-2.0
 * Finds OpenCL drivers and passes them to the OpenCL loader in a temporary folder. */
#include "api/base/drivers.h"

#include "api/base/rehearse.h"

#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VENDORS "/etc/OpenCL/vendors"
#define VARIABLE "OCL_ICD_VENDORS"

#ifdef __aarch64__
#define MACHINE "aarch64-linux-gnu"
#else
#define MACHINE "x86_64-linux-gnu"
#endif

enum { PATTERNS = 7, DRIVERS = 3 };

/* Paths of each driver from vendors and distributions, the most usual first. The first that exists is used. */
static const char *const drivers[DRIVERS][PATTERNS] = {
    {"/usr/lib/" MACHINE "/libnvidia-opencl.so.1", "/usr/lib/" MACHINE "/nvidia/current/libnvidia-opencl.so.1",
     "/usr/lib64/libnvidia-opencl.so.1", "/usr/lib64/nvidia/libnvidia-opencl.so.1",
     "/usr/local/nvidia/lib64/libnvidia-opencl.so.1", "/usr/lib/libnvidia-opencl.so.1",
     "/usr/lib/wsl/lib/libnvidia-opencl.so.1"},
    {"/opt/rocm/lib/libamdocl64.so", "/opt/rocm/opencl/lib/libamdocl64.so", "/opt/rocm-*/lib/libamdocl64.so",
     "/opt/amdgpu*/lib/" MACHINE "/libamdocl64.so", "/usr/lib64/libamdocl64.so", "/usr/lib/" MACHINE "/libamdocl64.so"},
    {"/usr/lib/" MACHINE "/intel-opencl/libigdrcl.so", "/usr/lib64/intel-opencl/libigdrcl.so",
     "/usr/lib/intel-opencl/libigdrcl.so"},
};

/* Returns the first file that matches in `path`, or false if there is none. */
static bool first_match(const char *root, const char *pattern, char path[PATH_MAX])
{
    glob_t found = {0};
    char whole[PATH_MAX];
    snprintf(whole, sizeof whole, "%s%s", root, pattern);
    const bool some = glob(whole, 0, NULL, &found) == 0 && found.gl_pathc > 0;
    if (some)
        snprintf(path, PATH_MAX, "%s", found.gl_pathv[0]);
    globfree(&found);
    return some;
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && *value;
}

/* Returns the path of an .icd file in the folder. */
static const char *icd(const char *folder, int driver, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%.4000s/%d.icd", folder, driver);
    return path;
}

/* Creates the folder with a file for each library found ("" if not found). Returns false on failure. */
static bool make_folder(char *folder, char libraries[DRIVERS][PATH_MAX])
{
    char path[PATH_MAX];
    if (!mkdtemp(folder))
        return false;
    for (int i = 0; i < DRIVERS; i++) {
        FILE *file = *libraries[i] ? fopen(icd(folder, i, path), "w") : NULL;
        if (!file)
            continue;
        fprintf(file, "%s\n", libraries[i]);
        fclose(file);
    }
    return true;
}

static void remove_folder(const char *folder)
{
    char path[PATH_MAX];
    for (int i = 0; i < DRIVERS; i++)
        unlink(icd(folder, i, path));
    rmdir(folder);
}

static bool find_libraries(const char *root, char libraries[DRIVERS][PATH_MAX])
{
    bool any = false;
    for (int i = 0; i < DRIVERS; i++) {
        bool found = false;
        for (int k = 0; k < PATTERNS && drivers[i][k] && !found; k++)
            found = first_match(root, drivers[i][k], libraries[i]);
        any = any || found;
    }
    return any;
}

void tx_load_drivers(const char *root, void (*load)(void))
{
    char libraries[DRIVERS][PATH_MAX] = {""}, path[PATH_MAX], folder[PATH_MAX];
    const char *temporary = is_set("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    const bool configured = is_set(VARIABLE) || is_set("OCL_ICD_FILENAMES") || is_set("OPENCL_VENDOR_PATH") ||
                            first_match(root, VENDORS "/*.icd", path);
    snprintf(folder, sizeof folder, "%.4000s/tx-icd-XXXXXX", temporary);
    /* If the folder cannot be created, the loader finds no driver, and the caller reports that. */
    const bool provided = !configured && find_libraries(root, libraries) && make_folder(folder, libraries);
    if (provided)
        setenv(VARIABLE, folder, 1);
    load();
    if (provided) {
        unsetenv(VARIABLE);
        remove_folder(folder);
    }
}

/* ---- Rehearsal --------------------------------------------------------------------------------------------- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool rehearsed;
static char failure[1024];

/* Lists the names of the .icd files, for a message. */
static void name_drivers(char *text, size_t size)
{
    glob_t found = {0};
    *text = '\0';
    if (is_set(VARIABLE))
        tx_list_add(text, size, ", ", VARIABLE "=%.200s", getenv(VARIABLE));
    else if (glob(VENDORS "/*.icd", 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            tx_list_add(text, size, ", ", "%s", found.gl_pathv[i]);
    globfree(&found);
}

tx_status tx_rehearse_drivers(tx_status (*list)(const void *))
{
    char names[400];
    pthread_mutex_lock(&mutex);
    if (!rehearsed && tx_rehearse("an OpenCL driver fails when its devices are listed", list, NULL) == TX_FORMAT) {
        name_drivers(names, sizeof names);
        snprintf(failure, sizeof failure,
                 "%.500s, so that no OpenCL device is used: repair or remove the driver (%s), or set " VARIABLE
                 " to another",
                 tx_error(), names);
    }
    rehearsed = true;
    pthread_mutex_unlock(&mutex);
    return *failure ? tx_fail(TX_NOT_FOUND, "%s", failure) : TX_OK;
}

const char *tx_driver_failure(void)
{
    pthread_mutex_lock(&mutex);
    const char *text = *failure ? failure : NULL;
    pthread_mutex_unlock(&mutex);
    return text;
}
