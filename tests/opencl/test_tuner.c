/* SPDX-License-Identifier: Apache-2.0
 * The autotuner without a device: the choice for a class of commands, from an earlier choice to the fastest
 * candidate. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/graph/op.h"
#include "backends/opencl/runtime/internal.h"
#include "backends/opencl/tune/trials.h"
#include "tests/scratch.h"

/* Behaviour of the simulated candidates. */
static struct {
    double seconds[5]; /* INFINITY if the candidate fails, NAN if memory is missing */
    bool wrong[5];
    tx_status fails; /* status of the known-answer tests, TX_OK if they can run */
    int proofs, measurements;
} world;

static const char *const names[] = {"tile-8x8", "tile-16x16", "tile-32x32", "library", "few"};

static tx_status prove(const tx_cl_class *c, int id)
{
    (void)c;
    world.proofs++;
    if (world.fails)
        return tx_fail(world.fails, "out of host memory");
    return world.wrong[id] ? tx_fail(TX_DEVICE, "one is two") : TX_OK;
}

static tx_status measure(const tx_cl_class *c, int id, double give_up_after, double *seconds)
{
    (void)c;
    assert_true(give_up_after > 0.0);
    world.measurements++;
    if (!isfinite(world.seconds[id]))
        return tx_fail(isnan(world.seconds[id]) ? TX_MEMORY : TX_DEVICE, "it fails");
    *seconds = world.seconds[id];
    return TX_OK;
}

/* A class and its selection. */
typedef struct classed {
    tx_cl_class c;
    tx_cl_selection q;
} classed;

static tx_status tune(tx_context *context, classed *s)
{
    tx_cl_builder builder = tx_cl_asker(context);
    s->c.b = &builder;
    s->c.q = &s->q;
    return tx_cl_tune(&s->c);
}

/* The tiles in the order of their numbers, then the library. */
static classed selection(const char *key)
{
    classed s = {.c = {.omitted = 5, .proven = 7, .usual = 2, .prove = prove, .seconds = measure},
                 .q.what = "candidate"};
    snprintf(s.c.key, sizeof s.c.key, "%s", key);
    snprintf(s.c.sample, sizeof s.c.sample, "of it");
    tx_cl_add_candidate(&s.q, 3, names[3], 0.1, "");
    for (int i = 0; i < 3; i++)
        tx_cl_add_candidate(&s.q, i, names[i], 1.0 - 0.1 * i, "");
    return s;
}

static void expect(tx_context *context, const char *key, const char *name)
{
    classed s = selection(key);
    assert_ok(tune(context, &s));
    assert_string_equal(s.q.candidate[0].name, name);
}

static tx_context *open_context(char *folder)
{
    static char identity[] = "none";
    static const double seconds[] = {4.0, 2.0, 1.0, 3.0, 9.0};
    tx_context *context = calloc(1, sizeof *context);
    assert_non_null(context);
    context->identity = identity;
    context->cache = folder;
    context->tuner = calloc(1, sizeof *context->tuner);
    assert_non_null(context->tuner);
    context->select = tx_cl_tuner_select;
    memset(&world, 0, sizeof world);
    memcpy(world.seconds, seconds, sizeof seconds);
    return context;
}

static void close_context(tx_context *context)
{
    tx_cl_tuner_close(context);
    free(context);
}

static void the_best_suited_is_taken_unmeasured(void **state)
{
    tx_context *context = open_context(NULL);
    classed s = selection("test aa 1");
    s.c.fixed = true;
    assert_ok(tune(context, &s));
    assert_string_equal(s.q.candidate[0].name, names[0]);
    s = selection("test aa 2");
    tx_cl_add_candidate(&s.q, 4, names[4], 0.01 + TX_CL_SURE, "");
    assert_ok(tune(context, &s));
    assert_string_equal(s.q.candidate[0].name, names[4]);
    s = selection("");
    assert_ok(tune(context, &s));
    assert_string_equal(s.q.candidate[0].name, names[0]);
    assert_string_equal(context->tuner->choices, "aa 1\ttile-8x8\naa 2\tfew\n");
    assert_int_equal(world.measurements, 0);
    close_context(context);
}

static void a_wrong_candidate_is_switched_off(void **state)
{
    tx_context *context = open_context(NULL);
    world.wrong[0] = true;
    for (int i = 0; i < 2; i++) { /* the second goes by the first one's proofs */
        classed s = selection(i ? "test aa 2" : "test aa 1");
        s.c.fixed = true;
        assert_ok(tune(context, &s));
        assert_string_equal(s.q.candidate[0].name, names[1]);
        assert_string_equal(s.q.rejected, "tile-8x8 is switched off: one is two");
        assert_int_equal(world.proofs, 2);
    }
    memset(world.wrong, 1, sizeof world.wrong);
    classed s = selection("test bb 1");
    assert_refused(tune(context, &s), TX_DEVICE, "no candidate is correct on this device");
    assert_int_equal(world.proofs, 6);
    tx_cl_selection none = {.what = "candidate", .kind = TX_CL_PARTS, .user = "of cc"};
    tx_cl_add_candidate(&none, 0, names[0], 0.0, "it lacks memory");
    tx_cl_builder builder = tx_cl_asker(context);
    assert_refused(tx_cl_select(&builder, &none), TX_UNSUPPORTED,
                   "no candidate supports this operation: it lacks memory");
    world.fails = TX_MEMORY;
    s = selection("test dd 1");
    assert_int_equal(tune(context, &s), TX_MEMORY);
    world.fails = TX_OK;
    memset(world.wrong, 0, sizeof world.wrong);
    expect(context, "test dd 1", names[1]); /* nothing was held against them */
    close_context(context);
}

