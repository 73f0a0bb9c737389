/* SPDX-License-Identifier: Apache-2.0
 * The state of a run in a checkpoint: where its best checkpoint is found, and states that no run can have written. */
#include "models/files/checkpoint.h"
#include "models/train/state.h"
#include "tests/scratch.h"

#include <sys/stat.h>

enum { STEP = 40, BEST = 30 };

/* A run after STEP steps whose best evaluation was at step BEST. */
static void make_state(tx_run_state *s)
{
    assert_ok(tx_run_state_create(s));
    s->step = BEST;
    assert_true(tx_run_state_judge(s, 2.5, false));
    assert_ok(tx_run_state_set_best(s, "checkpoint-30"));
    s->step = STEP;
    s->updates = STEP - 2;
    s->skipped = 2;
    s->logged = STEP;
}

static void judged_by_what_is_better(void **state)
{
    for (int greater = 0; greater < 2; greater++) {
        tx_run_state s;
        assert_ok(tx_run_state_create(&s));
        assert_false(tx_run_state_judge(&s, (double)NAN, greater));
        assert_true(tx_run_state_judge(&s, 2.0, greater));
        assert_false(tx_run_state_judge(&s, 2.0, greater));
        assert_int_equal(tx_run_state_judge(&s, 1.0, greater), !greater);
        assert_true(tx_run_state_judge(&s, greater ? 3.0 : 0.5, greater));
        assert_true(s.best == (greater ? 3.0 : 0.5));
        tx_run_state_free(&s);
    }
}

/* Sets a member of a file; without a value it goes. */
static void edit(const char *folder, const char *file, const char *member, const char *value)
{
    char *path = TX_PATH(folder, file);
    tx_json *json = NULL, *made = NULL, *copy = tx_json_object();
    assert_ok(tx_json_read(path, 1 << 20, &json));
    for (void *i = tx_json_first(json); i; i = tx_json_next(json, i))
        if (strcmp(tx_json_key(i), member) != 0)
            assert_ok(tx_json_set(copy, tx_json_key(i), tx_json_copy(tx_json_value(i))));
    if (value) {
        assert_ok(tx_json_parse(value, strlen(value), "value", &made));
        assert_ok(tx_json_set(copy, member, made));
    }
    assert_ok(tx_json_write(path, copy, TX_JSON_SORTED));
    tx_json_free(copy);
    tx_json_free(json);
}

typedef struct change {
    const char *file, *member, *value;
} change;

/* Writes output/checkpoint-40, with up to two members changed. */
static void save(const char *output, const change changes[2])
{
    const tx_run_facts facts = {0};
    tx_run_state state;
    tx_checkpoint *checkpoint = NULL;
    make_state(&state);
    assert_ok(tx_checkpoint_begin(output, STEP, &checkpoint));
    assert_ok(tx_run_state_write(&state, &facts, output, tx_checkpoint_folder(checkpoint)));
    for (int i = 0; changes && i < 2 && changes[i].file; i++)
        edit(tx_checkpoint_folder(checkpoint), changes[i].file, changes[i].member, changes[i].value);
    assert_ok(tx_checkpoint_commit(checkpoint));
    tx_run_state_free(&state);
}

static char *made(char *folder)
{
    assert_ok(tx_folder_create(folder));
    return folder;
}

/* ---- The best checkpoint ----------------------------------------------------------------------------- */

/* Reads the state for a run in `output`, which must find its best checkpoint at `wanted` and name it `name`. */
static void expect_best(const char *checkpoint, const char *output, const char *name, const char *wanted)
{
    tx_run_state state;
    char *path = NULL;
    assert_ok(tx_run_state_read(checkpoint, output, &state));
    assert_string_equal(state.best_checkpoint, name);
    assert_ok(tx_run_state_best(&state, output, &path));
    assert_string_equal(path, wanted);
    free(path);
    tx_run_state_free(&state);
}

static void best_moves_with_its_folder(void **state)
{
    char *scratch = make_scratch(), *real = realpath(scratch, NULL);
    char *output = made(TX_PATH(real, "one")), *moved = TX_PATH(real, "two"), *other = made(TX_PATH(real, "other"));
    save(output, NULL);
    made(TX_PATH(output, "checkpoint-30"));
    assert_int_equal(rename(output, moved), 0);
    const char *newest = TX_PATH(moved, "checkpoint-40"), *best = TX_PATH(moved, "checkpoint-30");
    expect_best(newest, moved, "checkpoint-30", best);
    expect_best(newest, other, best, best); /* by its path, seen from another folder */
    tx_run_state seen;
    assert_ok(tx_run_state_read(newest, NULL, &seen));
    assert_string_equal(seen.best_checkpoint, best);
    tx_run_state_free(&seen);
    free(real);
    remove_scratch(scratch);
}

