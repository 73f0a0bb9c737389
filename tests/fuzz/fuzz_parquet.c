/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: a Parquet file. Each row that is read is a JSON object, and the number of rows is the one promised. */
#include "models/parquet/parquet.h"
#include "tests/fuzz/fuzz.h"
#include "tx_json.h"

#include <string.h>

#define NAME "fuzz.parquet"
/* Rows that are read and parsed: a small file may promise many. */
#define READ 3000
#define PARSED 100

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tx_parquet *file;
    int64_t rows = 0;
    tx_fuzz_put(NAME, data, size);
    if (tx_fuzz_refused(tx_parquet_open(tx_fuzz_path(NAME), &file), NAME))
        return 0;
    tx_status status = TX_OK;
    for (size_t bytes = 1; bytes > 0 && !status && rows < READ;) {
        const char *row = NULL;
        tx_json *json = NULL;
        status = tx_parquet_next(file, &row, &bytes);
        if (!status && bytes > 0 && rows++ < PARSED && bytes < 1 << 16) {
            const tx_status parsed = tx_json_parse_line(row, bytes, "row", &json);
            FUZZ_CHECK(!parsed || strstr(tx_error(), "duplicate")); /* a map may have a key twice */
            FUZZ_CHECK(parsed || tx_json_size(json) == (size_t)tx_parquet_columns(file));
        }
        tx_json_free(json);
    }
    if (status)
        tx_fuzz_refused(status, NAME);
    else
        FUZZ_CHECK(rows == READ || rows == tx_parquet_rows(file));
    tx_parquet_close(file);
    return 0;
}
