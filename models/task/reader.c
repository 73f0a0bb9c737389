/* SPDX-License-Identifier: Apache-2.0
 * Reads the rows of tables for tasks. */
#include "models/task/reader.h"

#include <inttypes.h>

tx_status tx_reader_run(tx_reader *reader, tx_reader_hook *read)
{
    tx_reader *r = reader;
    const tx_data_options *o = r->options;
    TX_TRY(tx_task_need_tokenizer(r->path, o));
    TX_TRY(tx_table_open(r->path, o->set->skip_bad, &r->table));
    tx_status status = tx_task_choose_range(o, r->table.rows, "rows", &r->begin, &r->end);
    TX_THEN(status, tx_joiner_open(o->tokenizer, &r->joiner));
    TX_THEN(status, read(r));
    status = tx_fail_in(status, "%s", r->path);
    if (!status)
        tx_table_report(&r->table, &o->report);
    if (!status && r->unlabelled)
        tx_reporter_print(&o->report, "%.800s: %" PRId64 " row%s left out: label -1 or -100 means no label", r->path,
                          r->unlabelled, r->unlabelled == 1 ? " is" : "s are");
    tx_table_close(&r->table);
    tx_joiner_close(&r->joiner);
    return status;
}

tx_status tx_reader_rows(tx_reader *reader, tx_reader_hook *use)
{
    tx_table *table = &reader->table;
    for (int64_t row = reader->begin; row < reader->end; row++) {
        if (table->row[row] == TX_TABLE_SKIPPED)
            continue;
        TX_TRY(tx_table_read(table, row));
        const tx_status status = use(reader);
        TX_TRY(status ? tx_table_skip(table, row, status) : TX_OK);
    }
    return TX_OK;
}

tx_status tx_reader_find(const tx_reader *reader, const char *const *names, const char *shown, const char *option,
                         int32_t *column)
{
    for (*column = -1; *names && *column < 0; names++)
        *column = tx_table_column(&reader->table, *names);
    return *column < 0 ? tx_table_fail_column(&reader->table, shown, option) : TX_OK;
}

tx_status tx_reader_find_label(const tx_reader *reader, const char *const *names, const char *shown, int32_t *column)
{
    *column = -1;
    return reader->options->split == TX_DATA_TEST ? TX_OK
                                                  : tx_reader_find(reader, names, shown, "label_column_name", column);
}
