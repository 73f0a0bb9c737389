/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: rows of text. The first byte chooses the form. Each row is read in order, and again in another order: it
 * then has the same verdict, and a text for each column, which is UTF-8 and has a NUL at its end. */
#include "models/data/lines.h"
#include "models/data/rows.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define READ 1000

/* Whether row `number` is well-formed. */
static bool read_row(tx_rows *rows, int64_t number, int64_t most)
{
    const tx_json *object;
    const tx_status status = tx_rows_read(rows, number, &object);
    FUZZ_CHECK(!status || status == TX_FORMAT || status == TX_MEMORY);
    for (int32_t c = 0; !status && tx_rows_name(rows, c); c++) {
        size_t length;
        const char *text = tx_rows_text(rows, c, &length);
        FUZZ_CHECK(text[length] == '\0' && !tx_text_check(text, length));
        tx_rows_value(rows, c, TX_JSON_ARRAY);
    }
    tx_rows_skip(rows, number, most, status);
    return !status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"fuzz.csv", "fuzz.tsv", "fuzz.jsonl"};
    tx_rows *rows;
    if (!size)
        return 0;
    const char *name = names[data[0] % 3];
    tx_fuzz_put(name, data + 1, size - 1);
    if (tx_fuzz_refused(tx_rows_open(tx_fuzz_path(name), &rows), name))
        return 0;
    bool good[READ];
    tx_status status = tx_rows_index(rows);
    TX_THEN(status, tx_rows_columns(rows));
    const int64_t count = status ? 0 : tx_rows_count(rows), most = count < READ ? count : READ;
    for (int64_t row = 0; row < most; row++)
        good[row] = read_row(rows, row, data[0] / 3);
    for (int64_t row = most - 1; row >= 0; row--) {
        FUZZ_CHECK(good[row] || tx_rows_is_skipped(rows, row) || data[0] / 3 < most);
        FUZZ_CHECK(read_row(rows, row, 0) == good[row]);
    }
    tx_rows_close(rows);
    return 0;
}
