/* SPDX-License-Identifier: Apache-2.0
 * Prints the rows of Parquet files as JSON lines: parquet_rows FILE... A file that cannot be read ends with status 1
 * and the message. */
#include "models/parquet/parquet.h"

#include <stdio.h>

static tx_status print_rows(const char *path)
{
    tx_parquet *file = NULL;
    const char *row = NULL;
    size_t size = 0;
    TX_TRY(tx_parquet_open(path, &file));
    tx_status status = TX_OK;
    do {
        status = tx_parquet_next(file, &row, &size);
        if (!status && size > 0) {
            fwrite(row, 1, size, stdout);
            fputc('\n', stdout);
        }
    } while (!status && size > 0);
    tx_parquet_close(file);
    return status;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (print_rows(argv[i])) {
            fprintf(stderr, "%s\n", tx_error());
            return 1;
        }
    return 0;
}