/* A run that went on elsewhere wrote the path; that it has a checkpoint of the same step itself changes nothing. */
static void best_of_another_folder_stays(void **state)
{
    char *scratch = make_scratch(), *real = realpath(scratch, NULL), quoted[600];
    char *output = made(TX_PATH(real, "one")), *other = made(TX_PATH(real, "other"));
    char *best = made(TX_PATH(other, "checkpoint-30"));
    made(TX_PATH(output, "checkpoint-30"));
    snprintf(quoted, sizeof quoted, "\"%s\"", best);
    const char *newest = TX_PATH(output, "checkpoint-40");
    save(output, (const change[2]){{TX_RUN_STATE, "best_checkpoint", quoted}});
    expect_best(newest, output, best, best);
    expect_best(newest, other, "checkpoint-30", best); /* the best checkpoint is in its first place again */
    free(real);
    remove_scratch(scratch);
}

/* ---- Contradictions ------------------------------------------------------------------------------------ */

static void impossible_states_are_refused(void **state)
{
    static const struct {
        change changes[2];
        const char *says;
    } cases[] = {
        {{{TX_RUN_STATE, "step", "39"}, {TX_RUN_STATE, "logged", "39"}},
         "updates 38 and skipped 2 do not add up to step 39"},
        {{{TX_RUN_STATE, "updates", "41"}}, "updates 41 and skipped 2 do not add up to step 40"},
        {{{TX_RUN_STATE, "skipped", "1"}}, "updates 38 and skipped 1 do not add up to step 40"},
        {{{TX_RUN_STATE, "updates", "9007199254740992"}, {TX_RUN_STATE, "skipped", "9007199254740992"}}, "add up"},
        {{{TX_RUN_STATE, "logged", "41"}}, "logged 41 is more than step 40"},
        {{{TX_RUN_STATE, "bad", "41"}}, "bad 41 is more than step 40"},
        {{{TX_RUN_STATE, "best_step", "41"}}, "best_step 41 is more than step 40"},
        {{{TX_RUN_STATE, "best_step", "0"}}, "best has no best_step"},
        {{{TX_RUN_STATE, "best_step", "20"}},
         "best_checkpoint \"checkpoint-30\" is not a checkpoint up to the best step"},
        {{{TX_RUN_STATE, "best_checkpoint", "\"/checkpoint-30/..\""}}, "is not a checkpoint"},
        {{{TX_RUN_STATE, "best_checkpoint", "3"}}, "best_checkpoint"},
        {{{TX_TRAINER_STATE, "global_step", "30"}}, "is from step 30, but run_state.json is from step 40"},
        {{{TX_TRAINER_STATE, "global_step", NULL}}, "global_step"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *output = make_scratch(), *folder = TX_PATH(output, "checkpoint-40");
        tx_run_state read;
        save(output, cases[i].changes);
        assert_ok(tx_checkpoint_verify(folder, NULL));
        assert_refused(tx_run_state_read(folder, output, &read), TX_FORMAT, cases[i].says);
        assert_non_null(strstr(tx_error(), TX_PATH(folder, cases[i].changes[0].file)));
        remove_scratch(output);
    }
}

/* The state of one step in the checkpoint of another; the folder may have any name. */
static void another_steps_state_is_refused(void **state)
{
    for (int renamed = 0; renamed < 2; renamed++) {
        char *output = make_scratch(), *folder = TX_PATH(output, "checkpoint-40"), *copy = TX_PATH(output, "copy");
        const change back[] = {{TX_RUN_STATE, "step", "30"},
                               {TX_RUN_STATE, "logged", "30"},
                               {TX_RUN_STATE, "updates", "28"},
                               {TX_TRAINER_STATE, "global_step", "30"}};
        tx_run_state read;
        save(output, NULL);
        for (size_t i = 0; i < sizeof back / sizeof back[0]; i++)
            edit(folder, back[i].file, back[i].member, back[i].value);
        if (renamed)
            assert_int_equal(rename(folder, copy), 0);
        assert_refused(tx_run_state_read(renamed ? copy : folder, output, &read), TX_FORMAT,
                       "run_state.json: is from step 30, but its checkpoint is from step 40");
        remove_scratch(output);
    }
}

/* The device's count of updates ends at 2^24. */
static void long_runs_are_read(void **state)
{
    char *output = make_scratch();
    tx_run_state s, read;
    tx_checkpoint *checkpoint = NULL;
    make_state(&s);
    s.step = 20000000;
    s.updates = 1 << 24;
    assert_ok(tx_checkpoint_begin(output, s.step, &checkpoint));
    assert_ok(tx_run_state_write(&s, &(tx_run_facts){0}, output, tx_checkpoint_folder(checkpoint)));
    assert_ok(tx_checkpoint_commit(checkpoint));
    assert_ok(tx_run_state_read(TX_PATH(output, "checkpoint-20000000"), output, &read));
    assert_int_equal(read.step, 20000000);
    tx_run_state_free(&read);
    tx_run_state_free(&s);
    remove_scratch(output);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_moves_with_its_folder),
        cmocka_unit_test(best_of_another_folder_stays),
        cmocka_unit_test(impossible_states_are_refused),
        cmocka_unit_test(another_steps_state_is_refused),
        cmocka_unit_test(long_runs_are_read),
        cmocka_unit_test(judged_by_what_is_better),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