static void a_class_keeps_what_it_was_given(void **state)
{
    tx_context *context = open_context(NULL);
    assert_ok(tx_cl_line_set(&context->tuner->choices, "aa 1", "library"));
    assert_ok(tx_cl_line_set(&context->tuner->choices, "aa 2", "few"));
    assert_ok(tx_cl_line_set(&context->tuner->choices, "bb 1", "library"));
    expect(context, "test aa 1", "library");
    assert_int_equal(world.measurements, 0);
    classed s = selection("test aa 2");
    assert_refused(tune(context, &s), TX_UNSUPPORTED, "few was chosen for test aa 2, but");
    world.wrong[3] = true;
    s = selection("test bb 1");
    assert_refused(tune(context, &s), TX_DEVICE, "library was chosen for test bb 1: library is switched off");
    close_context(context);
}

static void a_few_are_measured_and_the_table_is_gone_by(void **state)
{
    char *folder = make_scratch(), *text;
    tx_context *context = open_context(folder);
    expect(context, "test aa 1", names[1]); /* of the tiles, two */
    assert_int_equal(world.measurements, 3);
    world.seconds[1] = 3.95;
    expect(context, "test aa 2", names[3]);
    world.seconds[3] = 3.95;
    expect(context, "test aa 3", names[0]); /* none is so much faster */
    world.seconds[0] = INFINITY;
    world.seconds[3] = 3.0;
    expect(context, "test aa 4", names[3]); /* it fails, the others count */
    world.seconds[0] = NAN;
    expect(context, "test aa 5", names[3]); /* it lacked memory: nothing for others to go by */
    assert_ok(tx_cl_tuned(context, &text));
    assert_string_equal(text, "test aa 1\ttile-16x16 2000.000 ms of it\ntest aa 2\tlibrary 3000.000 ms of it\n"
                              "test aa 3\ttile-8x8 4000.000 ms of it\ntest aa 4\tlibrary 3000.000 ms of it\n");
    free(text);
    context->tuner->spent = 1e6;
    expect(context, "test aa 6", names[0]); /* the time is up */
    close_context(context);
    context = open_context(folder);
    expect(context, "test aa 1", names[1]);
    expect(context, "test aa 2", names[3]);
    assert_int_equal(world.measurements, 0);
    world.wrong[3] = true;
    expect(context, "test bb 1", names[1]);
    assert_ok(tx_cl_line_set(&context->tuner->table, "test bb 2", "library"));
    expect(context, "test bb 2", names[1]); /* the table's choice now gives wrong results */
    close_context(context);
    remove_scratch(folder);
}

/* Candidates that are expected to be far slower than matrix units are measured only if the latter are wrong. */
static void what_is_far_behind_is_not_measured(void **state)
{
    tx_context *context = open_context(NULL);
    classed s = selection("test aa 1");
    s.q.candidate[0].share = 13.0;
    assert_ok(tune(context, &s));
    assert_string_equal(s.q.candidate[0].name, names[0]);
    assert_int_equal(world.measurements, 0);
    s = selection("test aa 2"); /* tiles of 0.9 and 0.8, whose estimates are comparable */
    s.c.comparable = true;
    assert_ok(tune(context, &s));
    assert_string_equal(s.q.candidate[0].name, names[0]);
    assert_int_equal(world.measurements, 0);
    world.wrong[0] = true;
    s = selection("test bb 1");
    s.q.candidate[0].share = 13.0;
    assert_ok(tune(context, &s));
    assert_string_equal(s.q.candidate[0].name, names[2]);
    assert_int_equal(world.measurements, 3);
    close_context(context);
}

static void on_progress(void *user, const char *what, double spent)
{
    assert_true(spent >= 0.0 && strncmp(what, "test ", 5) == 0);
    ++*(int *)user;
}

static void a_tuning_run_measures_all_anew(void **state)
{
    int told = 0;
    const tx_tune_options options = {sizeof options, 100.0, on_progress, &told};
    char *folder = make_scratch();
    tx_context *context = open_context(folder);
    tx_cl_table_put(context, "test aa 1", "tile-8x8 1 ms");
    tx_cl_table_put(context, "test aa 2", "library 1 ms");
    context->tuner->options = &options;
    expect(context, "test aa 1", names[2]);
    assert_int_equal(world.measurements, 4); /* no other comes close to it */
    world.seconds[3] = 1.2;
    expect(context, "test aa 3", names[2]);
    assert_int_equal(world.measurements, 4 + 4 + 2 + 2);
    assert_int_equal(told, 2);
    context->tuner->spent = 101.0;
    expect(context, "test aa 2", names[3]);
    assert_int_equal(world.measurements, 12);
    close_context(context);
    remove_scratch(folder);
}

