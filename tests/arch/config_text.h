/* SPDX-License-Identifier: Apache-2.0
 * A configuration from a text instead of a file. */
#ifndef TX_TESTS_CONFIG_TEXT_H
#define TX_TESTS_CONFIG_TEXT_H

#include "models/arch/arch.h"
#include "tests/scratch.h"

static inline tx_status read_bytes(const char *text, size_t size, tx_config **config)
{
    char *folder = make_scratch(), *path = tx_path_join(folder, "config.json");
    FILE *stream = fopen(path, "wb"); /* not flushed to disk, unlike tx_file_write: there are many */
    assert_non_null(stream);
    assert_int_equal(fwrite(text, 1, size, stream), size);
    assert_int_equal(fclose(stream), 0);
    tx_status status = tx_config_read(path, config);
    free(path);
    remove_scratch(folder);
    return status;
}

static inline tx_status read_text(const char *text, tx_config **config)
{
    return read_bytes(text, strlen(text), config);
}

/* A configuration, and how many parameters its model has. */
typedef struct known_size {
    const char *text;
    int64_t params;
} known_size;

static inline void check_sizes(const known_size *known, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        tx_config *config;
        assert_ok(read_text(known[i].text, &config));
        assert_int_equal(tx_arch_param_count(config), known[i].params);
        tx_config_free(config);
    }
}

#endif
