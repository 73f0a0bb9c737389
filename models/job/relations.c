/* SPDX-License-Identifier: Apache-2.0
 * The table of relations between options, and the check of a run's options against it. */
#include "models/job/settings.h"

#include <string.h>

const tx_job_relation *tx_job_relations(int32_t *count)
{
    static const tx_job_relation relations[] = {
#define EXCLUDES(a, b, why) {TX_JOB_EXCLUDES, TX_JOB_AT(a), TX_JOB_AT(b), why},
#define NEEDS(a, b, why) {TX_JOB_NEEDS, TX_JOB_AT(a), TX_JOB_AT(b), why},
#define RIVAL(a, b) {TX_JOB_RIVAL, TX_JOB_AT(a), TX_JOB_AT(b), NULL},
#include "models/job/relations.def"
    };
    *count = (int32_t)(sizeof relations / sizeof relations[0]);
    return relations;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

bool tx_job_in_use(const tx_job_settings *set, const tx_option *option)
{
    const char *now = (const char *)set + option->offset, *before = (const char *)&tx_job_defaults + option->offset;
    switch (option->kind) {
    case TX_OPTION_FLAG:
        return *(const bool *)now != *(const bool *)before;
    case TX_OPTION_INTEGER:
        return *(const int64_t *)(const void *)now != *(const int64_t *)(const void *)before;
    case TX_OPTION_REAL:
        return !(*(const double *)(const void *)now == *(const double *)(const void *)before);
    case TX_OPTION_CHOICE:
    case TX_OPTION_LIST:
        return memcmp(now, before, sizeof(int32_t)) != 0;
    default:
        return !same_text(*(const char *const *)(const void *)now, *(const char *const *)(const void *)before);
    }
}

void tx_job_check_relations(const tx_job_settings *set, char *text, size_t size)
{
    int32_t count;
    const tx_job_relation *r = tx_job_relations(&count);
    for (int32_t i = 0; i < count; i++) {
        const tx_option *a = tx_option_at(&tx_job_table, r[i].a), *b = tx_option_at(&tx_job_table, r[i].b);
        if (r[i].kind == TX_JOB_RIVAL || !tx_job_in_use(set, a))
            continue;
        if (r[i].kind == TX_JOB_EXCLUDES && tx_job_in_use(set, b))
            tx_list_add(text, size, "; ", "--%s and --%s exclude each other: %s", a->name, b->name, r[i].why);
        if (r[i].kind == TX_JOB_NEEDS && !tx_job_in_use(set, b))
            tx_list_add(text, size, "; ", "--%s needs --%s: %s", a->name, b->name, r[i].why);
    }
}
