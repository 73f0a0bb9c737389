/* SPDX-License-Identifier: Apache-2.0
 * Prints the rows of data files as JSON lines: data_rows FILE... A file that cannot be read ends with status 1 and the
 * message. */
#include "models/data/rows.h"

#include <stdio.h>

static tx_status print_rows(const char *path)
{
    tx_rows *rows = NULL;
    const char *row = NULL;
    size_t size = 0;
    TX_TRY(tx_rows_open(path, &rows));
    tx_status status = TX_OK;
    do {
        status = tx_rows_next(rows, &row, &size);
        if (!status && size > 0) {
            fwrite(row, 1, size, stdout);
            fputc('\n', stdout);
        }
    } while (!status && size > 0);
    tx_rows_close(rows);
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
