/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: a table. The first byte chooses the form. Each row that is not skipped is read again, in another order,
 * with a cell for each column, of which each is UTF-8 and has a NUL at its end. */
#include "models/text/lines.h"
#include "models/text/table.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define READ 1000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"fuzz.csv", "fuzz.tsv", "fuzz.jsonl"};
    tx_table table;
    if (!size)
        return 0;
    const char *name = names[data[0] % 3];
    tx_fuzz_put(name, data + 1, size - 1);
    if (tx_fuzz_refused(tx_table_open(tx_fuzz_path(name), data[0] / 3, &table), name))
        return 0;
    int64_t skipped = 0;
    for (int64_t row = table.rows - 1; row >= 0 && row >= table.rows - READ; row--) {
        skipped += table.row[row] == TX_TABLE_SKIPPED;
        if (table.row[row] == TX_TABLE_SKIPPED)
            continue;
        FUZZ_CHECK(!tx_table_read(&table, row));
        for (int32_t c = 0; c < table.columns; c++) {
            size_t length;
            const char *text = tx_table_text(&table, c, &length);
            FUZZ_CHECK(text[length] == '\0' && !tx_text_check(text, length));
        }
    }
    FUZZ_CHECK(table.rows > READ || skipped == table.bad);
    tx_table_close(&table);
    return 0;
}
