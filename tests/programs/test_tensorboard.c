/* SPDX-License-Identifier: Apache-2.0
 * Event files, read back byte by byte. With a folder: writes the events there that tensorboard.py reads. */
#include "models/train/events.h"
#include "tests/scratch.h"

#include <signal.h>
#include <sys/resource.h>

static int warnings;
static char last_warning[1024];

static void on_warning(void *context, const char *message)
{
    warnings++;
    snprintf(last_warning, sizeof last_warning, "%s", message);
}

static const tx_reporter reporter = {.warn = on_warning};

/* CRC-32C, bit by bit. */
static uint32_t crc(const uint8_t *data, size_t size)
{
    uint32_t c = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        c ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
    }
    return ~c;
}

static uint32_t masked(const uint8_t *data, size_t size)
{
    uint32_t c = crc(data, size);
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

static uint64_t fixed(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

/* The vectors of RFC 3720, B.4. */
static void test_crc(void **state)
{
    uint8_t data[32] = {0};
    assert_int_equal(crc(data, 32), 0x8a9136aau);
    memset(data, 0xff, 32);
    assert_int_equal(crc(data, 32), 0x62a8ab43u);
    for (int i = 0; i < 32; i++)
        data[i] = (uint8_t)i;
    assert_int_equal(crc(data, 32), 0x46dd794eu);
    assert_int_equal(crc((const uint8_t *)"123456789", 9), 0xe3069283u);
}

/* Finds the only file in the folder and copies its name to `name`. */
static char *only_file(const char *folder, size_t *size, char name[256])
{
    char *data = NULL;
    assert_int_equal(count_entries(folder), 1);
    DIR *list = opendir(folder);
    assert_non_null(list);
    for (struct dirent *e; (e = readdir(list));)
        if (e->d_name[0] != '.') {
            char *path = TX_PATH(folder, e->d_name);
            snprintf(name, 256, "%s", e->d_name);
            assert_ok(tx_file_read(path, 1 << 20, &data, size));
        }
    closedir(list);
    return data;
}

/* Checks the frame of the record at `at` and returns its data. */
static const uint8_t *open_record(const uint8_t *at, const uint8_t *end, size_t *size)
{
    assert_true(end - at >= 16);
    *size = (size_t)fixed(at, 8);
    assert_int_equal(fixed(at + 8, 4), masked(at, 8));
    assert_true((size_t)(end - at) - 16 >= *size);
    assert_int_equal(fixed(at + 12 + *size, 4), masked(at + 12, *size));
    return at + 12;
}

static void test_records(void **state)
{
    char *folder = make_scratch(), name[256];
    tx_tensorboard *board = NULL;
    assert_ok(tx_tensorboard_open(folder, &reporter, &board));
    tx_tensorboard_scalar(board, "a/loss", 300, 1.5, 1000.25);
    size_t size, length;
    /* The file is read before it is closed: every point is written at once. */
    char *data = only_file(folder, &size, name);
    assert_int_equal(strncmp(name, "events.out.tfevents.", 20), 0);
    const uint8_t *at = (const uint8_t *)data, *end = at + size, *event = open_record(at, end, &length);
    assert_int_equal(length, 9 + 2 + 13);
    assert_int_equal(event[0], 0x09);
    assert_memory_equal(event + 9,
                        "\x1a\x0d"
                        "brain.Event:2",
                        15);
    at = event + length + 4;
    event = open_record(at, end, &length);
    double wall = 1000.25;
    float value = 1.5f;
    uint8_t wanted[] = {0x09, 0,    0, 0,   0,   0,   0,   0,   0,   0x10, 0xac, 0x02, 0x2a, 15, 0x0a,
                        13,   0x0a, 6, 'a', '/', 'l', 'o', 's', 's', 0x15, 0,    0,    0,    0};
    memcpy(wanted + 1, &wall, 8);
    memcpy(wanted + 25, &value, 4);
    assert_int_equal(length, sizeof wanted);
    assert_memory_equal(event, wanted, sizeof wanted);
    assert_ptr_equal(event + length + 4, end);
    free(data);
    tx_tensorboard_close(board);
    tx_tensorboard_close(NULL);
    remove_scratch(folder);
}

static void test_failures(void **state)
{
    char *folder = make_scratch(), *inner = TX_PATH(folder, "runs/now"), tag[5000];
    tx_tensorboard *board = NULL, *second = NULL;
    assert_ok(tx_tensorboard_open(inner, &reporter, &board));
    assert_ok(tx_tensorboard_open(inner, &reporter, &second));
    assert_int_equal(count_entries(inner), 2);
    tx_tensorboard_close(second);
    memset(tag, 't', sizeof tag - 1);
    tag[sizeof tag - 1] = '\0';
    tx_tensorboard_scalar(board, tag, INT64_MAX, 1e300, 1e9);
    assert_int_equal(warnings, 0);
    /* A full disk is reported once. */
    struct rlimit limit, small;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    small = limit;
    small.rlim_cur = 5200;
    setrlimit(RLIMIT_FSIZE, &small);
    for (int i = 0; i < 10; i++)
        tx_tensorboard_scalar(board, "loss", i, 1.0, 1e9);
    setrlimit(RLIMIT_FSIZE, &limit);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(last_warning, "cannot write the events"));
    tx_tensorboard_close(board);
    assert_refused(tx_tensorboard_open("/dev/null/x", &reporter, &board), TX_IO, "/dev/null");
    remove_scratch(folder);
}

static int write_events(const char *folder)
{
    tx_tensorboard *board;
    if (tx_tensorboard_open(folder, &reporter, &board))
        return 1;
    for (int64_t step = 1; step <= 200; step++) {
        tx_tensorboard_scalar(board, "train/loss", step, 10.0 / (double)step, 1.7e9 + (double)step);
        tx_tensorboard_scalar(board, "train/learning_rate", step, 5e-5 * (double)(200 - step), 1.7e9 + (double)step);
    }
    tx_tensorboard_scalar(board, "eval/loss", 200, (double)NAN, 1.7e9);
    tx_tensorboard_scalar(board, "eval/loss", INT64_C(5000000000), -1e300, 1.7e9);
    tx_tensorboard_close(board);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return write_events(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
