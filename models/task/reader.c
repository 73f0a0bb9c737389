/* SPDX-License-Identifier: Apache-2.0
 * Reads the rows of files for tasks. */
#include "models/task/reader.h"

#include <inttypes.h>

tx_status tx_reader_run(tx_reader *reader, tx_reader_hook *read)
{
    tx_reader *r = reader;
    const tx_data_options *o = r->options;
    TX_TRY(tx_task_need_tokenizer(r->path, o));
    TX_TRY(tx_rows_open(r->path, &r->rows));
    tx_status status = tx_rows_index(r->rows);
    TX_THEN(status, tx_rows_columns(r->rows));
    TX_THEN(status, tx_task_choose_range(o, tx_rows_count(r->rows), "rows", &r->begin, &r->end));
    TX_THEN(status, tx_joiner_open(o->tokenizer, &r->joiner));
    TX_THEN(status, read(r));
    status = tx_fail_in(status, "%s", r->path);
    if (!status)
        tx_rows_report(r->rows, &o->report);
    if (!status && r->unlabelled)
        tx_reporter_print(&o->report, "%.800s: %" PRId64 " row%s left out: label -1 or -100 means no label", r->path,
                          r->unlabelled, r->unlabelled == 1 ? " is" : "s are");
    tx_rows_close(r->rows);
    tx_joiner_close(&r->joiner);
    return status;
}

tx_status tx_reader_rows(tx_reader *reader, tx_reader_hook *use)
{
    tx_rows *rows = reader->rows;
    const tx_json *object;
    reader->enough = false;
    for (int64_t row = reader->begin; row < reader->end && !reader->enough; row++) {
        if (tx_rows_is_skipped(rows, row))
            continue;
        tx_status status = tx_rows_read(rows, row, &object);
        TX_THEN(status, use(reader));
        TX_TRY(tx_rows_skip(rows, row, reader->options->set->skip_bad, status));
    }
    return TX_OK;
}

tx_status tx_reader_find(const tx_reader *reader, const char *const *names, const char *shown, const char *option,
                         int32_t *column)
{
    for (*column = -1; *names && *column < 0; names++)
        *column = tx_rows_column(reader->rows, *names);
    return *column < 0 ? tx_rows_fail_column(reader->rows, shown, option) : TX_OK;
}

tx_status tx_reader_find_label(const tx_reader *reader, const char *const *names, const char *shown, int32_t *column)
{
    *column = -1;
    return reader->options->split == TX_DATA_TEST ? TX_OK
                                                  : tx_reader_find(reader, names, shown, "label_column_name", column);
}
