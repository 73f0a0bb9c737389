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
    bool more = true;
    TX_TRY(tx_rows_open(path, &rows));
    tx_status status = TX_OK;
    while (!status && more) {
        status = tx_rows_next(rows, &more);
        if (status || !more)
            break;
        status = tx_rows_line(rows, &row, &size);
        if (!status)
            printf("%.*s\n", (int)size, row);
    }
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
