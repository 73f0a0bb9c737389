/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: a .jsonl file of texts, read whole, without bad lines, or in part; the size selects one of them.
 */
#include "models/data/lines.h"
#include "tests/fuzz/dataset.h"

#include <string.h>

#define NAME "fuzz.jsonl"

/* With this many blanks before it a line counts as long. jansson does not read the text of a long line. */
#define BLANKS 1100

/* A long line has the verdict and the text of a short one. */
static void compare(const char *line, size_t size)
{
    tx_json *json[2] = {NULL, NULL};
    const char *text[2] = {NULL, NULL};
    size_t length[2] = {0, 0};
    char *copy = malloc(size + BLANKS);
    FUZZ_CHECK(copy);
    memset(copy, ' ', BLANKS);
    memcpy(copy + BLANKS, line, size);
    tx_status status = tx_json_parse_line(line, size, "line", &json[0]);
    if (!status &&
        (tx_json_type_of(json[0]) != TX_JSON_OBJECT || tx_json_get_text(json[0], "text", &text[0], &length[0])))
        status = TX_FORMAT;
    FUZZ_CHECK(tx_jsonl_text(copy, size + BLANKS, "line", &json[1], &text[1], &length[1]) == status);
    FUZZ_CHECK(status || (length[0] == length[1] && memcmp(text[0], text[1], length[0]) == 0));
    tx_json_free(json[0]);
    tx_json_free(json[1]);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static tx_tokenizer *bytes;
    FUZZ_CHECK(bytes || !tx_tokenizer_bytes(&bytes));
    const void *newline = memchr(data, '\n', size);
    if (size <= 1024) /* a short line as it is */
        compare((const char *)data, newline ? (size_t)((const uint8_t *)newline - data) : size);
    tx_fuzz_put(NAME, data, size);
    tx_dataset_options options = {.tokenizer = bytes, .to = 100};
    if (size % 3 == 1) {
        options.skip_bad = 3;
        options.group = 2;
    } else if (size % 3 == 2) {
        options.from = 10;
        options.to = 55;
        options.most_blocks = 3;
    }
    tx_fuzz_dataset(NAME, options);
    return 0;
}
