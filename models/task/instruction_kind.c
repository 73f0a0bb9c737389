/* SPDX-License-Identifier: Apache-2.0
 * Decides whether a file holds instruction data, by the keys of its first object. */
#include "models/data/rows.h"
#include "models/task/instruction.h"

tx_status tx_instruction_find(const char *path, bool *is)
{
    tx_json *row;
    *is = false;
    tx_status status = tx_rows_first(path, &row);
    if (!status && row && tx_chat_form_of(row) != TX_CHAT_FORMS)
        *is = true;
    else if (!status && row && !tx_json_has(row, "text"))
        status = tx_fail_in(tx_chat_foreign(row), "%s: the first sample", path);
    tx_json_free(row);
    return status;
}
