/* SPDX-License-Identifier: Apache-2.0
 * The device that TX chooses if the user names none, and the remedy if OpenCL lists no GPU. The linker replaces the
 * table of backends and the search of /dev by the test's own. */
#include "api/base/gpus.h"
#include "backends/backend.h"
#include "tests/scratch.h"

#include <sys/stat.h>
#include <sys/wait.h>

/* ---- Files in /dev ---------------------------------------------------------------------------------------------- */

static void place(const char *root, const char *name, const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        mkdir(path, 0755);
    }
    assert_ok(tx_file_write(path, text, strlen(text)));
}

bool __real_tx_gpus_seen(const char *root);

static void expect_missing(const char *root, const char *wanted)
{
    char text[512];
    tx_gpus_missing(root, text, sizeof text);
    if (!strstr(text, wanted))
        fail_msg("\"%s\" lacks \"%s\"", text, wanted);
}

static void test_none(void **state)
{
    char *root = make_scratch();
    assert_false(__real_tx_gpus_seen(root));
    expect_missing(root, "no GPU: no /dev/nvidia*");
    /* The render node of a virtual machine. */
    place(root, "/dev/dri/renderD128", "");
    place(root, "/sys/class/drm/renderD128/device/vendor", "0x1af4\n");
    assert_false(__real_tx_gpus_seen(root));
    remove_scratch(root);
}

