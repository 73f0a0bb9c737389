/* SPDX-License-Identifier: Apache-2.0
 * Every relation between two options, from both sides: settings that break it are refused with both names, and a single
 * option is not refused. Every option has a value other than its default that the table can set. */
#include "models/job/settings.h"

#include "tests/scratch.h"

/* A value other than the default. */
static void other_value(const tx_option *option, char text[64])
{
    const tx_job_settings usual = tx_job_defaults;
    const char *second = option->choices ? strchr(option->choices, '|') : NULL;
    switch (option->kind) {
    case TX_OPTION_FLAG:
        snprintf(text, 64, "%s", "true");
        return;
    case TX_OPTION_INTEGER:
        snprintf(text, 64, "%d", option->most >= 4 ? 4 : (int)option->most);
        return;
    case TX_OPTION_REAL:
        snprintf(text, 64, "%g", option->most < 1 ? option->most / 2 : 1.0);
        return;
    case TX_OPTION_CHOICE:
        if (*(const int32_t *)(const void *)((const char *)&usual + option->offset) != 0)
            second = option->choices - 1;
        snprintf(text, 64, "%.*s", (int)strcspn(second + 1, "|"), second + 1);
        return;
    default:
        snprintf(text, 64, "%s", option->offset == TX_JOB_AT(mask_structure) ? "2:4" : "x");
    }
}

static void use(tx_option_values *values, const tx_option *option)
{
    char text[64];
    other_value(option, text);
    assert_ok(tx_option_set_at(values, option->offset, text));
    assert_true(tx_job_in_use(values->values, option));
}

/* Whether the settings are refused for the relation between the two. */
static bool refused(const tx_option *first, const tx_option *second, const char *a, const char *b, const char *why)
{
    tx_job_settings set = tx_job_defaults;
    tx_option_values values = {.table = tx_job_table, .values = &set};
    char text[8192] = "", wanted[512];
    if (first)
        use(&values, first);
    if (second)
        use(&values, second);
    tx_job_check_relations(&set, text, sizeof text);
    snprintf(wanted, sizeof wanted, "--%s %s --%s", a, why, b);
    const char *found = strstr(text, wanted);
    if (found)
        assert_int_not_equal(tx_job_check(&set), TX_OK);
    tx_option_values_free(&values);
    return found != NULL;
}

static void test_relations(void **state)
{
    int32_t count;
    const tx_job_relation *r = tx_job_relations(&count);
    assert_true(count > 60);
    for (int32_t i = 0; i < count; i++) {
        const tx_option *a = tx_option_at(&tx_job_table, r[i].a), *b = tx_option_at(&tx_job_table, r[i].b);
        const char *word = r[i].kind == TX_JOB_NEEDS ? "needs" : "and";
        if (r[i].kind == TX_JOB_RIVAL)
            continue;
        assert_true(strlen(r[i].why) > 10);
        assert_true(refused(a, b, a->name, b->name, word) == (r[i].kind == TX_JOB_EXCLUDES));
        assert_true(refused(b, a, a->name, b->name, word) == (r[i].kind == TX_JOB_EXCLUDES));
        assert_true(refused(a, NULL, a->name, b->name, word) == (r[i].kind == TX_JOB_NEEDS));
        assert_false(refused(b, NULL, a->name, b->name, word));
    }
    assert_false(refused(NULL, NULL, "", "", "and"));
}

static void test_every_option_can_change(void **state)
{
    for (int32_t i = 0; i < tx_job_table.count; i++) {
        const tx_option *option = &tx_job_table.option[i];
        tx_job_settings set = tx_job_defaults;
        tx_option_values values = {.table = tx_job_table, .values = &set};
        if (!tx_option_has_value(option))
            continue;
        assert_false(tx_job_in_use(&set, option));
        if (option->kind == TX_OPTION_FLAG && *(bool *)((char *)&set + option->offset))
            assert_ok(tx_option_set_at(&values, option->offset, "false"));
        else if (option->kind == TX_OPTION_LIST)
            assert_ok(tx_option_set_at(&values, option->offset, "all"));
        else if (option->kind == TX_OPTION_INTEGER || option->kind == TX_OPTION_REAL)
            continue; /* the default may be any number */
        else
            use(&values, option);
        assert_true(tx_job_in_use(&set, option));
        tx_option_values_free(&values);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_relations),
                                       cmocka_unit_test(test_every_option_can_change)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
