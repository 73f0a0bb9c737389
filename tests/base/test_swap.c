/* SPDX-License-Identifier: Apache-2.0
 * A swap file: any range, in any order, and calls that fail. The linker redirects calls of pread and pwrite to the
 * test. */
#include "api/residency/swap.h"
#include "tests/scratch.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>

enum { BYTES = 5 << 20 };

ssize_t __real_pread(int file, void *data, size_t size, off_t at);
ssize_t __real_pwrite(int file, const void *data, size_t size, off_t at);
ssize_t __wrap_pread(int file, void *data, size_t size, off_t at);
ssize_t __wrap_pwrite(int file, const void *data, size_t size, off_t at);

typedef enum fault { NONE, READ_ERROR, READ_SHORT, WRITE_FULL, WRITE_SHORT } fault;
static _Atomic fault wanted;
static _Atomic(const char *) forbidden; /* memory that the disk does not reach */

static bool is_forbidden(const void *data)
{
    const char *at = data, *begin = forbidden;
    errno = EFAULT;
    return begin && at >= begin && at < begin + BYTES;
}

ssize_t __wrap_pread(int file, void *data, size_t size, off_t at)
{
    if (is_forbidden(data))
        return -1;
    if (wanted == READ_ERROR) {
        errno = EIO;
        return -1;
    }
    return __real_pread(file, data, wanted == READ_SHORT ? size / 2 : size, at);
}

ssize_t __wrap_pwrite(int file, const void *data, size_t size, off_t at)
{
    if (is_forbidden(data))
        return -1;
    if (wanted == WRITE_FULL) {
        errno = ENOSPC;
        return -1;
    }
    return wanted == WRITE_SHORT ? (ssize_t)(size / 2) : __real_pwrite(file, data, size, at);
}

static void fill(char *data, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = (char)(seed >> 24);
    }
}

/* Transfers of different memory that meet in a block, or in bytes, are in the order in which they began. */
static void neighbours(tx_swap *swap, char *model, char *data)
{
    enum { STEP = 1000, STEPS = 400 };
    fill(model, STEP * STEPS, 99);
    memcpy(data, model, STEP * STEPS);
    for (int64_t i = 0; i < STEPS; i++)
        assert_ok(tx_swap_begin(swap, true, i * STEP, data + i * STEP, STEP));
    assert_ok(tx_swap_begin(swap, false, 0, data + (1 << 20), STEP * STEPS));
    assert_ok(tx_swap_wait(swap, data, BYTES));
    assert_memory_equal(data + (1 << 20), model, STEP * STEPS);
}

/* Ranges that begin and end within blocks, over parts, and at the file's end; the first is of whole blocks. */
static void check_ranges(bool within_reach)
{
    static const int64_t range[][2] = {{0, BYTES},          {1, 1}, {4095, 2}, {512, 3 << 20}, {(1 << 20) - 7, 14},
                                       {BYTES - 5000, 5000}};
    char *folder = make_scratch(), *model = calloc(1, BYTES), *data = aligned_alloc(TX_FILE_BLOCK, BYTES);
    tx_swap *swap = NULL;
    int64_t at;
    assert_non_null(model);
    assert_non_null(data);
    forbidden = within_reach ? NULL : data;
    assert_ok(tx_swap_create(folder, &swap));
    assert_ok(tx_swap_reserve(swap, BYTES - 4096, &at));
    assert_int_equal(at, 0);
    assert_ok(tx_swap_reserve(swap, 4095, &at));
    assert_int_equal(at, BYTES - 4096);
    for (size_t r = 0; r < sizeof range / sizeof range[0]; r++) {
        assert_ok(tx_swap_begin(swap, false, 0, data, BYTES));
        assert_ok(tx_swap_wait(swap, data, BYTES));
        assert_memory_equal(data, model, BYTES); /* at first zeros */
        fill(model + range[r][0], (size_t)range[r][1], (unsigned)r + 1);
        memcpy(data, model + range[r][0], (size_t)range[r][1]);
        assert_ok(tx_swap_begin(swap, true, range[r][0], data, range[r][1]));
        assert_ok(tx_swap_begin(swap, false, 0, data, 100)); /* waits for the write from that memory */
        assert_ok(tx_swap_wait(swap, data, BYTES));
        assert_memory_equal(data, model, 100);
    }
    neighbours(swap, model, data);
    assert_int_equal(rmdir(folder) == 0 || errno == ENOTEMPTY, true);
    assert_false(tx_file_exists(folder)); /* nothing had a name there */
    assert_int_equal(tx_swap_begin(swap, true, BYTES - 1, data, 4096), TX_INTERNAL);
    tx_swap_free(swap);
    forbidden = NULL;
    free(model);
    free(data);
    free(folder);
}

static void any_range(void **state)
{
    check_ranges(true);
    check_ranges(false);
}

/* All later calls report a failure, with the folder and the reason. */
static void failures(void **state)
{
    static const struct {
        fault fault;
        bool out;
        const char *text;
    } rows[] = {{READ_ERROR, false, "cannot read bytes 0 to 8192 of the offload file: Input/output error"},
                {READ_SHORT, false, "Input/output error"},
                {WRITE_FULL, true, "cannot write bytes 0 to 8192 of the offload file: No space left on device"},
                {WRITE_SHORT, true, "Input/output error"}};
    static char data[8192];
    char *folder = make_scratch();
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        tx_swap *swap = NULL;
        int64_t at;
        assert_ok(tx_swap_create(folder, &swap));
        assert_ok(tx_swap_reserve(swap, sizeof data, &at));
        wanted = rows[r].fault;
        assert_ok(tx_swap_begin(swap, rows[r].out, 0, data, sizeof data));
        assert_refused(tx_swap_wait(swap, data, sizeof data), TX_IO, rows[r].text);
        assert_non_null(strstr(tx_error(), folder));
        wanted = NONE;
        assert_refused(tx_swap_begin(swap, false, 0, data, 1), TX_IO, rows[r].text);
        tx_swap_free(swap);
    }
    remove_scratch(folder);
}

static void no_room(void **state)
{
    char *folder = make_scratch();
    tx_swap *swap = NULL;
    struct rlimit before, few;
    int64_t at;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    few = before;
    few.rlim_cur = 8192;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    assert_ok(tx_swap_create(folder, &swap));
    assert_refused(tx_swap_reserve(swap, 1 << 20, &at), TX_IO, "cannot reserve");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    tx_swap_free(swap);
    swap = NULL;
    assert_refused(tx_swap_create(TX_PATH(folder, "none"), &swap), TX_NOT_FOUND, "none");
    assert_null(swap);
    remove_scratch(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_range), cmocka_unit_test(failures),
                                       cmocka_unit_test(no_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