static void test_packages(void **state)
{
    static const struct {
        const char *vendor, *release, *wanted;
    } cases[] = {
        {"0x1002\n", "PRETTY_NAME=x\nVERSION_ID=\"13\"\nID=debian\n", "AMD GPU (/dev/dri/renderD129)"},
        {"0x1002\n", "VERSION_ID=\"13\"\nID=debian\n", "install rocm-opencl-icd;"},
        {"0x8086\n", "ID=ubuntu\nVERSION_ID=\"24.04\"\n", "install intel-opencl-icd;"},
        {"0x8086\n", "ID=debian\nVERSION_ID=\"12\"\n", "install intel-opencl-icd;"},
        {"0x8086\n", "ID=fedora\nVERSION_ID=42\n", "install the OpenCL driver of its vendor;"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *root = make_scratch();
        place(root, "/dev/dri/renderD129", "");
        place(root, "/sys/class/drm/renderD129/device/vendor", cases[i].vendor);
        place(root, "/etc/os-release", cases[i].release);
        assert_true(__real_tx_gpus_seen(root));
        expect_missing(root, cases[i].wanted);
        remove_scratch(root);
    }
    char *root = make_scratch();
    place(root, "/dev/nvidia0", "");
    place(root, "/etc/os-release", "ID=debian\nVERSION_ID=\"12\"\n");
    expect_missing(root, "nvidia-opencl-icd (component non-free)");
    remove_scratch(root);
}

/* root may open everything, so the test runs as another user. */
static void test_denied(void **state)
{
    char *root = make_scratch(), path[4096];
    place(root, "/dev/nvidia0", "");
    snprintf(path, sizeof path, "%s/dev/nvidia0", root);
    assert_int_equal(chmod(path, 0000), 0);
    assert_int_equal(chmod(root, 0755), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char text[512];
        if (geteuid() == 0 && setuid(65534))
            _exit(2);
        tx_gpus_missing(root, text, sizeof text);
        _exit(strstr(text, "no right to open /dev/nvidia0 (NVIDIA GPU)") && strstr(text, "usermod -aG video") ? 0 : 1);
    }
    int end;
    assert_int_equal(waitpid(child, &end, 0), child);
    assert_true(WIFEXITED(end));
    assert_int_equal(WEXITSTATUS(end), 0);
    remove_scratch(root);
}

/* ---- Choice ------------------------------------------------------------------------------------------------------ */

static tx_device_info devices[4];
static int32_t device_count;
static bool broken; /* devices of the second backend cannot be opened */

static tx_status count_one(int32_t *count)
{
    *count = 1;
    return TX_OK;
}

static tx_status cpu_info(int32_t index, tx_device_info *info)
{
    *info = (tx_device_info){.id = "cpu", .name = "processor", .type = TX_DEVICE_CPU};
    return TX_OK;
}

static tx_status count_devices(int32_t *count)
{
    *count = device_count;
    return TX_OK;
}

static tx_status device_info(int32_t index, tx_device_info *info)
{
    *info = devices[index];
    return TX_OK;
}

static tx_status open_nothing(int32_t index, const tx_open_options *options, tx_context **context)
{
    *context = NULL;
    return TX_OK;
}

static tx_status open_device(int32_t index, const tx_open_options *options, tx_context **context)
{
    *context = NULL;
    return broken ? tx_fail(TX_UNSUPPORTED, "the start-up test failed") : TX_OK;
}

static void close_nothing(tx_context *context)
{
}

static const tx_backend cpu = {.name = "cpu",
                               .version = TX_BACKEND_VERSION,
                               .device_count = count_one,
                               .device_info = cpu_info,
                               .open = open_nothing,
                               .close = close_nothing};
static const tx_backend opencl = {.name = "opencl",
                                  .version = TX_BACKEND_VERSION,
                                  .device_count = count_devices,
                                  .device_info = device_info,
                                  .open = open_device,
                                  .close = close_nothing};

const tx_backend *const *__wrap_tx_backends(int32_t *count);
const tx_backend *const *__wrap_tx_backends(int32_t *count)
{
    static const tx_backend *const all[] = {&cpu, &opencl};
    *count = 2;
    return all;
}

bool __wrap_tx_gpus_seen(const char *root);
bool __wrap_tx_gpus_seen(const char *root)
{
    return true;
}

static void add_device(const char *name, tx_device_type type)
{
    tx_device_info *d = &devices[device_count];
    *d = (tx_device_info){.type = type, .driver = "1"};
    snprintf(d->id, sizeof d->id, "opencl:%d", device_count++);
    snprintf(d->name, sizeof d->name, "%s", name);
}

/* Opens an engine without a name, and checks its device and the reason. */
static void expect_choice(const char *id, const char *reason)
{
    static const char *const names[] = {NULL, "auto"};
    for (int i = 0; i < 2; i++) {
        const tx_engine_options options = {.size = sizeof options, .device = names[i]};
        tx_engine *engine;
        assert_ok(tx_engine_create(&options, &engine));
        assert_string_equal(tx_engine_device(engine)->id, id);
        if (!strstr(tx_engine_reason(engine), reason))
            fail_msg("\"%s\" lacks \"%s\"", tx_engine_reason(engine), reason);
        tx_engine_free(engine);
    }
    device_count = 0;
    broken = false;
}

static void test_choice(void **state)
{
    add_device("PoCL", TX_DEVICE_CPU);
    add_device("H100", TX_DEVICE_GPU);
    expect_choice("opencl:1", "the only GPU; --device cpu selects the processor");
    add_device("H100", TX_DEVICE_GPU);
    add_device("H100", TX_DEVICE_GPU);
    expect_choice("opencl:0", "the first GPU");
    add_device("UHD 770", TX_DEVICE_GPU);
    add_device("RTX 4090", TX_DEVICE_GPU);
    expect_choice("cpu", "select one by --device, opencl:0 (UHD 770) or opencl:1 (RTX 4090)");
    add_device("PoCL", TX_DEVICE_CPU);
    expect_choice("cpu", "no GPU: no /dev/nvidia*");
    add_device("H100", TX_DEVICE_GPU);
    broken = true;
    expect_choice("cpu", "opencl:0 (H100) is not used: the start-up test failed");
}

/* A device that the user names has no reason, and is never replaced. */
static void test_named(void **state)
{
    const tx_engine_options options = {.size = sizeof options, .device = "gpu"};
    tx_engine *engine;
    add_device("H100", TX_DEVICE_GPU);
    assert_ok(tx_engine_create(&options, &engine));
    assert_string_equal(tx_engine_reason(engine), "");
    tx_engine_free(engine);
    broken = true;
    assert_refused(tx_engine_create(&options, &engine), TX_UNSUPPORTED, "the start-up test failed");
    device_count = 0;
    assert_refused(tx_engine_create(&options, &engine), TX_NOT_FOUND, "TX uses GPUs through OpenCL: no GPU");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),   cmocka_unit_test(test_packages), cmocka_unit_test(test_denied),
        cmocka_unit_test(test_choice), cmocka_unit_test(test_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