static void what_is_tried_is_forced(void **state)
{
    const tx_cl_forced forced = {.begins = TX_CL_PARTS, .name = "library"}, no = {.begins = TX_CL_PARTS, .name = "few"};
    tx_context *context = open_context(NULL);
    assert_ok(tx_cl_line_set(&context->tuner->choices, "parts of it", "tile-32x32"));
    tx_cl_selection q = selection("").q, other = q, declined = q, own = q;
    q.kind = declined.kind = own.kind = TX_CL_PARTS;
    q.user = declined.user = own.user = "of it";
    other.kind = TX_CL_ATTENTION;
    tx_cl_builder builder = tx_cl_asker(context);
    builder.forced = &forced;
    assert_ok(tx_cl_select(&builder, &q));
    assert_string_equal(q.candidate[0].name, names[3]);
    assert_ok(tx_cl_select(&builder, &other));
    assert_string_equal(other.candidate[0].name, names[0]);
    builder.forced = &no;
    assert_refused(tx_cl_select(&builder, &declined), TX_UNSUPPORTED, "few declines");
    builder.forced = NULL;
    assert_ok(tx_cl_select(&builder, &own));
    assert_string_equal(own.candidate[0].name, names[2]);
    assert_string_equal(context->tuner->choices, "parts of it\ttile-32x32\n");
    close_context(context);
}

static void lines_are_set_in_their_place(void **state)
{
    char *lines = NULL, value[8];
    assert_false(tx_cl_line_get(lines, "a", value, sizeof value));
    assert_ok(tx_cl_line_set(&lines, "ab", "1"));
    assert_ok(tx_cl_line_set(&lines, "a", "2"));
    assert_ok(tx_cl_line_set(&lines, "c", "3"));
    assert_ok(tx_cl_line_set(&lines, "a", ""));
    assert_string_equal(lines, "ab\t1\na\t\nc\t3\n");
    assert_true(tx_cl_line_get(lines, "a", value, sizeof value));
    assert_string_equal(value, "");
    assert_true(tx_cl_line_get("no line\n\n\tx\nc\t12345678", "c", value, sizeof value));
    assert_string_equal(value, "1234567");
    free(lines);
}

/* TX_GEMM has priority over the fastest candidate, also over NVIDIA's matrix units. */
static void a_wish_goes_first(void **state)
{
    tx_context *context = open_context(NULL);
    context->limits = (tx_cl_limits){.max_group = 1024, .max_item = {1024, 1024, 64}, .local_bytes = 48 << 10};
    context->limits.compute_units = 132;
    context->can = (tx_cl_capabilities){.vendor = TX_CL_NVIDIA, .bf16 = true, .tf32 = true};
    context->tf32 = true;
    const tx_operand none = {.dtype = TX_DTYPE_COUNT}, a = {.dtype = TX_F32, .shape = TX_SHAPE(1024, 1024)};
    const tx_attrs attrs = {.flat = true};
    const tx_cl_product p = {.g = tx_gemm_of(&attrs, &a.shape, &a.shape),
                             .a = &a,
                             .b = &a,
                             .y = &a,
                             .bias = &none,
                             .z = &none,
                             .kept = &none};
    tx_cl_builder builder = tx_cl_asker(context);
    static const char *const wishes[][2] = {{"", "nvidia-mma-128x128"}, {"portable-tile-32", "portable-tile-32x32x16"}};
    context->tuner->unmeasured = true;
    for (int i = 0; i < 2; i++) {
        char key[96];
        tx_cl_gemm_choice choice;
        snprintf(context->gemm, sizeof context->gemm, "%s", wishes[i][0]);
        snprintf(key, sizeof key, "product 00 0 0 in quads %s", wishes[i][1]);
        assert_ok(tx_cl_line_set(&context->tuner->proofs, key, ""));
        assert_ok(tx_cl_gemm_choose(&builder, &p, &choice));
        assert_string_equal(choice.provider->name, wishes[i][1]);
        free(context->tuner->choices);
        context->tuner->choices = NULL;
    }
    snprintf(context->gemm, sizeof context->gemm, "cublas");
    tx_cl_gemm_choice choice;
    assert_refused(tx_cl_gemm_choose(&builder, &p, &choice), TX_INVALID, "TX_GEMM=cublas");
    close_context(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_suited_is_taken_unmeasured),
        cmocka_unit_test(a_wrong_candidate_is_switched_off),
        cmocka_unit_test(a_class_keeps_what_it_was_given),
        cmocka_unit_test(a_few_are_measured_and_the_table_is_gone_by),
        cmocka_unit_test(what_is_far_behind_is_not_measured),
        cmocka_unit_test(a_tuning_run_measures_all_anew),
        cmocka_unit_test(what_is_tried_is_forced),
        cmocka_unit_test(lines_are_set_in_their_place),
        cmocka_unit_test(a_wish_goes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
