/* SPDX-License-Identifier: Apache-2.0
 * OpenCL drivers that no .icd names: the files that the loader finds during the search, and their removal. */
#include "api/base/drivers.h"
#include "tests/scratch.h"

#include <sys/stat.h>

static char seen[8192]; /* "FILE: its text" of the folder that the loader saw; "" none */
static char folder[4096];

static void record_loader(void)
{
    const char *value = getenv("OCL_ICD_VENDORS");
    seen[0] = '\0';
    snprintf(folder, sizeof folder, "%s", value ? value : "");
    for (int i = 0; i < 3 && *folder == '/'; i++) {
        char name[16], *path = NULL, *text = NULL;
        size_t size = 0;
        snprintf(name, sizeof name, "%d.icd", i);
        path = tx_path_join(folder, name);
        if (tx_file_read(path, 4096, &text, &size) == TX_OK) {
            strcat(seen, text);
            free(text);
        }
        free(path);
    }
}

/* An empty file, with the folders above it. */
static void place(const char *root, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        mkdir(path, 0755);
    }
    assert_ok(tx_file_write(path, "", 0));
}

static void nothing_there(void **state)
{
    char *root = make_scratch();
    tx_load_drivers(root, record_loader);
    assert_string_equal(folder, "");
    remove_scratch(root);
}

/* The usual path of each vendor has priority; the loader finds both vendors; then everything is restored. */
static void found(void **state)
{
    char *root = make_scratch(), wanted[8192];
    struct stat info;
    place(root, "/usr/lib64/libnvidia-opencl.so.1");
    place(root, "/opt/rocm-6.2.1/lib/libamdocl64.so");
    tx_load_drivers(root, record_loader);
    snprintf(wanted, sizeof wanted, "%s/usr/lib64/libnvidia-opencl.so.1\n%s/opt/rocm-6.2.1/lib/libamdocl64.so\n", root,
             root);
    assert_string_equal(seen, wanted);
    assert_null(getenv("OCL_ICD_VENDORS"));
    assert_int_not_equal(stat(folder, &info), 0);
    place(root, "/opt/rocm/lib/libamdocl64.so");
    tx_load_drivers(root, record_loader);
    assert_non_null(strstr(seen, "/opt/rocm/lib/libamdocl64.so\n"));
    assert_null(strstr(seen, "6.2.1"));
    remove_scratch(root);
}

/* Drivers that the user or the system names have priority: then the loader's settings are not changed. */
static void given_drivers_have_priority(void **state)
{
    static const char *const variables[] = {"OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH"};
    char *root = make_scratch();
    place(root, "/opt/rocm/lib/libamdocl64.so");
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        setenv(variables[i], "somewhere", 1);
        tx_load_drivers(root, record_loader);
        assert_string_equal(folder, i == 0 ? "somewhere" : "");
        unsetenv(variables[i]);
    }
    place(root, "/etc/OpenCL/vendors/pocl.icd");
    tx_load_drivers(root, record_loader);
    assert_string_equal(folder, "");
    /* A temporary folder that cannot be made. */
    remove_scratch(root);
    root = make_scratch();
    place(root, "/opt/rocm/lib/libamdocl64.so");
    setenv("TMPDIR", "/no such folder", 1);
    tx_load_drivers(root, record_loader);
    unsetenv("TMPDIR");
    assert_string_equal(folder, "");
    remove_scratch(root);
}

int main(void)
{
    static const char *const variables[] = {"OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH"};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_there),
        cmocka_unit_test(found),
        cmocka_unit_test(given_drivers_have_priority),
    };
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        unsetenv(variables[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
