/* SPDX-License-Identifier: Apache-2.0
 * The table of tasks. Called by models/job. */
#include "models/task/tasks.h"

#include "models/task/policy.h"
#include "models/task/preference.h"
#include "models/task/sequence.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define TX_TASK(word, task, noun, TRAITS, usual, unit, detect, help) extern tx_task_detector detect;
#define TX_TASK_FOUND TX_TASK
#include "models/task/tasks.def"

#define AT(member) offsetof(tx_job_settings, member)
#define USUAL(...) ((const tx_task_usual[]){__VA_ARGS__, {0, NULL}})
#define NONE    \
    {           \
        0, NULL \
    }
#define LENGTH(tokens)              \
    {                               \
        AT(max_seq_length), #tokens \
    }
#define RATE(number)      \
    {                     \
        AT(rate), #number \
    }
#define VALUE(member, text) \
    {                       \
        AT(member), #text   \
    }

static const tx_task_row rows[] = {
#define TX_TASK(word, task, noun, TRAITS, usual, unit, detect, help) {#word, &task, noun, TRAITS, usual, unit, detect},
#define TX_TASK_FOUND(word, task, noun, TRAITS, usual, unit, detect, help) \
    {NULL, &task, noun, TRAITS, usual, unit, detect},
#include "models/task/tasks.def"
};
enum { ROWS = sizeof rows / sizeof rows[0] };

const tx_task_row *tx_task_named(int32_t choice)
{
    return choice ? &rows[choice - 1] : NULL;
}

tx_status tx_task_detect(const tx_task_signs *signs, const tx_task_row **row)
{
    bool is = false;
    *row = NULL;
    for (int32_t i = 0; i < ROWS && !is; i++) {
        TX_TRY(rows[i].detect(rows[i].task, signs, &is));
        *row = is ? &rows[i] : NULL;
    }
    return TX_OK;
}

void tx_task_owners(uint32_t trait, char *text, size_t size)
{
    const tx_task_row *first = rows;
    char words[128] = "";
    while (!(first->traits & trait))
        first++;
    for (const tx_task_row *row = first; row < rows + ROWS; row++)
        if ((row->traits & trait) && row->word && strcmp(row->noun, first->noun) == 0)
            tx_list_add(words, sizeof words, ", ", "%s", row->word);
    snprintf(text, size, "%s%s%s%s", first->noun, *words ? " (--task_name " : "", words, *words ? ")" : "");
}

tx_status tx_task_never(const tx_task *task, const tx_task_signs *signs, bool *is)
{
    (void)task;
    (void)signs;
    *is = false;
    return TX_OK;
}

tx_status tx_task_by_head(const tx_task *task, const tx_task_signs *signs, bool *is)
{
    *is = task->head == signs->head;
    return TX_OK;
}
